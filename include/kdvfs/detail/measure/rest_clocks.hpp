// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/measure/power_estimate.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// The time without a kernel while the device had been written one clock.
struct ClockTime {
    ClockPoint clock;
    std::size_t column = RowSums::idle_column;
    bool has_column = false;  ///< of its own, or it is the clock that has the idle one
    double seconds = 0;       ///< under trusted samples, in rows that count
    double in_row = 0;        ///< of the row under way
    double all = 0;           ///< whether counted or not
};

/// Which power an idle board draws: the clock that stays decides. The first clock that the board
/// rests at has the idle column, and so have all that it rests at for a moment only; others have a
/// column each. A plan or an idle clock writes few clocks, so they are searched one by one.
class RestClocks {
public:
    void run(double seconds) { all_ += seconds; }
    /// Nothing runs for `seconds`.
    /// @param in_row of a row that may count
    /// @param add    makes a column
    /// @returns the column of that time
    template <class Add>
    std::size_t rest(ClockPoint clock, double seconds, bool in_row, Add add) {
        all_ += seconds;
        auto known = std::find_if(clocks_.begin(), clocks_.end(),
                                  [&](const ClockTime& at) { return at.clock == clock; });
        if (known == clocks_.end()) {
            if (clocks_.size() >= most) return RowSums::idle_column;
            clocks_.push_back({.clock = clock, .has_column = clocks_.empty()});
            known = clocks_.end() - 1;
        }
        known->all += seconds;
        if (in_row) known->in_row += seconds;
        if (!known->has_column && known->all > std::max(enough, share * all_)) {
            known->column = add();
            known->has_column = true;
        }
        return known->column;
    }
    /// The row has ended. @param counts whether its joules are attributed
    void end_row(bool counts) {
        for (ClockTime& at : clocks_) {
            if (counts) at.seconds += at.in_row;
            at.in_row = 0;
        }
    }
    [[nodiscard]] const std::vector<ClockTime>& clocks() const { return clocks_; }

private:
    static constexpr std::size_t most = 8;  // each costs what it takes to know one more power
    static constexpr double enough = 0.02;  // s, before anything is decided
    static constexpr double share = 0.002;  // of all time

    std::vector<ClockTime> clocks_;
    double all_ = 0;  // s
};

}  // namespace kdvfs::inline v0_3::measure
