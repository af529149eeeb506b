// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/pipeline_estimate.hpp>

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/train/curve_noise.hpp>
#include <kdvfs/detail/train/network.hpp>
#include <kdvfs/detail/train/shrunk_curves.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/frontier.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

#if KDVFS_DEFINES_ENGINE

/// The curves of an estimate, and how they were found.
class PipelineEstimate::Work {
public:
    Work(Pipeline measured, double slowdown, const PlanConfidence& confidence);

    [[nodiscard]] double time_noise() const { return time_noise_; }
    [[nodiscard]] double energy_noise() const { return energy_noise_; }
    [[nodiscard]] bool is_noisy() const {
        return time_noise_ > least_time_noise || energy_noise_ > least_energy_noise;
    }
    [[nodiscard]] const Pipeline& expected() const { return expected_; }
    [[nodiscard]] const Pipeline& cautious() const { return cautious_; }
    [[nodiscard]] PlanPromise promise(const PipelinePlan& plan) const;
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

inline PipelineEstimate::Work::Work(Pipeline measured, double slowdown,
                                    const PlanConfidence& confidence)
    : measured_{std::move(measured)},
      expected_{measured_},
      cautious_{measured_},
      network_{measured_},
      slowdown_{slowdown},
      confidence_{confidence} {
    if (!(confidence.tolerance >= 0 && confidence.share > 0 && confidence.share < 1))
        detail::reject_pipeline("a confidence of " + std::to_string(confidence.share),
                                "it is not between 0 and 1, or its tolerance is negative",
                                "give a share like 0.9 and a tolerance like 0.001");
    time_noise_ = noise_of([](const CurvePoint& point) { return point.time.count(); });
    energy_noise_ = noise_of([](const CurvePoint& point) { return point.energy.count; });
    if (!is_noisy()) return;
    shrunk_.emplace(measured_, std::max(time_noise_, least_time_noise),
                    std::max(energy_noise_, least_energy_noise));
    expected_ = shrunk_->expected;
    draw();
    choose_caution();
    rehearse();
}

inline PlanPromise PipelineEstimate::Work::promise(const PipelinePlan& plan) const {
    const std::vector<Mix> mixes = mixes_of(plan, expected_);
    PlanPromise promise;
    promise.time = length_of(mixes, expected_);
    promise.top_time = length_of(fastest(), expected_);
    promise.top_total = total_of(fastest(), promise.top_time, expected_);
    promise.total = total_of(mixes, promise.time, expected_) + promise.top_total * optimism_;
    promise.kept = share_kept(mixes);
    promise.is_sure = promise.kept >= confidence_.share;
    return promise;
}

inline double PipelineEstimate::Work::expected_duration(const PlannedClocks& clocks) const {
    const std::uint32_t curve = clocks.operation.curve;
    const auto time = [&](const Pipeline& of) {
        const auto at = [&](ClockPoint clock) {
            return static_cast<double>(of.curves[curve].time(point_of(of, curve, clock)));
        };
        return clocks.share * at(clocks.first) + (1 - clocks.share) * at(clocks.second);
    };
    return time(expected_) / time(cautious_);
}

inline std::uint32_t PipelineEstimate::Work::point_of(const Pipeline& of, std::uint32_t curve,
                                                      ClockPoint clock) {
    if (of.curves[curve].is_constant()) return 0;
    const auto points = of.curves[curve].points();
    const auto at = std::find_if(points.begin(), points.end(),
                                 [&](const CurvePoint& point) { return point.clock == clock; });
    if (at == points.end())
        detail::reject_pipeline("a plan", "it has a clock that was not measured",
                                "plan the pipeline that was estimated");
    return static_cast<std::uint32_t>(at - points.begin());
}

inline void PipelineEstimate::Work::draw() {
    std::mt19937_64 random{1};
    std::normal_distribution<double> normal;
    draws_.resize(draws);
    for (std::size_t c = 0; c < expected_.curves.size(); ++c) {
        const Eigen::MatrixXd spread = shrunk_->times.spread(c);
        for (Draw& draw : draws_) {
            Eigen::VectorXd chance(spread.cols());
            for (double& number : chance) number = normal(random);
            const Eigen::VectorXd off = spread * chance;
            auto& times = draw.emplace_back();
            for (const CurvePoint& point : expected_.curves[c].points())
                times.push_back(
                    1e9 * point.time.count() *
                    std::exp(off(static_cast<Eigen::Index>(shrunk_->times.place_of(point.clock)))));
        }
    }
}

inline std::vector<PipelineEstimate::Work::Mix> PipelineEstimate::Work::mixes_of(
    const PipelinePlan& plan, const Pipeline& of) {
    std::vector<Mix> mixes;
    for (const PlannedOperation& planned : plan.operations) {
        const PlannedClocks& clocks = planned.clocks;
        const std::uint32_t curve = clocks.operation.curve;
        mixes.push_back({curve, point_of(of, curve, clocks.first),
                         point_of(of, curve, clocks.second), clocks.share});
    }
    return mixes;
}

inline std::vector<PipelineEstimate::Work::Mix> PipelineEstimate::Work::fastest() const {
    std::vector<Mix> mixes;
    for (const Operation& operation : measured_.operations)
        mixes.push_back({operation.curve, 0, 0, 1});
    return mixes;
}

inline Seconds PipelineEstimate::Work::length_of(const std::vector<Mix>& mixes,
                                                 const Pipeline& of) const {
    return to_seconds(std::llround(path(mixes, [&](std::uint32_t curve, std::uint32_t point) {
        return static_cast<double>(of.curves[curve].time(point));
    })));
}

inline Joules PipelineEstimate::Work::total_of(const std::vector<Mix>& mixes, Seconds length,
                                               const Pipeline& of) const {
    Joules total = of.blocking_energy(length);
    for (const Mix& mix : mixes) {
        const Curve& curve = of.curves[mix.curve];
        total += to_joules(curve.effective(mix.first)) * mix.share +
                 to_joules(curve.effective(mix.second)) * (1 - mix.share);
    }
    return total;
}

inline double PipelineEstimate::Work::share_kept(const std::vector<Mix>& mixes) const {
    if (draws_.empty()) return 1;
    const std::vector<Mix> top = fastest();
    std::size_t kept = 0;
    for (const Draw& draw : draws_) {
        const auto time = [&](std::uint32_t curve, std::uint32_t point) {
            return draw[curve][point];
        };
        const double bound = (1 + slowdown_) * (1 + confidence_.tolerance) * path(top, time);
        kept += path(mixes, time) <= bound ? 1 : 0;
    }
    return static_cast<double>(kept) / static_cast<double>(draws_.size());
}

inline PipelinePlan PipelineEstimate::Work::frontier_plan(const Pipeline& pipeline) const {
    const Frontier frontier{pipeline};
    return make_plan(frontier, std::min(frontier.shortest() * (1 + slowdown_), frontier.frugal()),
                     Clocks::two);
}

inline void PipelineEstimate::Work::choose_caution() {
    int least = 0;
    int enough = 12;
    while (least < enough) {
        const int quarters = (least + enough) / 2;
        const PipelinePlan plan = frontier_plan(shrunk_->slower(0.25 * quarters));
        if (share_kept(mixes_of(plan, expected_)) >= confidence_.share)
            enough = quarters;
        else
            least = quarters + 1;
    }
    caution_ = 0.25 * enough;
    cautious_ = shrunk_->slower(caution_);
}

inline void PipelineEstimate::Work::rehearse() {
    const auto rounds =
        static_cast<int>(std::clamp<std::size_t>(4096 / measured_.operations.size(), 2, 8));
    std::mt19937_64 random{2};
    std::normal_distribution<double> normal;
    for (int round = 0; round < rounds; ++round) {
        const Pipeline again =
            detail::with_points(expected_, [&](std::size_t, std::size_t, CurvePoint& point) {
                point.time = point.time * std::exp(time_noise_ * normal(random));
                point.energy = point.energy * std::exp(energy_noise_ * normal(random));
            });
        const detail::ShrunkCurves shrunk{again, std::max(time_noise_, least_time_noise),
                                          std::max(energy_noise_, least_energy_noise)};
        const PipelinePlan plan = frontier_plan(shrunk.slower(caution_));
        optimism_ += (saved(plan, shrunk.expected) - saved(plan, expected_)) / rounds;
    }
}

inline double PipelineEstimate::Work::saved(const PipelinePlan& plan, const Pipeline& world) const {
    const auto total = [&](const std::vector<Mix>& mixes) {
        return total_of(mixes, length_of(mixes, world), world);
    };
    return 1 - total(mixes_of(plan, world)) / total(fastest());
}

KDVFS_INLINE PipelineEstimate::PipelineEstimate(Pipeline measured, double slowdown,
                                                const PlanConfidence& confidence)
    : work_{std::make_shared<const Work>(std::move(measured), slowdown, confidence)} {}
KDVFS_INLINE double PipelineEstimate::time_noise() const { return work_->time_noise(); }
KDVFS_INLINE double PipelineEstimate::energy_noise() const { return work_->energy_noise(); }
KDVFS_INLINE bool PipelineEstimate::is_noisy() const { return work_->is_noisy(); }
KDVFS_INLINE const Pipeline& PipelineEstimate::expected() const { return work_->expected(); }
KDVFS_INLINE const Pipeline& PipelineEstimate::cautious() const { return work_->cautious(); }
KDVFS_INLINE PlanPromise PipelineEstimate::promise(const PipelinePlan& plan) const {
    return work_->promise(plan);
}
KDVFS_INLINE double PipelineEstimate::expected_duration(const PlannedClocks& clocks) const {
    return work_->expected_duration(clocks);
}

#endif

}  // namespace kdvfs::inline v0_3::train
