// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/merged_columns.hpp>
#include <kdvfs/detail/measure/power_estimate.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// Gaps between kernels: what ran around them, and their time.
struct KernelGap {
    std::size_t column;                 ///< its own
    std::size_t rest;                   ///< column that their time has where gaps have none
    std::size_t after;                  ///< column of the kernel before them; idle's: of any
    double seconds = 0;                 ///< under trusted samples
    std::vector<std::size_t> before{};  ///< columns of the kernels behind them; some, where many

    static constexpr double much = 0.005;  ///< of all time; less says too little of what runs there
    static constexpr double launch = 1e-4;  ///< s: shorter ones are waits for launches

    /// @param all s
    [[nodiscard]] bool matters(double all) const { return seconds > much * all; }
    [[nodiscard]] bool lies_beside(std::size_t kernel) const {
        return after == RowSums::idle_column || kernel == after ||
               std::find(before.begin(), before.end(), kernel) != before.end();
    }
};

/// Which idle time has a power of its own. Nothing runs in a gap as far as scopes say; work without
/// a scope, or a board that waits at its highest clock, draws other power there than the board at
/// rest. Gaps behind one kernel are alike at one clock. Those of much time have a column, all
/// others, and all rests, have the one of their clock (`RestClocks`).
class GapColumns {
public:
    void run(std::size_t column, double seconds) {
        all_ += seconds;
        if (in_ != nowhere && !gaps_[in_].lies_beside(column) && gaps_[in_].before.size() < most) {
            gaps_[in_].before.push_back(column);
        }
        in_ = nowhere;
        after_ = column;
        rested_ = 0;
    }
    /// Nothing runs for `seconds`.
    /// @param at_clock column of idle time at the clock that holds
    /// @param counted under trusted samples
    /// @param add     makes a column
    /// @returns the column of that time
    template <class Add>
    std::size_t rest(std::size_t at_clock, double seconds, bool counted, Add add) {
        all_ += seconds;
        rested_ += seconds;
        if (after_ == RowSums::idle_column || rested_ > longest) return at_clock;
        Behind& gap = behind_[{after_, at_clock}];
        gap.seconds += seconds;
        gap.count += rested_ <= seconds ? 1 : 0;
        if (!gap.has_column) {
            if (gaps_.size() >= most || !gap.matters(all_)) return at_clock;
            gap.has_column = true;
            gap.place = gaps_.size();
            gaps_.push_back({.column = add(), .rest = at_clock, .after = after_});
        }
        in_ = gap.place;
        if (counted) gaps_[gap.place].seconds += seconds;
        return gaps_[gap.place].column;
    }
    [[nodiscard]] const std::vector<KernelGap>& gaps() const { return gaps_; }
    /// Of gaps so far; no others may follow.
    void merge(const MergedColumns& columns) {
        for (KernelGap& gap : gaps_) {
            for (std::size_t* each : {&gap.column, &gap.rest, &gap.after}) *each = columns(*each);
            for (std::size_t& each : gap.before) each = columns(each);
        }
    }
    /// Gives the time of gaps to the column of their clock, for who knows no power of gaps.
    /// @param seconds by column; may be shorter
    void fold(std::vector<double>& seconds) const {
        for (const KernelGap& gap : gaps_) {
            if (gap.column < seconds.size()) {
                seconds[gap.rest] += std::exchange(seconds[gap.column], 0);
            }
        }
    }

private:
    static constexpr double longest = 0.05;  // s: from here on the board rests
    static constexpr std::size_t most = 8;   // each costs what it takes to know one more power

    struct Behind {
        double seconds = 0;
        double count = 0;
        bool has_column = false;
        std::size_t place = 0;  // in `gaps_`

        [[nodiscard]] bool matters(double all) const {
            constexpr double enough = 0.05;  // s, before anything is decided
            return seconds > enough && seconds > KernelGap::much * all &&
                   seconds > KernelGap::launch * count;
        }
    };

    static constexpr std::size_t nowhere = ~std::size_t{0};

    double all_ = 0;            // s
    std::size_t in_ = nowhere;  // the gap that goes on
    std::size_t after_ = RowSums::idle_column;
    double rested_ = 0;
    std::map<std::pair<std::size_t, std::size_t>, Behind>
        behind_;  // by kernel's column and clock's
    std::vector<KernelGap> gaps_;
};

}  // namespace kdvfs::inline v0_3::measure
