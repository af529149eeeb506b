#!/bin/sh
# SPDX-License-Identifier: MIT
# What a user learns of gpt_train on a real NVIDIA GPU: sampled, metered always (twice) and with
# kernels repeated in place after 10 s of that (twice), all recorded; then other mixes of the same
# kernels, predicted from their joules. In under eight minutes. It loads and reads the GPU and never changes its clocks, power
# limit or modes.
#   sh bench/nvidia_round/joules.sh OUTPUT_FOLDER [PROGRAM]
# OUTPUT_FOLDER gets a folder a run (report.json, report.txt) and joules.txt, which is also printed.
# PROGRAM (default: OUTPUT_FOLDER/gpt_train) is built unless it is there.
#   NVCC            the compiler (default: nvcc, or /usr/local/cuda/bin/nvcc)
#   KDVFS_GPU_ARCH  default: native
#   KDVFS_DEPS      a folder with gsl/ in it or in its include/, where GSL is not installed
#   KDVFS_STEPS     of a run (default 120)
#   KDVFS_SHAPE     gpt_train's options for its model; KDVFS_RUN runs another command in place of PROGRAM
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:?output folder}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
program=${2:-$out/gpt_train}
steps=${KDVFS_STEPS:-120}
shape=${KDVFS_SHAPE:---batch 8 --sequence 512 --width 1024 --heads 8 --layers 12}

. "$root/bench/gpu_compile.sh"
if [ -z "${KDVFS_RUN:-}" ] && [ ! -x "$program" ]; then
    gpu_compile -O3 "$root/examples/gpt_train/gpt_train.cpp" "$root/examples/gpt_train/open_gpu.cpp" \
        -o "$program" >"$out/build.log" 2>&1 || { cat "$out/build.log"; exit 1; }
fi

failed=0
run() {
    name=$1
    shift
    mkdir -p "$out/$name"
    start=$(date +%s)
    # shellcheck disable=SC2086  # options are words
    timeout 150 ${KDVFS_RUN:-"$program"} $shape --out "$out/$name" "$@" >"$out/$name/report.txt" 2>&1
    status=$?
    echo "==== $name: exit status $status after $(($(date +%s) - start)) s"
    [ $status -eq 0 ] || { tail -n 5 "$out/$name/report.txt"; failed=1; }
}
run sampled --steps "$steps" --record
run always_1 --steps "$steps" --metered 1 --record
run always_2 --steps "$steps" --metered 1 --record
# They repeat in the step that begins 10 s after the first.
run repeated_1 --steps $((steps > 60 ? steps : 60)) --repeat --record
run repeated_2 --steps $((steps > 60 ? steps : 60)) --repeat --record
run forward_only --steps $((steps / 2)) --metered 1 --forward-only
run two_microbatches --steps $((steps / 4)) --metered 1 --microbatches 2
for name in sampled always_1 always_2 repeated_1 repeated_2; do
    (cd "$out/$name" && [ -f runs.csv ] && gzip -9 -k -f runs.csv samples.csv power.csv marks.csv)
done
python3 "$here/joules.py" "$out" | tee "$out/joules.txt"
exit $failed
