// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <optional>

namespace kdvfs::inline v0_3::detail {

/// Decides when a device without work goes to its idle clock, and when it comes back. Work that
/// begins runs at the idle clock for one switching latency at most: so much, times the wakes, stays
/// below the tolerated share of the time since the device was opened. A rest must have lasted as
/// long as a switch does: then it costs no more than what it was likely to save. A pure state
/// machine; not thread-safe.
class RestWatch {
public:
    /// @param latency of a switch; nothing: the worst that a family is known for
    RestWatch(const IdleClock& options, std::optional<Duration> latency, TimePoint now)
        : options_{options}, latency_{latency.value_or(worst_latency)}, began_{now}, since_{now} {}

    /// What the streams are at.
    /// @param rests all work that was launched has been seen, and is done
    void look(bool rests, TimePoint now) {
        if (!rests) {
            work_begins(now);
            rests_ = false;
            return;
        }
        if (!rests_) since_ = now;
        rests_ = true;
        if (!low_ && due() && now >= *due()) {
            low_ = true;
            low_since_ = now;
            ++times_;
        }
    }
    /// Work is about to be launched.
    void work_begins(TimePoint now) {
        since_ = now;
        if (!low_) return;
        low_ = false;
        time_ += now - low_since_;
        wakes_since_ = now;
    }
    /// The device answers that it is back at its clocks.
    void woke(TimePoint now) {
        if (!wakes_since_) return;
        waking_ += now - *wakes_since_ + latency_;
        wakes_since_.reset();
    }

    /// Whether the idle clock is wanted.
    [[nodiscard]] bool low() const { return low_; }
    [[nodiscard]] ClockPoint clock() const { return *options_.clock; }
    /// When to look again; nothing: not before something happens.
    [[nodiscard]] std::optional<TimePoint> due() const {
        if (!rests_ || low_) return std::nullopt;
        const auto wakes = static_cast<Duration::rep>(times_ + 1);
        const auto earned =
            std::chrono::duration_cast<Duration>(latency_ * wakes / options_.tolerated_loss);
        return std::max(since_ + std::max(options_.after, latency_), began_ + earned);
    }

    [[nodiscard]] measure::IdleClockShare share(TimePoint now) const {
        return {clock(), times_, Seconds{time_ + (low_ ? now - low_since_ : Duration{0})},
                Seconds{waking_}};
    }

private:
    /// RTX 3080 Ti, as published (arXiv 2601.08539).
    static constexpr Duration worst_latency = std::chrono::milliseconds{150};

    IdleClock options_;
    Duration latency_;
    TimePoint began_;
    TimePoint since_;  // the last work was known of
    bool rests_ = false;
    bool low_ = false;
    TimePoint low_since_{};
    std::optional<TimePoint> wakes_since_;
    std::uint64_t times_ = 0;
    Duration time_{0};
    Duration waking_{0};
};

}  // namespace kdvfs::inline v0_3::detail
