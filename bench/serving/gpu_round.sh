#!/bin/sh
# SPDX-License-Identifier: MIT
# A round of examples/gpt_serve on a real NVIDIA GPU, in about five minutes: the bytes against the
# host reference, what step scopes cost, and two steady windows of 60 s. It loads and reads the GPU
# and never changes its clocks, power limit or modes.
#   sh bench/serving/gpu_round.sh OUTPUT_FOLDER [PROGRAM]
# The log is OUTPUT_FOLDER/gpt_serve.txt. The program is built unless PROGRAM is there already.
#   NVCC            the compiler (default: nvcc, or /usr/local/cuda/bin/nvcc)
#   KDVFS_GPU_ARCH  default: native
#   KDVFS_DEPS      a folder with gsl/ in it or in its include/, where GSL is not installed
#   KDVFS_SECONDS   of a steady window (default: 60)
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:?output folder}
mkdir -p "$out" || exit 2
program=${2:-$out/gpt_serve}
if [ ! -x "$program" ]; then
    . "$root/bench/gpu_compile.sh"
    for source in gpt_serve board; do
        gpu_compile -O2 -c "$root/examples/gpt_serve/$source.cpp" -o "$out/$source.o" >"$out/$source.log" 2>&1 &
    done
    wait
    "$nvcc" "$out/gpt_serve.o" "$out/board.o" -o "$program" -ldl -lpthread ||
        { cat "$out/gpt_serve.log" "$out/board.log"; exit 2; }
fi
failed=0
for options in --check --overhead "--windows 2 --seconds ${KDVFS_SECONDS:-60}"; do
    echo "== gpt_serve $options"
    # shellcheck disable=SC2086
    "$program" $options || { echo "exit status $?"; failed=1; }
done >"$out/gpt_serve.txt" 2>&1
cat "$out/gpt_serve.txt"
exit $failed
