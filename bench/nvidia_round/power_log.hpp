// SPDX-License-Identifier: MIT
#pragma once

#include "round.hpp"

#include <kdvfs/detail/device/nvidia/nvml_readings.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace measuring {

/// One look at the running clocks.
struct ClockReading {
    TimePoint at;
    kdvfs::Megahertz core;
    kdvfs::device::LimitReasons reasons;
};

/// A thread of its own that empties the driver's buffer of power samples, and now and then reads
/// the energy counter and the running clock, until its owner ends.
class PowerLog {
public:
    explicit PowerLog(kdvfs::device::NvmlReadings& board)
        : board_{board}, begin_{now()}, thread_{[this](std::stop_token stop) { run(stop); }} {}

    /// Ends the log; takes what came in the last moments.
    void stop() {
        if (!thread_.joinable()) return;
        std::this_thread::sleep_for(std::chrono::milliseconds{300});
        thread_.request_stop();
        thread_.join();
    }
    ~PowerLog() {
        if (thread_.joinable()) thread_.request_stop();
    }
    PowerLog(const PowerLog&) = delete;
    PowerLog& operator=(const PowerLog&) = delete;

    // Once stopped.
    [[nodiscard]] const std::vector<kdvfs::PowerReading>& power() const { return power_; }
    [[nodiscard]] const std::vector<kdvfs::EnergyReading>& energy() const { return energy_; }
    [[nodiscard]] const std::vector<ClockReading>& clocks() const { return clocks_; }

private:
    // The buffer holds over a second; the counter moves every 100 ms.
    static constexpr std::chrono::milliseconds period{100};

    void run(const std::stop_token& stop) {
        TimePoint last = begin_;
        bool once_more = true;
        while (once_more) {
            once_more = !stop.stop_requested();
            for (const kdvfs::PowerReading& reading : board_.read_power_samples(last)) {
                power_.push_back(reading);
                last = reading.sampled_at;
            }
            energy_.push_back(board_.read_energy());
            const kdvfs::ClockPoint clocks = board_.read_running_clocks();
            clocks_.push_back({now(), clocks.core, board_.read_limit_reasons()});
            if (once_more) std::this_thread::sleep_for(period);
        }
    }

    kdvfs::device::NvmlReadings& board_;
    TimePoint begin_;
    std::vector<kdvfs::PowerReading> power_;
    std::vector<kdvfs::EnergyReading> energy_;
    std::vector<ClockReading> clocks_;
    std::jthread thread_;
};

/// Writes what a log holds, in nanoseconds since `origin`.
inline void write_power(const PowerLog& log, TimePoint origin, CsvFile&& csv) {
    for (const auto& reading : log.power()) {
        csv.row((reading.sampled_at - origin).count(), reading.watts.count);
    }
}
inline void write_energy(const PowerLog& log, TimePoint origin, CsvFile&& csv) {
    for (const auto& reading : log.energy()) {
        if (reading.status != kdvfs::ReadingStatus::ok) continue;
        csv.row((reading.sampled_at - origin).count(), reading.joules.count);
    }
}

/// The mean of the power samples between two times, without the first `settle`.
inline double mean_watts(const PowerLog& log, TimePoint begin, TimePoint end, Duration settle) {
    double sum = 0;
    int count = 0;
    for (const auto& reading : log.power()) {
        if (reading.sampled_at < begin + settle || reading.sampled_at >= end) continue;
        sum += reading.watts.count;
        ++count;
    }
    return count == 0 ? 0 : sum / count;
}

/// The mean of NVML's readings of the core clock between two times.
inline double mean_megahertz(const PowerLog& log, TimePoint begin, TimePoint end) {
    double sum = 0;
    int count = 0;
    for (const ClockReading& reading : log.clocks()) {
        if (reading.at < begin || reading.at >= end) continue;
        sum += reading.core.count;
        ++count;
    }
    return count == 0 ? 0 : sum / count;
}

}  // namespace measuring
