#!/bin/sh
# SPDX-License-Identifier: MIT
# What following a plan costs a training step on a real NVIDIA GPU, in under four minutes, most of
# them the compiler's. It loads the GPU and never changes its clocks, power limit or modes.
#   sh bench/follow/followed_training.sh OUTPUT_FOLDER
#   NVCC            the compiler (default: nvcc, or /usr/local/cuda/bin/nvcc)
#   KDVFS_GPU_ARCH  default: native
#   KDVFS_DEPS      a folder with gsl/ in it or in its include/, where GSL is not installed
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:?output folder}
mkdir -p "$out"
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
set --
[ -z "${KDVFS_DEPS:-}" ] || set -- -I"$KDVFS_DEPS" -I"$KDVFS_DEPS/include"
"$nvcc" -x cu -std=c++20 -O3 -arch="${KDVFS_GPU_ARCH:-native}" -I"$root/include" \
    -I"$root/examples" -I"$root" "$root/bench/follow/followed_training.cpp" \
    -o "$out/followed_training" "$@"
timeout 100 "$out/followed_training" "$out" 2>&1 | tee "$out/followed_training.log"
