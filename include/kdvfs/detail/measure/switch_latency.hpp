// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/json_writer.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// One of many short, identical iterations, whose duration tells the clock.
struct ClockedIteration {
    TimePoint start;
    TimePoint end;
};

/// Iterations back to back; the device was steady at one clock when they began, and during them
/// another was asked for.
struct SwitchTrace {
    TimePoint called;  ///< when the call was made that asks for the new clock
    std::vector<ClockedIteration> iterations;
};

/// The iteration of a trace in which the clock changed: begun at the old clock, ended at the new.
struct SwitchSighting {
    bool seen = false;
    Duration begun{0};  ///< since the call; negative where the call came within it
    Duration lasted{0};
};

/// How long iterations take at a steady clock.
struct SteadyIterations {
    Duration median{0};
    Duration spread{0};  ///< standard deviation, from the median of deviations
};

/// What is known of a switch from one clock to another.
enum class SwitchStatus {
    measured,
    indistinguishable,  ///< iterations last equally long at both clocks
    no_effect,          ///< most traces end at the old clock
};

constexpr std::string_view to_string(SwitchStatus status) {
    switch (status) {
        case SwitchStatus::measured: return "measured";
        case SwitchStatus::indistinguishable: return "indistinguishable";
        case SwitchStatus::no_effect: return "no_effect";
    }
    return "unknown";
}

/// One pair of clocks. Durations are medians over the repetitions, meaningful where `measured`.
struct SwitchLatency {
    ClockPoint from;
    ClockPoint to;
    SwitchStatus status = SwitchStatus::no_effect;
    Duration switching{0};      ///< from the call to the new clock
    Duration switching_low{0};  ///< 95 % interval of the median, by ranks
    Duration switching_high{0};
    Duration transition{0};       ///< the end of it, in which no work is done
    Duration iteration{0};        ///< the resolution: no change is seen finer than this
    std::size_t repetitions = 0;  ///< that showed the change
    std::size_t outliers = 0;     ///< off the median by 2 iterations and 8 median deviations
};

inline SteadyIterations steady_iterations(const std::vector<ClockedIteration>& iterations) {
    Expects(!iterations.empty());
    std::vector<Duration> times;
    for (const ClockedIteration& iteration : iterations) {
        times.push_back(iteration.end - iteration.start);
    }
    const Duration median = median_of(times);
    for (Duration& time : times) time = time > median ? time - median : median - time;
    return {median, std::chrono::duration_cast<Duration>(median_of(times) * median_to_deviation)};
}

/// Finds the change in a trace: the place that parts the iterations into those nearer to the old
/// clock's time and those nearer to the new one's, by least absolute deviations, which single long
/// iterations do not move.
inline SwitchSighting find_switch(const SwitchTrace& trace, Duration from, Duration to) {
    const auto& iterations = trace.iterations;
    const auto distance = [](Duration a, Duration b) {
        return static_cast<double>(std::abs((a - b).count()));
    };
    double old_side = 0;
    double new_side = 0;
    for (const auto& [start, end] : iterations) new_side += distance(end - start, to);
    double least = new_side;
    std::size_t change = 0;
    for (std::size_t i = 0; i < iterations.size(); ++i) {
        const Duration time = iterations[i].end - iterations[i].start;
        new_side -= distance(time, to);
        old_side += distance(time, from);
        if (old_side + new_side < least) {
            least = old_side + new_side;
            change = i + 1;
        }
    }
    constexpr std::size_t fewest_after = 3;
    if (change + fewest_after > iterations.size()) return {};
    // The mixed iteration lies beside the parting, and is the oddest there: like neither clock's.
    const auto oddness = [&](std::size_t i) {
        const Duration time = iterations[i].end - iterations[i].start;
        return std::min(distance(time, from), distance(time, to));
    };
    std::size_t mixed = change;
    for (std::size_t i = std::max<std::size_t>(change, 1) - 1; i <= change + 1; ++i) {
        if (oddness(i) > oddness(mixed)) mixed = i;
    }
    const auto& [start, end] = iterations[mixed];
    return {true, start - trace.called, end - start};
}

/// When the new clock held, since the call, if the change paused the work for `pause`: the mixed
/// iteration did its work in two parts, of which the first at the old clock takes
/// old_time = part * from, and part * from + (1 - part) * to = lasted - pause.
inline Duration switching_latency(const SwitchSighting& sighting, Duration from, Duration to,
                                  Duration pause) {
    Expects(from != to);
    const double part = Seconds{sighting.lasted - pause - to} / Seconds{from - to};
    const auto old_time = Seconds{from} * std::clamp(part, 0.0, 1.0);
    return std::max(Duration{0},
                    sighting.begun + pause + std::chrono::duration_cast<Duration>(old_time));
}

/// Robust statistics of a pair's traces.
inline SwitchLatency switch_latency(ClockPoint from, ClockPoint to, const SteadyIterations& before,
                                    const SteadyIterations& after,
                                    const std::vector<SwitchTrace>& traces) {
    SwitchLatency result{
        .from = from, .to = to, .iteration = std::max(before.median, after.median)};
    const Duration step =
        std::max(before.median, after.median) - std::min(before.median, after.median);
    constexpr int clear = 3;  // deviations between the two clocks' iterations, to be told apart
    if (step <= clear * std::max(before.spread, after.spread)) {
        result.status = SwitchStatus::indistinguishable;
        return result;
    }
    std::vector<SwitchSighting> sightings;
    for (const SwitchTrace& trace : traces) {
        const SwitchSighting sighting = find_switch(trace, before.median, after.median);
        if (sighting.seen) sightings.push_back(sighting);
    }
    result.repetitions = sightings.size();
    if (sightings.empty() || 2 * sightings.size() < traces.size()) return result;
    // The change falls anywhere in an iteration, so the median mixed one is half old, half new.
    std::vector<Duration> pauses;
    for (const SwitchSighting& sighting : sightings) {
        pauses.push_back(sighting.lasted - (before.median + after.median) / 2);
    }
    std::sort(pauses.begin(), pauses.end());
    result.transition = std::max(Duration{0}, pauses[pauses.size() / 2]);
    std::vector<Duration> switching;
    for (const SwitchSighting& sighting : sightings) {
        switching.push_back(
            switching_latency(sighting, before.median, after.median, result.transition));
    }
    std::sort(switching.begin(), switching.end());
    const std::size_t n = switching.size();
    const auto reach =
        static_cast<std::size_t>(std::ceil(0.98 * std::sqrt(static_cast<double>(n))));
    const std::size_t middle = n / 2;
    result.status = SwitchStatus::measured;
    result.switching = switching[middle];
    result.switching_low = switching[middle - std::min(middle, reach)];
    result.switching_high = switching[std::min(n - 1, middle + reach)];
    std::vector<Duration> deviations;
    for (const Duration time : switching) {
        deviations.push_back(std::max(time, result.switching) - std::min(time, result.switching));
    }
    std::sort(deviations.begin(), deviations.end());
    // A single slow iteration beside the change moves a sighting by as much as itself.
    const Duration far = std::max(2 * result.iteration, 8 * deviations[middle]);
    result.outliers = static_cast<std::size_t>(
        std::count_if(deviations.begin(), deviations.end(), [&](Duration d) { return d > far; }));
    return result;
}

/// How the device is worked. Both may throw `kdvfs::Error`; whoever calls restores the clocks.
struct SwitchExperiment {
    /// Iterations at a clock that has been held long enough to be steady.
    std::function<std::vector<ClockedIteration>(ClockPoint)> steady;
    /// Iterations that begin steady at `from` and go on for a while after `to` was asked for.
    std::function<SwitchTrace(ClockPoint from, ClockPoint to)> change;
    /// Told before each pair how much is done, 0 to 1; may be empty.
    std::function<void(double)> progress;
};

/// The latencies of all pairs of clocks, in the order of `clocks`: from by from, to by to.
inline std::vector<SwitchLatency> measure_switch_latencies(const std::vector<ClockPoint>& clocks,
                                                           const SwitchExperiment& experiment,
                                                           std::size_t repetitions = 25) {
    Expects(experiment.steady && experiment.change && repetitions > 0);
    std::vector<SteadyIterations> steady;
    for (const ClockPoint clock : clocks) {
        steady.push_back(steady_iterations(experiment.steady(clock)));
    }
    std::vector<SwitchLatency> latencies;
    const std::size_t pairs =
        clocks.size() * (clocks.size() - std::min<std::size_t>(clocks.size(), 1));
    for (std::size_t from = 0; from < clocks.size(); ++from) {
        for (std::size_t to = 0; to < clocks.size(); ++to) {
            if (from == to) continue;
            if (experiment.progress) {
                experiment.progress(static_cast<double>(latencies.size()) /
                                    static_cast<double>(pairs));
            }
            std::vector<SwitchTrace> traces;
            for (std::size_t i = 0; i < repetitions; ++i) {
                traces.push_back(experiment.change(clocks[from], clocks[to]));
            }
            latencies.push_back(
                switch_latency(clocks[from], clocks[to], steady[from], steady[to], traces));
        }
    }
    return latencies;
}

inline void write_fields(io::JsonFields& out, const SwitchLatency& entry) {
    const auto known = [&](Duration time) {
        return entry.status == SwitchStatus::measured ? std::optional{time} : std::nullopt;
    };
    out("from", entry.from)("to", entry.to)("status", to_string(entry.status));
    out("switching_s", known(entry.switching))("switching_low_s", known(entry.switching_low));
    out("switching_high_s", known(entry.switching_high));
    out("transition_s", known(entry.transition))("iteration_s", entry.iteration);
    out("repetitions", entry.repetitions)("outliers", entry.outliers);
}

/// The matrix as a JSON object: the device, and an entry per pair, in seconds; what was not
/// measured is null. `kdvfs report` draws it.
inline void write_switch_json(std::ostream& out, const DeviceInfo& device,
                              const std::vector<SwitchLatency>& latencies) {
    std::string text;
    io::append_json(text, [&](io::JsonFields& fields) {
        fields("gpu", gpu_name(device))("device", to_string(device));
        fields("mechanism", device.mechanism)("simulated", device.simulated);
        fields("pairs", io::JsonLines{latencies});
    });
    out << text << '\n';
}

}  // namespace kdvfs::inline v0_3::measure
