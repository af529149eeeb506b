#!/bin/sh
# SPDX-License-Identifier: MIT
# Prints what kdvfs costs those who include it: CPU seconds and memory of g++ for includes and whole
# programs in both forms, text sizes, and the size of the public face. About a minute and a half.
#   sh bench/compile_time/table.sh [--check]
# --check measures the compiled form and the face alone, in 15 s, and fails where a figure is above
# its limit; time limits are three times what a quiet machine needs.
set -eu
cd "$(dirname "$0")/../.."
compiler=${CXX:-g++}
check=${1:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

awk '/^```cpp$/ && !done { inside = 1; next } /^```$/ { if (inside) done = 1; inside = 0 } inside' \
    docs/first_program.md >"$work/readme.cpp"
cp examples/self_tuning/self_tuning.cpp "$work/self_tuning.cpp"
for header in kdvfs rocm nvidia tune/session train/session serve/step_scope; do
    printf '#include <kdvfs/%s.hpp>\n' "$header" >"$work/$(echo "$header" | tr / _).cpp"
done

# measure NAME FORM: sets cpu (s), memory (MB) and text (kB) of compiling $work/NAME.cpp.
measure() {
    /usr/bin/time -f '%U %S %M' -o "$work/time" "$compiler" -std=gnu++20 -O1 "-DKDVFS_COMPILED=$2" \
        -Iinclude -isystem /usr/include/eigen3 -c "$work/$1.cpp" -o "$work/$1.o"
    cpu=$(awk '{ printf "%.1f", $1 + $2 }' "$work/time")
    memory=$(awk '{ printf "%d", $3 / 1024 }' "$work/time")
    text=$(size "$work/$1.o" | awk 'NR == 2 { printf "%d", $1 / 1000 }')
}

# limit WHAT VALUE MOST
limit() {
    [ -n "$check" ] || return 0
    if ! awk -v value="$2" -v most="$3" 'BEGIN { exit !(value <= most) }'; then
        echo "too much: $1 is $2, at most $3" >&2
        failed=1
    fi
}

# row NAME FORM WORDS SECONDS MEGABYTES KILOBYTES: one line of the table; limits of a quiet machine.
row() {
    measure "$1" "$2"
    echo "| $3 | $cpu | $memory | $text |"
    limit "$3, CPU s" "$cpu" "$(awk -v s="$4" 'BEGIN { print 3 * s }')"
    limit "$3, MB" "$memory" "$5"
    limit "$3, kB of text" "$text" "$6"
}

echo "| $($compiler --version | head -n 1), -O1 | CPU s | compiler MB | text kB |"
echo "|---|---|---|---|"
row kdvfs 1 "compiled, #include <kdvfs/kdvfs.hpp>" 1.2 350 1
row rocm 1 "compiled, #include <kdvfs/rocm.hpp>" 1.6 350 1
row nvidia 1 "compiled, #include <kdvfs/nvidia.hpp>" 1.6 350 1
row tune_session 1 "compiled, #include <kdvfs/tune/session.hpp>" 2 350 1
row train_session 1 "compiled, #include <kdvfs/train/session.hpp>" 4 400 1
row serve_step_scope 1 "compiled, #include <kdvfs/serve/step_scope.hpp>" 3 400 1
row readme 1 "compiled, the README's program" 3.5 350 40
row self_tuning 1 "compiled, self_tuning" 4 370 60
if [ -z "$check" ]; then
    row readme 0 "header-only, the README's program" 11 700 600
    row self_tuning 0 "header-only, self_tuning" 20 1100 1200
fi
echo

# code FILES...: lines that are neither empty nor a comment.
code() {
    cat "$@" | grep -cvE '^[[:space:]]*(//.*)?$'
}
public=$(find include/kdvfs -name '*.hpp' -not -path '*/detail/*')
# shellcheck disable=SC2086  # lists of files
types=$(grep -hE '^(template .*)?(class|struct|enum class|union) (\[\[.*\]\] )?[A-Z][A-Za-z]* ?(final )?[:{]' $public | wc -l)
tools=$(find tools -name '*.?pp')
echo "| the face | |"
echo "|---|---|"
echo "| headers outside detail/ | $(echo "$public" | wc -l) |"
# shellcheck disable=SC2086
echo "| their lines of code | $(code $public) |"
echo "| types declared there | $types |"
# shellcheck disable=SC2046,SC2086
echo "| lines of code of include/ and tools/ | $(code $(find include -name '*.hpp') include/kdvfs/kdvfs.h $tools) |"
# shellcheck disable=SC2086
echo "| classes with over 25 functions or 15 members | $(python3 bench/compile_time/class_sizes.py . --count) |"
echo "| detail:: in tools, python and examples | $(grep -rhoE 'kdvfs::detail::' tools examples python | wc -l) |"
limit "headers outside detail/" "$(echo "$public" | wc -l)" 80
# shellcheck disable=SC2086
limit "their lines of code" "$(code $public)" 9000
exit $failed
