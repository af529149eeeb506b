// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/self_check.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

namespace kdvfs::measure {

/// What a device's joules are taken from.
enum class EnergyFrom {
    nothing,
    counter,
    power,  ///< samples of the power, each a mean over a window
    both,   ///< the power's samples say when, the counter how much in all
};

[[nodiscard]] constexpr const char* to_string(EnergyFrom source) {
    switch (source) {
        case EnergyFrom::counter: return "energy counter";
        case EnergyFrom::power: return "power samples";
        case EnergyFrom::both: return "power samples, scaled to the energy counter";
        case EnergyFrom::nothing: break;
    }
    return "nothing";
}

/// How often a device can say what it drew; 0 where it cannot, or nobody knows.
struct MeterPeriods {
    Duration counter{0};  ///< between two moves of the energy counter
    Duration power{0};    ///< between two samples of the power
};

struct SourceChoice {
    EnergyFrom source = EnergyFrom::nothing;
    /// What a power sample's watts are to be multiplied by.
    double power_scale = 1;
    std::string reason;  ///< a sentence for the report
};

/// Which source tells kernels apart best. A source's rows are as long as its period, or as the
/// window that a sample is a mean over; shorter rows hold fewer kernels. Power samples whose
/// windows leave time out miss what happened there, so they do not replace a counter that works.
/// Pure.
/// @param check of the counter against the power readings
[[nodiscard]] inline SourceChoice choose_source(const SelfCheck& check, MeterPeriods periods) {
    constexpr double clearly_finer = 2;
    constexpr double covers = 0.75;  // of the time, with the jitter of the samples
    const auto milliseconds = [](Duration time) { return Seconds{time}.count() * 1e3; };
    const Duration window = check.power_window.value_or(periods.power);
    const bool has_power = periods.power > Duration::zero();
    const Duration row = std::max(periods.power, window);
    std::array<char, 320> text;
    const auto say = [&](const char* format, auto... values) {
        std::snprintf(text.data(), text.size(), format, values...);
        return std::string{text.data()};
    };
    if (!check.passed) {
        if (!has_power) return {EnergyFrom::nothing, 1, "no joules: " + check.reason};
        return {EnergyFrom::power, 1,
                say("joules are from power samples every %.1f ms; not from the energy counter: ",
                    milliseconds(periods.power)) +
                    check.reason};
    }
    if (!has_power) return {EnergyFrom::counter, 1, "joules are from the energy counter alone"};
    if (periods.counter > Duration::zero() &&
        Seconds{periods.counter} < clearly_finer * Seconds{row}) {
        return {EnergyFrom::counter, 1,
                say("joules are from the energy counter, which moves every %.1f ms; power samples "
                    "of %.1f ms are not clearly finer",
                    milliseconds(periods.counter), milliseconds(row))};
    }
    if (Seconds{window} < covers * Seconds{periods.power}) {
        return {EnergyFrom::counter, 1,
                say("joules are from the energy counter: power samples are means over %.1f ms of "
                    "every %.1f ms and miss the rest",
                    milliseconds(window), milliseconds(periods.power))};
    }
    const bool comparable = check.drawn && check.drawn->count > 0;
    const double scale = comparable ? check.counted.count / check.drawn->count : 1;
    return {EnergyFrom::both, scale,
            say("joules are from power samples every %.1f ms, times %.3f as the energy counter has "
                "it, which moves every %.1f ms only",
                milliseconds(periods.power), scale, milliseconds(periods.counter))};
}

}  // namespace kdvfs::measure
