#!/bin/sh
# SPDX-License-Identifier: MIT
# From a fresh clone on Debian to a result:
#   sh cmake/bootstrap.sh demo      the main job: one GPT-3-XL iteration on the simulated GPU
#   sh cmake/bootstrap.sh test      the test suite
#   sh cmake/bootstrap.sh sanitize  the test suite under ASan + UBSan, and under TSan
#   sh cmake/bootstrap.sh soak      hours: full counts of seeds, kills and inputs, then sanitize
#   sh cmake/bootstrap.sh bench     the benchmarks
# Installs what is missing (as root, or with sudo), then runs the workflow preset of that name.
set -eu
cd "$(dirname "$0")/.."

usage() {
    sed -n '3,9s/^# \{0,1\}//p' cmake/bootstrap.sh
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

sanitize() {
    cmake --workflow --preset asan
    cmake --workflow --preset tsan
}

# What the last tests of a build have measured of kills, ends, wakes, locks and memory.
figures() {
    echo "Figures of build/$1:"
    grep -E '^ *[a-z0-9-].*( kills,| ends | wake|blocked for| lock held|known scope|has grown|heard|damaged)' \
        "build/$1/Testing/Temporary/LastTest.log"
}

[ $# -eq 1 ] || usage
case $1 in
    demo | bench)
        install_missing "$1"
        cmake --workflow --preset "$1"
        ;;
    test)
        install_missing test
        cmake --workflow --preset test
        sh cmake/slowest_targets.sh build/test
        ;;
    sanitize)
        install_missing test
        sanitize
        ;;
    soak)
        install_missing test
        cmake --workflow --preset soak
        figures test
        sanitize
        ctest --test-dir build/asan -C soak -R '^hostile_files_soak' --output-on-failure
        figures asan
        for build in asan tsan; do  # every way of ending a GPU object, 1000 times
            ctest --test-dir "build/$build" -C soak -R '^ends_soak' --output-on-failure
            figures "$build"
        done
        ;;
    *) usage ;;
esac
