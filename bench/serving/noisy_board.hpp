// SPDX-License-Identifier: MIT
#pragma once

#include <bench/serving/roofline_board.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <optional>
#include <random>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// How boards differ from their model, and how their counter is read. Standard deviations are
/// relative.
struct BoardNoise {
    double jitter = 0.05;         ///< of a step's time
    double power = 0.05;          ///< of a step's power
    double stalls = 0.002;        ///< share of the steps that stall
    Seconds stall{0.02};          ///< for so long
    double unlike = 0;            ///< between boards, of time and of power
    double wander = 0;            ///< over minutes, of time and of power
    double latency = 0;           ///< of a clock switch's latency
    Seconds counter_late{0.042};  ///< a reading of the energy counter
    Joules quantum{1};            ///< of the energy counter

    /// Drawn from ranges: of steps 1 to 10 %, of boards 0 to 3 %, of the latency 0 to 50 %.
    static BoardNoise drawn(std::uint64_t seed) {
        std::mt19937_64 random{seed};
        const auto between = [&](double low, double high) {
            return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
        };
        BoardNoise noise;
        noise.jitter = between(0.01, 0.1);
        noise.power = between(0.01, 0.1);
        noise.stalls = between(0, 0.01);
        noise.stall = Seconds{between(0.005, 0.03)};
        noise.unlike = between(0, 0.03);
        noise.wander = between(0, 0.03);
        noise.latency = between(0, 0.5);
        noise.counter_late = Seconds{between(0, 0.12)};
        noise.quantum = Joules{std::pow(10, between(-3, 0))};
        return noise;
    }
};

/// A board whose steps jitter and stall, whose power varies, whose speed and power wander, and that
/// is not quite like others. What is asked for without a time is that of the model.
class NoisyBoard {
public:
    /// @param seed of the board and of how it wanders
    /// @param run  of its steps: boards that differ in this alone wander alike
    NoisyBoard(const RooflineBoard& board, const BoardNoise& noise, std::uint64_t seed,
               std::uint64_t run)
        : board_{board}, noise_{noise}, steps_{seed * 1'000'003 + run} {
        std::mt19937_64 random{seed};
        std::normal_distribution<double> normal;
        slower_ = noise.unlike * normal(random);
        dearer_ = noise.unlike * normal(random);
        for (Wave& wave : waves_) {
            wave.period = 120 * std::exp2(4 * std::uniform_real_distribution<double>{}(random));
            wave.phase = 2 * std::numbers::pi * std::uniform_real_distribution<double>{}(random);
        }
    }

    [[nodiscard]] const std::vector<Megahertz>& clocks() const { return board_.clocks(); }
    [[nodiscard]] Watts idle_power(Megahertz clock) const { return board_.idle_power(clock); }
    [[nodiscard]] std::optional<Cost> cost(StepShape shape, Megahertz clock) const {
        return board_.cost(shape, clock);
    }
    /// Of a step that runs now.
    [[nodiscard]] std::optional<Cost> cost(StepShape shape, Megahertz clock, Seconds now) const {
        const auto exact = board_.cost(shape, clock);
        if (!exact || phase_of(shape) == Phase::idle) return exact;
        std::normal_distribution<double> normal;
        Seconds time = exact->time * std::exp(slower_ + noise_.wander * waves(0, now) +
                                              noise_.jitter * normal(steps_));
        if (std::uniform_real_distribution<double>{}(steps_) < noise_.stalls) time += noise_.stall;
        const Watts watts = exact->energy / exact->time *
                            std::exp(dearer_ + noise_.wander * waves(waves_.size() / 2, now) +
                                     noise_.power * normal(steps_));
        return Cost{time, watts * time};
    }
    /// Of one clock switch.
    [[nodiscard]] Seconds latency(Seconds usual) const {
        return usual * std::exp(noise_.latency * std::normal_distribution<double>{}(steps_));
    }

private:
    struct Wave {
        double period = 0;  ///< s
        double phase = 0;
    };
    /// Half of the waves, from the first: standard deviation 1.
    [[nodiscard]] double waves(std::size_t first, Seconds now) const {
        double sum = 0;
        const std::size_t count = waves_.size() / 2;
        for (std::size_t w = first; w < first + count; ++w)
            sum +=
                std::sin(2 * std::numbers::pi * now.count() / waves_[w].period + waves_[w].phase);
        return sum * std::sqrt(2.0 / static_cast<double>(count));
    }

    RooflineBoard board_;
    BoardNoise noise_;
    double slower_ = 0;
    double dearer_ = 0;
    std::array<Wave, 6> waves_{};
    mutable std::mt19937_64 steps_;
};

/// Boards that serve together.
inline std::vector<NoisyBoard> noisy_boards(const RooflineBoard& board, std::size_t count,
                                            const BoardNoise& noise, std::uint64_t seed,
                                            std::uint64_t run) {
    std::vector<NoisyBoard> boards;
    for (std::size_t b = 0; b < count; ++b) boards.emplace_back(board, noise, 100 * seed + b, run);
    return boards;
}

}  // namespace kdvfs::inline v0_3::serve
