// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/units.hpp>

#include <cmath>
#include <cstdint>
#include <random>

namespace kdvfs::simulated {

/// The true energy of a simulated board, and the counter that shows it: sampled every period,
/// noisy, in whole quanta, and open to faults.
class EnergyMeter {
public:
    EnergyMeter(EnergyCounterTraits traits, std::uint64_t seed) : traits_{traits}, random_{seed} {}

    /// The board draws `power` from `from` to `to`.
    void draw(Watts power, TimePoint from, TimePoint to) {
        const TimePoint tick = last_tick(to);
        if (tick > from) {
            const Joules truth = truth_ + power * Seconds{tick - from};
            take_sample(tick, truth);
            mean_power_ = (truth - truth_at_tick_) / Seconds{tick - tick_};
            truth_at_tick_ = truth;
            tick_ = tick;
        }
        truth_ += power * Seconds{to - from};
    }

    /// What the counter shows now.
    [[nodiscard]] EnergyReading read(TimePoint now) const {
        const bool follows = traits_.period == Duration::zero() && !frozen_;
        return {shown(sample_), follows ? now : sampled_at_, ReadingStatus::ok};
    }

    /// The power meter beside the counter, without its faults: the mean over the counter's last
    /// period.
    [[nodiscard]] Watts mean_power() const { return mean_power_; }

    /// The energy that was really drawn: what a test compares with.
    [[nodiscard]] Joules truth() const { return truth_; }
    [[nodiscard]] const EnergyCounterTraits& traits() const { return traits_; }

    /// The counter stands still from now on, or runs again.
    void freeze(bool frozen) { frozen_ = frozen; }
    /// The counter transitions, forwards or backwards.
    void transition(Joules by) { offset_ += by; }
    /// The counter shows so many times the joules.
    void scale(double factor) { scale_ = factor; }
    /// The counter starts again from zero at this many joules; 0 = never.
    void wrap_at(Joules limit) { wrap_ = limit; }

private:
    [[nodiscard]] TimePoint last_tick(TimePoint until) const {
        if (traits_.period == Duration::zero()) return until;
        return until - until.time_since_epoch() % traits_.period;
    }

    void take_sample(TimePoint at, Joules truth) {
        if (frozen_) return;
        sampled_at_ = at;
        double noisy = truth.count;
        if (traits_.noise.count > 0) {
            noisy += std::normal_distribution{0.0, traits_.noise.count}(random_);
        }
        if (noisy > sample_.count) sample_ = {noisy};  // a counter never counts down by noise
    }

    [[nodiscard]] Joules shown(Joules value) const {
        double joules = scale_ * value.count + offset_.count;
        if (wrap_.count > 0) joules = std::fmod(joules, wrap_.count);
        if (traits_.quantum.count > 0) {
            joules = std::floor(joules / traits_.quantum.count) * traits_.quantum.count;
        }
        return {joules};
    }

    EnergyCounterTraits traits_;
    std::mt19937_64 random_;
    Joules truth_{};
    Joules sample_{};
    double scale_ = 1;
    TimePoint tick_{};
    Joules truth_at_tick_{};
    Watts mean_power_{};
    Joules offset_{};
    Joules wrap_{};
    TimePoint sampled_at_{};
    bool frozen_ = false;
};

}  // namespace kdvfs::simulated
