// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/serve/step_table.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace kdvfs::inline v0_3::serve {

/// What tells the truth about a simulated board: a StepTable or a RooflineBoard. Where a cost may
/// be asked for with the time, and latencies too, steps and switches take those (NoisyBoard).
template <class T>
concept StepCosts = requires(const T& costs, StepShape shape, Megahertz clock) {
    { costs.clocks().back() } -> std::convertible_to<Megahertz>;
    { costs.cost(shape, clock) } -> std::same_as<std::optional<Cost>>;
    { costs.idle_power(clock) } -> std::same_as<Watts>;
};

/// A board in virtual time: does steps, draws power, and obeys a wish for a clock after the
/// switching latency; until then it works on at the old one.
template <StepCosts Costs>
class ServingBoard {
public:
    /// The board refers to `costs`.
    ServingBoard(const Costs& costs, Megahertz clock, Seconds switch_latency,
                 Seconds begin = Seconds{0})
        : costs_{costs}, clock_{clock}, asked_{clock}, latency_{switch_latency}, now_{begin} {}

    [[nodiscard]] Seconds now() const { return now_; }
    [[nodiscard]] Joules energy() const { return energy_; }
    [[nodiscard]] std::uint64_t switches() const { return switches_; }

    /// A wish for a clock; nothing where it is what was asked for last.
    void ask(Megahertz clock) {
        if (clock == asked_) return;
        asked_ = clock;
        ++switches_;
        Seconds latency = latency_;
        if constexpr (requires { costs_.latency(latency_); }) latency = costs_.latency(latency_);
        // Switches take effect in order.
        const Seconds before = pending_.empty() ? now_ : pending_.back().from;
        pending_.push_back({std::max(now_ + latency, before), clock});
    }

    /// Idles until then; does nothing where that is past.
    void idle_until(Seconds time) {
        while (now_ < time) {
            const Seconds next = pending_.empty() ? time : std::min(time, pending_.front().from);
            energy_ += costs_.idle_power(clock_) * std::max(next - now_, Seconds{0});
            now_ = std::max(now_, next);
            switch_clock();
        }
    }

    /// Does a step. @returns how long it took. @throws Error (invalid_input) for a shape of unknown
    /// cost
    Seconds run(StepShape shape) {
        const Seconds begin = now_;
        for (double left = 1; left > 0;) {
            switch_clock();
            const Cost cost = cost_of(shape);
            const Seconds rest = cost.time * left;
            const bool to_the_end = pending_.empty() || pending_.front().from >= now_ + rest;
            const double part = to_the_end ? left : (pending_.front().from - now_) / cost.time;
            now_ = to_the_end ? now_ + rest : pending_.front().from;
            energy_ += cost.energy * part;
            left = to_the_end ? 0 : left - part;
        }
        return now_ - begin;
    }

private:
    struct Switch {
        Seconds from;
        Megahertz clock;
    };

    void switch_clock() {
        for (; !pending_.empty() && pending_.front().from <= now_; pending_.pop_front())
            clock_ = pending_.front().clock;
    }

    [[nodiscard]] Cost cost_of(StepShape shape) const {
        const auto cost = [&] {
            if constexpr (requires { costs_.cost(shape, clock_, now_); })
                return costs_.cost(shape, clock_, now_);
            else
                return costs_.cost(shape, clock_);
        }();
        if (cost) return *cost;
        throw Error{Errc::invalid_input,
                    {"simulate a step",
                     std::to_string(shape.prompt_tokens) + " prompt tokens, " +
                         std::to_string(shape.sequences) + " sequences of " +
                         std::to_string(shape.context_tokens) + " tokens at " + to_string(clock_),
                     "outside the measured range", "measure such steps, too"}};
    }

    const Costs& costs_;
    Megahertz clock_;
    Megahertz asked_;
    Seconds latency_;
    Seconds now_;
    Joules energy_{0};
    std::uint64_t switches_ = 0;
    std::deque<Switch> pending_;
};

}  // namespace kdvfs::inline v0_3::serve
