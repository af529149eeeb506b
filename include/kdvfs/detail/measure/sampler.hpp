// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/settings.hpp>
#include <kdvfs/units.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// When to read an energy counter, and what its readings mean. A pure state machine: time and
/// completed readings in, the time of the next read and trusted samples out. It reads nothing
/// itself, so that a thread (real GPUs) and an event loop (the simulated one) drive it alike:
///
///     while (running) {
///         wait until sampler.next_read();             // a thread sleeps, a simulation schedules
///         const auto reading = device.read_energy();  // may take milliseconds
///         sampler.complete(reading, now);
///         for (const EnergySample& sample : sampler.take_samples()) accumulator.add(sample);
///     }
///
/// Not thread-safe. Allocates only in its constructor and when samples are taken.
class Sampler {
public:
    Sampler(SamplerSettings settings, TimePoint start);

    /// When the next read is due; `never` once the counter proved absent.
    [[nodiscard]] TimePoint next_read() const { return next_read_; }
    static constexpr TimePoint never = TimePoint::max();

    /// From here on the next read is due once in the resting period.
    void rest(TimePoint now) {
        if (next_read_ == never || std::exchange(resting_, true)) return;
        next_read_ = now + std::max(resting_period_, period_);
    }
    /// The next read is due now, and the others after it as often as before.
    void resume(TimePoint now) {
        if (std::exchange(resting_, false)) next_read_ = now;
    }

    /// Takes the result of a read that was completed at `now`.
    ReadingStatus complete(const EnergyReading& reading, TimePoint now);

    /// Moves the samples that arrived since the last call into `samples`, which is cleared first.
    void take_samples(std::vector<EnergySample>& samples);

    [[nodiscard]] const CounterFaults& faults() const { return counter_.faults(); }
    [[nodiscard]] ReadingStatus last_status() const { return last_status_; }
    /// Reads that came more than a period late: gaps in the record.
    [[nodiscard]] std::uint64_t gaps() const { return gaps_; }
    /// Samples that nobody took in time.
    [[nodiscard]] std::uint64_t dropped() const { return dropped_; }
    [[nodiscard]] Duration period() const { return period_; }
    /// The time between two updates of the counter: as its reads show it, where they come several
    /// times faster and contradict what was believed; else as believed; 0 where nobody knows.
    [[nodiscard]] Duration counter_period() const { return counter_period_; }
    [[nodiscard]] bool found_counter_period() const { return found_; }

private:
    void schedule(ReadingStatus status, TimePoint now);
    void learn(const EnergyReading& reading, TimePoint now);

    Duration period_;
    Duration resting_period_;
    EnergyCounter counter_;
    PeriodFinder finder_;
    Duration counter_period_;
    bool found_ = false;
    TimePoint next_read_;
    bool resting_ = false;
    ReadingStatus last_status_ = ReadingStatus::unchanged;
    std::uint32_t failures_in_a_row_ = 0;
    std::uint64_t gaps_ = 0;
    std::uint64_t dropped_ = 0;
    std::vector<EnergySample> ring_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

inline Sampler::Sampler(SamplerSettings settings, TimePoint start)
    : period_{settings.period > Duration::zero()          ? settings.period
              : settings.limits.period > Duration::zero() ? settings.limits.period
                                                          : std::chrono::milliseconds{10}},
      resting_period_{settings.resting_period},
      counter_{settings.limits},
      counter_period_{settings.limits.period},
      next_read_{start},
      ring_(settings.capacity) {
    Expects(settings.capacity > 0);
}

inline ReadingStatus Sampler::complete(const EnergyReading& reading, TimePoint now) {
    if (now - next_read_ > period_) ++gaps_;
    const CounterStep step = counter_.take(reading, now);
    last_status_ = step.status;
    if (reading.status == ReadingStatus::ok && !resting_) learn(reading, now);
    if (step.sample) {
        if (count_ == ring_.size()) {
            first_ = (first_ + 1) % ring_.size();
            --count_;
            ++dropped_;
        }
        ring_[(first_ + count_) % ring_.size()] = *step.sample;
        ++count_;
    }
    schedule(step.status, now);
    return step.status;
}

inline void Sampler::learn(const EnergyReading& reading, TimePoint now) {
    constexpr double same = 1.5;  // reads see a period to one of theirs
    finder_.take(now, reading.joules.count);
    const auto period = finder_.period();
    if (!period || period == counter_period_) return;
    const double ratio = Seconds{*period} / Seconds{std::max(counter_period_, Duration{1})};
    if (!found_ && ratio < same && ratio * same > 1) return;
    found_ = true;
    counter_period_ = *period;
    counter_.expect_period(*period);
}

inline void Sampler::schedule(ReadingStatus status, TimePoint now) {
    if (status == ReadingStatus::absent) {
        next_read_ = never;
        return;
    }
    // A counter that fails is asked less and less often, down to once a second.
    failures_in_a_row_ = status == ReadingStatus::failed ? failures_in_a_row_ + 1 : 0;
    const auto slowness = std::int64_t{1} << std::min(failures_in_a_row_, 20U);
    const Duration wait =
        resting_ ? std::max(resting_period_, period_)
        : failures_in_a_row_ == 0
            ? period_
            : std::max(period_, std::min<Duration>(period_ * slowness, std::chrono::seconds{1}));
    // The grid of due times is kept, so that a slow read delays one sample and not all after it.
    next_read_ += wait;
    if (next_read_ <= now) next_read_ += ((now - next_read_) / wait + 1) * wait;
}

inline void Sampler::take_samples(std::vector<EnergySample>& samples) {
    samples.clear();
    for (; count_ > 0; --count_) {
        samples.push_back(ring_[first_]);
        first_ = (first_ + 1) % ring_.size();
    }
}

}  // namespace kdvfs::inline v0_3::measure
