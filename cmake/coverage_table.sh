#!/bin/sh
# SPDX-License-Identifier: MIT
# sh cmake/coverage_table.sh BUILD_FOLDER: the lines of include/ that the tests have executed, by
# room, and the files under 80 %. Needs gcovr, and a build with --coverage whose tests have run.
set -eu
cd "$(dirname "$0")/.."
gcovr --root . --filter include/kdvfs/ --object-directory "$1" --csv --exclude-throw-branches "$1" 2>/dev/null |
    awk -F , 'NR > 1 { file = $1; lines = $2; hit = $3
            room = file; sub(/^include\/kdvfs\//, "", room)
            if (!sub(/\/[^\/]*$/, "", room)) room = "(top)"
            all[room] += lines; executed[room] += hit
            if (lines > 0 && hit < 0.8 * lines) low[file] = 100 * hit / lines }
        END { print "| room | lines | executed % |"; print "|---|---|---|"
            for (room in all) printf "| %s | %d | %.1f |\n", room, all[room], 100 * executed[room] / all[room] | "sort"
            close("sort")
            print "| file under 80 % | | |"
            for (file in low) printf "| %s | | %.1f |\n", file, low[file] | "sort" }'
