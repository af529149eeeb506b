// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3 {

/// A kernel and variant as a small number; a `measure::KernelTable` knows the name behind it.
struct KernelId {
    std::uint32_t value = 0;

    friend constexpr bool operator==(KernelId, KernelId) = default;
    friend constexpr auto operator<=>(KernelId, KernelId) = default;
};

/// A track of stream work as a small number, in order of first use; 0 is the first.
struct TrackId {
    std::uint32_t value = 0;

    friend constexpr bool operator==(TrackId, TrackId) = default;
    friend constexpr auto operator<=>(TrackId, TrackId) = default;
};

/// One run of a scope's own work on the GPU: between its two markers, less what nested scopes ran.
/// A scope with others nested in it has several, of which the last `ends_scope`.
struct KernelInterval {
    KernelId kernel{};
    TrackId track{};
    ClockPoint asked{};             ///< what the scope asked for
    TimePoint start{};              ///< when the stream passed the marker before it
    TimePoint end{};                ///< when the stream passed the marker behind it
    std::uint64_t core_cycles = 0;  ///< core clock cycles between the two, 0 where not counted
    bool ends_scope = true;         ///< false for a stretch that a nested scope has cut short
    std::uint32_t place = 0;        ///< which scopes enclose it: `IntervalBuilder::places`
    bool whole = true;              ///< false where not all of its scope was metered
};

/// The core clock that really held over an interval, in MHz; `auto_clock` where not counted.
constexpr Megahertz held_clock(const KernelInterval& interval) {
    const auto nanoseconds = (interval.end - interval.start).count();
    if (interval.core_cycles == 0 || nanoseconds <= 0) return auto_clock;
    return {static_cast<std::uint32_t>(
        static_cast<double>(interval.core_cycles) * 1e3 / static_cast<double>(nanoseconds) + 0.5)};
}

}  // namespace kdvfs::inline v0_3

namespace kdvfs::inline v0_3::measure {

/// Pairs the timestamps of entering and leaving markers into intervals. An enclosing scope's time
/// is its own only while nothing is nested in it: each moment of a track belongs to the innermost
/// scope. What ran between two stretches of metered iterations is not known: none of a scope's
/// reaches from one into another. Timestamps of a track must come in stream order, tracks may be
/// mixed. Not thread-safe.
class IntervalBuilder {
public:
    /// A stretch of a scope's own time; `dwell` is the scope's whole duration, given with its last
    /// stretch.
    struct Stretch {
        MarkerTag tag;
        TimePoint start;
        TimePoint end;
        std::uint64_t core_cycles = 0;
        std::optional<Duration> dwell;
        std::uint32_t place = 0;
        bool whole = true;  ///< the metering has gone on all the time since it was entered
    };
    /// Where scopes lie that a scope of this kind, at `parent`, directly encloses.
    struct Place {
        std::uint32_t parent;
        std::uint32_t enclosing;  ///< a scope kind
    };

    template <class Sink>
    void take(const MarkerTimestamp& timestamp, Sink sink) {
        take(timestamp, timestamp.tag.window, sink);
    }
    /// @param metering the first window of those that were metered without an end up to the
    ///                 timestamp's; 0: a graph's timestamp, which may be of any
    template <class Sink>
    void take(const MarkerTimestamp& timestamp, std::uint32_t metering, Sink sink) {
        auto& open = open_of(timestamp.tag.track);
        begin_metering(open, metering, timestamp);
        if (!timestamp.tag.leaving) {
            std::uint32_t place = 0;
            if (!open.empty()) {
                place = place_in(open.back());
                metering = open.back().metering;
                close_stretch(open.back(), timestamp, std::nullopt, sink);
            }
            open.push_back({timestamp.tag, timestamp.time, timestamp.time, timestamp.core_cycles,
                            timestamp.unit, place, metering});
            return;
        }
        const auto entered = std::find_if(open.rbegin(), open.rend(), [&](const Open& scope) {
            return scope.tag.scope_kind == timestamp.tag.scope_kind;
        });
        if (entered == open.rend()) {
            ++unpaired_;  // its entering timestamp was lost
            return;
        }
        const Duration dwell = timestamp.time - entered->entered;
        if (entered == open.rbegin()) {
            close_stretch(open.back(), timestamp, dwell, sink);
        } else {
            // Left out of order: the time since the last timestamp belongs to the innermost scope,
            // and the one that ends has no time of its own left.
            close_stretch(open.back(), timestamp, std::nullopt, sink);
            sink(Stretch{entered->tag, timestamp.time, timestamp.time, 0, dwell, entered->place,
                         entered->whole});
        }
        open.erase(std::next(entered).base());
        if (!open.empty()) open.back().restart(timestamp);
    }

    /// Forgets scopes that are open since before a timestamp was lost.
    void forget_open() { tracks_.clear(); }

    /// The earliest start of a stretch that has not ended; nothing where all have.
    [[nodiscard]] std::optional<TimePoint> oldest_open() const {
        std::optional<TimePoint> oldest;
        for (const auto& [track, open] : tracks_) {
            if (!open.empty())
                oldest = std::min(oldest.value_or(TimePoint::max()), open.back().start);
        }
        return oldest;
    }

    [[nodiscard]] std::uint64_t unpaired() const { return unpaired_; }
    /// Grows; place 0 lies in no scope.
    [[nodiscard]] const std::vector<Place>& places() const { return places_; }

private:
    struct Open {
        MarkerTag tag;
        TimePoint entered;
        TimePoint start;
        std::uint64_t cycles;
        std::uint32_t unit;
        std::uint32_t place;
        std::uint32_t metering;  // of the last timestamp on the track
        bool whole = true;

        /// A stretch of its own time begins.
        void restart(const MarkerTimestamp& timestamp) {
            start = timestamp.time;
            cycles = timestamp.core_cycles;
            unit = timestamp.unit;
        }
    };

    /// Where the timestamp is the track's first since metering began, the time before it is in no
    /// stretch.
    static void begin_metering(std::vector<Open>& open, std::uint32_t metering,
                               const MarkerTimestamp& timestamp) {
        if (open.empty() || metering == 0 || metering == open.back().metering) return;
        for (Open& scope : open) {
            scope.metering = metering;
            scope.whole = false;
        }
        open.back().restart(timestamp);
    }

    /// Streams and captures come and go, and their numbers with them: those without open scopes are
    /// forgotten now and then.
    std::vector<Open>& open_of(std::uint32_t track) {
        const auto [found, is_new] = tracks_.try_emplace(track);
        if (is_new && tracks_.size() > most_tracks_) {
            std::erase_if(tracks_, [track](const auto& each) {
                return each.first != track && each.second.empty();
            });
            most_tracks_ = std::max(most_tracks_, 2 * tracks_.size());
        }
        return found->second;
    }

    std::uint32_t place_in(const Open& scope) {
        const auto [found, is_new] =
            place_of_.try_emplace({scope.place, scope.tag.scope_kind}, places_.size());
        if (is_new) places_.push_back({scope.place, scope.tag.scope_kind});
        return static_cast<std::uint32_t>(found->second);
    }

    template <class Sink>
    static void close_stretch(Open& scope, const MarkerTimestamp& timestamp,
                              std::optional<Duration> dwell, Sink& sink) {
        // 0 is no count, and each compute unit counts its own cycles.
        const bool counted = scope.cycles != 0 && timestamp.unit == scope.unit &&
                             timestamp.core_cycles > scope.cycles;
        const std::uint64_t cycles = counted ? timestamp.core_cycles - scope.cycles : 0;
        sink(Stretch{scope.tag, scope.start, timestamp.time, cycles, dwell, scope.place,
                     scope.whole});
        scope.restart(timestamp);
    }

    std::map<std::uint32_t, std::vector<Open>> tracks_;
    std::size_t most_tracks_ = 1024;
    std::vector<Place> places_{{0, 0}};
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> place_of_;
    std::uint64_t unpaired_ = 0;
};

}  // namespace kdvfs::inline v0_3::measure
