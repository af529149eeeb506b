#!/bin/sh
# SPDX-License-Identifier: MIT
# From a fresh clone on Debian to a result:
#   sh cmake/bootstrap.sh demo      the main job: one GPT-3-XL iteration on the simulated GPU
#   sh cmake/bootstrap.sh wheel     the Python package, as a wheel in build/wheel
#   sh cmake/bootstrap.sh test      the test suite
# Checks of the whole tree. Each runs in pieces and resumes: what has passed on this commit is not
# repeated. Results are in build/checks.md:
#   sh cmake/bootstrap.sh sanitize  the test suite under ASan + UBSan, and under TSan
#   sh cmake/bootstrap.sh clang     everything with clang, tested
#   sh cmake/bootstrap.sh tidy      clang-tidy
#   sh cmake/bootstrap.sh soak      full counts of seeds, kills and inputs, some of them sanitized
#   sh cmake/bootstrap.sh bench     the benchmarks
#   sh cmake/bootstrap.sh coverage  the lines that the tests execute, by room
#   sh cmake/bootstrap.sh flaky     the suite 20 times, twice beside 8 busy processes
#   sh cmake/bootstrap.sh mutate    200 mutants of the library: does a test fail?
# Installs what is missing (as root, or with sudo), then runs the presets of that name.
set -eu
cd "$(dirname "$0")/.."

usage() {
    sed -n '3,18s/^# \{0,1\}//p' cmake/bootstrap.sh
    exit 2
}

# missing_packages JOB: those of debian_packages.txt that JOB needs and that are not installed.
missing_packages() {
    grep -v '^#' cmake/debian_packages.txt | while read -r package words; do
        case " $words " in
            *" $1 "*) ;;
            *) continue ;;
        esac
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            printf '%s ' "$package"
    done
}

# as_root COMMAND...: fails where there is no way.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Without a terminal sudo could only ask in vain.
may_become_root() {
    [ "$(id -u)" -eq 0 ] && return 0
    command -v sudo >/dev/null || return 1
    sudo -n true 2>/dev/null && return 0
    [ -t 0 ]
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >"$log" 2>&1
}

install_missing() {
    if ! command -v dpkg-query >/dev/null; then
        echo "Not a Debian: taking what cmake/debian_packages.txt names for installed." >&2
        return
    fi
    missing=$(missing_packages "$1")
    [ -n "$missing" ] || return 0
    if ! may_become_root; then
        echo "These packages are missing. As root, run this line, then start again:" >&2
        echo "apt-get update && apt-get install -y --no-install-recommends $missing" >&2
        exit 1
    fi
    echo "Installing $missing"
    log=$(mktemp)
    # The package lists of a fresh or an old machine know nothing or the wrong versions.
    # shellcheck disable=SC2086  # a list of words
    if ! apt_install $missing && ! { as_root apt-get update -qq && apt_install $missing; }; then
        cat "$log" >&2
        rm -f "$log"
        echo "apt-get could not install $missing" >&2
        exit 1
    fi
    rm -f "$log"
}

[ $# -eq 1 ] || usage
case $1 in
    demo | wheel)
        install_missing "$1"
        cmake --workflow --preset "$1"
        ;;
    bench)
        install_missing bench
        sh cmake/checks.sh bench
        ;;
    test)
        install_missing test
        # One compiler for each core: Ninja would start two more, which takes a tenth longer.
        cmake --preset test
        cmake --build --preset test --parallel "$(nproc)"
        ctest --preset test
        sh cmake/slowest_targets.sh build/test
        ;;
    sanitize | clang | tidy | soak | coverage | flaky | mutate)
        install_missing test
        install_missing "$1"
        sh cmake/checks.sh "$1"
        ;;
    *) usage ;;
esac
