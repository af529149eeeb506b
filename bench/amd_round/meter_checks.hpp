// SPDX-License-Identifier: MIT
#pragma once

#include "load.hpp"
#include "table.hpp"

#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace amd_round {

/// What gpu_metrics tells of energy, power and time while the GPU is busy.
class MeterChecks {
public:
    MeterChecks(Table& table, const kdvfs::device::amd::Card& card)
        : table_{table},
          file_{kdvfs::device::amd::open_file(card.energy_folder + "/gpu_metrics", O_RDONLY)} {}

    /// @returns whether the rest can be tried
    bool check_revision() {
        const char* const assumption = "gpu_metrics is of a revision that kdvfs reads";
        std::array<std::byte, kdvfs::device::amd::most_metrics_bytes> page;
        const auto table = read(page);
        const auto version = kdvfs::device::amd::metrics_version(table);
        std::string words = version ? std::to_string(version->format) + "." +
                                          std::to_string(version->content) + ", " +
                                          std::to_string(table.size()) + " bytes"
                                    : "no table";
        const auto metrics = kdvfs::device::amd::parse_gpu_metrics(table);
        if (metrics) {
            words += metrics->energy ? ": energy" : ": no energy, so power x time";
            words += metrics->power ? ", power" : ", no power";
            words += metrics->core_clock ? ", core clock" : ", no core clock";
        }
        table_.add(assumption, words, metrics && (metrics->energy || metrics->power));
        return metrics.has_value();
    }

    /// Reads as fast as it can while the GPU is kept busy, and judges what came.
    void check_counter(double megahertz, kdvfs::Duration time) {
        const Stream stream;
        std::vector<Sample> samples;
        // One kernel: between two the board would rest, unseen.
        const double seconds = kdvfs::Seconds{time}.count() + 0.25;
        check(burn(stream.get(), megahertz * seconds), "launch a kernel");
        const kdvfs::TimePoint end = now() + time;
        while (now() < end && !stream.is_idle()) {
            if (const auto sample = look()) samples.push_back(*sample);
            std::this_thread::sleep_for(std::chrono::microseconds{200});
        }
        stream.synchronize();
        samples.erase(samples.begin(),
                      samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 5));
        judge(samples);
    }

private:
    struct Sample {
        kdvfs::TimePoint read_at;
        kdvfs::device::amd::GpuMetrics metrics;
    };

    std::span<const std::byte> read(std::span<std::byte> page) const {
        const ssize_t count = ::pread(file_.get(), page.data(), page.size(), 0);
        return page.first(count < 0 ? 0 : static_cast<std::size_t>(count));
    }

    [[nodiscard]] std::optional<Sample> look() const {
        std::array<std::byte, kdvfs::device::amd::most_metrics_bytes> page;
        const auto table = read(page);
        const kdvfs::TimePoint at = now();
        const auto metrics = kdvfs::device::amd::parse_gpu_metrics(table);
        if (!metrics) return std::nullopt;
        return Sample{at, *metrics};
    }

    void judge(const std::vector<Sample>& samples) {
        const char* const runs = "the energy counter runs while the GPU is busy";
        const char* const period = "the counter's samples are 1 ms apart (0.5 to 2)";
        const char* const quantum = "the counter's unit is 1/16 J or finer";
        const char* const energy = "the energy is power x time, within 5 %";
        if (samples.size() < 10 || !samples.front().metrics.energy) {
            const std::string why =
                samples.size() < 10 ? "the table could not be read" : "this board tells no energy";
            for (const char* row : {runs, period, quantum, energy}) table_.leave_out(row, why);
            return;
        }
        const double first = samples.front().metrics.energy->count;
        const double joules = samples.back().metrics.energy->count - first;
        table_.add(runs, number(joules, 2) + " J", joules > 0);
        if (!(joules > 0)) {
            for (const char* row : {period, quantum, energy})
                table_.leave_out(row, "the counter stands still");
            return;
        }
        double shortest = 1e9;
        std::uint64_t unit = 0;
        long long smallest = std::numeric_limits<long long>::max();
        long long largest = 0;
        int stood = 0;                       // samples without a step
        std::vector<double> read_intervals;  // ms
        double counted = 0;
        double drawn = 0;
        for (std::size_t i = 1; i < samples.size(); ++i) {
            const auto& before = samples[i - 1].metrics;
            const auto& after = samples[i].metrics;
            if (!before.energy || !after.energy) continue;
            const kdvfs::Duration between = samples[i].read_at - samples[i - 1].read_at;
            read_intervals.push_back(static_cast<double>(between.count()) / 1e6);
            if (after.time_ns != before.time_ns) {
                const auto apart = static_cast<double>(after.time_ns - before.time_ns) / 1e6;
                shortest = std::min(shortest, apart);
            }
            const double step = after.energy->count - before.energy->count;
            const auto steps = std::llround(step / kdvfs::device::amd::joules_per_energy_step);
            if (steps == 0 && after.time_ns != before.time_ns) ++stood;
            if (steps > 0) {
                smallest = std::min(smallest, steps);
                largest = std::max(largest, steps);
            }
            unit = std::gcd(unit, static_cast<std::uint64_t>(std::max(0LL, steps)));
            if (!before.power || !after.power) continue;
            const double mean = (before.power->count + after.power->count) / 2;
            const bool is_steady = std::abs(before.power->count - mean) < 0.02 * mean;
            if (!is_steady) continue;  // between two kernels: nobody saw when
            const auto seconds = static_cast<double>(after.time_ns - before.time_ns) / 1e9;
            drawn += mean * seconds;
            counted += step;
        }
        const double between = median(read_intervals);
        if (shortest > 2 && shortest < 3 * between) {
            table_.leave_out(period, "one read took " + number(between, 1) + " ms");
        } else {
            table_.add(period, number(shortest, 2) + " ms", shortest >= 0.5 && shortest <= 2);
        }
        const double unit_joules =
            static_cast<double>(unit) * kdvfs::device::amd::joules_per_energy_step;
        // Steps that are all alike, each with its sample, may be a steady power's as well.
        if (smallest == largest && stood == 0) {
            table_.leave_out(quantum, "all its steps were of " + number(unit_joules, 3) + " J");
        } else {
            table_.add(quantum, number(unit_joules * 1e6, 1) + " uJ", unit_joules <= 1.0 / 16);
        }
        if (!samples.front().metrics.power) {
            table_.leave_out(energy, "this board tells no power");
            return;
        }
        table_.add(energy, number(counted, 2) + " J counted, " + number(drawn, 2) + " J drawn",
                   std::abs(counted / drawn - 1) <= 0.05);
    }

    Table& table_;
    kdvfs::detail::Descriptor file_;
};

}  // namespace amd_round
