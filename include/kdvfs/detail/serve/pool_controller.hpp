// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/serve/pool_controller.hpp>

#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace kdvfs::inline v0_3::serve {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE void LoadForecast::add(double load) {
    level_ = level_ ? *level_ + weight * (load - *level_) : load;
    made_.push_back(*level_);
    loads_.push_back(load);
    if (loads_.size() <= horizon_ + judged) return;
    const double met =
        std::accumulate(loads_.end() - judged, loads_.end(), 0.0) / static_cast<double>(judged);
    // The first forecasts were of too little to be judged.
    if (made_.front() > 0 && ++judged_forecasts_ > fewest) {
        if (errors_.size() >= remembered || is_assumed_) errors_.pop_front();
        errors_.push_back(met / made_.front());
        is_assumed_ = is_assumed_ && --assumed_left_ > 0;
    }
    made_.pop_front();
    loads_.pop_front();
}

KDVFS_INLINE PoolCapacity::PoolCapacity(const std::vector<PoolPoint>& points, double late)
    : late_{late} {
    for (const PoolPoint& point : points) {
        const bool is_valid = point.parallelism > 0 && point.instances > 0 && point.load > 0 &&
                              std::isfinite(point.load) && point.power.count > 0 && point.late >= 0;
        if (!is_valid) reject("a measured point has no instances, load or power");
        Kind& kind = kind_of(point);
        kind.points.push_back(point);
    }
    for (Kind& kind : kinds_) {
        std::sort(kind.points.begin(), kind.points.end(),
                  [](const auto& a, const auto& b) { return a.load < b.load; });
        make_late_ascend(kind.points);
        for (const PoolPoint& point : kind.points)
            if (point.late <= late_) kind.most = point.load;
    }
    std::erase_if(kinds_, [](const Kind& kind) { return kind.most == 0; });
    if (kinds_.empty()) reject("no measured pool keeps the targets at any load");
}

KDVFS_INLINE void PoolCapacity::reject(const char* why) {
    throw Error{Errc::invalid_input,
                {"lead a pool", "its profile", why, "measure pools at loads that they carry"}};
}

KDVFS_INLINE void PoolCapacity::make_late_ascend(std::vector<PoolPoint>& points) {
    std::vector<std::pair<double, std::size_t>> blocks;  // mean, points
    for (const PoolPoint& point : points) {
        blocks.emplace_back(point.late, 1);
        while (blocks.size() > 1 && blocks[blocks.size() - 2].first > blocks.back().first) {
            const auto [mean, count] = blocks.back();
            blocks.pop_back();
            auto& [before, points_before] = blocks.back();
            before =
                (before * static_cast<double>(points_before) + mean * static_cast<double>(count)) /
                static_cast<double>(points_before + count);
            points_before += count;
        }
    }
    auto point = points.begin();
    for (const auto& [mean, count] : blocks)
        for (std::size_t i = 0; i < count; ++i) (point++)->late = mean;
}

KDVFS_INLINE PoolCapacity::Kind& PoolCapacity::kind_of(const PoolPoint& point) {
    for (Kind& kind : kinds_)
        if (kind.pool.parallelism == point.parallelism && kind.pool.instances == point.instances &&
            kind.pool.policy == point.policy)
            return kind;
    return kinds_.emplace_back(point);
}

KDVFS_INLINE PoolController::PoolController(std::vector<PoolPoint> profile,
                                            const PoolControlOptions& options,
                                            const PoolDecision& first)
    : options_{checked(options)},
      capacity_{std::move(profile), options.late},
      forecast_{static_cast<std::size_t>(std::ceil(options.start / options.window)) + 1},
      current_{first} {}

KDVFS_INLINE void PoolController::answered(bool in_time) {
    ++answered_;
    if (!in_time) ++late_;
}

KDVFS_INLINE const PoolDecision& PoolController::window_ended() {
    forecast_.add(std::exchange(work_, 0) / options_.window.count());
    learn_margin();
    if (!forecast_.is_ready()) return current_;
    const PoolDecision needed = cheapest();
    needed_.push_back(needed);
    while (needed_.size() > hold()) needed_.pop_front();
    current_ = needed;
    // What was needed within the break-even time is kept.
    for (const PoolDecision& before : needed_)
        if (before.parallelism == needed.parallelism)
            current_.instances = std::max(current_.instances, before.instances);
    return current_;
}

KDVFS_INLINE const PoolControlOptions& PoolController::checked(const PoolControlOptions& options) {
    const bool is_valid = options.start >= Seconds{0} && options.start <= Seconds{3600} &&
                          options.window > Seconds{0} && options.starting.count >= 0 &&
                          options.late > 0 && options.late < 1;
    if (!is_valid)
        throw Error{Errc::invalid_input,
                    {"lead a pool", "its options", "a time, power or share is out of range",
                     "give a start of 0 to 3600 s and shares between 0 and 1"}};
    return options;
}

KDVFS_INLINE void PoolController::learn_margin() {
    const double answered = std::exchange(answered_, 0);
    const double late = std::exchange(late_, 0);
    if (answered == 0) return;
    usual_answered_ += (answered - usual_answered_) / std::min(++windows_, 100.0);
    const double allowed = aim * options_.late * usual_answered_;
    const double step = std::max(first_step / (1 + windows_ / 20), last_step);
    margin_ = std::clamp(margin_ + step * (late / allowed - answered / usual_answered_),
                         least_margin, most_margin);
}

KDVFS_INLINE std::size_t PoolController::hold() const {
    const double idle = std::max(options_.starting.count * idle_share, 1.0);
    const Seconds even = options_.start * (options_.starting.count / idle);
    return static_cast<std::size_t>(std::ceil(even / options_.window)) + 1;
}

KDVFS_INLINE PoolDecision PoolController::cheapest() const {
    const PoolCapacity::Kind* best = nullptr;
    const double load = forecast_.expected();
    double least = std::numeric_limits<double>::infinity();
    for (const PoolCapacity::Kind& kind : capacity_.kinds()) {
        if (kind.gpus() > options_.most_gpus) continue;
        const bool is_in_time = expected_late(kind) <= options_.late;
        const bool is_current = kind.pool.parallelism == current_.parallelism;
        const std::uint32_t have = is_current ? current_.instances : 0;
        const double starts = kind.pool.instances > have ? kind.pool.instances - have : 0;
        const double watts = kind.power(load).count + starts * kind.pool.parallelism *
                                                          options_.starting.count *
                                                          (options_.start / paid_back);
        const double rank = is_in_time ? watts : unserved / kind.most;
        if (rank >= least) continue;
        least = rank;
        best = &kind;
    }
    if (!best) return current_;
    PoolDecision decision = best->pool;
    decision.expected = load;
    decision.late = expected_late(*best);
    return decision;
}

KDVFS_INLINE double PoolController::expected_late(const PoolCapacity::Kind& kind) const {
    const double load = forecast_.expected() * margin_;
    double late = 0;
    double all = 0;
    for (const double error : forecast_.errors()) {
        late += error * kind.late(load * error);  // more requests come with more load
        all += error;
    }
    return late / all;
}

#endif

}  // namespace kdvfs::inline v0_3::serve
