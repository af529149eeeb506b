// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/meter_response.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// The readings of a board's power log: put to the times when they were taken (`LogClock`), kept as
/// a bounded sample to find the sensor by, and added up. Not thread-safe.
class LogReadings {
public:
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
        if (!sample_.on()) sample_.begin(first_period());
        if (first_.size() >= many || timestamp - first_.front().read_at >= long_enough)
            find_clock();
        return ends_;
    }

    /// Whether the log's clock is known, or that it has none.
    [[nodiscard]] bool has_clock() const { return has_clock_; }
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
        if (!sample_.on()) sample_.begin(first_period());
        sample_.set_period(first_period());
        for (const auto& [timestamp, watts] : std::exchange(first_, {})) add(timestamp, watts);
    }
    void add(TimePoint timestamp, double watts) {
        const auto taken = clock_.taken(timestamp);
        if (!taken || *taken <= last_) return;
        last_ = *taken;
        sample_.read(*taken, Seconds{0}, watts);
        ends_.push_back(energy_.take(*taken, {watts}, Seconds{sample_.period()}));
    }

    std::vector<TimedReading> first_;  // before the clock is known
    LogClock clock_;
    bool has_clock_ = false;
    SensorSample sample_;
    TimePoint last_ = TimePoint::min();
    LogEnergy energy_;
    std::vector<EnergySample> ends_;
};

}  // namespace kdvfs::inline v0_3::measure
