#!/bin/sh
# SPDX-License-Identifier: MIT
# same_losses.sh MPIRUN PROGRAM: the losses of one, two and four stages must be the same text.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=ignore_noninstrumented_modules=1  # of Open MPI
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for stages in 1 2 4; do
    "$1" --oversubscribe -n $stages "$2" --steps 3 --microbatches 2 --sequence 4 --width 8 >"$folder/output"
    cat "$folder/output"
    sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$folder/output" >"$folder/$stages"
    [ "$(wc -l <"$folder/$stages")" = 3 ] || { echo "there are not three losses"; exit 1; }
    cmp "$folder/1" "$folder/$stages"
done
[ "$(sort -u "$folder/1" | wc -l)" = 3 ] || { echo "the losses do not change"; exit 1; }
