#!/bin/sh
# SPDX-License-Identifier: MIT
# Measures what attaching to unmodified PyTorch programs costs and tells, on a real NVIDIA GPU, in
# eight minutes, and four more for the parts repeat_1, repeat_2 and fragile. It loads and reads the
# GPU and never changes its clocks, power limit or modes.
#   sh bench/attach_round/round.sh OUTPUT_FOLDER [PART...]
# Parts, all but the last seven by default: kernels toggled phases_1 phases_2 layers graph losses
# losses_graph generation compiled losses_compiled repeat_1 repeat_2 layers_1 layers_2 fragile. Where the first part crashes,
# the crash is shown and the rest is left out. At the end, summary.py says it all; `summary` alone says
# it again.
#   KDVFS_ATTACH  libkdvfs_attach.so, built before; else it is built here, with
#   CXX           a C++20 compiler (default: g++), and
#   KDVFS_DEPS    a folder with gsl/, nlohmann/ and Eigen/ in it, where they are not installed
#   PYTHON        with PyTorch (default: python3)
#   KDVFS_COMMAND the command `kdvfs`, for the last five parts (default: kdvfs)
#   LARGEST       a regular expression: the kernels that are repeated there
#   SHARE         how long parts last, in percent (default: 100)
#   MODES         what the part `toggled` compares: bare (-1), callbacks alone (0), metered one
#                 iteration in so many (default: -1,0,16,1)
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:?output folder}
shift
parts=${*:-kernels toggled phases_1 phases_2 layers graph losses losses_graph generation}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
library=${KDVFS_ATTACH:-}
if [ -z "$library" ]; then
    library=$work/libkdvfs_attach.so
    for source in device kokkos nvidia nvtx process shared_cupti; do
        ${CXX:-g++} -std=c++20 -O2 -g -fPIC -fvisibility=hidden -I"$root" -I"$root/include" \
            ${KDVFS_DEPS:+-I"$KDVFS_DEPS"} -isystem /usr/include/eigen3 \
            -c "$root/tools/attach/$source.cpp" -o "$work/$source.o" &
    done
    wait
    ${CXX:-g++} -shared -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,-z,defs \
        -Wl,--version-script="$root/tools/attach/exported.map" -o "$library" "$work"/*.o -ldl -pthread || exit 2
fi
library=$(cd "$(dirname "$library")" && pwd)/$(basename "$library")

# part NAME VARIABLE=VALUE... COMMAND...: runs it attached; its report goes to OUTPUT/NAME, what it
# prints to OUTPUT/NAME.log.
part() {
    name=$1
    shift
    case " $parts " in
    *" $name "*) ;;
    *) return 0 ;;
    esac
    mkdir -p "$out/$name"
    rm -f "$out/$name"/*.json  # of a round before
    began=$(date +%s)
    case $name in
    repeat_* | layers_* | fragile) env KDVFS_ATTACH="$library" "$@" >"$out/$name.log" 2>&1 ;;
    *) env CUDA_INJECTION64_PATH="$library" NVTX_INJECTION64_PATH="$library" \
        KDVFS_ATTACH_FOLDER="$out/$name" "$@" >"$out/$name.log" 2>&1 ;;
    esac
    status=$?
    echo "==== $name: exit status $status after $(($(date +%s) - began)) s"
    [ $status -eq 0 ] || tail -n 40 "$out/$name.log"
    return $status
}
# Where in the library a crash was, by the addresses that backtrace.cpp printed.
show_crash() {
    sed -n "s|.*$(basename "$library")(+\(0x[0-9a-f]*\)).*|\1|p" "$1" |
        while read -r address; do
            addr2line -Cfp -e "$library" "$address"
        done
    "$python" "$here/show.py" "$out"/kernels/*.json 2>&1 | head -n 20
}
train="$python $here/train.py"

nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv
${CXX:-g++} -O1 -g -fPIC -shared "$here/backtrace.cpp" -o "$work/backtrace.so"
# of COUNT: as much of it as SHARE says.
of() { echo $(($1 * ${SHARE:-100} / 100)); }
if ! part kernels LD_PRELOAD="$work/backtrace.so" $train --steps "$(of 505)"; then
    show_crash "$out/kernels.log"
    exit 1
fi
part toggled KDVFS_ATTACH_ITERATION=step $train --toggle "$(of 110)" --ranges step \
    --modes="${MODES:--1,0,16,1}"
for run in 1 2; do
    part phases_$run KDVFS_ATTACH_LEVEL=range KDVFS_ATTACH_ITERATION=step \
        KDVFS_ATTACH_MATCH='^(forward|backward|optimizer)$' $train --steps "$(of 330)" \
        --ranges step,phases
done
part layers KDVFS_ATTACH_LEVEL=range KDVFS_ATTACH_MATCH='^(attention|mlp)$' \
    $train --steps "$(of 330)" --ranges layers
part graph $train --toggle "$(of 80)" --modes=-1,0,1 --graph
part losses $train --steps 8 --deterministic --bitwise
part losses_graph $train --steps 8 --deterministic --bitwise --graph
part generation KDVFS_ATTACH_LEVEL=range KDVFS_ATTACH_ITERATION=request \
    "$python" "$here/generate.py" --requests "$(of 6)"
# By torch.compile(mode="reduce-overhead"): Triton's kernels, forward and backward as CUDA graphs.
part compiled $train --toggle "$(of 80)" --modes=-1,0,1 --compile
part losses_compiled $train --steps 8 --deterministic --bitwise --compile
# What is repeated: the largest kernels of this training; the others are one row.
largest=${LARGEST:-'nvjet|sdpa|multi_tensor|SoftMaxBackward|layer_norm_grad_input|kernel<direct_copy'}
for run in 1 2; do
    part repeat_$run "${KDVFS_COMMAND:-kdvfs}" run --repeat --match "$largest" \
        --report "$out/repeat_$run/report.json" -- $train --steps "$(of 300)"
done
inside="$largest|vectorized_layer_norm|Gelu|CUDAFunctor_add|bfloat16_copy"
for run in 1 2; do  # ranges of about a millisecond, by the figures of the kernels inside
    part layers_$run "${KDVFS_COMMAND:-kdvfs}" run --repeat --level range --match '^(attention|mlp)$' \
        --runs-once "^(?!.*($inside))" --report "$out/layers_$run/report.json" -- \
        $train --steps "$(of 300)" --ranges layers
done
part fragile KDVFS_ATTACH_REPEAT_AFTER=1 "${KDVFS_COMMAND:-kdvfs}" run --repeat \
    --report "$out/fragile/report.json" -- "$python" "$here/fragile.py"
"$python" "$here/summary.py" "$out" | tee "$out/summary.txt"
