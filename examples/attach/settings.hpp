// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <optional>
#include <regex>
#include <string>

namespace attach {

/// What gets a scope: each launch, or each range that the program names.
enum class Level { kernel, range };

/// What the environment says of attaching; `kdvfs run` sets it.
///   KDVFS_MODE              off, measure (default), sweep:FILE, follow:PLAN
///   KDVFS_ATTACH_LEVEL      kernel (default) or range
///   KDVFS_ATTACH_MATCH      a regular expression: other kernels are reported together
///   KDVFS_ATTACH_ITERATION  the range that is an iteration; found by itself where not given
///   KDVFS_ATTACH_METER      meters one iteration in so many
///   KDVFS_ATTACH_FOLDER     where each process leaves its report; else it goes to standard error
struct Settings {
    bool off = false;          ///< `KDVFS_MODE=off`
    bool sets_clocks = false;  ///< a sweep or a plan is asked for
    Level level = Level::kernel;
    std::optional<std::regex> match{};
    std::string iteration{};
    std::optional<unsigned> meter_every{};
    std::filesystem::path folder{};

    /// @throws Error (invalid_input) for what makes no sense
    static Settings from_environment();
};

}  // namespace attach
