#!/bin/sh
# SPDX-License-Identifier: MIT
# What a scope costs the host, beside an earlier commit: scope_cost of both trees, header-only, and of
# this one in the compiled form where libkdvfs is given, run by turns. Prints the median of the ratios
# of each pair, with the order statistics that hold it with 95 %. Minutes, most of them compiling.
# LIBRARY is to be compiled with -O2, too: the test preset does not.
#   sh bench/follow/scope_pairs.sh [PAIRS (40)] [COMMIT (832199f)] [LIBRARY]
set -eu
cd "$(dirname "$0")/../.."
pairs=${1:-40}
commit=${2:-832199f}
library=${3:-}
compiler=${CXX:-g++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/before"
git archive "$commit" include bench/follow | tar -x -C "$work/before"
# build NAME TREE FLAGS...
build() {
    name=$1
    tree=$2
    shift 2
    "$compiler" -std=c++20 -O2 "-I$tree/include" "$tree/bench/follow/scope_cost.cpp" -o "$work/$name" \
        "$@" -pthread -ldl
}
build earlier "$work/before"
build headers .
forms=headers
if [ -n "$library" ]; then
    build compiled . -DKDVFS_COMPILED=1 "$library" "-Wl,-rpath,$(dirname "$(realpath "$library")")"
    forms="headers compiled"
fi

# Nanoseconds a scope: while a plan is followed, and with KeepClock.
cost() {
    "$work/$1" | sed -n 's/.*: \([0-9.]*\) ns while .*, \([0-9.]*\) ns with.*/\1 \2/p'
}
i=0
while [ "$i" -lt "$pairs" ]; do
    for form in $forms; do
        if [ $((i % 2)) -eq 0 ]; then
            before=$(cost earlier)
            after=$(cost "$form")
        else
            after=$(cost "$form")
            before=$(cost earlier)
        fi
        echo "$form $before $after" >>"$work/pairs"
    done
    i=$((i + 1))
done
for form in $forms; do
    for what in 1 2; do
        awk -v form="$form" -v what="$what" '$1 == form {
            print $(3 + what) / $(1 + what), $(1 + what), $(3 + what) }' "$work/pairs" | sort -n |
            awk -v form="$form" -v what="$what" -v commit="$commit" '
                { ratio[NR] = $1; before += $2; after += $3 }
                END {
                    edge = int((NR + 1) / 2 - 0.98 * sqrt(NR)) # of the median, by the binomial
                    if (edge < 1) edge = 1
                    printf "%s, %s: %.1f ns, %.1f at %s; ratio %.3f (%.3f to %.3f), %d pairs\n",
                        form, what == 1 ? "a plan is followed" : "a known scope that keeps its clock",
                        after / NR, before / NR, commit, ratio[int((NR + 1) / 2)], ratio[edge],
                        ratio[NR + 1 - edge], NR
                }'
    done
done
