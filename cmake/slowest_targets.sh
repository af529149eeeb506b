#!/bin/sh
# SPDX-License-Identifier: MIT
# sh cmake/slowest_targets.sh BUILD_FOLDER [COUNT]: what took longest to make when it was last made,
# in seconds of wall time, from Ninja's log (start ms, end ms, mtime, output, command's hash).
set -eu
log=$1/.ninja_log
[ -f "$log" ] || exit 0
echo "The slowest targets of $1, in seconds:"
# A command with several outputs has a line for each, and counts once.
awk -F '\t' '!/^#/ && NF >= 4 { made[$4] = $1 "\t" $2 "\t" $5 "\t" $4 }
    END { for (output in made) print made[output] }' "$log" |
    sort -t "$(printf '\t')" -k 1,3 -k 4 |
    awk -F '\t' '{ command = $1 " " $2 " " $3 }
        command != last { printf "%8.1f  %s\n", ($2 - $1) / 1000, $4 }
        { last = command }' |
    sort -rn | head -n "${2:-10}"
