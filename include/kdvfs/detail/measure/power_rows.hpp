// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
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

}  // namespace kdvfs::inline v0_3::measure
