// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

namespace kdvfs::detail {

/// What a watchdog runs, a POSIX shell and `sleep` being all it needs: a header-only library has no
/// program of its own to start, the host program is nobody's to start twice (its other libraries
/// would come up again), and a plain fork would copy the page tables of a process of many GiB.
///
/// Descriptors: 3 the pipe whose end is the end of the owner, 4 the device's lock, 5 the restore
/// record. Words: $1 the owner's process id, $2 its start time (field 22 of /proc/PID/stat), then
/// the device's own. The device's functions, which see what `look` has read in found_* and held_*:
/// - `see`: looks at what the device holds, and fails where it cannot be read now;
/// - `holds`, `is_back`: whether what it saw is what the record says is held, what was found;
/// - `put_back`: writes what was found, and fails where something was refused.
///
/// It goes on behind two process images: the shell that was started ends at once, so the one that
/// watches is an orphan that no `wait` of the program ever sees.
inline constexpr std::string_view watchdog_head = R"sh(
trap '' HUP INT QUIT TERM PIPE TSTP TTIN TTOU USR1 USR2
set -f
cd /
owner=$1 started=$2
shift 2
)sh";

inline constexpr std::string_view watchdog_body = R"sh(
me=0 count=0 wrote= strangers=0 outcome=

say() { # over the first line of the record
    printf 'kdvfs-note %-180s\n' "$count $me $*" 1<> /proc/self/fd/5
}

lines() {
    { read -r note; read -r first; read -r second; read -r beat; } < /proc/self/fd/5 || return 1
    set -- $note
    [ "$1" = kdvfs-note ] && count=$2
}

is_whole() { # a slot: the words of one that its writer has finished
    [ $# = 21 ] && [ "$3" = "${21}" ]
}

look() { # takes the newer slot that is whole apart
    lines || return 1
    newer=$first older=$second
    set -- $first
    order=$3
    set -- $second
    [ "$3" -gt "$order" ] && newer=$second older=$first
    slot=$newer
    is_whole $slot || slot=$older
    is_whole $slot || return 1
    set -- $slot
    order=$3
    shift 8
    found_mode=$1 found_core=$2 found_memory=$3 found_floor=$4
    held=$6 held_mode=$7 held_core=$8 held_memory=$9
    shift 9
    held_floor=$1
}

attempt() { # 0 it is settled, 1 to be tried again; outcome says what was done
    outcome='not restored, the device cannot be read'
    see || return 1
    if is_back; then
        [ -n "$wrote" ] && outcome=restored || outcome='found as it was'
        return 0
    fi
    if [ "$held" = state ] && [ -z "$wrote" ] && ! holds; then
        strangers=$((strangers + 1)) outcome='left as somebody else has set it'
        [ $strangers -ge 5 ]
        return
    fi
    [ -n "$wrote" ] || say restoring
    wrote=1
    if put_back && see && is_back; then
        outcome=restored
        return 0
    fi
    outcome='not restored, the device refuses'
    return 1
}

restore_for_minutes() { # a GPU reset lasts for seconds
    wrote= strangers=0 tries=0
    look || { say 'not restored, the record is not whole'; return; }
    [ "$held" != nothing ] || return
    until attempt; do
        tries=$((tries + 1))
        if [ $tries -ge 400 ]; then
            say "$outcome"
            return
        elif [ $tries -lt 100 ]; then
            sleep 0.01 || sleep 1
        else
            sleep 1
        fi
    done
    say "$outcome"
}

restore_under_the_stopped() { # one try; the next look comes in a second
    look && [ "$held" != nothing ] || return 0
    wrote=
    attempt || return 1
    [ -z "$wrote" ] || { count=$((count + 1)); say 'restored while stopped'; }
}

owner_state() { # T: stopped; empty: gone
    state=
    IFS= read -r stat < "/proc/$owner/stat" || return
    set -- ${stat##*) }
    [ "${20}" = "$started" ] && state=$1
}

watch() {
    read -r me rest < /proc/self/stat
    lines
    say watching
    before= settled=
    owner_state
    visible=$state
    [ -n "$BASH_VERSION" ] || { read -r word <&3; return; }  # others do not tell 1 s from the end
    while :; do
        read -r -t 1 -u 3 word
        [ $? -gt 128 ] || return
        [ -n "$visible" ] || continue
        owner_state
        [ -n "$state" ] || return  # a child that it cloned holds the pipe open
        [ "$state" = T ] || { before= settled=; continue; }
        lines
        if [ "$beat" != "$before" ]; then
            before=$beat settled=
        elif [ -z "$settled" ]; then
            restore_under_the_stopped && settled=1
        fi
    done
}

{
    watch
    restore_for_minutes
} &
exit 0
)sh";

}  // namespace kdvfs::detail
