#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs a check of the whole tree in pieces, and resumes: a piece that has passed on this commit is not
# repeated. Called by cmake/bootstrap.sh:
#   sh cmake/checks.sh sanitize|clang|tidy|soak|bench|coverage|flaky|mutate
# Writes build/checks.md (what, commit, tests, minutes, result); the exit status is 1 while a piece of
# the check has not passed on this commit. A piece's output is in build/checks/<check>/<piece>.log.
set -eu
cd "$(dirname "$0")/.."
check=$1
records=build/checks
mkdir -p "$records/$check"

# The commit, and a hash of what differs from it.
commit=$(git rev-parse --short=12 HEAD)
if ! git diff --quiet HEAD --; then
    commit=$commit+$(git diff HEAD -- | sha1sum | cut -c 1-8)
fi
failed=0

# passed PIECE: whether PIECE has passed on this commit.
passed() {
    grep -q "^$commit passed " "$records/$check/$1.result" 2>/dev/null
}

# piece NAME COMMAND...: runs COMMAND unless it has passed, and records commit, result, tests, seconds.
piece() {
    name=$1
    shift
    if passed "$name"; then
        return 0
    fi
    log=$records/$check/$name.log
    start=$(date +%s)
    result=passed
    "$@" >"$log" 2>&1 || result=failed
    seconds=$(($(date +%s) - start))
    # CTest's "100% tests passed, 0 tests failed out of 42".
    tests=$(sed -n 's/.*tests failed out of \([0-9]*\).*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
    echo "$commit $result $tests $seconds" >"$records/$check/$name.result"
    echo "$check $name: $result, $tests tests, $seconds s"
    [ $result = passed ] || failed=1
}

# write_table: all records of all checks, one line for each check and commit.
write_table() {
    {
        echo "| check | commit | pieces passed | tests | minutes | result |"
        echo "|---|---|---|---|---|---|"
        for folder in "$records"/*/; do
            cat "$folder"*.result 2>/dev/null | awk -v check="$(basename "$folder")" '
                { pieces[$1]++; ok[$1] += $2 == "passed"; tests[$1] += $3; seconds[$1] += $4 }
                END { for (c in pieces)
                    printf "| %s | %s | %d of %d | %d | %.1f | %s |\n", check, c, ok[c], pieces[c],
                        tests[c], seconds[c] / 60, ok[c] == pieces[c] ? "passed" : "failed" }'
        done
    } >build/checks.md
    cat build/checks.md
}

# rooms: the folders of tests, which are built and run one by one.
rooms() {
    for list in tests/*/CMakeLists.txt; do
        basename "$(dirname "$list")"
    done
}

build() {
    cmake --build "build/$1" --target "$2" --parallel "$(nproc)"
}

# room_tests BUILD FOLDER: builds and runs the tests of a folder; one without tests passes.
room_tests() {
    [ -d "build/$1/$2" ] || return 0
    build "$1" "$2/all" && ctest --test-dir "build/$1/$2" -j 2 -LE soak --timeout 900 --output-on-failure
}

# whole PRESET: the engine, each room of tests, tools and examples of one preset.
whole() {
    cmake --preset "$1" >"$records/$check/$1.configure.log"
    for folder in tools examples; do
        piece "$1-$folder" room_tests "$1" "$folder"
    done
    for room in $(rooms); do
        piece "$1-$room" room_tests "$1" "tests/$room"
    done
}

# soak_tests PRESET PATTERN: every soak test whose name matches, one by one.
soak_tests() {
    ctest --test-dir "build/$1" -C soak -N -L soak -R "$2" | sed -n 's/^ *Test *#[0-9]*: //p' >"$records/$check/$1.tests"
    while read -r test; do
        piece "$1-$(echo "$test" | tr '/ ' '__')" \
            ctest --test-dir "build/$1" -C soak -L soak -R "^$(echo "$test" | sed 's/[.+()]/\\&/g')\$" --timeout 7200 --verbose
    done <"$records/$check/$1.tests"
}

# suite_under_load PROCESSES: the whole suite while PROCESSES others compute.
suite_under_load() {
    busy=
    for _ in $(seq "$1"); do
        yes >/dev/null &
        busy="$busy $!"
    done
    status=0
    ctest --preset test || status=$?
    # shellcheck disable=SC2086  # a list of processes
    [ -z "$busy" ] || kill $busy
    return $status
}

case $check in
    sanitize)
        # The search for leaks takes one block in 256 of a library's thread-local objects for an older
        # glibc's, and ends in a fault, unless it leaves them alone.
        export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:verify_asan_link_order=0:intercept_tls_get_addr=0
        export UBSAN_OPTIONS=print_stacktrace=1
        # Forked children of tests open GPUs of their own, whose threads TSan would refuse.
        export TSAN_OPTIONS="halt_on_error=1:die_after_fork=0:second_deadlock_stack=1:suppressions=$PWD/tests/tsan_suppressions.txt"
        whole asan
        whole tsan
        ;;
    clang) whole clang ;;
    tidy)
        cmake --preset tidy >"$records/tidy/configure.log"
        for folder in tools examples bench; do
            piece "$folder" build tidy "$folder/all"
        done
        for room in $(rooms); do
            [ -d "build/tidy/tests/$room" ] || continue
            piece "$room" build tidy "tests/$room/all"
        done
        ;;
    soak)
        cmake --preset test >"$records/soak/configure.log"
        piece programs cmake --build build/test --target all soak_programs --parallel "$(nproc)"
        soak_tests test .
        for sanitizer in asan tsan; do
            cmake --preset $sanitizer >"$records/soak/$sanitizer.configure.log"
            piece "$sanitizer-programs" build $sanitizer "tests/thread_loop/all"
            soak_tests $sanitizer '^ends_soak$'
        done
        piece asan-hostile-programs build asan "tests/hostile_files/all"
        soak_tests asan '^hostile_files_soak$'
        ;;
    bench) piece all cmake --workflow --preset bench ;;
    coverage)
        cmake --preset coverage >"$records/coverage/configure.log"
        piece build cmake --build build/coverage
        piece tests ctest --preset coverage
        piece table sh cmake/coverage_table.sh build/coverage
        sed -n '/^|/p' "$records/coverage/table.log"
        ;;
    flaky)
        cmake --preset test >"$records/flaky/configure.log"
        piece build cmake --build build/test
        for run in $(seq 18); do
            piece "run-$run" suite_under_load 0
        done
        for run in 1 2; do
            piece "load-8-run-$run" suite_under_load 8
        done
        ;;
    mutate) piece all python3 tests/mutation/mutate.py --count 200 ;;
    *)
        sed -n '5p' "$0" >&2
        exit 2
        ;;
esac
write_table
exit $failed
