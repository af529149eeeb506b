#!/bin/sh
# SPDX-License-Identifier: MIT
# Headers and lines of include/kdvfs/, and of what one header pulls in of it: the figures of
# CHANGELOG.md. Of a revision, or of the files as they are.
#   sh bench/compile_time/house.sh [REVISION]
set -eu
cd "$(dirname "$0")/../.."
if [ $# -gt 0 ]; then
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    git archive "$1" include | tar -x -C "$tree"
    cd "$tree"
fi
cd include

# figures WHAT, the headers on standard input: code is lines without comments and blanks.
figures() {
    xargs awk -v what="$1" '
        FNR == 1 { headers++ }
        { lines++; gsub(/"([^"\\]|\\.)*"/, "\"\""); sub(/\/\/.*/, ""); if ($0 ~ /[^ \t]/) code++ }
        END { printf "%s: %d headers, %d lines, %d of code\n", what, headers, lines, code }'
}

# pulled HEADER: it and all headers of kdvfs that it includes, directly or not.
pulled() {
    found=$1
    todo=$1
    while [ -n "$todo" ]; do
        next=
        for header in $todo; do
            for included in $(sed -n 's/^# *include <\(kdvfs\/[^>]*\)>.*/\1/p' "$header"); do
                case " $found " in *" $included "*) ;; *)
                    found="$found $included"
                    next="$next $included"
                    ;;
                esac
            done
        done
        todo=$next
    done
    printf '%s\n' $found
}

find kdvfs -name '*.hpp' | figures include/kdvfs
for header in kdvfs/rocm.hpp kdvfs/kdvfs.hpp; do
    pulled $header | figures $header
done
