// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// Sums of the time without a kernel, by the clock that the device had been written. What the board
/// draws at each is known from the rows in which nothing else is: from the second on, since the
/// first may show the work before it.
class RestClocks {
public:
    /// Nothing ran for so long of a row.
    void rest(ClockPoint clock, double seconds) {
        At& at = at_clock(clock);
        at.in_row += seconds;
        if (row_clock_ && *row_clock_ != clock) mixed_ = true;
        row_clock_ = clock;
    }
    /// The row has ended.
    /// @param rests nothing ran in it
    void end_row(double joules, double seconds, bool rests) {
        const bool alone = rests && row_clock_ && !mixed_;
        if (alone && before_ == row_clock_) at_clock(*row_clock_).add(joules, seconds);
        before_ = alone ? row_clock_ : std::nullopt;
        begin_row(true);
    }
    /// The row does not count.
    void break_row() {
        before_ = std::nullopt;
        begin_row(false);
    }

    /// The longest first.
    /// @param gain of the counter
    [[nodiscard]] std::vector<ClockRest> rests(double gain) const {
        std::vector<ClockRest> found;
        for (const At& at : clocks_)
            if (at.seconds > 0) found.push_back({at.clock, Seconds{at.seconds}, at.energy(gain)});
        std::stable_sort(found.begin(), found.end(),
                         [](const auto& a, const auto& b) { return a.time > b.time; });
        return found;
    }

private:
    static constexpr double few_rows = 8;
    static constexpr std::size_t most_clocks = 32;

    struct At {
        ClockPoint clock;
        double seconds = 0;
        double in_row = 0;  ///< of the row under way
        double rows = 0;    ///< in which nothing ran
        double joules = 0;
        double counted = 0;  ///< s, of those rows
        double squares = 0;  ///< of their joules, weighed by their seconds

        void add(double its_joules, double its_seconds) {
            ++rows;
            joules += its_joules;
            counted += its_seconds;
            squares += its_joules * its_joules / its_seconds;
        }
        [[nodiscard]] EnergyEstimate energy(double gain) const {
            if (rows < few_rows) return {};
            const double watts = joules / counted;
            // Rows differ by the counter's steps, too: their scatter is that of the mean's error.
            const double variance = std::max(squares - watts * joules, 0.0) / (rows - 1);
            const double deviation = std::sqrt(variance / counted);
            return {Joules{gain * watts * seconds},
                    Joules{1.96 * gain * deviation * seconds},
                    true,
                    {}};
        }
    };

    At& at_clock(ClockPoint clock) {
        const auto known = std::find_if(clocks_.begin(), clocks_.end(),
                                        [&](const At& at) { return at.clock == clock; });
        if (known != clocks_.end()) return *known;
        if (clocks_.size() < most_clocks) clocks_.push_back({.clock = clock});
        return clocks_.back();
    }
    void begin_row(bool counts) {
        for (At& at : clocks_) {
            const double passed = std::exchange(at.in_row, 0);
            if (counts) at.seconds += passed;
        }
        row_clock_ = std::nullopt;
        mixed_ = false;
    }

    std::vector<At> clocks_;
    std::optional<ClockPoint> row_clock_;
    std::optional<ClockPoint> before_;  ///< of the row before, where nothing ran in it
    bool mixed_ = false;
};

}  // namespace kdvfs::inline v0_3::measure
