// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/pipeline_estimate.hpp>

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/train/network.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/pipeline.hpp>
#include <kdvfs/units.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <random>
#include <string>
#include <utility>

namespace kdvfs::inline v0_3::train {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE PipelineEstimate::PipelineEstimate(Pipeline measured, double slowdown,
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

KDVFS_INLINE bool PipelineEstimate::is_noisy() const {
    return time_noise_ > least_time_noise || energy_noise_ > least_energy_noise;
}

KDVFS_INLINE PlanPromise PipelineEstimate::promise(const PipelinePlan& plan) const {
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

KDVFS_INLINE double PipelineEstimate::expected_duration(const PlannedClocks& clocks) const {
    const std::uint32_t curve = clocks.operation.curve;
    const auto time = [&](const Pipeline& of) {
        const auto at = [&](ClockPoint clock) {
            return static_cast<double>(of.curves[curve].time(point_of(of, curve, clock)));
        };
        return clocks.share * at(clocks.first) + (1 - clocks.share) * at(clocks.second);
    };
    return time(expected_) / time(cautious_);
}

KDVFS_INLINE std::uint32_t PipelineEstimate::point_of(const Pipeline& of, std::uint32_t curve,
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

KDVFS_INLINE void PipelineEstimate::draw() {
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

KDVFS_INLINE std::vector<PipelineEstimate::Mix> PipelineEstimate::mixes_of(const PipelinePlan& plan,
                                                                           const Pipeline& of) {
    std::vector<Mix> mixes;
    for (const PlannedOperation& planned : plan.operations) {
        const PlannedClocks& clocks = planned.clocks;
        const std::uint32_t curve = clocks.operation.curve;
        mixes.push_back({curve, point_of(of, curve, clocks.first),
                         point_of(of, curve, clocks.second), clocks.share});
    }
    return mixes;
}

KDVFS_INLINE std::vector<PipelineEstimate::Mix> PipelineEstimate::fastest() const {
    std::vector<Mix> mixes;
    for (const Operation& operation : measured_.operations)
        mixes.push_back({operation.curve, 0, 0, 1});
    return mixes;
}

KDVFS_INLINE Seconds PipelineEstimate::length_of(const std::vector<Mix>& mixes,
                                                 const Pipeline& of) const {
    return to_seconds(std::llround(path(mixes, [&](std::uint32_t curve, std::uint32_t point) {
        return static_cast<double>(of.curves[curve].time(point));
    })));
}

KDVFS_INLINE Joules PipelineEstimate::total_of(const std::vector<Mix>& mixes, Seconds length,
                                               const Pipeline& of) const {
    Joules total = of.blocking_energy(length);
    for (const Mix& mix : mixes) {
        const Curve& curve = of.curves[mix.curve];
        total += to_joules(curve.effective(mix.first)) * mix.share +
                 to_joules(curve.effective(mix.second)) * (1 - mix.share);
    }
    return total;
}

KDVFS_INLINE double PipelineEstimate::share_kept(const std::vector<Mix>& mixes) const {
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

KDVFS_INLINE PipelinePlan PipelineEstimate::frontier_plan(const Pipeline& pipeline) const {
    const Frontier frontier{pipeline};
    return make_plan(frontier, std::min(frontier.shortest() * (1 + slowdown_), frontier.frugal()),
                     Clocks::two);
}

KDVFS_INLINE void PipelineEstimate::choose_caution() {
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

KDVFS_INLINE void PipelineEstimate::rehearse() {
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

KDVFS_INLINE double PipelineEstimate::saved(const PipelinePlan& plan, const Pipeline& world) const {
    const auto total = [&](const std::vector<Mix>& mixes) {
        return total_of(mixes, length_of(mixes, world), world);
    };
    return 1 - total(mixes_of(plan, world)) / total(fastest());
}

#endif

}  // namespace kdvfs::inline v0_3::train
