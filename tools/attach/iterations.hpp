// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace attach {

/// Finds the iterations of a program in the sequence of its launches: their period, and a place
/// that is met once in each, told by the last few launches, where the next one then begins. Looked
/// for when 512 launches have been seen, and again whenever they have doubled, until it is found,
/// up to 65536, and among the launches of the last 5 s where these are 64 or more: a program whose
/// step is one graph makes few after a long beginning. The search takes up to a tenth of a second
/// and is for a thread that launches nothing: `look_is_due`, `look`, `take`. A period that does not
/// cover nine in ten of the launches behind it was that of an inner loop, such as layers: it is
/// given up, and a longer one is looked for. Not thread-safe.
class Iterations {
public:
    /// Takes in a launch, made at that time. @returns whether an iteration begins with it
    bool launched(std::uint32_t kernel, kdvfs::TimePoint now) {
        std::move_backward(last_.begin(), last_.end() - 1, last_.end());
        last_[0] = kernel;
        ++launches_;
        now_ = now;
        if (period_ == 0) {
            if (seen_.size() >= most_seen) return false;
            if (seen_.empty()) looked_ = now;
            seen_.push_back(kernel);
            if (seen_.size() == next_look_) {
                next_look_ *= 2;
                look_from_ = 0;
                look_is_due_ = true;
            } else if (now - looked_ > std::chrono::seconds{5} &&
                       seen_.size() - looked_at_ >= fewest_launches) {
                look_from_ = looked_at_;
                look_is_due_ = true;
            }
            return false;
        }
        if (++since_found_ == next_check_ && !holds()) return false;
        if (kernel != anchor_[0]) return false;
        if (!std::equal(last_.begin(), last_.begin() + anchored_, anchor_.begin())) return false;
        if (count_ > 0 && launches_ - began_at_ == period_) {
            ++alike_;
            alike_time_ += now - began_;
        }
        began_at_ = launches_;
        began_ = now;
        ++count_;
        return true;
    }

    /// What a search has found.
    struct Found {
        static constexpr std::size_t longest_place = 16;
        std::size_t period = 0;
        std::array<std::uint32_t, longest_place> anchor{};  ///< the newest launch first
        std::ptrdiff_t anchored = 0;                        ///< so many of them
        std::size_t after = 0;                              ///< launches
    };
    /// Whether what has been launched by now is to be looked through.
    [[nodiscard]] bool look_is_due() const { return look_is_due_; }
    /// @returns a copy of what has been launched, for `look`
    [[nodiscard]] std::vector<std::uint32_t> begin_look() {
        look_is_due_ = false;
        looked_ = now_;
        looked_at_ = seen_.size();
        return {seen_.begin() + static_cast<std::ptrdiff_t>(look_from_), seen_.end()};
    }
    /// @param seen launches, the oldest first
    [[nodiscard]] static std::optional<Found> look(const std::vector<std::uint32_t>& seen);
    void take(const Found& found) {
        anchor_ = found.anchor;
        anchored_ = found.anchored;
        period_ = found.period;
        found_after_ = found.after;
        since_found_ = 0;
        found_ = now_;
        next_check_ = 4 * std::max(found_after_, period_);
        seen_ = {};
    }

    /// Launches of an iteration; 0 before it is found.
    [[nodiscard]] std::size_t period() const { return period_; }
    [[nodiscard]] std::uint64_t count() const { return count_; }
    /// Share of the iterations that had as many launches as the period, 0 to 1.
    [[nodiscard]] double stability() const {
        return count_ < 2 ? 0 : static_cast<double>(alike_) / static_cast<double>(count_ - 1);
    }

    /// Share of the launches since the period was found that such iterations cover, 0 to 1.
    [[nodiscard]] double coverage() const {
        if (since_found_ == 0) return 0;
        const auto covered = static_cast<double>((alike_ + 1) * period_);
        return std::min(1.0, covered / static_cast<double>(since_found_));
    }

    /// Share of the time since then that they cover, 0 to 1, as launches are made.
    [[nodiscard]] double share_of_time() const {
        if (now_ <= found_) return 0;
        return kdvfs::Seconds{alike_time_}.count() / kdvfs::Seconds{now_ - found_}.count();
    }

private:
    static constexpr std::size_t most_seen = std::size_t{1} << 16U;
    static constexpr std::size_t most_candidates = 128;
    static constexpr std::size_t fewest_launches = 64;

    /// Whether the period still explains what is launched; where not, the search begins again.
    bool holds() {
        next_check_ *= 2;
        if (coverage() >= 0.9) return true;
        next_look_ = std::min(4 * found_after_, most_seen);
        looked_at_ = 0;
        period_ = 0;
        count_ = 0;
        alike_ = 0;
        alike_time_ = {};
        return false;
    }

    static double match(const std::vector<std::uint32_t>& seen, std::size_t period);
    static std::optional<Found> anchor(const std::vector<std::uint32_t>& seen, std::size_t period);

    std::vector<std::uint32_t> seen_;
    std::array<std::uint32_t, Found::longest_place> last_{};    // the newest first
    std::array<std::uint32_t, Found::longest_place> anchor_{};  // the newest first
    bool look_is_due_ = false;
    std::ptrdiff_t anchored_ = 0;
    std::size_t next_look_ = 512;
    std::size_t look_from_ = 0;  // of the launches seen
    std::size_t looked_at_ = 0;  // launches seen at the last look, and when that was
    kdvfs::TimePoint looked_{};
    std::size_t period_ = 0;
    std::size_t found_after_ = 0;
    std::uint64_t since_found_ = 0;
    std::uint64_t next_check_ = 0;
    std::uint64_t launches_ = 0;
    std::uint64_t began_at_ = 0;
    std::uint64_t count_ = 0;
    std::uint64_t alike_ = 0;
    kdvfs::TimePoint now_{};
    kdvfs::TimePoint found_{};
    kdvfs::TimePoint began_{};
    kdvfs::Duration alike_time_{};
};

/// How often, among the last launches, what ran a period before ran again, 0 to 1; looked at are
/// three periods and a quarter of all launches, whichever is more.
inline double Iterations::match(const std::vector<std::uint32_t>& seen, std::size_t period) {
    const std::size_t window = std::max(3 * period, seen.size() / 4);
    if (window + period > seen.size()) return 0;
    std::size_t same = 0;
    for (std::size_t i = seen.size() - window; i < seen.size(); ++i) {
        if (seen[i] == seen[i - period]) ++same;
    }
    return static_cast<double>(same) / static_cast<double>(window);
}

/// A period is the distance of two launches of a rare kernel. The shortest that repeats without a
/// flaw is taken, else the one that repeats best, from nine in ten.
inline std::optional<Iterations::Found> Iterations::look(const std::vector<std::uint32_t>& seen) {
    std::map<std::uint32_t, std::vector<std::size_t>> places;
    const std::size_t first = seen.size() / 4;  // the beginning is often unlike the rest
    for (std::size_t i = first; i < seen.size(); ++i) places[seen[i]].push_back(i);
    std::vector<const std::vector<std::size_t>*> rare;
    for (const auto& [kernel, at] : places) {
        if (at.size() >= 3) rare.push_back(&at);
    }
    std::sort(rare.begin(), rare.end(),
              [](const auto* a, const auto* b) { return a->size() < b->size(); });
    std::map<std::size_t, double> tried;
    for (const auto* at : rare) {
        for (std::size_t back = 1; back < std::min<std::size_t>(at->size(), 17); ++back) {
            if (tried.size() >= most_candidates) break;
            const std::size_t period = at->back() - (*at)[at->size() - 1 - back];
            if (!tried.contains(period)) tried[period] = match(seen, period);
        }
    }
    double best = 0.9;
    std::size_t period = 0;
    for (const auto& [candidate, share] : tried) {
        if (share <= best) continue;
        best = share;
        period = candidate;
    }
    return period == 0 ? std::nullopt : anchor(seen, period);
}

/// The last period is the pattern: the shortest place that is met once in it begins the next.
inline std::optional<Iterations::Found> Iterations::anchor(const std::vector<std::uint32_t>& seen,
                                                           std::size_t period) {
    const std::size_t begin = seen.size() - period;
    for (std::size_t length = 1; length <= Found::longest_place; ++length) {
        std::map<std::vector<std::uint32_t>, std::size_t> times;
        std::vector<std::vector<std::uint32_t>> places;
        for (std::size_t i = begin; i < seen.size(); ++i) {
            std::vector<std::uint32_t> place;
            for (std::size_t k = 0; k < length; ++k) place.push_back(seen[i - k]);
            ++times[place];
            places.push_back(std::move(place));
        }
        for (const auto& place : places) {
            if (times[place] != 1) continue;
            Found found{.period = period,
                        .anchored = static_cast<std::ptrdiff_t>(length),
                        .after = seen.size()};
            std::copy(place.begin(), place.end(), found.anchor.begin());
            return found;
        }
    }
    return std::nullopt;
}

}  // namespace attach
