// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/counter_noise.hpp>
#include <kdvfs/measure/least_squares.hpp>
#include <kdvfs/measure/normal_equations.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace kdvfs::measure {

/// Rows of a least squares that wait to be judged: how long each column ran, and the joules.
class RowBlock {
public:
    struct Entry {
        std::size_t column;
        double seconds;
    };
    struct Row {
        std::size_t first;
        std::size_t count;
        double seconds;  ///< of all columns
        double joules;
        double weight;
    };

    void push(std::span<const Entry> entries, double joules, double weight) {
        double seconds = 0;
        for (const Entry& entry : entries) seconds += entry.seconds;
        rows_.push_back({entries_.size(), entries.size(), seconds, joules, weight});
        entries_.insert(entries_.end(), entries.begin(), entries.end());
    }
    void clear() {
        rows_.clear();
        entries_.clear();
    }

    [[nodiscard]] std::size_t size() const { return rows_.size(); }
    [[nodiscard]] const Row& row(std::size_t i) const { return rows_[i]; }
    [[nodiscard]] std::span<const Entry> entries(std::size_t i) const {
        return std::span{entries_}.subspan(rows_[i].first, rows_[i].count);
    }

    /// Adds a row to sums, its weight times `trust`.
    void insert(std::size_t i, double trust, NormalEquations& into) const {
        for (const Entry& entry : entries(i)) into.add(entry.column, entry.seconds);
        into.finish_row(rows_[i].joules, rows_[i].weight * trust);
    }
    /// The joules that a fit gives to the row.
    [[nodiscard]] double explained(std::size_t i, const LeastSquares& fit) const {
        double joules = 0;
        for (const Entry& entry : entries(i)) joules += fit.watts(entry.column) * entry.seconds;
        return joules;
    }

private:
    std::vector<Row> rows_;
    std::vector<Entry> entries_;
};

}  // namespace kdvfs::measure
