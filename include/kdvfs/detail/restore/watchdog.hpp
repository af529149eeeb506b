// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

namespace kdvfs::inline v0_3::restore {

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
number=0
while [ $((number += 1)) -le 64 ]; do # real-time ones, too: bash does not keep a mask
    case $number in 9 | 17 | 18 | 19) ;; *) trap '' $number ;; esac # KILL, CHLD, CONT, STOP
done
set -f
cd /
owner=$1 started=$2
shift 2
)sh";

inline constexpr std::string_view watchdog_body = R"sh(
me=0 count=0 begun= strangers=0 outcome=

say() { # over the first line of the record
    printf 'kdvfs-note %-180s\n' "$count $me $*" 1<> /proc/self/fd/5
}

lines() {
    { read -r note; read -r first; read -r second; read -r beat; } < /proc/self/fd/5 || return 1
    set -- $note
    begun=
    case $5 in restoring | unfinished*) begun=${4#@} ;; esac
    [ "$1" = kdvfs-note ] && count=$2
}

began() { # whether somebody has begun to put back what this slot is about, and was not done
    [ "$begun" = "$order" ]
}

is_whole() { # a slot: the words of one that its writer has finished
    [ $# = 21 ] && [ "$3" = "${21}" ]
}

look() { # takes the newer slot that is whole apart; 2: the record cannot be opened
    lines || { true < /proc/self/fd/5 || return 2; lines || return 1; }
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
    began && outcome="@$order unfinished, the device cannot be read"
    see || return 1
    if is_back; then
        began && outcome=restored || outcome='found as it was'
        return 0
    fi
    if [ "$held" = state ] && ! began && ! holds; then
        strangers=$((strangers + 1)) outcome='left as somebody else has set it'
        [ $strangers -ge 5 ]
        return
    fi
    began || say "@$order" restoring
    begun=$order
    if put_back && see && is_back; then
        outcome=restored
        return 0
    fi
    outcome="@$order unfinished, the device refuses"
    return 1
}

again() { # waits for the next try, while there is one
    tries=$((tries + 1))
    [ $tries -lt 400 ] || return 1
    if [ $tries -lt 100 ]; then
        sleep 0.01 || sleep 1
    else
        sleep 1
    fi
    return 0
}

restore_for_minutes() { # a GPU reset lasts for seconds
    strangers=0 tries=0
    until look; do  # where the system has no file left to open, it is not the record's fault
        [ $? = 2 ] && again || { say 'not restored, the record is not whole'; return; }
    done
    [ "$held" != nothing ] || return
    until attempt; do
        again || break
    done
    say "$outcome"
}

restore_under_the_stopped() { # one try; the next look comes in a second
    look && [ "$held" != nothing ] || return 0
    attempt || { began && say "$outcome"; return 1; }
    began || return 0
    count=$((count + 1))
    say 'restored while stopped'
}

owner_state() { # T: stopped; empty: gone; unknown: no file can be opened now
    state=
    IFS= read -r stat < "/proc/$owner/stat" || { true < /proc/self/stat || state=unknown; return; }
    set -- ${stat#"${stat%)*}"}  # behind the name; "##*)" would try each place of the line
    [ "${21}" = "$started" ] && state=$2
}

watch() {
    read -r me rest < /proc/self/stat
    lines
    say watching
    before= settled=
    owner_state
    visible=$state
    [ -n "$BASH_VERSION" ] || { read -r word <&3; return; }  # others do not distinguish 1 s from the end
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

/// This process as /proc knows it: its id there, which in a PID namespace may be another than
/// `getpid()`, and its start time in ticks since the boot, which makes it unmistakable.
inline std::array<std::string, 2> self_in_proc() {
    std::ifstream file{"/proc/self/stat"};
    std::string stat;
    std::getline(file, stat);
    const auto name_end = stat.rfind(')');
    if (name_end == std::string::npos) return {"0", "0"};
    std::istringstream rest{stat.substr(name_end + 1)};
    std::string field;
    for (int number = 3; number <= 22; ++number) rest >> field;
    return {stat.substr(0, stat.find(' ')), field};
}

/// Whether orphans come back to this process: then its watchdog is its child, and a `wait` for any
/// child does not return while the watchdog lives.
inline bool adopts_orphans() {
    int subreaper = 0;
    ::prctl(PR_GET_CHILD_SUBREAPER, &subreaper, 0, 0, 0);
    return subreaper != 0 || ::getpid() == 1;
}

/// Lets a spawned process close every descriptor from `first` on. One that another thread opens
/// meanwhile without O_CLOEXEC escapes where the C library cannot do it (glibc before 2.34).
inline void add_closes(posix_spawn_file_actions_t& actions, int first, bool by_library) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    if (by_library) {
        ::posix_spawn_file_actions_addclosefrom_np(&actions, first);
        return;
    }
#endif
    static_cast<void>(by_library);
    const std::unique_ptr<DIR, int (*)(DIR*)> open{::opendir("/proc/self/fd"), &::closedir};
    if (!open) return;
    while (const dirent* entry = ::readdir(open.get())) {
        const int fd = std::atoi(entry->d_name);
        if (fd >= first) ::posix_spawn_file_actions_addclose(&actions, fd);
    }
}

/// A tiny process that puts a device's clocks back when this one ends, however it ends, and while
/// it is stopped. It is a shell of its own session, nobody's child, with nothing open but the pipe
/// whose end it waits for, the device's lock and the restore record; no signal of a terminal or a
/// scheduler but SIGKILL ends it. It is told nothing: it reads the record.
class Watchdog {
public:
    /// @param lock and @param record descriptors above 5 that the watchdog keeps open until it is
    /// done
    /// @throws Error (io) where no process can be started
    Watchdog(const RestoreScript& script, int lock, int record) {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail(errno);
        const Descriptor reading = raised(Descriptor{ends[0]});
        Descriptor writing = raised(Descriptor{ends[1]});
        if (!reading.is_open() || !writing.is_open()) fail(errno);
        end_ = ProcessDescriptor{std::move(writing)};
        spawn(script, reading.get(), lock, record);
    }

    /// Without a wait: where something is owed, the watchdog now does it.
    ~Watchdog() = default;
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// Whether it sees a stopped owner: it looks once a second, which only bash can without a new
    /// process each time.
    static bool sees_stops() { return ::access("/bin/bash", X_OK) == 0; }

    /// Whether it is there to see the end; one that was killed is not. One system call, never
    /// blocks.
    [[nodiscard]] bool lives() const noexcept {
        pollfd end{.fd = end_.get(), .events = 0, .revents = 0};
        return ::poll(&end, 1, 0) == 0;
    }

private:
    [[noreturn]] static void fail(int error) {
        throw Error{Errc::io,
                    {.action = "start the watchdog that puts clocks back",
                     .object = shell(),
                     .vendor_words = std::generic_category().message(error),
                     .remedy = "see the limits on processes and open files"}};
    }

    static const char* shell() { return sees_stops() ? "/bin/bash" : "/bin/sh"; }

    static std::vector<std::string> words_for(const RestoreScript& script) {
        std::string text{watchdog_head};
        text += script.functions;
        text += watchdog_body;
        const auto [owner, started] = self_in_proc();
        std::vector<std::string> words{"kdvfs-watchdog", "-c",  std::move(text),
                                       "kdvfs-watchdog", owner, started};
        words.insert(words.end(), script.arguments.begin(), script.arguments.end());
        return words;
    }

    static void spawn(const RestoreScript& script, int reading, int lock, int record) {
        std::vector<std::string> words = words_for(script);
        std::vector<char*> arguments;
        for (std::string& word : words) arguments.push_back(word.data());
        arguments.push_back(nullptr);
        std::string path = std::string{"PATH="} + io::usual_folders;
        char locale[] = "LC_ALL=C";
        char* environment[] = {path.data(), locale, nullptr};

        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attributes;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawnattr_init(&attributes);
        ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
        ::posix_spawn_file_actions_adddup2(&actions, 0, 1);
        ::posix_spawn_file_actions_adddup2(&actions, 0, 2);
        ::posix_spawn_file_actions_adddup2(&actions, reading, 3);
        ::posix_spawn_file_actions_adddup2(&actions, lock, 4);
        ::posix_spawn_file_actions_adddup2(&actions, record, 5);
        add_closes(actions, 6, true);
        // A shell keeps the mask that it is started with: not even before its trap is set can a
        // scheduler's SIGTERM or SIGXCPU end it. It waits for its commands by SIGCHLD, and a bash
        // before 5.2 for the end of a timeout by SIGALRM.
        sigset_t blocked;
        sigset_t defaults;
        sigfillset(&blocked);
        sigemptyset(&defaults);
        for (const int signal : {SIGCHLD, SIGALRM}) {
            sigdelset(&blocked, signal);
            sigaddset(&defaults, signal);
        }
        ::posix_spawnattr_setflags(
            &attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        ::posix_spawnattr_setsigmask(&attributes, &blocked);
        ::posix_spawnattr_setsigdefault(&attributes, &defaults);
        pid_t first = -1;
        const int error =
            ::posix_spawn(&first, shell(), &actions, &attributes, arguments.data(), environment);
        ::posix_spawn_file_actions_destroy(&actions);
        ::posix_spawnattr_destroy(&attributes);
        if (error != 0) fail(error);
        // It forks and ends. Where the program waits for all its children, it may be gone already.
        while (::waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
        }
    }

    ProcessDescriptor end_;
};

}  // namespace kdvfs::inline v0_3::restore
