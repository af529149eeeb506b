// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/merged_columns.hpp>
#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/power_windows.hpp>
#include <kdvfs/detail/measure/row_fit.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// How an energy counter may follow the load: late by `delay`, then with `memory`, as a power log
/// does (`MeterResponse`).
struct CounterLag {
    Duration delay{0};
    Duration memory{0};

    /// What a counter has by `at` of a watt that is drawn in [from, to], s.
    [[nodiscard]] double joules(TimePoint at, TimePoint from, TimePoint to) const {
        return until(at - delay - from) - until(at - delay - to);
    }

private:
    /// Of a watt that is drawn from so long ago on.
    [[nodiscard]] double until(Duration time) const {
        if (time <= Duration::zero()) return 0;
        const double seconds = Seconds{time}.count();
        if (memory <= Duration::zero()) return seconds;
        const double fades = Seconds{memory}.count();
        return seconds - fades * (1 - std::exp(-seconds / fades));
    }
};

/// The rows of a slow energy counter again and again, each time as if it followed the load in
/// another way. Where one mix of kernels repeats, each way explains the counter as well by other
/// powers, and nothing in the rows tells which is right; what they differ by is an error of all.
///
/// A slow counter's move is seen by the next read, 0 to 10 ms later (`SamplerSettings::period`),
/// which takes 3 to 16 ms (NVML on an H100 and an H200), and what it counts comes from the sensor
/// of the power log, which is 3.4 ms late with a memory of 12.8 ms (`LogMemories`). Against the
/// log, counters of an H100 and two H200s were 4 to 18 ms late in recorded runs.
class LateRows {
public:
    /// What is known of lateness is of NVML's counters, which move every 100 ms; faster ones have
    /// times of their own, or rows too short for this to be told.
    static constexpr Duration slow = std::chrono::milliseconds{80};

    /// NVML's counters are no later than this.
    static constexpr Duration usual = std::chrono::milliseconds{30};

    [[nodiscard]] bool on() const { return !all_.empty(); }
    /// @param before sums of what has been fitted, which is the same in every way
    /// @param most   delay that the counter may have
    void begin(const RowSums& before, Duration most = usual) {
        lags_ = lags_up_to(most);
        follows_.assign(lags_.size(), 0);
        all_.assign(lags_.size(), {PowerRows{}, before});
        columns_ = before.columns();
    }

    /// What follows ran in this time, of which all is known.
    void pass(TimePoint from, TimePoint to) {
        constexpr Duration short_enough = std::chrono::milliseconds{1};  // against any lag
        const bool extends =
            !past_.empty() && past_.back().to == from && to - past_.back().from <= short_enough;
        if (extends) {
            past_.back().to = to;
        } else {
            past_.push_back({from, to, {}});
        }
    }
    void add(std::size_t column, double seconds) {
        std::vector<PowerRows::Entry>& ran = past_.back().ran;
        const auto known = std::find_if(ran.begin(), ran.end(),
                                        [&](const auto& entry) { return entry.column == column; });
        if (known == ran.end()) {
            ran.push_back({column, seconds});
        } else {
            known->share += seconds;
        }
    }
    void add_column() { ++columns_; }
    /// Of rows so far; no others may follow.
    void merge(const MergedColumns& columns) {
        for (auto& [rows, sums] : all_) {
            rows = columns.sum(rows, sums.inside);
            sums = columns.sum(std::move(sums));
        }
        columns_ = columns.columns();
    }
    /// A row of the counter. One that shows time of which nothing is known is left out.
    void end_row(TimePoint from, TimePoint to, double joules);
    /// What has waited is fitted.
    void fit() {
        for (auto& [rows, sums] : all_) {
            grow(sums);
            RowFit{rows, sums}.add_to(sums);
            rows.clear();
        }
    }
    /// The sums of each way, with what waits for the fit.
    [[nodiscard]] std::vector<RowSums> sums() const {
        std::vector<RowSums> found;
        for (const auto& [rows, sums] : all_) {
            RowSums& all = found.emplace_back(sums);
            grow(all);
            RowFit{rows, all}.add_to(all);
        }
        return found;
    }

private:
    /// So short, or of one kernel, that it does not matter when in it what ran.
    struct Stretch {
        TimePoint from;
        TimePoint to;
        std::vector<PowerRows::Entry> ran;  // seconds
    };

    /// What stands for all ways but the sharp one.
    static std::vector<CounterLag> lags_up_to(Duration most) {
        using std::chrono::microseconds;
        using std::chrono::milliseconds;
        constexpr microseconds memory{12800};
        std::vector<CounterLag> found{{Duration{0}, memory}};
        for (Duration delay = milliseconds{5}; delay <= most;
             delay += delay < usual ? milliseconds{5} : milliseconds{20}) {
            found.push_back({delay, Duration{0}});
            if (delay <= usual) found.push_back({delay, memory});
        }
        return found;
    }
    [[nodiscard]] Duration farthest() const {
        constexpr Duration memories = std::chrono::milliseconds{80};  // 6 of them
        return lags_.back().delay + memories;
    }

    /// Equations of all ways take much memory: they have columns once a fit needs them.
    void grow(RowSums& sums) const {
        while (sums.columns() < columns_) sums.add_column();
    }

    std::size_t columns_ = 0;
    std::vector<CounterLag> lags_;
    std::vector<std::pair<PowerRows, RowSums>> all_;
    std::deque<Stretch> past_;
    std::vector<double> seconds_;  // by column, 0 between rows
    std::vector<PowerRows::Entry> row_;
    TimePoint last_ = TimePoint::min();  // end of the row before
    std::vector<char> follows_;          // by lag
};

inline void LateRows::end_row(TimePoint from, TimePoint to, double joules) {
    constexpr double nearly = 0.99;  // of a row's time must be known
    while (!past_.empty() && past_.front().to <= from - farthest()) past_.pop_front();
    const bool follows = std::exchange(last_, to) == from;
    for (std::size_t i = 0; i < lags_.size(); ++i) {
        row_.clear();
        double known = 0;
        for (const Stretch& stretch : past_) {
            const double shown = (lags_[i].joules(to, stretch.from, stretch.to) -
                                  lags_[i].joules(from, stretch.from, stretch.to)) /
                                 Seconds{stretch.to - stretch.from}.count();
            for (const auto& [column, seconds] : stretch.ran) {
                if (shown <= 0 || seconds <= 0) continue;
                known += shown * seconds;
                if (seconds_.size() <= column) seconds_.resize(column + 1);
                if (seconds_[column] == 0) row_.push_back({column, 0});
                seconds_[column] += shown * seconds;
            }
        }
        for (PowerRows::Entry& entry : row_) {
            entry.share = std::exchange(seconds_[entry.column], 0);
        }
        if (known < nearly * Seconds{to - from}.count()) {
            follows_[i] = 0;
            continue;
        }
        all_[i].first.push(row_, {}, Seconds{to - from}.count(), joules,
                           std::exchange(follows_[i], 1) != 0 && follows);
    }
}

}  // namespace kdvfs::inline v0_3::measure
