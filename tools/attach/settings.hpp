// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/options.hpp>
#include <tools/launched_rank.hpp>

#include <chrono>
#include <filesystem>
#include <optional>
#include <regex>
#include <string>

namespace attach {

/// What gets a scope: each launch, or each range that the program names.
enum class Level { kernel, range };

/// What the environment says of attaching; `kdvfs run` sets it.
///   KDVFS_MODE              off, measure (default), repeat, auto, sweep:FILE, follow:PLAN
///   KDVFS_ATTACH_LEVEL      kernel (default) or range
///   KDVFS_ATTACH_MATCH      a regular expression: other kernels are reported together, other
///                           ranges are none
///   KDVFS_ATTACH_GRAPHS     whole: a graph is one unit, and its kernels are not told
///   KDVFS_ATTACH_ITERATION  the range that is an iteration; found by itself where not given
///   KDVFS_ATTACH_METER      meters one iteration in so many; 0: none
///   KDVFS_ATTACH_FOLDER     where each process leaves its report; else it goes to standard error
///   KDVFS_ATTACH_RUNS_ONCE  a regular expression: kernels that are not repeated, besides those
///                           that are known by their names (`runs_once`)
///   KDVFS_ATTACH_REPEAT_AFTER  seconds, 10 by default: so long the program runs as it is, and that
///                           is what its joules are of
///   KDVFS_ATTACH_RECORD     a folder: what was metered goes there, too, in PID.DEVICE, for
///                           `attribute_training`
///   KDVFS_ATTACH_IDLE_CLOCK MHz: the core clock after some time without work
///   KDVFS_ATTACH_IDLE_MEMORY  MHz: the memory clock then; as found where not given
///   KDVFS_ATTACH_IDLE_AFTER milliseconds, 20 by default: so long there is no work before it
///   KDVFS_ATTACH_MEASURE_ONLY  1: no clock is set, as where it may not be
///   KDVFS_ATTACH_PIPELINE   a folder with a pipeline's case.json and plan.json: ranges named by
///                           operation run at the plan's clocks
///   KDVFS_ATTACH_PATIENCE   seconds, 30 by default: a kernel that is repeated for longer hangs
struct Settings {
    bool off = false;           ///< `KDVFS_MODE=off`
    bool sets_clocks = false;   ///< a sweep, a plan or a pipeline's plan is requested
    bool saves = false;         ///< `KDVFS_MODE=auto`: measured where clocks cannot be set
    bool measure_only = false;  ///< whatever is requested, clocks stay as they are
    bool repeats = false;       ///< `KDVFS_MODE=repeat`: kernels, never ranges
    kdvfs::IdleClock idle{};    ///< not beside a sweep, a plan or repeated kernels
    bool whole_graphs = false;
    Level level = Level::kernel;
    std::optional<std::regex> match{};
    std::string iteration{};
    std::optional<unsigned> meter_every{};
    std::optional<std::regex> runs_once{};
    std::chrono::seconds repeat_after{10};
    std::chrono::seconds patience{30};
    std::filesystem::path folder{};
    std::filesystem::path pipeline{};
    std::filesystem::path record{};
    LaunchedRank launched{};
    std::string job{};  ///< of the scheduler; else empty

    /// Whether the GPU's clocks are set at all.
    [[nodiscard]] bool drives_clocks() const {
        return !measure_only && (sets_clocks || idle.clock.has_value());
    }
    /// Whether ranges that the program opens matter (a pipeline's level is range).
    [[nodiscard]] bool uses_ranges() const { return level == Level::range || !iteration.empty(); }

    /// @throws Error (invalid_input) for what makes no sense
    static Settings from_environment();
};

}  // namespace attach
