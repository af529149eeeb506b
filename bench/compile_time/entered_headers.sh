#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles entered_headers.cpp with HIP's double and a virtual board under it, and runs it: minutes.
#   sh bench/compile_time/entered_headers.sh
set -eu
cd "$(dirname "$0")/../.."
compiler=${CXX:-g++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="-std=c++20 -g -Iinclude -I. -D__HIP_PLATFORM_AMD__"
"$compiler" $flags -fPIC -shared -Wl,-soname,libamdhip64.so.5 -Wl,-Bsymbolic-functions \
    -Wl,--version-script=tests/hip_double/symbol_versions.map tests/hip_double/hip_double.cpp \
    tests/hip_double/modules.cpp -o "$work/libamdhip64.so.5"
for file in gpu machine interpose; do
    "$compiler" $flags -c "tests/virtual_amdgpu/$file.cpp" -o "$work/$file.o"
done
"$compiler" $flags -O0 -finstrument-functions -finstrument-functions-exclude-file-list=/usr/,tests/ \
    -c bench/compile_time/entered_headers.cpp -o "$work/entered.o"
"$compiler" -no-pie "$work"/*.o "$work/libamdhip64.so.5" "-Wl,-rpath,$work" -pthread -ldl -o "$work/entered"
"$work/entered"
