// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/control/gate.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// The `not_worth_it` gate of a GPU object: decides which scopes may lower a clock, by how long
/// they last and how long a switch takes. What is not known holds a scope back: a clock that stays
/// high costs no time. An unknown switching latency is measured by a trial: one scope is let
/// through once what it may cost, at the assumed latency, is within the tolerated loss of the time
/// so far. Where the core's cycles are counted, its mean clock then says when the switch arrived.
/// Free of locks; thread-safe.
class ScopeGate {
public:
    /// @param highest clocks that the device lists
    ScopeGate(const GpuOptions& options, ClockPoint highest)
        : options_{options.gate}, given_{options.switch_latency}, highest_{highest} {}

    /// Stands for a switching latency that is not known: that of a Quadro RTX 6000, the longest
    /// usual one of the boards of arXiv:2502.20075. None is published for an AMD GPU.
    static constexpr Duration assumed = std::chrono::milliseconds{150};

    /// The switching latency, where it is known.
    [[nodiscard]] std::optional<Duration> latency() const {
        if (given_) return given_;
        const Duration found{found_.load(std::memory_order_relaxed)};
        return found > Duration::zero() ? std::optional{found} : std::nullopt;
    }
    /// Whether it is known by a trial.
    [[nodiscard]] bool was_measured() const { return !given_ && latency(); }

    /// Whether a scope at these clocks can slow anything down.
    [[nodiscard]] bool lowers(ClockPoint point) const { return speed_lost(point, highest_) > 0; }

    struct Verdict {
        bool passes = true;
        std::optional<measure::GateRefusal> refusal{};  ///< nothing: how long it lasts is unknown
    };

    /// @param kind of a scope that asks for clocks
    [[nodiscard]] Verdict judge(const ScopeKind& kind) const {
        if (!is_gated(kind)) return {};
        const ClockRequest& request = kind.request;
        const auto known = latency();
        const bool planned = request.lasts > Duration::zero();
        if (!known && planned) return {};  // a plan is made for a latency
        const Duration seen{kind.median_dwell.load(std::memory_order_relaxed)};
        if (seen == Duration::zero() && !planned) return {.passes = false};
        const GateFacts facts{.dwell = seen > Duration::zero() ? seen : request.lasts,
                              .switch_latency = known.value_or(assumed),
                              .highest = highest_};
        const auto refusal = gate_refusal(request.point, facts, options_);
        return {.passes = !refusal, .refusal = refusal};
    }

    /// Whether anything that lowers a clock is asked for. Until then scopes for the highest clocks
    /// need no marker.
    [[nodiscard]] bool lowering() const { return lowering_.load() != Lowering::nothing; }
    /// Whether anything but a trial ever was.
    [[nodiscard]] bool has_lowered() const { return lowering_.load() == Lowering::scopes; }
    /// Clocks are about to be asked for. @returns whether these are the first that lower one
    [[nodiscard]] bool begins_lowering(ClockPoint point) {
        return lowers(point) && !has_lowered() &&
               lowering_.exchange(Lowering::scopes) == Lowering::nothing;
    }

    // Trials. One at a time.

    /// Whether a scope that was held back could measure the latency now.
    [[nodiscard]] bool may_try(const ScopeKind& kind, TimePoint now) {
        if (latency()) return false;
        Duration::rep first = 0;
        const Duration::rep ticks = now.time_since_epoch().count();
        if (first_seen_.compare_exchange_strong(first, ticks)) first = ticks;
        if (tried_.load() != nothing_tried) {
            // Its switch or its timestamps have been lost.
            if (ticks - tried_since_.load() > Duration{std::chrono::seconds{10}}.count()) {
                end_trial(Duration{kind.median_dwell.load(std::memory_order_relaxed)}, false);
            }
            return false;
        }
        const ClockPoint point = kind.request.point;
        const std::uint64_t own = kind.own_clock.load(std::memory_order_relaxed);
        const bool shows =
            point.core != auto_clock && std::uint64_t{point.core.count} * 1000 * 20 < own * 19;
        const auto dwell = static_cast<double>(kind.median_dwell.load(std::memory_order_relaxed));
        const double cost = static_cast<double>(assumed.count()) * speed_lost(point, highest_);
        return shows && dwell >= options_.least_latencies * static_cast<double>(exceeds_.load()) &&
               cost <= options_.tolerated_loss * static_cast<double>(ticks - first);
    }
    /// @returns whether nothing has lowered a clock so far, not even a trial
    [[nodiscard]] bool prepares_trial() {
        Lowering nothing = Lowering::nothing;
        return lowering_.compare_exchange_strong(nothing, Lowering::trial);
    }
    /// @returns whether the scope that is entered now is the trial
    [[nodiscard]] bool begin_trial(const ScopeKind& kind, TimePoint now) {
        std::uint32_t none = nothing_tried;
        tried_since_.store(now.time_since_epoch().count());
        return tried_.compare_exchange_strong(none, kind.number);
    }

    // What is seen, by one thread at a time.

    /// The device holds these clocks.
    void applied(ClockPoint point, TimePoint at) {
        if (lowers(point)) {
            low_ = {.point = point, .from = at};
        } else if (!low_.until) {
            low_.until = at;
        }
    }
    /// A scope of a kind has run, with nothing nested in it.
    void ran(const ScopeKind& kind, TimePoint start, TimePoint end, std::uint64_t cycles) {
        if (given_ || latency() || !is_gated(kind) || end <= start || cycles == 0) return;
        if (clocks_.size() <= kind.number) clocks_.resize(kind.number + std::size_t{1});
        MovingMedian& own = clocks_[kind.number];
        const Duration time = end - start;
        const auto mean = static_cast<std::int64_t>(static_cast<double>(cycles) * 1e6 /
                                                    static_cast<double>(time.count()));
        if (end <= low_.from || (low_.until && start >= *low_.until)) {
            own.add(mean);
            if (own.count() >= enough_clocks) {
                kind.own_clock.store(static_cast<std::uint32_t>(own.median()),
                                     std::memory_order_relaxed);
            }
            return;
        }
        if (tried_.load() != kind.number || low_.point != kind.request.point) return;
        const auto cap = std::int64_t{kind.request.point.core.count} * 1000;
        const auto range = static_cast<double>(own.median() - cap);
        const double late = std::clamp(static_cast<double>(mean - cap) / range, 0.0, 1.0);
        const bool arrived = start <= low_.from && late < 0.9;
        const double unsure = static_cast<double>(own.spread()) / range;
        end_trial(arrived
                      ? Duration{std::llround((late + unsure) * static_cast<double>(time.count()))}
                      : time,
                  arrived);
    }

    /// Whether it is yet to be seen how long scopes of a kind last.
    [[nodiscard]] bool awaits_time(const ScopeKind& kind) const {
        return is_gated(kind) && kind.median_dwell.load(std::memory_order_relaxed) == 0;
    }

    /// Whether a scope that is not metered is to leave timestamps, so that it is known how long its
    /// like last: the first few, or one where a plan says it, and then one in many.
    [[nodiscard]] bool wants_time(const ScopeKind& kind) const {
        if (!is_gated(kind)) return false;
        const std::uint32_t first = kind.request.lasts > Duration::zero() ? 1 : 5;
        constexpr std::uint32_t often = 1024;
        const std::uint32_t scope = kind.unmetered.fetch_add(1, std::memory_order_relaxed);
        return scope < first || scope % often == 0;
    }

private:
    enum class Lowering { nothing, trial, scopes };
    /// When the device last held clocks that can slow something down.
    struct Low {
        ClockPoint point{};
        TimePoint from = TimePoint::max();
        std::optional<TimePoint> until{};
    };
    static constexpr std::uint32_t nothing_tried = ~std::uint32_t{0};
    static constexpr std::size_t enough_clocks = 4;

    /// @param latency where the switch arrived; else it takes longer
    void end_trial(Duration latency, bool arrived) {
        const Duration::rep ticks = std::max<Duration::rep>(latency.count(), 1);
        if (arrived) {
            found_.store(ticks, std::memory_order_relaxed);
        } else {
            exceeds_.store(std::max(exceeds_.load(), ticks));
        }
        Lowering trial = Lowering::trial;
        static_cast<void>(lowering_.compare_exchange_strong(trial, Lowering::nothing));
        tried_.store(nothing_tried);
    }

    [[nodiscard]] bool is_gated(const ScopeKind& kind) const {
        return kind.request.asks && !kind.request.ungated && given_ != Duration::zero() &&
               lowers(kind.request.point);
    }

    const GateOptions options_;
    const std::optional<Duration> given_;
    const ClockPoint highest_;
    std::atomic<Lowering> lowering_{Lowering::nothing};
    std::atomic<Duration::rep> found_{0};       ///< the latency that a trial found
    std::atomic<Duration::rep> exceeds_{0};     ///< what trials showed it to exceed
    std::atomic<Duration::rep> first_seen_{0};  ///< scope that was held back
    std::atomic<Duration::rep> tried_since_{0};
    std::atomic<std::uint32_t> tried_{nothing_tried};  ///< the kind of the scope on trial
    std::vector<MovingMedian> clocks_;                 ///< mean ones in kHz, by scope kind
    Low low_;
};

}  // namespace kdvfs::inline v0_3::detail
