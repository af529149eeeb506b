// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace kdvfs::inline v0_3::detail {

/// What is known when a scope is entered.
struct GateFacts {
    std::optional<Duration> dwell{};           ///< how long the scope lasts: seen, else planned
    std::optional<Duration> switch_latency{};  ///< from the marker to the clock's effect
    ClockPoint highest{};                      ///< the device's highest clocks
};

/// The share of speed that is lost while the clocks of `asked` still hold after the scope: the
/// work behind it runs for one switching latency at the lower clock before the raise arrives. The
/// worst case is assumed: time inversely proportional to the domain that is capped harder.
constexpr double speed_lost(ClockPoint asked, ClockPoint highest) {
    constexpr auto left = [](Megahertz cap, Megahertz top) {
        if (cap == auto_clock || top == auto_clock || cap >= top) return 1.0;
        return static_cast<double>(cap.count) / static_cast<double>(top.count);
    };
    return 1.0 - std::min(left(asked.core, highest.core), left(asked.memory, highest.memory));
}

/// Why a scope's switch does not pay. Lowering the clock late only forgoes savings; raising it late
/// slows down whatever comes next, so that is what the second bound is about. A request for the
/// highest clocks always passes: it cannot slow anything down.
/// @returns nothing where it pays, or where dwell or latency is not known: the gate is off then
constexpr std::optional<measure::GateRefusal> gate_refusal(ClockPoint asked, const GateFacts& facts,
                                                           const GateOptions& options) {
    if (!facts.dwell || !facts.switch_latency) return std::nullopt;
    const double lost = speed_lost(asked, facts.highest);
    if (lost == 0.0) return std::nullopt;
    measure::GateRefusal refusal{.dwell = *facts.dwell,
                                 .switch_latency = *facts.switch_latency,
                                 .least_latencies = options.least_latencies,
                                 .tolerated_loss = options.tolerated_loss};
    const auto dwell = static_cast<double>(facts.dwell->count());
    const auto latency = static_cast<double>(facts.switch_latency->count());
    refusal.loss = dwell > 0 ? latency * lost / dwell : lost;
    refusal.too_short = dwell < options.least_latencies * latency;
    if (!refusal.too_short && refusal.loss <= options.tolerated_loss) return std::nullopt;
    return refusal;
}

/// The median of the last nine values: follows a change of shape within five, ignores outliers.
class MovingMedian {
public:
    void add(std::int64_t value) {
        last_[added_ % last_.size()] = value;
        ++added_;
    }

    /// @returns the median, the lower one of two; 0 before the first value
    [[nodiscard]] std::int64_t median() const {
        const std::size_t count = std::min(added_, last_.size());
        if (count == 0) return 0;
        auto sorted = last_;
        const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(count);
        const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((count - 1) / 2);
        std::nth_element(sorted.begin(), middle, end);
        return *middle;
    }

    [[nodiscard]] std::size_t count() const { return added_; }
    /// The difference between the largest and the smallest of the last nine.
    [[nodiscard]] std::int64_t spread() const {
        const auto end =
            last_.begin() + static_cast<std::ptrdiff_t>(std::min(added_, last_.size()));
        const auto [least, most] = std::minmax_element(last_.begin(), end);
        return least == end ? 0 : *most - *least;
    }

private:
    std::array<std::int64_t, 9> last_{};
    std::size_t added_ = 0;
};

}  // namespace kdvfs::inline v0_3::detail
