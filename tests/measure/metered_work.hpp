// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>

#include <cstdint>
#include <optional>
#include <random>
#include <utility>

namespace kdvfs::measure {

/// How the counter of `MeteredWork` looks at the truth.
struct CounterModel {
    Duration period = std::chrono::milliseconds{1};
    double power_noise = 0.005;  ///< white, relative, of each period's mean power
    double fault_rate = 0;       ///< share of reads that go wrong
};

/// Work whose power is known, told to an accumulator as it happens, together with the readings of a
/// counter that may be noisy and faulty. The truth that attribution is tested against.
class MeteredWork {
public:
    MeteredWork(EnergyAccumulator& accumulator, CounterModel model, std::uint64_t seed)
        : accumulator_{&accumulator}, model_{model}, random_{seed} {
        tick();
    }

    void run(KernelId kernel, Duration length, double watts, ClockPoint asked = {}) {
        accumulator_->add(KernelInterval{.kernel = kernel,
                                         .asked = asked,
                                         .start = TimePoint{now_},
                                         .end = TimePoint{now_ + length}});
        pass(length, watts);
    }
    void idle(Duration length) { pass(length, idle_watts); }
    void clocks_applied(ClockPoint point) { accumulator_->clocks_applied(TimePoint{now_}, point); }

    [[nodiscard]] Duration now() const { return now_; }
    [[nodiscard]] double joules() const { return joules_; }

    static constexpr double idle_watts = 90;

private:
    void pass(Duration length, double watts) {
        const Duration end = now_ + length;
        while (next_tick_ <= end) {
            joules_ += watts * Seconds{next_tick_ - now_}.count();
            now_ = next_tick_;
            tick();
        }
        joules_ += watts * Seconds{end - now_}.count();
        now_ = end;
    }

    void tick() {
        const double noise = std::normal_distribution<double>{0, model_.power_noise}(random_);
        shown_ += (joules_ - joules_at_tick_) * (1 + noise);
        joules_at_tick_ = joules_;
        next_tick_ += model_.period;
        const std::optional<EnergyReading> reading = look();
        if (!reading) return;
        const CounterStep step = counter_.take(*reading, TimePoint{now_});
        if (!step.sample) return;
        accumulator_->add(*step.sample);
        accumulator_->advance(step.sample->at);
    }

    /// What a read returns; nothing where it was missed.
    std::optional<EnergyReading> look() {
        EnergyReading reading{{shown_}, TimePoint{now_}, ReadingStatus::ok};
        if (frozen_reads_ > 0) {
            --frozen_reads_;
            return last_;
        }
        if (std::uniform_real_distribution<double>{0, 1}(random_) < model_.fault_rate) {
            const double size = std::uniform_real_distribution<double>{0, 100}(random_);
            switch (random_() % 5) {
                case 0: return {};
                case 1: frozen_reads_ = static_cast<int>(random_() % 5); return last_;
                case 2: reading.joules.count -= size; return reading;
                case 3: reading.joules.count += size; return reading;  // for one read
                default: reading.joules.count = shown_ += size;        // for good
            }
        }
        last_ = reading;
        return reading;
    }

    EnergyAccumulator* accumulator_;
    CounterModel model_;
    EnergyCounter counter_;
    std::mt19937_64 random_;
    Duration now_{0};
    Duration next_tick_{0};
    double joules_ = 0;
    double joules_at_tick_ = 0;
    double shown_ = 1000;
    int frozen_reads_ = 0;
    EnergyReading last_{{1000}, TimePoint{}, ReadingStatus::ok};
};

}  // namespace kdvfs::measure
