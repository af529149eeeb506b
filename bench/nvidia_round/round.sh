#!/bin/sh
# SPDX-License-Identifier: MIT
# A whole measuring round on a real NVIDIA GPU, in under ten minutes. It loads and reads the GPU
# and never changes its clocks, power limit or modes.
#   sh bench/nvidia_round/round.sh OUTPUT_FOLDER [PROGRAM_FOLDER]
# Results (CSV) and the programs' logs go to OUTPUT_FOLDER. The programs are built into
# PROGRAM_FOLDER (default: OUTPUT_FOLDER/programs) unless they are there already.
#   NVCC            the compiler (default: nvcc, or /usr/local/cuda/bin/nvcc)
#   KDVFS_GPU_ARCH  default: native
#   KDVFS_DEPS      a folder with gsl/ in it or in its include/, where GSL is not installed
#   KDVFS_PARTS     which parts to run (default: order markers training meter mix clock fingrav)
# `order` needs GoogleTest, as a library where the compiler finds it or as the program `conformance`
# built before (cmake --build build --target nvidia_round).
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:?output folder}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
programs=${2:-$out/programs}
mkdir -p "$programs" || exit 2

. "$root/bench/gpu_compile.sh"
# build NAME SOURCE LIBRARY...
build() {
    name=$1
    source=$2
    shift 2
    [ -x "$programs/$name" ] && return
    echo "building $name"
    gpu_compile -O3 "$source" -o "$programs/$name" "$@" \
        >"$out/build_$name.log" 2>&1 || { cat "$out/build_$name.log"; return 1; }
}
for name in markers training power; do
    build $name "$here/$name.cpp" &
done
build conformance "$root/tests/conformance/cuda_gpu_test.cpp" -lgtest_main -lgtest &
wait

# cuBLAS may lie in the toolkit or in a Python package.
for folder in /usr/local/cuda/lib64 "$(dirname "$nvcc")/../lib64" \
    $(python3 -c 'import importlib.util as u, os
for name in ("nvidia.cu13", "nvidia.cublas"):
    try:
        spec = u.find_spec(name)
    except ImportError:
        spec = None
    for path in (spec.submodule_search_locations if spec else []):
        print(os.path.join(path, "lib"))' 2>/dev/null); do
    [ -d "$folder" ] && LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}$folder"
done
export LD_LIBRARY_PATH

failed=0
part() {
    log=$1
    shift
    case " ${KDVFS_PARTS:-order markers training meter mix clock fingrav} " in
    *" $log "*) ;;
    *) return ;;
    esac
    echo "==== $log"
    start=$(date +%s)
    "$@" >"$out/$log.log" 2>&1
    status=$?
    cat "$out/$log.log"
    echo "==== $log: exit status $status after $(($(date +%s) - start)) s"
    [ $status -eq 0 ] || failed=1
}
repeat_conformance() {
    timeout 60 "$programs/conformance" --gtest_repeat=1000 --gtest_brief=1 \
        >"$out/conformance.log" 2>&1
    passed=$(grep -c 'PASSED' "$out/conformance.log")
    failed_tests=$(grep -c 'FAILED  \]' "$out/conformance.log")
    echo "stream-order conformance: $(sed -n 's/^\[=*\] \(.* ran\).*/\1/p' "$out/conformance.log" |
        head -n 1), $passed times without a failure, $failed_tests failures"
    printf 'repetitions_passed,failures\n%s,%s\n' "$passed" "$failed_tests" >"$out/conformance.csv"
    [ "$passed" -eq 1000 ] && [ "$failed_tests" -eq 0 ]
}
part order repeat_conformance
part markers timeout 60 "$programs/markers" "$out"
part training timeout 90 "$programs/training" "$out"
part meter timeout 40 "$programs/power" "$out" meter
part mix timeout 150 "$programs/power" "$out" mix
part clock timeout 100 "$programs/power" "$out" clock
part fingrav timeout 280 "$programs/power" "$out" fingrav
exit $failed
