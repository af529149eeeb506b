#!/bin/sh
# SPDX-License-Identifier: MIT
# The first hour with an AMD GPU, in ten minutes: each assumption that kdvfs makes of one is proven or
# refuted, and a table says which.
#   sh bench/amd_round/round.sh OUTPUT_FOLDER [--set-clocks] [--device N]
# Without --set-clocks the GPU is loaded and read, and nothing of it is set. With it clocks are set,
# which needs root or the right to write the driver's files, and put back, even if it is killed.
# The table, as CSV, and the log are left in OUTPUT_FOLDER. Ends with 0 where all that was tried holds.
#   KDVFS_PROGRAM   a program that was built before (default: OUTPUT_FOLDER/amd_round, built here)
#   HIPCC, CXX      the compilers (default: hipcc, else clang++ with HIP; g++)
#   KDVFS_GPU_ARCH  default: what the driver says
#   KDVFS_DEPS      a folder with gsl/ in it or in its include/, where GSL is not installed
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:?output folder}
shift
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
program=${KDVFS_PROGRAM:-$out/amd_round}

# gfx_of_driver: 90402 in KFD's words is gfx942.
gfx_of_driver() {
    sed -n 's/^gfx_target_version \([1-9][0-9]*\)$/\1/p' \
        /sys/class/kfd/kfd/topology/nodes/*/properties 2>/dev/null | head -n 1 |
        { read -r version && printf 'gfx%d%x%x\n' $((version / 10000)) \
            $((version / 100 % 100)) $((version % 100)); }
}

build() {
    arch=${KDVFS_GPU_ARCH:-$(gfx_of_driver)}
    [ -n "$arch" ] || { echo "no AMD GPU in /sys/class/kfd: give KDVFS_GPU_ARCH"; return 1; }
    rocm=${ROCM_PATH:-/opt/rocm}
    hipcc=${HIPCC:-$(command -v hipcc || echo "$rocm/bin/hipcc")}
    command -v "$hipcc" >/dev/null || hipcc=clang++
    set -- -std=c++20 -O2 -D__HIP_PLATFORM_AMD__ -I"$root/include" -I"$root"
    [ -d "$rocm/include" ] && set -- "$@" -isystem "$rocm/include" -L"$rocm/lib"
    [ -n "${KDVFS_DEPS:-}" ] && set -- "$@" -I"$KDVFS_DEPS" -I"$KDVFS_DEPS/include"
    echo "building amd_round for $arch"
    "$hipcc" -x hip --offload-arch="$arch" "$@" -c "$here/burn.cpp" -o "$out/burn.o" &&
        "${CXX:-g++}" "$@" "$here/amd_round.cpp" "$out/burn.o" -lamdhip64 -ldl -lpthread \
            -o "$program"
}

if [ ! -x "$program" ]; then
    build >"$out/build.log" 2>&1 || { cat "$out/build.log"; exit 2; }
fi
timeout 540 "$program" "$out" "$@" >"$out/amd_round.log" 2>&1
status=$?
cat "$out/amd_round.log"
[ $status -ne 124 ] || echo "amd_round did not end within nine minutes"
exit $status
