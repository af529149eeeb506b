// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/measure/attribution.hpp>
#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/energy_sums.hpp>
#include <kdvfs/detail/measure/late_rows.hpp>
#include <kdvfs/detail/serve/step_cells.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace kdvfs::inline v0_3::serve::detail {

/// What steps of one board cost in joules: steps of a kind (alike in shape, at one clock) are a
/// kernel to `measure`'s engine, which attributes the counter's joules to them.
class StepMeter {
public:
    explicit StepMeter(std::size_t clocks) : steps_(clocks * kinds_), seconds_(clocks * kinds_) {}

    /// A step ran. @param settled at one clock, and of a shape that the table will have
    void ran(const StepCellFit& fit, StepShape shape, std::size_t clock, Seconds begin, Seconds end,
             bool settled) {
        rested(clock, begin);
        const std::size_t kind = settled ? clock * kinds_ + kinds().bucket(shape) : steps_.size();
        add(kind, begin, end);
        if (!settled) return;
        fit.add(steps_[kind], shape);
        seconds_[kind] += (end - begin).count();
    }
    /// Nothing ran since the last step.
    void rested(std::size_t clock, Seconds until) {
        if (!(until > known_to_)) return;
        add(clock * kinds_ + idle_kind(), known_to_, until);
    }
    /// A sample of the energy counter.
    void sample(Seconds time, Joules reading) {
        const TimePoint at = moment(time);
        // Slow counters are taken for late; those of a fast one are as well thinned out.
        if (at < next_sample_) return;
        next_sample_ = at + measure::LateRows::slow;
        engine_.add(measure::EnergySample{at, reading});
        engine_.advance(at);
    }

    struct Idle {
        double joules = 0;
        double seconds = 0;
    };
    /// Adds the joules of each clock's steps to the fits, and those of the time between them.
    /// @pre both have the number of clocks
    void add_to(std::vector<StepCellFit>& joules, std::vector<Idle>& idle) const {
        const measure::EnergySums sums = engine_.sums();
        const measure::Attributing attributing{sums};
        if (!attributing.solved()) return;
        for (std::size_t kind = 0; kind < steps_.size(); ++kind) {
            const std::vector<double> counted = sums.seconds_of(id(kind));
            const double seconds = std::accumulate(counted.begin(), counted.end(), 0.0);
            if (seconds <= 0) continue;
            const double found = attributing.interval(counted).joules;
            const double variance = attributing.covariance({counted})(0, 0);
            const double deviation =
                std::hypot(std::sqrt(variance) / found, alike, a_second / std::sqrt(seconds));
            if (!(found > 0) || deviation > widest) continue;
            const std::size_t clock = kind / kinds_;
            if (kind % kinds_ == idle_kind()) {
                idle[clock].joules += found;
                idle[clock].seconds += seconds;
            } else {
                const double mean = seconds_[kind] / steps_[kind].count;
                joules[clock].close(steps_[kind], found / seconds * mean, deviation);
            }
        }
    }

private:
    static constexpr std::uint32_t most = 1U << 30U;
    // Relative deviations.
    static constexpr double widest = 0.3;     ///< that still says something
    static constexpr double alike = 0.03;     ///< of powers within a kind, and of boards
    static constexpr double a_second = 0.02;  ///< of what ran for a second: so little is not noise

    /// Steps of one kind draw nearly one power.
    static const StepBuckets& kinds() {
        static const StepBuckets kinds{{{128, most}, {4, 8, 16, 32, most}, {1024, most}, {most}}};
        return kinds;
    }
    [[nodiscard]] std::size_t idle_kind() const { return kinds_ - 1; }
    static KernelId id(std::size_t kind) { return {static_cast<std::uint32_t>(kind)}; }
    static TimePoint moment(Seconds time) {
        return TimePoint{std::chrono::duration_cast<Duration>(time)};
    }
    static const measure::KernelTable& no_names() {
        static const measure::KernelTable names;
        return names;
    }

    void add(std::size_t kind, Seconds begin, Seconds end) {
        KernelInterval interval;
        interval.kernel = id(kind);
        interval.start = moment(begin);
        interval.end = moment(end);
        engine_.add(interval);
        known_to_ = end;
    }

    std::size_t kinds_ = kinds().size() + 1;  ///< at one clock, with idle time as the last
    std::vector<StepCellFit::Steps> steps_;   ///< by clock and kind
    std::vector<double> seconds_;             ///< of them
    measure::EnergyAccumulator engine_{
        no_names(),
        {.counter_period = measure::LateRows::slow, .most_late = std::chrono::milliseconds{150}}};
    Seconds known_to_{0};
    TimePoint next_sample_{};
};

}  // namespace kdvfs::inline v0_3::serve::detail
