// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace cli::doctor {

/// The machine to be examined: its files below a folder, and who asks. Nothing is written.
struct Machine {
    std::filesystem::path root = "/";  ///< of another machine's tree in tests
    uid_t user = 0;
    std::vector<gid_t> groups{};        ///< of the user, the main one among them
    bool system_administrator = false;  ///< CAP_SYS_ADMIN
    unsigned cpus = 1;
    /// An environment variable; empty where it is not set.
    std::function<std::string(const char* name)> environment = [](const char*) { return ""; };

    /// This machine, as the process sees it.
    static Machine here();
};

enum class State {
    ok,
    limited,  ///< something that kdvfs can do elsewhere is not possible
    missing,  ///< nothing works without it
};

/// One thing that was looked at.
struct Finding {
    State state = State::ok;
    std::string what;   ///< "AMD GPU 0000:c1:00.0"
    std::string found;  ///< "MI300X, CDNA3 (MI300)"
    std::string fix{};  ///< a command or a step; empty where there is nothing to fix
};

struct Diagnosis {
    std::vector<Finding> findings;
    bool measures = false;     ///< energy of at least one GPU
    bool sets_clocks = false;  ///< of at least one GPU
    bool has_streams = false;  ///< a runtime is there: scopes and attached programs work
};

/// Looks at GPUs, drivers, runtimes, rights, containers and the scheduler.
[[nodiscard]] Diagnosis examine(const Machine& machine);

/// 0: clocks can be set; 3: energy can be measured, no clock set; 4: neither.
[[nodiscard]] int exit_status(const Diagnosis& diagnosis);

[[nodiscard]] std::string to_text(const Diagnosis& diagnosis);
/// {"kdvfs": version, "can": {...}, "findings": [{"state", "what", "found", "fix"}]}
[[nodiscard]] std::string to_json(const Diagnosis& diagnosis);

}  // namespace cli::doctor
