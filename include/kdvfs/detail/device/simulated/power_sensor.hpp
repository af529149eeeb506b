// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::simulated {

/// What a sensor sees of a load that is constant in pieces: two filters of first order, the board's
/// power and the sensor's memory, solved exactly (r b' = p - b, m s' = b - s).
class SeenPower {
public:
    SeenPower(Duration rise, Duration memory)
        : rise_{Seconds{rise}.count()}, memory_{Seconds{memory}.count()} {
        if (rise_ > 0 && std::abs(rise_ - memory_) < shortest) memory_ = rise_ + shortest;
    }

    /// The load draws so much until then.
    void pass(double watts, TimePoint until) {
        const double time = Seconds{until - now_}.count();
        if (time <= 0) return;
        now_ = until;
        if (first_) board_ = seen_ = watts;
        first_ = false;
        const double before = board_ - watts;
        const double board = rise_ > 0 ? watts + before * std::exp(-time / rise_) : watts;
        const double of_board = watts * time - rise_ * (board - board_);
        double seen = board;
        if (memory_ > 0) {
            // The answer to what is left of the last change, and the decay of the rest.
            const double gain = rise_ > 0 ? rise_ / (rise_ - memory_) : 0;
            const double left = seen_ - watts - gain * before;
            seen = watts + gain * (board - watts) + left * std::exp(-time / memory_);
        }
        joules_ += of_board - memory_ * (seen - seen_);
        board_ = board;
        seen_ = seen;
    }
    [[nodiscard]] double watts() const { return seen_; }
    [[nodiscard]] double joules() const { return joules_; }

private:
    static constexpr double shortest = 1e-7;  // s

    double rise_;
    double memory_;
    TimePoint now_{};
    double board_ = 0;
    double seen_ = 0;
    double joules_ = 0;
    bool first_ = true;
};

/// A sensor's timestamp for a reading that was taken at a moment.
inline TimePoint timestamp_of(const SensorTraits& sensor, TimePoint taken) {
    const Seconds drifted = Seconds{taken.time_since_epoch()} * sensor.drift;
    return taken + sensor.clock_offset + std::chrono::round<Duration>(drifted);
}

/// The power log of a simulated board.
class PowerLogSensor {
public:
    PowerLogSensor(PowerLogTraits traits, Duration rise, std::uint64_t seed)
        : traits_{traits}, seen_{rise, traits.sensor.memory}, random_{seed} {
        if (!on()) return;
        const auto parts = static_cast<std::uint64_t>(traits_.period.count());
        const Duration phase{static_cast<Duration::rep>(random_() % parts)};
        taken_ = TimePoint{} + phase;
        while (taken_ - traits_.sensor.delay - traits_.window < TimePoint{}) {
            taken_ += traits_.period;
        }
        begins_ = taken_ - traits_.sensor.delay - traits_.window;
    }

    [[nodiscard]] bool on() const { return traits_.period > Duration::zero(); }

    void draw(Watts load, TimePoint to) {
        while (on()) {
            const TimePoint ends = taken_ - traits_.sensor.delay;
            if (std::min(begins_, ends) > to) break;
            if (begins_ <= ends && traits_.window > Duration::zero()) {
                seen_.pass(load.count, begins_);
                joules_.push_back(seen_.joules());
                begins_ += traits_.period;
            } else {
                seen_.pass(load.count, ends);
                take_reading();
            }
        }
        if (on()) seen_.pass(load.count, to);
    }

    /// Readings that were taken by now, whose timestamps lie after `since`.
    [[nodiscard]] std::vector<PowerReading> read(TimePoint since, TimePoint now) const {
        std::vector<PowerReading> found;
        for (const auto& [taken, reading] : readings_) {
            if (taken <= now && reading.sampled_at > since) found.push_back(reading);
        }
        return found;
    }

private:
    void take_reading() {
        double watts = seen_.watts();
        if (traits_.window > Duration::zero()) {
            watts = (seen_.joules() - joules_.front()) / Seconds{traits_.window}.count();
            joules_.pop_front();
        }
        watts += traits_.noise.count * std::normal_distribution<double>{}(random_);
        readings_.push_back(
            {taken_, {{watts}, timestamp_of(traits_.sensor, taken_), ReadingStatus::ok}});
        if (readings_.size() > traits_.kept) readings_.pop_front();
        taken_ += traits_.period;
        if (traits_.window == Duration::zero()) begins_ = taken_ - traits_.sensor.delay;
    }

    PowerLogTraits traits_;
    SeenPower seen_;
    std::mt19937_64 random_;
    TimePoint taken_{};            ///< when the next reading is
    TimePoint begins_{};           ///< the next mean
    std::deque<double> joules_{};  ///< at the beginnings of means that have not ended
    std::deque<std::pair<TimePoint, PowerReading>> readings_{};
};

/// What an energy counter adds up where it does not show the load at once.
class CounterSensor {
public:
    CounterSensor(SensorTraits traits, Duration rise, Duration period)
        : traits_{traits},
          period_{period},
          seen_{rise, traits.memory},
          taken_{TimePoint{} + period} {
        while (taken_ - traits_.delay < TimePoint{}) taken_ += period_;
    }

    void draw(Watts load, TimePoint to) {
        for (; taken_ - traits_.delay <= to; taken_ += period_) {
            seen_.pass(load.count, taken_ - traits_.delay);
            samples_.emplace_back(taken_, seen_.joules());
        }
        seen_.pass(load.count, to);
    }
    /// The samples that have been taken by now, and their moments; each once.
    [[nodiscard]] std::optional<std::pair<TimePoint, Joules>> next(TimePoint now) {
        if (samples_.empty() || samples_.front().first > now) return {};
        const auto [taken, joules] = samples_.front();
        samples_.pop_front();
        return std::pair{taken, Joules{joules}};
    }
    [[nodiscard]] TimePoint timestamp(TimePoint taken) const {
        return timestamp_of(traits_, taken);
    }

private:
    SensorTraits traits_;
    Duration period_;
    SeenPower seen_;
    TimePoint taken_;
    std::deque<std::pair<TimePoint, double>> samples_{};
};

/// Another process on the board: it draws power in half of the time, from one random moment to
/// another, or always.
class OutsideLoad {
public:
    OutsideLoad(const LoadTraits& traits, std::uint64_t seed)
        : watts_{traits.outside}, half_{traits.outside_every / 2}, random_{seed} {
        draws_ = half_ <= Duration::zero();
        changes_ = draws_ || watts_.count <= 0 ? TimePoint::max() : TimePoint{} + some_time();
    }
    [[nodiscard]] TimePoint changes() const { return changes_; }
    [[nodiscard]] Watts watts() const { return draws_ ? watts_ : Watts{}; }
    void change() {
        draws_ = !draws_;
        changes_ += some_time();
    }

private:
    [[nodiscard]] Duration some_time() {
        const double part = std::uniform_real_distribution<double>{0.5, 1.5}(random_);
        return std::max(Duration{1}, std::chrono::round<Duration>(part * Seconds{half_}));
    }

    Watts watts_;
    Duration half_;
    std::mt19937_64 random_;
    TimePoint changes_{};
    bool draws_ = false;
};

}  // namespace kdvfs::inline v0_3::simulated
