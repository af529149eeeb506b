// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// Rows of a least squares on mean powers: which share of an interval each column had, and the
/// power that the board drew meanwhile.
class PowerRows {
public:
    struct Entry {
        std::size_t column;
        double share;
    };
    struct Row {
        std::size_t first;  ///< of its entries
        std::size_t count;
        double seconds;
        double watts;
        bool follows;  ///< begins where the row before it ended
    };

    /// @param parts   of a row of so many `seconds`, in any unit
    /// @param insides in the same unit, of columns that add no time: see `RowSums::inside`
    void push(std::span<const Entry> parts, std::span<const Entry> insides, double seconds,
              double joules, bool follows) {
        double sum = 0;
        for (const Entry& entry : parts) sum += entry.share;
        rows_.push_back(
            {entries_.size(), parts.size() + insides.size(), seconds, joules / seconds, follows});
        for (const auto& list : {parts, insides}) {
            for (const Entry& entry : list) entries_.push_back({entry.column, entry.share / sum});
        }
    }
    void push(std::span<const Entry> seconds, double joules, bool follows) {
        double sum = 0;
        for (const Entry& entry : seconds) sum += entry.share;
        push(seconds, {}, sum, joules, follows);
    }
    void clear() {
        rows_.clear();
        entries_.clear();
    }

    [[nodiscard]] std::size_t size() const { return rows_.size(); }
    [[nodiscard]] const Row& operator[](std::size_t i) const { return rows_[i]; }
    [[nodiscard]] std::span<const Entry> entries(std::size_t i) const {
        return std::span{entries_}.subspan(rows_[i].first, rows_[i].count);
    }

private:
    std::vector<Row> rows_;
    std::vector<Entry> entries_;
};

/// One reading of a logger that gives watts: the mean over the window that ends at `at`.
struct PowerSample {
    TimePoint at;
    Watts mean;
    Duration window{0};
};

/// Turns the windows of a power logger into energy samples, so that attribution takes both kinds
/// of logger. Windows that follow each other are one segment; where they overlap by a little, as a
/// logger whose times jitter says, the later one counts from the earlier one's end on. Of windows
/// that overlap by more only every n-th is used: they carry the same noise twice. Time between
/// windows is in no row.
class PowerWindows {
public:
    explicit PowerWindows(Watts highest_power = CounterLimits{}.highest_power)
        : highest_power_{highest_power} {}

    /// The ends of the window as energy samples: both, its later one alone where it follows the
    /// window before, or none where it overlaps that one or came out of order, or its watts cannot
    /// be right. Valid until the next call.
    std::span<const EnergySample> take(const PowerSample& sample) {
        if (!std::isfinite(sample.mean.count) || sample.mean.count < 0 ||
            sample.mean > highest_power_ || sample.window <= Duration::zero()) {
            ++implausible_;
            return {};
        }
        TimePoint from = sample.at - sample.window;
        const bool first = used_to_ == TimePoint::min();
        // Only of a logger whose samples follow each other as its windows do.
        const bool jitters = first || sample.at - seen_ >= sample.window / 2;
        const Duration jitter = sample.window / (jitters ? 4 : 32);
        seen_ = sample.at;
        if (!first && from < used_to_ - jitter) {
            ++skipped_;
            return {};
        }
        const bool follows = !first && from < used_to_ + jitter;
        if (follows) from = used_to_;
        used_to_ = sample.at;
        if (!follows) ++segment_;
        ends_[0] = {from, total_, segment_};
        total_ += sample.mean * Seconds{sample.at - from};
        ends_[1] = {sample.at, total_, segment_};
        return std::span{ends_}.subspan(follows ? 1 : 0);
    }

    [[nodiscard]] std::uint64_t implausible() const { return implausible_; }
    [[nodiscard]] std::uint64_t skipped() const { return skipped_; }

private:
    Watts highest_power_;
    TimePoint used_to_ = TimePoint::min();
    TimePoint seen_ = TimePoint::min();  // the last sample, used or not
    Joules total_;
    std::uint32_t segment_ = 0;
    std::array<EnergySample, 2> ends_;
    std::uint64_t implausible_ = 0;
    std::uint64_t skipped_ = 0;
};

}  // namespace kdvfs::inline v0_3::measure
