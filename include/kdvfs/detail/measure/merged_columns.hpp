// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/power_windows.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// New numbers of columns. Columns of one number become one, as if what they stand for had one
/// power: sums over rows follow from those of the columns. Not thread-safe.
class MergedColumns {
public:
    using Entry = PowerRows::Entry;

    static constexpr std::size_t left_out = ~std::size_t{0};  ///< number of a column without power

    /// @param place   by column, its new number, or `left_out`
    /// @param columns how many there are then
    MergedColumns(std::vector<std::size_t> place, std::size_t columns)
        : place_{std::move(place)}, columns_{columns}, slots_(columns, left_out) {}

    [[nodiscard]] std::size_t operator()(std::size_t column) const { return place_[column]; }
    [[nodiscard]] std::size_t columns() const { return columns_; }

    /// @param values by column, may be shorter
    template <class Value>
    [[nodiscard]] std::vector<Value> sum(const std::vector<Value>& values) const {
        std::vector<Value> result(columns_);
        for (std::size_t j = 0; j < values.size(); ++j) {
            if (place_[j] != left_out) result[place_[j]] += values[j];
        }
        return result;
    }
    [[nodiscard]] SymmetricMatrix sum(const SymmetricMatrix& values) const {
        SymmetricMatrix result{columns_};
        for (std::size_t i = 0; i < values.size(); ++i) {
            for (std::size_t j = 0; j <= i && place_[i] != left_out; ++j) {
                if (place_[j] == left_out) continue;
                // Both of a pair that falls on the diagonal.
                const double times = i != j && place_[i] == place_[j] ? 2 : 1;
                result(place_[i], place_[j]) += times * values(i, j);
            }
        }
        return result;
    }
    [[nodiscard]] NormalSums sum(const NormalSums& sums) const {
        if (sums.gram.size() == 0) return sums;
        return {sum(sums.gram), sum(sums.scatter), sum(sums.right), sums.rows};
    }
    [[nodiscard]] RowSums sum(RowSums sums) const;
    /// @param inside as `RowSums` has it, may be shorter
    [[nodiscard]] PowerRows sum(const PowerRows& rows, std::span<const char> inside) const {
        PowerRows result;
        std::vector<Entry> parts;
        std::vector<Entry> insides;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            parts.clear();
            insides.clear();
            for (const Entry& entry : rows.entries(i)) {
                const bool is_inside = entry.column < inside.size() && inside[entry.column] != 0;
                (is_inside ? insides : parts).push_back(entry);
            }
            merge(parts);
            merge(insides);
            const PowerRows::Row& row = rows[i];
            result.push(parts, insides, row.seconds, row.watts * row.seconds, row.follows);
        }
        return result;
    }
    /// Numbers entries anew, each number once.
    void merge(std::vector<Entry>& entries) const {
        std::size_t kept = 0;
        for (const Entry& entry : entries) {
            const std::size_t column = place_[entry.column];
            if (column == left_out) continue;
            if (slots_[column] == left_out) {
                slots_[column] = kept;
                entries[kept++] = {column, entry.share};
            } else {
                entries[slots_[column]].share += entry.share;
            }
        }
        entries.resize(kept);
        for (const Entry& entry : entries) slots_[entry.column] = left_out;
    }

private:
    std::vector<std::size_t> place_;
    std::size_t columns_;
    mutable std::vector<std::size_t> slots_;  // by new column, `left_out` between calls
};

inline RowSums MergedColumns::sum(RowSums sums) const {
    std::vector<double> alone(columns_);  // the diagonal without products of two columns
    std::vector<double> variances(columns_);
    std::vector<char> inside(columns_);
    std::vector<char> rests(columns_);
    for (std::size_t j = 0; j < sums.columns(); ++j) {
        const std::size_t column = place_[j];
        if (column == left_out) continue;
        alone[column] += sums.level.gram(j, j);
        variances[column] += sums.shares[j] * sums.variances[j];
        inside[column] = sums.inside[j];
        rests[column] = sums.rests[j];
    }
    for (NormalSums* each : {&sums.level, &sums.white, &sums.filled}) *each = sum(*each);
    for (std::vector<double>* each : {&sums.shares, &sums.squared_shares, &sums.shared_excess,
                                      &sums.shared_variance, &sums.winsorized, &sums.changes}) {
        *each = sum(*each);
    }
    for (std::size_t c = 0; c < columns_; ++c) {
        if (sums.shares[c] > 0) variances[c] /= sums.shares[c];
        // Products of shares in one row, which only the weighted equations have.
        if (alone[c] > 0) sums.squared_shares[c] *= sums.level.gram(c, c) / alone[c];
    }
    sums.variances = std::move(variances);
    sums.inside = std::move(inside);
    sums.rests = std::move(rests);
    return sums;
}

}  // namespace kdvfs::inline v0_3::measure
