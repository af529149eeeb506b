// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/train/plan_watch.hpp>
#include <kdvfs/detail/train/stage_requests.hpp>
#include <kdvfs/detail/train/stragglers.hpp>
#include <kdvfs/train/pipeline_estimate.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/tune/session.hpp>
#include <kdvfs/tune/sweep_options.hpp>
#include <kdvfs/units.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::train {

class KernelFrontier;

/// What one stage does in a plan.
struct StagePlan : StageRequests {
    Seconds time{};  ///< the iteration's length
    Joules total{};  ///< of all stages, as the plan promises
    Seconds span{};  ///< of this stage, from its first operation's start to its last one's end
    std::vector<Seconds> durations{};  ///< of these, where the stage is not slower than measured
    /// What is expected of iterations, where the plan's curves are noisy (`PipelineEstimate`).
    std::optional<PlanPromise> promise{};
};

/// What a session's plans are made for.
struct PlanOptions {
    /// How much longer an iteration may take than the shortest possible: 0.05 is 5 %.
    double slowdown = 0;
    Clocks clocks = Clocks::one;
    /// How late clocks come on these GPUs: see `make_plan`. Where it is not given, a session takes
    /// the longest switch that `kdvfs measure-latency` has kept for rank 0's GPU, if it has one.
    std::optional<tune::SwitchDelay> switching{};
    /// How sure plans of curves that a session measured, or read from a file, are of their time.
    PlanConfidence confidence{};
    /// By curve of the pipeline, whose curves are theirs: plans then have clocks by kernel
    /// (`make_kernel_plan`), for programs that say `reached` between kernels. They outlive the
    /// session, which answers no stragglers with them.
    std::span<const KernelFrontier* const> kernels{};
};

/// What a `Session` is told.
struct SessionOptions {
    /// What to do: by default as the environment variable `KDVFS_MODE` says. `sweep:FILE` measures
    /// every operation at every clock, writes the case to FILE and goes on with a plan of it;
    /// `follow:FILE` plans from such a file; `measure` and `off` as elsewhere.
    std::optional<tune::SessionMode> mode{};
    /// This rank's stage, and which of the data- and tensor-parallel copies of the pipeline it
    /// belongs to. By default ranks of a stage are neighbours.
    std::optional<std::uint32_t> stage{};
    std::optional<std::uint32_t> copy{};
    PlanOptions plan{};
    StragglerOptions stragglers{};
    /// How plans are judged while they are followed. It costs one iteration as found of 64, at
    /// first one of four.
    PlanWatchOptions watch{};
    /// Core clocks to sweep; empty: up to 12 of the device's, spread evenly, the highest first.
    std::vector<Megahertz> sweep_clocks{};
    tune::BlockOptions block{};
    std::uint32_t samples = 1;  ///< blocks per clock
    /// A rank that says nothing for so long is given up: the others go on, at auto.
    Duration silence = std::chrono::seconds{30};
    /// So long the others wait, once, while rank 0 makes the plans.
    Duration planning = std::chrono::minutes{10};
};

/// What a session does at the moment.
enum class SessionPhase {
    off,
    measuring,  ///< clocks stay as they were found, also after a plan was broken: see `verdict()`
    warming_up,
    sweeping,
    following,  ///< operations run at the plan's clocks
    alone,      ///< after an error, see `check()`: nothing is asked for any more
};

constexpr std::string_view to_string(SessionPhase phase) {
    switch (phase) {
        case SessionPhase::off: return "off";
        case SessionPhase::measuring: return "measuring";
        case SessionPhase::warming_up: return "warming up";
        case SessionPhase::sweeping: return "sweeping";
        case SessionPhase::following: return "following";
        case SessionPhase::alone: return "alone";
    }
    return "unknown";
}

}  // namespace kdvfs::inline v0_3::train
