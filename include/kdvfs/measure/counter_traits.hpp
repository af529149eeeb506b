// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>
#include <kdvfs/core/units.hpp>
#include <kdvfs/device/energy_source.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace kdvfs::measure {

/// A reading and when it was asked for.
struct TimedReading {
    TimePoint read_at;
    double value = 0;  ///< joules of a counter, or watts of a logger
};

/// The time between two updates of a counter or logger, from readings that came several times
/// faster than it: the median time between two changes of the value. Nothing where fewer than 5
/// changes were seen, or where nearly every reading changed, so that it may be faster still.
inline std::optional<Duration> find_update_period(std::span<const TimedReading> readings) {
    constexpr std::size_t fewest = 5;
    std::vector<Duration> between;
    std::optional<TimePoint> last;
    for (std::size_t i = 1; i < readings.size(); ++i) {
        const bool changed =
            readings[i].value != readings[i - 1].value && std::isfinite(readings[i].value);
        if (!changed) continue;
        if (last) between.push_back(readings[i].read_at - *last);
        last = readings[i].read_at;
    }
    if (between.size() < fewest || 2 * between.size() > readings.size()) return {};
    const auto middle = between.begin() + static_cast<std::ptrdiff_t>(between.size() / 2);
    std::nth_element(between.begin(), middle, between.end());
    return *middle;
}

/// A step of the power, as a load begins or ends, and a logger's samples around it by the time of
/// each sample.
struct PowerStep {
    TimePoint at;
    std::vector<TimedReading> samples;  ///< `read_at` = when the logger took the sample
};

/// How long a power logger averages over: a mean over a window answers a step with a ramp as long
/// as the window, whose missing area is half the window times the step. The median over the steps.
/// Levels are the medians of the samples well before and after each step, `settle` away from it.
/// Nothing where no step is clear.
inline std::optional<Duration> find_averaging_window(std::span<const PowerStep> steps,
                                                     Duration settle) {
    const auto median = [](std::vector<double> values) {
        const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
        std::nth_element(values.begin(), middle, values.end());
        return *middle;
    };
    std::vector<double> windows;
    for (const PowerStep& step : steps) {
        std::vector<double> before;
        std::vector<double> after;
        for (const TimedReading& sample : step.samples) {
            if (!std::isfinite(sample.value)) continue;
            if (sample.read_at < step.at) before.push_back(sample.value);
            if (sample.read_at > step.at + settle) after.push_back(sample.value);
        }
        if (before.size() < 3 || after.size() < 3) continue;
        const double low = median(before);
        const double high = median(after);
        if (std::abs(high - low) < 0.1 * std::max(high, low)) continue;
        double missing = 0;
        TimePoint from = step.at;
        double lack = 1;
        for (const TimedReading& sample : step.samples) {
            if (!std::isfinite(sample.value) || sample.read_at <= step.at) continue;
            if (sample.read_at > step.at + settle) break;
            const double next = (high - sample.value) / (high - low);
            missing += (lack + next) / 2 * Seconds{sample.read_at - from}.count();
            from = sample.read_at;
            lack = next;
        }
        windows.push_back(2 * std::max(missing, 0.0));
    }
    if (windows.empty()) return {};
    return std::chrono::duration_cast<Duration>(Seconds{median(windows)});
}

}  // namespace kdvfs::measure
