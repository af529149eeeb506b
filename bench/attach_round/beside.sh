#!/bin/sh
# SPDX-License-Identifier: MIT
# An unmodified PyTorch training beside kdvfs and torch.profiler on a real NVIDIA GPU, in less than
# five minutes. It loads and reads the GPU and never changes its clocks, power limit or modes.
#   KDVFS_ATTACH=build/test/tools/attach/libkdvfs_attach.so sh bench/attach_round/beside.sh OUTPUT
# with the library of a build (it needs no other file), PyTorch 2.11 and CUPTI 13. OUTPUT/summary.txt
# has what is to be read: kernels that torch.profiler sees alone, beside kdvfs, and where it starts
# first; the launches that kdvfs counts and what it says of the gap; the kernels of torch.compile
# and of a CUDA graph; what attaching costs, in pairs of blocks of one process. On another machine:
#   run "KDVFS_ATTACH=build/test/tools/attach/libkdvfs_attach.so sh bench/attach_round/beside.sh $OUT"
#       with build/test/tools/attach/libkdvfs_attach.so carried along, limit 330 s
#   PYTHON  with PyTorch (default: python3);  SHARE  how long parts last, in percent (default: 100)
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?output folder}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
library=${KDVFS_ATTACH:?libkdvfs_attach.so}
library=$(cd "$(dirname "$library")" && pwd)/$(basename "$library")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
began=$(date +%s)

# part SECONDS NAME alone|attached ARGUMENT...: the training, for at most so long. Its reports go to
# OUTPUT/NAME.json: few files come back from other machines.
part() {
    limit=$1 name=$2 how=$3
    shift 3
    left=$((295 - $(date +%s) + began))
    [ "$limit" -lt "$left" ] || limit=$left
    if [ "$limit" -lt 20 ]; then
        echo "==== $name: left out, no time" && return
    fi
    mkdir -p "$work/$name"
    if [ "$how" = attached ]; then
        set -- env LD_PRELOAD="$library" CUDA_INJECTION64_PATH="$library" \
            NVTX_INJECTION64_PATH="$library" KDVFS_ATTACH_FOLDER="$work/$name" \
            timeout "$limit" "${PYTHON:-python3}" "$here/train.py" "$@"
    else
        set -- timeout "$limit" "${PYTHON:-python3}" "$here/train.py" "$@"
    fi
    start=$(date +%s)
    "$@" >"$work/$name.log" 2>&1
    status=$?
    echo "==== $name: exit status $status after $(($(date +%s) - start)) s"
    [ $status -eq 0 ] || tail -n 25 "$work/$name.log"
}
of() { echo $(($1 * ${SHARE:-100} / 100)); }
{
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv
    part 45 plain alone --steps "$(of 90)"
    part 45 profiled_alone alone --steps "$(of 90)" --profile within
    part 45 profiled attached --steps "$(of 90)" --profile within
    part 45 profiled_first attached --steps "$(of 90)" --profile first
    part 45 graph attached --steps "$(of 120)" --graph
    part 75 toggled attached --toggle "$(of 36)" --modes=-1,0,1,16
    part 90 compiled attached --steps "$(of 90)" --compile
    "${PYTHON:-python3}" "$here/beside.py" "$work"
} 2>&1 | tee "$out/summary.txt"
tar -C "$work" -czf "$out/parts.tar.gz" .
