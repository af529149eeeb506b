// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/train/curve_noise.hpp>
#include <kdvfs/detail/train/shrunk_curves.hpp>
#include <kdvfs/train/plan.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

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
    [[nodiscard]] double time_noise() const { return time_noise_; }
    [[nodiscard]] double energy_noise() const { return energy_noise_; }
    /// Whether the curves are other than those measured.
    [[nodiscard]] bool is_noisy() const;
    /// The curves as they are expected to be.
    [[nodiscard]] const Pipeline& expected() const { return expected_; }
    /// The curves to plan with: their shortest iteration is that of `expected`, but clocks below
    /// the fastest take longer.
    [[nodiscard]] const Pipeline& cautious() const { return cautious_; }

    /// @param plan of `cautious()`, as it is where clocks come at once
    /// @throws Error (invalid_input) for a plan with clocks that were not measured
    [[nodiscard]] PlanPromise promise(const PipelinePlan& plan) const;

    /// How long an operation is expected to last, relative to what a plan of `cautious()` says.
    [[nodiscard]] double expected_duration(const PlannedClocks& clocks) const;

private:
    /// An operation at two points of its curve: at the first for a share of its work.
    struct Mix {
        std::uint32_t curve = 0;
        std::uint32_t first = 0;
        std::uint32_t second = 0;
        double share = 1;
    };
    /// Times of all points of all curves, among those that the measurements allow: nanoseconds.
    using Draw = std::vector<std::vector<double>>;

    static constexpr double least_time_noise = 2e-4;
    static constexpr double least_energy_noise = 1e-3;
    static constexpr std::size_t draws = 200;

    template <class Quantity>
    [[nodiscard]] double noise_of(const Quantity& quantity) const {
        std::vector<detail::LogCurve> logs;
        for (const Curve& curve : measured_.curves) {
            std::map<double, double> by_clock;
            for (const CurvePoint& point : curve.points())
                if (point.clock.core != auto_clock)
                    by_clock[std::log(static_cast<double>(point.clock.core.count))] =
                        std::log(quantity(point));
            auto& log = logs.emplace_back();
            for (const auto& [clock, value] : by_clock) {
                log.clock.push_back(clock);
                log.value.push_back(value);
            }
        }
        return detail::noise_of_curves(logs);
    }

    /// Points of a curve are sorted by their time.
    static std::uint32_t point_of(const Pipeline& of, std::uint32_t curve, ClockPoint clock);

    void draw();

    [[nodiscard]] static std::vector<Mix> mixes_of(const PipelinePlan& plan, const Pipeline& of);

    /// All operations at the points that are expected to be the fastest.
    [[nodiscard]] std::vector<Mix> fastest() const;

    template <class Time>
    [[nodiscard]] double path(const std::vector<Mix>& mixes, const Time& time) const {
        std::vector<std::int64_t> ends;
        network_.earliest(
            [&](std::uint32_t i) {
                const Mix& mix = mixes[i];
                return std::llround(mix.share * time(mix.curve, mix.first) +
                                    (1 - mix.share) * time(mix.curve, mix.second));
            },
            ends);
        return static_cast<double>(ends.back());
    }
    [[nodiscard]] Seconds length_of(const std::vector<Mix>& mixes, const Pipeline& of) const;
    [[nodiscard]] Joules total_of(const std::vector<Mix>& mixes, Seconds length,
                                  const Pipeline& of) const;

    [[nodiscard]] double share_kept(const std::vector<Mix>& mixes) const;

    /// The exact frontier's durations at the shortest allowed length, as points of `expected_`.
    [[nodiscard]] PipelinePlan frontier_plan(const Pipeline& pipeline) const;

    /// The least caution, in quarters of a standard deviation up to three of them, with which the
    /// frontier keeps its time.
    void choose_caution();

    /// What plans of shrunk curves still promise too much, found where the truth is known: the
    /// expected curves are measured again with the noise that was found, and planned (the
    /// bootstrap's estimate of optimism: Efron, Journal of the American Statistical Association 78,
    /// 1983).
    void rehearse();

    /// What a plan saves if curves are as `world` has them.
    [[nodiscard]] double saved(const PipelinePlan& plan, const Pipeline& world) const;

    Pipeline measured_;
    Pipeline expected_;
    Pipeline cautious_;
    detail::Network network_;
    double slowdown_;
    PlanConfidence confidence_;
    double time_noise_ = 0;
    double energy_noise_ = 0;
    std::optional<detail::ShrunkCurves> shrunk_;
    double caution_ = 0;   ///< standard deviations
    double optimism_ = 0;  ///< of promised savings, as a share of the energy at the top
    std::vector<Draw> draws_;
};

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/pipeline_estimate.hpp>
#endif
