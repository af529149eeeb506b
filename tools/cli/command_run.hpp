// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>
#include <tools/cli/child_signal.hpp>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace cli {

/// When a program ran, from its start to its end.
struct RunTimes {
    kdvfs::TimePoint began;
    kdvfs::TimePoint ended;
};

/// The environment of this process with variables set, or, to an empty text, left out.
inline std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& changes) {
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string_view text{*variable};
        bool kept = true;
        for (const auto& [name, value] : changes) kept = kept && !text.starts_with(name + '=');
        if (kept) variables.emplace_back(text);
    }
    for (const auto& [name, value] : changes)
        if (!value.empty()) variables.push_back(name + '=' + value);
    return variables;
}

/// A process and those that it has started, as far as /proc tells.
inline std::vector<pid_t> with_descendants(pid_t process) {
    std::vector<pid_t> found{process};
    for (std::size_t i = 0; i < found.size(); ++i) {
        const std::string threads = "/proc/" + std::to_string(found[i]) + "/task";
        std::error_code failed;
        for (const auto& thread : std::filesystem::directory_iterator{threads, failed}) {
            std::ifstream children{thread.path() / "children"};
            for (pid_t child = 0; children >> child;) found.push_back(child);
        }
    }
    return found;
}

/// Ends a process that runs for too long, and what it has started: SIGTERM, and SIGKILL five
/// seconds later to what is left.
class Deadline {
public:
    /// @param longest infinity: none
    Deadline(pid_t process, kdvfs::Seconds longest) {
        if (std::isinf(longest.count())) return;
        thread_ = std::thread{[this, process, longest] {
            if (ended_within(longest)) return;
            passed_ = true;
            const std::vector<pid_t> all = with_descendants(process);
            for (const pid_t each : all) ::kill(each, SIGTERM);
            if (ended_within(kdvfs::Seconds{5})) return;
            for (const pid_t each : all) ::kill(each, SIGKILL);
        }};
    }
    ~Deadline() { end(); }
    Deadline(const Deadline&) = delete;
    Deadline& operator=(const Deadline&) = delete;

    /// The process has ended, and must not have been reaped: its number would be another's.
    /// @returns whether it ended too late
    bool end() {
        {
            const std::lock_guard lock{mutex_};
            ended_ = true;
        }
        change_.notify_one();
        if (thread_.joinable()) thread_.join();
        return passed_;
    }

private:
    bool ended_within(kdvfs::Seconds time) {
        std::unique_lock lock{mutex_};
        return change_.wait_for(lock, time, [this] { return ended_; });
    }

    std::mutex mutex_;
    std::condition_variable change_;
    bool ended_ = false;
    bool passed_ = false;
    std::thread thread_;
};

/// Runs a program to its end; what it prints goes to `output`, by default where this process'
/// errors go. It is told to end (SIGTERM) if this process dies first, so that it does not hold GPU
/// and files while nobody waits for it.
/// @param longest how long it may take; then it is ended
/// @throws Error (invalid_input) if it cannot be started or does not end with 0, (timed_out) if it
///         took too long
inline RunTimes run_command(const std::vector<std::string>& command,
                            const std::vector<std::string>& environment, int output = STDERR_FILENO,
                            kdvfs::Seconds longest = kdvfs::Seconds{
                                std::numeric_limits<double>::infinity()}) {
    const auto pointers = [](const std::vector<std::string>& texts) {
        std::vector<char*> result;
        for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
        result.push_back(nullptr);
        return result;
    };
    const auto fail = [&](const std::string& why, const std::string& remedy) {
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"run a program", command.front(), why, remedy}};
    };
    const auto now = [] {
        return kdvfs::TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    };
    const std::vector<char*> arguments = pointers(command);
    const std::vector<char*> variables = pointers(environment);
    int failure[2] = {-1, -1};  // carries errno if the program cannot be started, else just closes
    if (::pipe2(failure, O_CLOEXEC) != 0) fail(std::strerror(errno), "");
    kdvfs::io::Descriptor failed{failure[0]};
    RunTimes times{now(), {}};
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
        // Between fork and exec only what a signal handler might do, too: there may be threads.
        restore_child_signal();
        if (::dup2(output, STDOUT_FILENO) >= 0 && ::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 &&
            ::getppid() == parent)
            ::execvpe(arguments.front(), arguments.data(), variables.data());
        const int error = errno;
        if (::write(failure[1], &error, sizeof error) != sizeof error) ::_exit(126);
        ::_exit(127);
    }
    const int forked = errno;
    ::close(failure[1]);
    if (child < 0) fail(std::strerror(forked), "");
    int error = 0;
    const bool started = ::read(failed.get(), &error, sizeof error) != sizeof error;
    Deadline deadline{child, longest};
    siginfo_t ended{};
    while (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) < 0)
        if (errno != EINTR) fail(std::strerror(errno), "");
    times.ended = now();
    const bool too_late = deadline.end();
    int status = 0;
    while (::waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail(std::strerror(errno), "");
    if (!started) fail(std::strerror(error), "check its path and that it may be executed");
    if (too_late)
        throw kdvfs::Error{kdvfs::Errc::timed_out,
                           {"run a program", command.front(),
                            "it was ended after " + std::to_string(longest.count()) + " s",
                            "run it by itself, or give it more time (--timeout)"}};
    const char* const alone = "run it by itself: it must end with 0";
    if (WIFSIGNALED(status))
        fail("it was ended by signal " + std::to_string(WTERMSIG(status)), alone);
    if (WEXITSTATUS(status) != 0)
        fail("it ended with exit code " + std::to_string(WEXITSTATUS(status)), alone);
    return times;
}

}  // namespace cli
