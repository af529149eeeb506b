#!/bin/sh
# SPDX-License-Identifier: MIT
# gpt_pipeline on real NVIDIA GPUs, one stage on each: what its scopes cost and what its operations
# draw. It measures only, and never changes clocks, power limits or modes. Some eight minutes.
#   sh bench/gpt_pipeline/round.sh OUTPUT_FOLDER [GPUS]
# GPUS: default 2. Results in OUTPUT_FOLDER: times.csv (turn, mode, median milliseconds of a step),
# summary.txt, and each run's log with the report of every stage.
#   NVCC            the compiler (default: nvcc, or /usr/local/cuda/bin/nvcc)
#   KDVFS_GPU_ARCH  default: native
#   KDVFS_DEPS      a folder with gsl/, Eigen/ and nlohmann/ in it, where they are not installed
#   KDVFS_PROGRAM   a gpt_pipeline that is built already, such as the one for the host
#   KDVFS_SIZES     of the model (default: --layers 16 --width 1024 --heads 16 --sequence 512
#                   --batch 4 --microbatches 8 --steps 14)
#   KDVFS_TURNS     default 5
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:?output folder}
gpus=${2:-2}
mkdir -p "$out"
out=$(cd "$out" && pwd)
command -v mpirun >/dev/null || { echo "there is no mpirun here" >&2; exit 2; }

program=${KDVFS_PROGRAM:-$out/gpt_pipeline}
if [ ! -x "$program" ]; then
    nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
    deps=${KDVFS_DEPS:+-I$KDVFS_DEPS}
    # shellcheck disable=SC2046,SC2086  # lists of words
    "$nvcc" -std=c++20 -x cu -O2 -arch="${KDVFS_GPU_ARCH:-native}" -DOMPI_SKIP_MPICXX $deps \
        -I"$root/include" -I/usr/include/eigen3 $(mpicxx --showme:incdirs | sed 's/[^ ]*/-I&/g') \
        "$root/examples/gpt_pipeline/pipeline_stage.cpp" \
        "$root/examples/gpt_pipeline/gpt_pipeline.cpp" "$root/examples/gpt_train/open_gpu.cpp" \
        -o "$program" $(mpicxx --showme:libdirs | sed 's/[^ ]*/-L&/g') -lmpi -ldl \
        >"$out/build.log" 2>&1 || { cat "$out/build.log"; exit 1; }
fi

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
sizes=${KDVFS_SIZES:---layers 16 --width 1024 --heads 16 --sequence 512 --batch 4 --microbatches 8 --steps 14}
# run LOG OPTION...: a stage on each GPU.
run() {
    log=$1
    shift
    # shellcheck disable=SC2016,SC2086  # the rank's own shell expands; a list of words
    KDVFS_MODE=measure mpirun --oversubscribe -n "$gpus" sh -c \
        'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec "$0" "$@"' \
        "$program" $sizes "$@" >"$log" 2>&1 || { cat "$log"; exit 1; }
}
# The first steps warm up.
median() {
    awk '$1 == "step" && $2 > 3 { print $5 }' "$1" | sort -n |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

echo "turn,mode,step_ms" >"$out/times.csv"
turn=1
while [ $turn -le "${KDVFS_TURNS:-5}" ]; do
    modes="bare scopes"
    [ $((turn % 2)) = 1 ] || modes="scopes bare"
    for mode in $modes; do
        log=$out/$mode$turn.log
        if [ $mode = bare ]; then run "$log" --bare; else run "$log"; fi
        echo "$turn,$mode,$(median "$log")" >>"$out/times.csv"
    done
    turn=$((turn + 1))
done
# Losses must not depend on the scopes.
sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$out/bare1.log" >"$out/losses_bare"
sed -n 's/.*loss \([0-9.]*\).*/\1/p' "$out/scopes1.log" >"$out/losses_scopes"
{
    cmp -s "$out/losses_bare" "$out/losses_scopes" && echo "losses: the same with scopes" ||
        echo "losses: NOT the same with scopes"
    awk -F, 'NR > 1 { n[$2]++; sum[$2] += $3; t[$1 "," $2] = $3 }
        END { for (k = 1; k <= n["bare"]; k++) {
                  d = 100 * (t[k ",scopes"] / t[k ",bare"] - 1); s += d; q += d * d }
              m = s / n["bare"]; v = n["bare"] > 1 ? (q - s * m) / (n["bare"] - 1) : 0
              printf "step: bare %.3f ms, scopes %.3f ms; overhead %+.3f %% +- %.3f (standard error)\n",
                  sum["bare"] / n["bare"], sum["scopes"] / n["scopes"], m, sqrt(v / n["bare"]) }' \
        "$out/times.csv"
    echo "joules per stage and operation, waiting (idle) and the counter: the reports of the first turn"
    sed -n '/^stage/,$p' "$out/scopes1.log"
} | tee "$out/summary.txt"
