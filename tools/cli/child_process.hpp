// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace cli {

/// A program that this process stands for: whoever started this process meets the program's
/// signals, stops and end as if it had been started directly.
///
/// - A signal that reaches this process alone is forwarded. One that reaches the process group (a
///   terminal, `timeout`, a scheduler) has reached the program already and is not forwarded again:
///   a witness process in the same group, which counts signals, tells the two cases apart.
/// - When the program stops, this process stops, too; SIGCONT continues both.
/// - When this process is killed, the program is killed.
///
/// SIGSTOP and SIGKILL to this process alone cannot be forwarded. One at a time, on the main
/// thread.
class ChildProcess {
public:
    /// Starts `command`, found in PATH, and blocks the signals that `wait` forwards.
    /// @param environment "NAME=value" for each variable
    /// @throws CLI::RuntimeError (127) if there is no such program, (126) if it cannot be executed;
    ///         the reason is printed to standard error
    ChildProcess(const std::vector<std::string>& command,
                 const std::vector<std::string>& environment);
    ~ChildProcess();
    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;

    /// Waits for the end of the program.
    /// @returns its status as `waitpid` gives it
    [[nodiscard]] int wait() const;

private:
    class Witness;
    void forward(int signal_number) const;

    pid_t child_ = 0;
    std::unique_ptr<Witness> witness_;
};

}  // namespace cli
