// SPDX-License-Identifier: MIT
#pragma once

#include <signal.h>

/// SIGCHLD. Where it is ignored, which a process inherits from its parent, the system reaps
/// children by itself and the status of a program is lost.
namespace cli {

/// What this process was started with.
inline struct sigaction& found_child_signal() {
    static struct sigaction found = {};
    return found;
}

/// Called before anything else: children stay to be waited for.
inline void keep_ended_children() {
    struct sigaction keep = {};
    keep.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &keep, &found_child_signal());
}

/// Between fork and exec: the program inherits what this process was started with.
inline void restore_child_signal() { ::sigaction(SIGCHLD, &found_child_signal(), nullptr); }

}  // namespace cli
