#!/bin/sh
# SPDX-License-Identifier: MIT
# What following a plan costs a training step on a real NVIDIA GPU, in under six minutes, half of
# them the compiler's. It loads the GPU and never changes its clocks, power limit or modes.
#   sh bench/follow/followed_training.sh OUTPUT_FOLDER
#   NVCC            the compiler (default: nvcc, or /usr/local/cuda/bin/nvcc)
#   KDVFS_GPU_ARCH  default: native
#   KDVFS_DEPS      a folder with gsl/ in it or in its include/, where GSL is not installed
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:?output folder}
mkdir -p "$out"
. "$root/bench/gpu_compile.sh"
gpu_compile -O3 "$root/bench/follow/followed_training.cpp" -o "$out/followed_training"
timeout 200 "$out/followed_training" "$out" 2>&1 | tee "$out/followed_training.log"
