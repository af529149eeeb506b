// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// The GPU's own clock, in nanoseconds since an origin of its own.
struct GpuTime {
    std::int64_t nanoseconds = 0;
};

/// The GPU's clock showed `gpu` when a read of it returned at `returned`.
struct TimeAnchor {
    TimePoint returned;
    GpuTime gpu;
};

/// Maps the GPU's clock to the process's time axis: offset and drift, fitted to all anchors. A read
/// that was held up lies late, never early, so anchors beyond 3 deviations are left out and the
/// rest fitted anew.
class TimeSync {
public:
    /// `read_delay`: from the GPU's look at its clock to the read's return, measured separately.
    /// Nothing without anchors; one anchor, or anchors of one moment, give no drift.
    static std::optional<TimeSync> fit(std::span<const TimeAnchor> anchors, Duration read_delay);

    [[nodiscard]] TimePoint operator()(GpuTime gpu) const {
        const auto since = static_cast<double>(gpu.nanoseconds - gpu_origin_);
        return origin_ + Duration{gpu.nanoseconds - gpu_origin_} +
               Duration{std::llround(offset_ + drift_ * since)};
    }
    /// How much faster the process's clock runs than the GPU's, in parts per million.
    [[nodiscard]] double drift_ppm() const { return drift_ * 1e6; }
    /// Standard deviation of the anchors around the fit.
    [[nodiscard]] Duration spread() const { return Duration{std::llround(spread_)}; }

private:
    struct Point {
        double gpu;
        double lag;
    };
    void fit_line(const std::vector<Point>& points);

    TimePoint origin_;
    std::int64_t gpu_origin_ = 0;
    double offset_ = 0;
    double drift_ = 0;
    double spread_ = 0;
};

inline std::optional<TimeSync> TimeSync::fit(std::span<const TimeAnchor> anchors,
                                             Duration read_delay) {
    if (anchors.empty()) return {};
    TimeSync sync;
    sync.origin_ = anchors.front().returned - read_delay;
    sync.gpu_origin_ = anchors.front().gpu.nanoseconds;
    std::vector<Point> points;
    for (const TimeAnchor& anchor : anchors) {
        const auto gpu = anchor.gpu.nanoseconds - sync.gpu_origin_;
        const auto cpu = (anchor.returned - read_delay - sync.origin_).count();
        points.push_back({static_cast<double>(gpu), static_cast<double>(cpu - gpu)});
    }
    sync.fit_line(points);
    for (int round = 0; round < 5; ++round) {
        const std::size_t before = points.size();
        std::erase_if(points, [&](const Point& point) {
            return point.lag - sync.offset_ - sync.drift_ * point.gpu > 3 * sync.spread_;
        });
        if (points.size() == before) break;
        sync.fit_line(points);
    }
    return sync;
}

inline void TimeSync::fit_line(const std::vector<Point>& points) {
    const auto n = static_cast<double>(points.size());
    double gpu = 0;
    double lag = 0;
    for (const Point& point : points) {
        gpu += point.gpu / n;
        lag += point.lag / n;
    }
    double squares = 0;
    double products = 0;
    for (const Point& point : points) {
        squares += (point.gpu - gpu) * (point.gpu - gpu);
        products += (point.gpu - gpu) * (point.lag - lag);
    }
    drift_ = squares > 0 ? products / squares : 0;
    offset_ = lag - drift_ * gpu;
    double residuals = 0;
    for (const Point& point : points) {
        const double residual = point.lag - offset_ - drift_ * point.gpu;
        residuals += residual * residual;
    }
    spread_ = std::sqrt(residuals / n);
}

}  // namespace kdvfs::inline v0_3::measure
