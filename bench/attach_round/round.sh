#!/bin/sh
# SPDX-License-Identifier: MIT
# Measures what attaching to unmodified PyTorch programs costs and tells, on a real NVIDIA GPU. It
# loads and reads the GPU and never changes its clocks, power limit or modes.
#   sh bench/attach_round/round.sh OUTPUT_FOLDER [smoke | PART...]
# `smoke` (under two minutes) shows whether it works at all, and what is wrong where it does not.
#   KDVFS_ATTACH  libkdvfs_attach.so, built before; else it is built here, with
#   CXX           a C++20 compiler (default: g++), and
#   KDVFS_DEPS    a folder with gsl/, nlohmann/ and Eigen/ in it, where they are not installed
#   PYTHON        with PyTorch (default: python3)
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:?output folder}
shift
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1
library=${KDVFS_ATTACH:-}
if [ -z "$library" ]; then
    library=$out/libkdvfs_attach.so
    objects=$(mktemp -d)
    for source in process nvidia nvtx; do
        ${CXX:-g++} -std=c++20 -O2 -fPIC -fvisibility=hidden -I"$root" -I"$root/include" \
            ${KDVFS_DEPS:+-I"$KDVFS_DEPS"} -isystem /usr/include/eigen3 \
            -c "$root/examples/attach/$source.cpp" -o "$objects/$source.o" &
    done
    wait
    ${CXX:-g++} -shared -o "$library" "$objects"/*.o -ldl -pthread || exit 2
fi
library=$(cd "$(dirname "$library")" && pwd)/$(basename "$library")

# attached FOLDER COMMAND...: runs it attached; its report goes to FOLDER.
attached() {
    folder=$1
    shift
    mkdir -p "$folder"
    env CUDA_INJECTION64_PATH="$library" NVTX_INJECTION64_PATH="$library" \
        KDVFS_ATTACH_FOLDER="$folder" "$@"
}
part() {
    echo "==== $1"
    name=$1
    shift
    began=$(date +%s)
    "$@" 2>&1
    echo "==== $name: exit status $? after $(($(date +%s) - began)) s"
}

smoke() {
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv
    "$python" -c 'import torch; print(torch.__version__, torch.version.cuda)'
    part plain timeout 60 "$python" "$here/train.py" --steps 30
    part kernels attached "$out/kernels" timeout 60 "$python" "$here/train.py" --steps 60
    "$python" "$here/show.py" "$out"/kernels/*.json
    part ranges attached "$out/ranges" KDVFS_ATTACH_LEVEL=range KDVFS_ATTACH_ITERATION=step \
        timeout 60 "$python" "$here/train.py" --steps 100 --ranges step,phases
    "$python" "$here/show.py" "$out"/ranges/*.json
    part graph attached "$out/graph" timeout 60 "$python" "$here/train.py" --steps 60 --graph
    "$python" "$here/show.py" "$out"/graph/*.json
}

case "${1:-smoke}" in
smoke) smoke ;;
esac
