// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/units.hpp>

#include <memory>

namespace kdvfs::inline v0_3::train {

/// How sure a plan of noisy curves has to be of its time.
struct PlanConfidence {
    /// An iteration may take so much longer than its bound, relative to it.
    double tolerance = 0.001;
    /// The share of curves, among those that the measurements allow, with which it does not.
    double share = 0.9;
};

/// What a plan of noisy curves is expected to take.
struct PlanPromise {
    Seconds time{};      ///< of an iteration, on average
    Joules total{};      ///< of all stages, on average
    Seconds top_time{};  ///< with every operation at its fastest clock
    Joules top_total{};
    double kept = 1;      ///< the share of possible curves with which the plan keeps its time
    bool is_sure = true;  ///< `kept` is at least what was asked for

    /// Energy saved against the fastest clocks, relative to it.
    [[nodiscard]] double saved() const { return 1 - total / top_total; }
};

/// What measured curves tell of a pipeline, and what plans of it will keep.
///
/// A plan that picks the cheapest of many noisy points picks lucky ones: it promises too much, and
/// its iterations take longer than it says. So the curves are shrunk as those of kernels are, each
/// by what all have in common, with the noise that the curves themselves show. Clocks below the
/// fastest are then taken to be slower, by as many standard deviations as leave the plan's time
/// whole with the confidence that is asked for: found on curves that are drawn at random among
/// those that the measurements allow. What savings of plans of shrunk curves still have of luck is
/// found by planning on simulated measurements, and taken off. Times with noise below 0.02 % and
/// energies below 0.1 %, and curves of fewer clocks than noise is known from (`noise_of_curves`),
/// are taken as they are.
///
/// Immutable after construction, and so safe to use from several threads.
class PipelineEstimate {
public:
    /// @param measured curves with the mean of each clock's blocks
    /// @param slowdown that plans will allow against the shortest iteration: 0.05 is 5 %
    /// @throws Error (invalid_input) for a confidence that makes no sense
    explicit PipelineEstimate(Pipeline measured, double slowdown = 0,
                              const PlanConfidence& confidence = {});

    /// Standard deviations of what was measured, relative to it.
    [[nodiscard]] double time_noise() const;
    [[nodiscard]] double energy_noise() const;
    /// Whether the curves are other than those measured.
    [[nodiscard]] bool is_noisy() const;
    /// The curves as they are expected to be.
    [[nodiscard]] const Pipeline& expected() const;
    /// The curves to plan with: their shortest iteration is that of `expected`, but clocks below
    /// the fastest take longer.
    [[nodiscard]] const Pipeline& cautious() const;

    /// @param plan of `cautious()`, as it is where clocks come at once
    /// @throws Error (invalid_input) for a plan with clocks that were not measured
    [[nodiscard]] PlanPromise promise(const PipelinePlan& plan) const;

    /// How long an operation is expected to last, relative to what a plan of `cautious()` says.
    [[nodiscard]] double expected_duration(const PlannedClocks& clocks) const;

private:
    class Work;
    std::shared_ptr<const Work> work_;
};

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/pipeline_estimate.hpp>
#endif
