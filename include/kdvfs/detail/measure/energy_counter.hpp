// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/settings.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// The median, the upper one of two. Reorders the values.
/// @pre there are some
template <class Value>
Value median_of(std::vector<Value>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// A normal variate's standard deviation over the median of its absolute values.
inline constexpr double median_to_deviation = 1.4826;

/// One point of a counter that can be trusted. Two samples may be subtracted only if their
/// `segment` is the same: a new segment begins where energy was lost (wrap, freeze, transition).
struct EnergySample {
    TimePoint at;
    Joules total;  ///< trusted joules since the first sample; never decreases
    std::uint32_t segment = 0;
};

/// What became of one reading: `sample` is there only if `status` is `ok`.
struct CounterStep {
    ReadingStatus status = ReadingStatus::absent;
    std::optional<EnergySample> sample;
};

/// How often each status was met.
struct CounterFaults {
    std::uint64_t failed = 0;
    std::uint64_t absent = 0;
    std::uint64_t frozen = 0;
    std::uint64_t wrapped = 0;
    std::uint64_t backwards = 0;
    std::uint64_t implausible = 0;

    [[nodiscard]] std::uint64_t sum() const {
        return failed + absent + frozen + wrapped + backwards + implausible;
    }
};

/// "12 frozen, 1 backwards": reads, by what was wrong with them.
inline std::string to_string(const CounterFaults& faults) {
    std::string text;
    const auto add = [&](std::uint64_t count, const char* what) {
        if (count == 0) return;
        text += (text.empty() ? "" : ", ") + std::to_string(count) + ' ' + what;
    };
    add(faults.failed, "failed");
    add(faults.absent, "absent");
    add(faults.frozen, "frozen");
    add(faults.wrapped, "wrapped");
    add(faults.backwards, "backwards");
    add(faults.implausible, "implausible");
    return text + " of its reads";
}

/// Turns the raw readings of an energy counter into samples whose total only grows. A reading that
/// cannot be right becomes a status and never a number. One that merely lies beside the others (a
/// glitch) is skipped; one that the next reading confirms starts a new segment, because the energy
/// in between is unknown. Pure; not thread-safe.
class EnergyCounter {
public:
    explicit EnergyCounter(CounterLimits limits = {}) : limits_{limits} {}

    /// Judges one reading. `read_at` is when it was read, not before earlier calls' `read_at`.
    CounterStep take(const EnergyReading& reading, TimePoint read_at);

    /// The time between two samples of the counter has become known.
    void expect_period(Duration period) { limits_.period = period; }

    [[nodiscard]] const CounterFaults& faults() const { return faults_; }
    /// Whether the last reading that could be judged found the counter standing still.
    [[nodiscard]] bool frozen() const { return frozen_; }

private:
    [[nodiscard]] ReadingStatus judge(const EnergyReading& from, const EnergyReading& to) const;
    CounterStep accept(const EnergyReading& reading, TimePoint read_at, bool same_segment);
    CounterStep stand_still(TimePoint read_at);
    CounterStep count(ReadingStatus status);

    CounterLimits limits_;
    CounterFaults faults_;
    std::optional<EnergyReading> trusted_;
    std::optional<EnergyReading> suspect_;
    TimePoint last_news_;
    Joules total_;
    std::uint32_t segment_ = 0;
    bool frozen_ = false;
};

inline CounterStep EnergyCounter::take(const EnergyReading& reading, TimePoint read_at) {
    if (reading.status == ReadingStatus::unchanged) {
        return trusted_ ? stand_still(read_at) : CounterStep{ReadingStatus::unchanged, {}};
    }
    if (reading.status != ReadingStatus::ok) return count(reading.status);
    if (!std::isfinite(reading.joules.count) || reading.joules.count < 0) {
        return count(ReadingStatus::implausible);
    }
    if (!trusted_) return accept(reading, read_at, true);

    const ReadingStatus status = judge(*trusted_, reading);
    if (status == ReadingStatus::unchanged) return stand_still(read_at);
    if (status == ReadingStatus::ok) return accept(reading, read_at, !frozen_);
    if (suspect_ && judge(*suspect_, reading) == ReadingStatus::ok) {
        return accept(reading, read_at, false);
    }
    suspect_ = reading;
    return count(status);
}

/// What the step from one reading to a later one says.
inline ReadingStatus EnergyCounter::judge(const EnergyReading& from,
                                          const EnergyReading& to) const {
    const Seconds time = to.sampled_at - from.sampled_at;
    const double joules = to.joules.count - from.joules.count;
    if (joules == 0 && time.count() >= 0) return ReadingStatus::unchanged;
    if (time.count() < 0) return ReadingStatus::backwards;
    if (joules < 0) {
        const double on_from_zero = joules + limits_.wraps_at.count;
        const bool wrapped =
            on_from_zero >= 0 && on_from_zero <= limits_.highest_power.count * time.count();
        return wrapped ? ReadingStatus::wrapped : ReadingStatus::backwards;
    }
    if (joules > limits_.highest_power.count * time.count()) return ReadingStatus::implausible;
    return ReadingStatus::ok;
}

inline CounterStep EnergyCounter::accept(const EnergyReading& reading, TimePoint read_at,
                                         bool same_segment) {
    if (!same_segment) {
        ++segment_;
    } else if (trusted_) {
        total_ += reading.joules - trusted_->joules;
    }
    trusted_ = reading;
    suspect_.reset();
    last_news_ = read_at;
    frozen_ = false;
    return {ReadingStatus::ok, EnergySample{reading.sampled_at, total_, segment_}};
}

inline CounterStep EnergyCounter::stand_still(TimePoint read_at) {
    const Duration patience = std::max(limits_.patience, 10 * limits_.period);
    if (read_at - last_news_ <= patience) return {ReadingStatus::unchanged, {}};
    frozen_ = true;
    return count(ReadingStatus::frozen);
}

inline CounterStep EnergyCounter::count(ReadingStatus status) {
    switch (status) {
        case ReadingStatus::failed: ++faults_.failed; break;
        case ReadingStatus::absent: ++faults_.absent; break;
        case ReadingStatus::frozen: ++faults_.frozen; break;
        case ReadingStatus::wrapped: ++faults_.wrapped; break;
        case ReadingStatus::backwards: ++faults_.backwards; break;
        case ReadingStatus::implausible: ++faults_.implausible; break;
        case ReadingStatus::ok:
        case ReadingStatus::unchanged: break;
    }
    return {status, {}};
}

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
    return median_of(between);
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
        const double low = median_of(before);
        const double high = median_of(after);
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
    return std::chrono::duration_cast<Duration>(Seconds{median_of(windows)});
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

}  // namespace kdvfs::inline v0_3::measure
