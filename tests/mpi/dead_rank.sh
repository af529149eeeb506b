#!/bin/sh
# SPDX-License-Identifier: MIT
# dead_rank.sh COMMAND...: a run of four ranks of which one is killed. mpirun must name it, and the
# watchdogs must put back the clocks of all boards.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$@" dead "$folder" >"$folder/output" 2>&1 && { echo "the run did not fail"; exit 1; }
cat "$folder/output"
grep -q 'rank 3 .*exited on signal 9' "$folder/output" || { echo "rank 3 was not named"; exit 1; }
wrong=0
for rank in 0 1 2 3; do
    board=$(cat "$folder/rank$rank") || exit 1
    tries=0
    while [ "$(cat "$board/power_dpm_force_performance_level")" != auto ] && [ $tries -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    level=$(cat "$board/power_dpm_force_performance_level")
    echo "board of rank $rank: $level"
    [ "$level" = auto ] || wrong=1
    rm -rf "$board"
done
exit $wrong
