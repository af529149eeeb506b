// SPDX-License-Identifier: MIT
#pragma once

#include <fcntl.h>
#include <unistd.h>

/// Descriptors 0 to 2. Where one is closed, as by `>&-`, the next file that is opened would take
/// its number and get what is printed.
namespace cli {

/// Called before anything is opened: occupies those that are closed, so that reading standard input
/// and writing standard output fail as before. A program that is run finds them closed.
inline void occupy_closed_streams() {
    constexpr int failing_access[]{O_WRONLY, O_RDONLY, O_RDWR};  // messages may be lost
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
        if (::fcntl(stream, F_GETFD) < 0)
            // The lowest number that is free: this one.
            static_cast<void>(::open("/dev/null", failing_access[stream] | O_CLOEXEC));
}

/// Whether standard output can be written to at all.
inline bool has_standard_output() {
    const int flags = ::fcntl(STDOUT_FILENO, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

}  // namespace cli
