// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/sensor_measuring.hpp>
#include <tests/sensor_beds/sensor_bed.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace sensor_bed {

/// The record of a minute of square waves on a board with the sensor of a bed: calls of a
/// millisecond, each of a power of its own, whose response is stepped through on the bed's grid.
inline kdvfs::measure::MeterRecord record_of_waves(const Bed& bed, const Truth& truth,
                                                   const std::vector<kdvfs::measure::Pulse>& pulses,
                                                   std::uint64_t seed) {
    using namespace kdvfs::measure;
    std::mt19937_64 random{seed};
    const auto uniform = [&](double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random);
    };
    const auto normal = [&] { return std::normal_distribution<double>{}(random); };
    MeterRecord record;
    record.kernels.push_back({"load", {}});
    const double busy = uniform(300, 600);
    const double idle = uniform(70, 125);
    std::vector<double> drawn(static_cast<std::size_t>(0.3 / grain), idle);
    const auto now = [&] { return static_cast<double>(drawn.size()) * grain; };
    constexpr double call = 1e-3;  // s
    for (const Pulse& pulse : pulses) {
        const double begin = now();
        const double until = begin + pulse.on.count();
        while (now() < until - 0.5 * grain) {
            const double watts = busy * (1 + truth.spread * normal());
            const double end = std::min(until, now() + call);
            drawn.insert(drawn.end(),
                         static_cast<std::size_t>(std::max(1.0, std::round((end - now()) / grain))),
                         watts);
        }
        record.runs.push_back({kdvfs::KernelInterval{
            .kernel = {0}, .start = Run::time(begin), .end = Run::time(now())}});
        drawn.insert(drawn.end(), static_cast<std::size_t>(pulse.off.count() / grain), idle);
    }
    const auto stamps = [&](double period) {
        std::vector<double> at;
        for (double t = 0.1 + uniform(0, period); t < now(); t += period) at.push_back(t);
        return at;
    };
    if (bed.log != Log::none) {
        const double period = bed.log_period * (1 + uniform(-3e-3, 3e-3));
        const std::vector<double> at = stamps(period);
        const double window = bed.log == Log::since_last ? period : truth.window;
        const std::vector<double> watts = seen(truth, drawn, at, window);
        for (std::size_t i = 0; i < at.size(); ++i) {
            record.power.push_back(
                {{watts[i] + truth.noise * normal()}, Run::time(at[i]), kdvfs::ReadingStatus::ok});
        }
        return record;
    }
    const double period = bed.counter_period * (1 + uniform(-3e-3, 3e-3));
    const std::vector<double> at = stamps(period);
    const std::vector<double> means = seen(truth, drawn, at, period);
    double joules = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
        joules += means[i] * period + 1e-3 * normal();
        record.samples.push_back({Run::time(at[i]), {joules}, 0});
    }
    return record;
}

}  // namespace sensor_bed
