// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
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

/// Runs a program to its end; what it prints goes where this process' errors go.
/// @throws Error (invalid_input) if it cannot be started or does not end with 0
inline RunTimes run_command(const std::vector<std::string>& command,
                            const std::vector<std::string>& environment) {
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
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    const auto now = [] {
        return kdvfs::TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
    };
    RunTimes times{now(), {}};
    pid_t child = 0;
    const int failed = ::posix_spawnp(&child, command.front().c_str(), &actions, nullptr,
                                      pointers(command).data(), pointers(environment).data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) fail(std::strerror(failed), "check its path and that it may be executed");
    int status = 0;
    while (::waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail(std::strerror(errno), "");
    times.ended = now();
    const char* const alone = "run it by itself: it must end with 0";
    if (WIFSIGNALED(status))
        fail("it was ended by signal " + std::to_string(WTERMSIG(status)), alone);
    if (WEXITSTATUS(status) != 0)
        fail("it ended with exit code " + std::to_string(WEXITSTATUS(status)), alone);
    return times;
}

}  // namespace cli
