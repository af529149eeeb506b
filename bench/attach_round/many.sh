#!/bin/sh
# SPDX-License-Identifier: MIT
# many.sh RUNS AT_A_TIME COMMAND...: how often an unmodified program ends by itself under `kdvfs run`.
#   sh bench/attach_round/many.sh 40 6 python3 bench/attach_round/convolutions.py
# KDVFS names the command, KDVFS_ATTACH the library, where they are not installed. Prints each run that
# fails, with the end of its output; exit status 1 where one did.
set -eu
runs=$1
at_a_time=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export folder
# shellcheck disable=SC2016  # the inner shell expands them
seq "$runs" | xargs -P "$at_a_time" -I RUN sh -c '
    "${KDVFS:-kdvfs}" run --report "$folder/RUN.txt" -- "$@" >"$folder/RUN.out" 2>&1 || echo $? >"$folder/RUN.failed"
' sh "$@"
failed=0
for status in "$folder"/*.failed; do
    [ -e "$status" ] || continue
    failed=$((failed + 1))
    echo "exit status $(cat "$status"):"
    tail -n 12 "${status%.failed}.out"
done
echo "$failed of $runs runs failed"
[ "$failed" -eq 0 ]
