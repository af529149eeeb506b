// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/sensor_prior.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// The clock by which a power log takes its samples, where it is a regular one whose samples are
/// now and then stamped late (every fifth of an H100's by 5 or 9 ms, though its watts are those of
/// the regular moment). Its period and phase are those from which fewest stamps are off.
class LogClock {
public:
    LogClock() = default;
    /// @param stamps of the log's samples, in order
    explicit LogClock(std::span<const TimePoint> stamps);

    [[nodiscard]] bool regular() const { return period_ > 0; }
    /// When a sample was taken; its timestamp where the log is not regular, nothing where it is
    /// late behind a late one: then the log has got out of step. In order of the stamps.
    [[nodiscard]] std::optional<TimePoint> taken(TimePoint timestamp) {
        if (!regular()) return timestamp;
        constexpr double early = 0.1;    // of a period: a timestamp's own scatter
        constexpr double step = 2.5e-3;  // of a period: how far one timestamp moves the clock
        const double since = since_phase(timestamp);
        const double begin = std::floor(since / period_ + early) * period_;
        phase_ += nanoseconds(begin);
        const TimePoint at = phase_;
        phase_ += nanoseconds(std::clamp(since - begin, -step * period_, step * period_));
        const bool late = since - begin > on_time * period_;
        if (std::exchange(late_, late) && late) return {};
        return at;
    }

private:
    static constexpr double on_time = 0.05;  // of a period

    [[nodiscard]] double since_phase(TimePoint timestamp) const {
        return static_cast<double>((timestamp - phase_).count());
    }
    [[nodiscard]] static Duration nanoseconds(double count) {
        return Duration{static_cast<Duration::rep>(std::llround(count))};
    }

    double period_ = 0;  // ns
    TimePoint phase_{};
    bool late_ = false;  // the timestamp before
};

inline LogClock::LogClock(std::span<const TimePoint> stamps) {
    constexpr std::size_t fewest = 50;
    constexpr std::size_t most = 512;
    constexpr double mostly = 0.6;  // of the stamps
    constexpr int steps = 100;      // of a quarter of `on_time` over all stamps
    if (stamps.size() < fewest) return;
    stamps = stamps.first(std::min(stamps.size(), most));
    std::vector<double> gaps;
    for (std::size_t i = 1; i < stamps.size(); ++i) {
        gaps.push_back(static_cast<double>((stamps[i] - stamps[i - 1]).count()));
    }
    const double about = median_of(gaps);
    if (about <= 0) return;
    phase_ = stamps.front();
    const double step = about * on_time / 4 / static_cast<double>(stamps.size());
    std::size_t best = 0;
    double phase = 0;
    std::vector<double> rests(stamps.size());
    for (int k = -steps; k <= steps; ++k) {
        const double period = about + k * step;
        for (std::size_t i = 0; i < stamps.size(); ++i) {
            rests[i] = std::fmod(since_phase(stamps[i]), period);
        }
        std::sort(rests.begin(), rests.end());
        for (std::size_t i = 0; i < stamps.size(); ++i) rests.push_back(rests[i] + period);
        for (std::size_t from = 0, to = 0; from < stamps.size(); ++from) {
            while (to < rests.size() && rests[to] <= rests[from] + on_time * period) ++to;
            if (to - from <= best) continue;
            best = to - from;
            period_ = period;
            phase = rests[from + (to - from) / 2];
        }
        rests.resize(stamps.size());
    }
    if (static_cast<double>(best) < mostly * static_cast<double>(stamps.size())) period_ = 0;
    phase_ += nanoseconds(phase - period_);
}

/// The readings of a board's power log: put to the times when they were taken (`LogClock`), kept as
/// a bounded sample to find the sensor by, and added up; the sums are early by as much as logs of
/// this kind are late, the sample is not. Not thread-safe.
class LogReadings {
public:
    /// @param finer as `SensorSample::begin` has it
    explicit LogReadings(double finer = 1) : finer_{finer} {}

    /// The next reading, in order of its timestamp.
    /// @returns the log's energy at the ends of its readings, once its clock is known; valid until
    ///          the next call
    std::span<const EnergySample> take(TimePoint timestamp, double watts) {
        ends_.clear();
        if (has_clock_) {
            add(timestamp, watts);
            return ends_;
        }
        constexpr std::size_t few = 5;     // readings that show the period
        constexpr std::size_t many = 100;  // readings that show the clock
        constexpr Duration long_enough = std::chrono::seconds{5};
        first_.push_back({timestamp, watts});
        if (first_.size() < few) return ends_;
        if (!sample_.on()) sample_.begin(first_period(), finer_);
        if (first_.size() >= many || timestamp - first_.front().read_at >= long_enough)
            find_clock();
        return ends_;
    }

    /// Whether the log's clock is known, or that it has none.
    [[nodiscard]] bool has_clock() const { return has_clock_; }
    [[nodiscard]] bool empty() const { return first_.empty() && !has_clock_; }
    [[nodiscard]] SensorSample& sample() { return sample_; }
    [[nodiscard]] const SensorSample& sample() const { return sample_; }

private:
    [[nodiscard]] Duration first_period() const {
        std::vector<Duration> between;
        for (std::size_t i = 1; i < first_.size(); ++i) {
            between.push_back(first_[i].read_at - first_[i - 1].read_at);
        }
        return median_of(between);
    }
    void find_clock() {
        std::vector<TimePoint> stamps;
        for (const TimedReading& reading : first_) stamps.push_back(reading.read_at);
        clock_ = LogClock{stamps};
        has_clock_ = true;
        if (!sample_.on()) sample_.begin(first_period(), finer_);
        sample_.set_period(first_period());
        lag_ = SensorPrior::of_log(first_period()).expected_lag();
        for (const auto& [timestamp, watts] : std::exchange(first_, {})) add(timestamp, watts);
    }
    void add(TimePoint timestamp, double watts) {
        constexpr int farthest = 3;  // periods: one or two readings may be missing
        const auto taken = clock_.taken(timestamp);
        if (!taken || *taken <= last_) return;
        sample_.read(*taken, Seconds{0}, watts);
        const double period = sample_.period();
        double since = last_ == TimePoint::min() ? 0 : Seconds{*taken - last_}.count();
        if (since <= 0 || since > farthest * period) {
            since = period;  // the first one stands for as much time as others
            const auto before = std::chrono::duration_cast<Duration>(Seconds{period});
            ends_.push_back({*taken - lag_ - before, {total_}, ++segment_});
        }
        total_ += watts * since;
        last_ = *taken;
        ends_.push_back({*taken - lag_, {total_}, segment_});
    }

    double finer_;
    std::vector<TimedReading> first_;  // before the clock is known
    LogClock clock_;
    bool has_clock_ = false;
    SensorSample sample_;
    Duration lag_{0};
    TimePoint last_ = TimePoint::min();
    double total_ = 0;  // J
    std::uint32_t segment_ = 0;
    std::vector<EnergySample> ends_;
};

}  // namespace kdvfs::inline v0_3::measure
