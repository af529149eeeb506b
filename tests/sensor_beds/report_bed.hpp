// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/board_sharing.hpp>
#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/detail/measure/sampler.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/report.hpp>
#include <tests/sensor_beds/sensor_bed.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace sensor_bed {

/// What markers say of calls: some never arrive, and from a moment on their clock may be off.
class Markers {
public:
    Markers(const Run& run, const Bed& bed)
        : random_{run.calls().size()},
          lost_{bed.lost},
          burst_{bed.burst},
          of_one_{bed.of_one},
          leaves_out_{bed.leaves_out} {
        const auto uniform = [&](double low, double high) {
            return std::uniform_real_distribution<double>{low, high}(random_);
        };
        jump_ = uniform(0.25, 1) * bed.most_jump * (uniform(0, 1) < 0.5 ? -1 : 1);
        jumps_at_ = uniform(0.2, 0.8) * static_cast<double>(run.drawn().size()) * Run::grain;
    }
    /// When a call ran, s; nothing where its markers do not arrive. In order.
    [[nodiscard]] std::optional<std::pair<double, double>> of(const Run::Call& call) {
        const double each = lost_ / static_cast<double>(burst_);
        const bool begins = std::uniform_real_distribution<double>{}(random_) < each;
        if (begins && goes_on_ == 0) goes_on_ = burst_;
        const bool lost = goes_on_ > 0 && (!of_one_ || call.kernel == 1);
        goes_on_ -= goes_on_ > 0 ? 1 : 0;
        if (lost || (leaves_out_ && call.kernel == 0)) return {};
        return std::pair{stamp(call.begin), stamp(call.end)};
    }
    /// What their clock says at a grain, s.
    [[nodiscard]] double stamp(std::size_t at) const {
        const double seconds = static_cast<double>(at) * Run::grain;
        return seconds < jumps_at_ ? seconds : seconds + jump_;
    }

private:
    std::mt19937_64 random_;
    double lost_;
    std::size_t burst_;
    std::size_t goes_on_ = 0;  // calls that are lost yet
    bool of_one_;
    bool leaves_out_;
    double jump_ = 0;      // s
    double jumps_at_ = 0;  // s
};

/// The report of a bed's run through what users have: counter reads by the sampler, looks at the
/// log each 250 ms, intervals as the markers tell them.
/// @param sensors as they were measured
inline kdvfs::measure::Report report(
    const Run& run, const Bed& bed,
    const std::optional<kdvfs::measure::SensorCalibration>& sensors = {}) {
    using namespace kdvfs;
    using namespace kdvfs::measure;
    KernelTable table;
    std::vector<KernelId> ids;
    for (std::size_t k = 0; k < run.kernels().size(); ++k) {
        ids.push_back(table.id("kernel", {static_cast<std::uint32_t>(k)}));
    }
    const auto seconds = [](double s) { return std::chrono::duration_cast<Duration>(Seconds{s}); };
    const bool has_timestamps = bed.counter_period < 10e-3;
    SamplerSettings reads;
    reads.period = seconds(has_timestamps ? bed.counter_period : bed.counter_period / 5);
    reads.limits.period = seconds(bed.counter_period);
    // Before it has moved for the first time, nobody knows since when it stands.
    Sampler sampler{reads,
                    run.counter().empty() ? TimePoint{} : Run::time(run.counter().front().at)};
    EnergyAccumulator accumulator{table,
                                  {.counter_period = seconds(bed.counter_period),
                                   .sensor_may_lag = true,
                                   .sensors = sensors,
                                   .power_limit = {run.truth().limit},
                                   .rests = Run::idle,
                                   .others_may_work = !bed.listed}};
    kdvfs::detail::BoardSharing sharing;
    const std::vector<std::string> others(bed.outside ? 1 : 0, "another (2)");
    double looked = 0;
    const double end = static_cast<double>(run.drawn().size()) * Run::grain;
    std::size_t call = 0;
    std::size_t logged = 0;
    std::size_t counted = 0;
    std::vector<EnergySample> samples;
    Markers markers{run, bed};
    for (double now = 0; now < end; now += 0.25) {
        for (; call < run.calls().size(); ++call) {
            const Run::Call& made = run.calls()[call];
            if (static_cast<double>(made.end) * Run::grain > now) break;
            const auto mark = [&](std::size_t at, IterationMark what) {
                if (!bed.mixed) accumulator.iteration(Run::time(markers.stamp(at)), what);
            };
            if (made.kernel == 0) mark(made.begin, IterationMark::begins);
            if (made.kernel + 1 == ids.size()) mark(made.end, IterationMark::ends);
            const auto ran = markers.of(made);
            if (!ran) continue;
            accumulator.add(KernelInterval{.kernel = ids[made.kernel],
                                           .start = Run::time(ran->first),
                                           .end = Run::time(ran->second)});
        }
        while (bed.counter_period > 0 && sampler.next_read() < Run::time(now)) {
            const TimePoint at = sampler.next_read();
            const auto& moves = run.counter();
            while (counted + 1 < moves.size() && Run::time(moves[counted + 1].at) <= at) ++counted;
            if (moves.empty() || Run::time(moves[counted].at) > at) {
                sampler.complete({{0}, at, ReadingStatus::ok}, at);
                continue;
            }
            const TimePoint stamp = has_timestamps ? Run::time(moves[counted].at) : at;
            sampler.complete({{moves[counted].value}, stamp, ReadingStatus::ok}, at);
        }
        sampler.take_samples(samples);
        for (const EnergySample& sample : samples) accumulator.add(sample);
        for (; logged < run.log().size() && run.log()[logged].at < now; ++logged) {
            accumulator.add(PowerReading{
                {run.log()[logged].value}, Run::time(run.log()[logged].at), ReadingStatus::ok});
        }
        for (; bed.listed && looked <= now; looked += Seconds{sharing.often}.count()) {
            sharing.take({.complete = true, .working = others});
        }
        // A call that has not ended is not known yet.
        const double known = call < run.calls().size()
                                 ? static_cast<double>(run.calls()[call].begin) * Run::grain
                                 : now;
        accumulator.advance(Run::time(std::min(now, known - bed.most_jump)));
    }
    Report report;
    accumulator.fill(report);
    sharing.judge(report);
    if (const CounterFaults& faults = sampler.faults(); faults.sum() > 0) {
        report.notes.push_back("the energy counter: " + to_string(faults));
    }
    return report;
}

/// Judges a report as `Run::judge` judges the posterior.
inline void take(Run& run, const kdvfs::measure::Report& report) {
    for (const auto& row : report.rows) {
        if (!row.energy.resolved) continue;
        run.found(row.kernel.variant.index, row.energy.joules.count / row.counted_time.count(),
                  row.energy.half_width.count / row.counted_time.count());
    }
}

}  // namespace sensor_bed
