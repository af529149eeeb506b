#!/bin/sh
# SPDX-License-Identifier: MIT
# Whether ranks that are bound to one core each, as mpirun binds them by default, are slowed by
# kdvfs's threads: gpt_pipeline with two ranks on one GPU, bound and not, with scopes and without.
# It measures only. A minute and a half.
#   sh bench/gpt_pipeline/binding.sh PROGRAM     (gpt_pipeline, as round.sh builds it)
#   KDVFS_SIZES, KDVFS_TURNS (default 1)
set -eu
program=${1:?gpt_pipeline}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
sizes=${KDVFS_SIZES:---layers 8 --width 1024 --heads 16 --sequence 512 --batch 2 --microbatches 4 --steps 14}
echo turn,bound_to,mode,median_step_ms,least_step_ms
turn=1
while [ $turn -le "${KDVFS_TURNS:-1}" ]; do
    for bound in core none; do
        for mode in bare scopes; do
            option=
            [ $mode = scopes ] || option=--bare
            # shellcheck disable=SC2016,SC2086  # the rank's own shell expands; a list of words
            KDVFS_MODE=measure CUDA_VISIBLE_DEVICES=0 \
                mpirun --bind-to $bound -n 2 "$program" $sizes $option 2>/dev/null |
                awk '$1 == "step" && $2 > 3 { print $5 }' | sort -n |
                awk -v run="$turn,$bound,$mode" '{ v[NR] = $1 }
                    END { print run "," v[int((NR + 1) / 2)] "," v[1] }'
        done
    done
    turn=$((turn + 1))
done
