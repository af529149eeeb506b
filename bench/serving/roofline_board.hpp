// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/serve/step_table.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// A simulated board of 350 W that serves a model of 7 billion parameters: a roofline between the
/// core clock and the memory, and a power that follows both. Fitted to a published table of
/// Qwen2.5-7B (150 rows, 6 clocks); median error 1.3 % of prefill times, 5 % of decode times, 2.6 %
/// of powers. Times are in seconds, frequencies in GHz, so work on the core is in GHz x s.
struct RooflineBoard {
    double overhead = 1.0e-3;          ///< of a step, GHz x s
    double per_sequence = 371e-6;      ///< core work of one token of a decode, GHz x s
    double per_prompt_token = 301e-6;  ///< core work of one prompt token, GHz x s
    double attention_tokens = 60'000;  ///< prompt tokens that double that work
    bool attends = false;              ///< whether those count that earlier steps have read
    double weight_bytes = 15.2e9;      ///< read once in every step
    double bytes_per_token = 57e3;     ///< of the keys and values of one token of context
    double bytes_per_second = 691e9;   ///< that the memory really gives
    double overlap = 1.57;             ///< exponent; 1 = core and memory never at once
    double static_watts = 89;
    double clock_watts_per_ghz = 36;  ///< of the clock tree, at 1 GHz and the lowest voltage
    double core_watts_per_ghz = 50;   ///< of a busy core in addition
    double memory_watts = 65;         ///< of busy memory
    double limit_watts = 350;
    double flat_until_ghz = 2.11;  ///< the voltage does not fall below this clock
    double volts_per_ghz = 0.31;   ///< relative rise above it
    double idle_watts = 62;
    double idle_clock_watts = 20;   ///< in addition, at the top clock
    std::uint32_t parallelism = 1;  ///< boards that share each step
    /// Of a shared step, s: two exchanges of 20 us in each of 28 layers (assumed, not fitted).
    double exchange = 28 * 2 * 20e-6;
    std::vector<Megahertz> clock_list{{900}, {1200}, {1500}, {1800}, {2100}, {2520}};

    /// Several such boards that share each step: work and bytes divide, powers add up.
    [[nodiscard]] RooflineBoard spread_over(std::uint32_t boards) const {
        RooflineBoard result = *this;
        result.parallelism = boards;
        return result;
    }

    [[nodiscard]] const std::vector<Megahertz>& clocks() const { return clock_list; }

    /// Of a mixed step: the prefill part and the decode part, less a decode step of one sequence
    /// of 256 tokens, because the weights are read once.
    [[nodiscard]] std::optional<Cost> cost(StepShape shape, Megahertz clock) const {
        const double ghz = clock.count * 1e-3;
        const auto decode = [&](double sequences, double context) {
            return part(per_sequence * sequences,
                        weight_bytes + sequences * context * bytes_per_token, ghz);
        };
        // A chunk's tokens attend to half of the chunk in the mean, and to all before it.
        const auto prefill = [&](double tokens) {
            const double attended = tokens + (attends ? 2.0 * shape.prompt_context : 0);
            return part(per_prompt_token * tokens * (1 + attended / attention_tokens), weight_bytes,
                        ghz);
        };
        switch (phase_of(shape)) {
            case Phase::idle: return Cost{};
            case Phase::prefill: return prefill(shape.prompt_tokens);
            case Phase::decode: return decode(shape.sequences, shape.context_tokens);
            case Phase::mixed: break;
        }
        return prefill(shape.prompt_tokens) + decode(shape.sequences, shape.context_tokens) +
               decode(1, 256) * -1;
    }

    [[nodiscard]] Watts idle_power(Megahertz clock) const {
        return Watts{idle_watts + idle_clock_watts * clock.count / clock_list.back().count} *
               parallelism;
    }

    /// One part of a step, from its core work and its bytes.
    [[nodiscard]] Cost part(double core_work, double bytes, double ghz) const {
        const double core_time = core_work / parallelism / ghz;
        const double memory = bytes / parallelism / bytes_per_second;
        const double time =
            overhead / ghz + (parallelism > 1 ? exchange : 0) +
            std::pow(std::pow(core_time, overlap) + std::pow(memory, overlap), 1 / overlap);
        const double volts = 1 + volts_per_ghz * std::max(0.0, ghz - flat_until_ghz);
        const double core = clock_watts_per_ghz + core_watts_per_ghz * core_time / time;
        const double power =
            static_watts + core * ghz * volts * volts + memory_watts * memory / time;
        return {Seconds{time}, Joules{std::min(limit_watts, power) * parallelism * time}};
    }
};

/// Steps of an engine that reads up to 512 prompt tokens beside up to 128 sequences.
inline const StepBuckets::Edges& ordinary_steps() {
    static const StepBuckets::Edges grid{{1, 16, 32, 64, 128, 192, 256, 320, 384, 448, 512},
                                         {1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128},
                                         {1, 256, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16384}};
    return grid;
}

/// Measures a board's pure steps on a grid, as the sweep of an engine would.
inline std::vector<StepRow> sample_steps(const RooflineBoard& board,
                                         const StepBuckets::Edges& grid = ordinary_steps()) {
    std::vector<StepRow> rows;
    for (const Megahertz clock : board.clocks()) {
        rows.push_back(
            {Phase::idle, 0, 0, clock, {Seconds{1}, board.idle_power(clock) * Seconds{1}}});
        for (const std::uint32_t tokens : grid.prompt_tokens)
            for (const std::uint32_t context : {0U, 2048U, 8192U, 16384U})
                if (context == 0 || board.attends)
                    rows.push_back({Phase::prefill, 1, tokens, clock,
                                    *board.cost({tokens, 0, 0, context}, clock), context});
        for (const std::uint32_t sequences : grid.sequences)
            for (const std::uint32_t context : grid.context_tokens)
                rows.push_back({Phase::decode, sequences, context, clock,
                                *board.cost({0, sequences, context}, clock)});
    }
    return rows;
}

}  // namespace kdvfs::inline v0_3::serve
