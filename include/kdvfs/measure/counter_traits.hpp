// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

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

/// How long a power meter averages over, by an energy counter of the same board: the window whose
/// mean power by the counter comes closest to the meter. Nothing where the power hardly changed, or
/// no window explains the meter. Never shorter than the counter's own samples are apart.
/// @param power,energy in order of time; `read_at` = when the sample was taken
inline std::optional<Duration> find_averaging_window(std::span<const TimedReading> power,
                                                     std::span<const TimedReading> energy) {
    constexpr std::size_t fewest = 10;
    constexpr double step = 1.1;  // between two windows that are tried
    if (energy.size() < fewest) return {};
    const auto joules = [&](TimePoint at) {
        const auto after = std::lower_bound(
            energy.begin() + 1, energy.end() - 1, at,
            [](const TimedReading& reading, TimePoint t) { return reading.read_at < t; });
        const auto& [from, before] = *(after - 1);
        const double part = Seconds{at - from} / Seconds{after->read_at - from};
        return before + part * (after->value - before);
    };
    const Seconds span = energy.back().read_at - energy.front().read_at;
    const Seconds shortest = span / static_cast<double>(energy.size() - 1);
    const Seconds longest = span / 3;
    std::vector<TimedReading> seen;
    double mean = 0;
    for (const TimedReading& reading : power) {
        if (reading.read_at - energy.front().read_at < longest) continue;
        if (reading.read_at > energy.back().read_at || !std::isfinite(reading.value)) continue;
        seen.push_back(reading);
        mean += reading.value;
    }
    if (seen.size() < fewest) return {};
    mean /= static_cast<double>(seen.size());
    double variance = 0;
    for (const TimedReading& reading : seen) variance += std::pow(reading.value - mean, 2);
    if (variance < std::pow(0.1 * mean, 2) * static_cast<double>(seen.size())) return {};
    std::optional<Duration> best;
    double least = 0.25 * variance;
    for (Seconds window = shortest; window <= longest; window *= step) {
        const auto length = std::chrono::duration_cast<Duration>(window);
        double squares = 0;
        for (const TimedReading& reading : seen) {
            const double grown = joules(reading.read_at) - joules(reading.read_at - length);
            squares += std::pow(reading.value - grown / window.count(), 2);
        }
        if (squares >= least) continue;
        least = squares;
        best = length;
    }
    return best;
}

/// Finds out how often a counter is updated while it is being sampled. Looks at its readings again
/// and again, with ever more of them up to a thousand, then anew: memory is bounded.
class PeriodFinder {
public:
    void take(TimePoint read_at, double joules) {
        if (readings_.empty()) readings_.reserve(most);
        readings_.push_back({read_at, joules});
        if (readings_.size() < look_at_) return;
        const auto found = find_update_period(readings_);
        if (found) period_ = found;
        look_at_ *= 2;
        if (!found && readings_.size() < most) return;
        readings_.clear();
        look_at_ = first_look;
    }

    /// The time between two updates, where they are slower than the reads.
    [[nodiscard]] std::optional<Duration> period() const { return period_; }

private:
    static constexpr std::size_t first_look = 128;
    static constexpr std::size_t most = 1024;

    std::vector<TimedReading> readings_;
    std::size_t look_at_ = first_look;
    std::optional<Duration> period_;
};

}  // namespace kdvfs::measure
