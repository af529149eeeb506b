// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/counter_noise.hpp>
#include <kdvfs/measure/normal_equations.hpp>
#include <kdvfs/measure/robust_fit.hpp>
#include <kdvfs/measure/row_block.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// What came of judging rows.
struct JudgedRows {
    NormalEquations equations;            ///< of the rows that are believed
    std::vector<double> refused_seconds;  ///< by column, of the rows that are not
    std::vector<double> shares;           ///< the largest of each column of a row that is believed
    std::uint64_t refused = 0;            ///< rows that are not
    double squares = 0;  ///< of what the believed rows lay beyond their block's fit, of weight 1
};

/// Normal equations that wrong rows cannot spoil. A counter can transition by less than the board
/// could draw, and something that no scope covers can draw power for a while; no limit on single
/// readings finds that, but such rows lie far from what all others say. Rows are kept until a block
/// is full, then judged by `RobustFit`, and enter the sums by the inverse of the variance that the
/// counter's noise has at their power. Memory is bounded by one block.
class RobustRows {
public:
    std::size_t add_column() {
        place_.push_back(nowhere);
        judged_.refused_seconds.push_back(0);
        judged_.shares.push_back(0);
        return judged_.equations.add_column();
    }
    void add(std::size_t column, double seconds) {
        if (seconds == 0) return;
        std::size_t& place = place_[column];
        if (place == nowhere) {
            place = row_.size();
            row_.push_back({column, 0});
        }
        row_[place].seconds += seconds;
    }
    void discard_row() {
        for (const RowBlock::Entry& entry : row_) place_[entry.column] = nowhere;
        row_.clear();
    }
    /// Ends a row. `weight` is proportional to the inverse variance that a counter's noise, white
    /// in power and equal at all powers, would give it.
    void finish_row(double joules, double weight) {
        if (!row_.empty()) block_.push(row_, joules, weight);
        discard_row();
        if (block_.size() < std::max<std::size_t>(1024, 4 * columns())) return;
        noise_ = add_block(judged_);
        if (!weighing_ && noise_.determined()) weighing_ = noise_;
        block_.clear();
    }

    /// All rows so far, judged by what is known now.
    [[nodiscard]] JudgedRows judged() const {
        JudgedRows all = judged_;
        add_block(all);
        return all;
    }
    [[nodiscard]] std::size_t columns() const { return judged_.equations.columns(); }

private:
    static constexpr std::size_t nowhere = ~std::size_t{0};

    /// Returns the noise of the block's rows.
    CounterNoise add_block(JudgedRows& into) const {
        if (block_.size() == 0) return noise_;
        const RobustFit fit{block_, into.equations, noise_, weighing_, into.refused, into.shares};
        std::vector<double> shares = into.shares;
        for (std::size_t i = 0; i < block_.size(); ++i) {
            if (!fit.refuses(i)) {
                block_.insert(i, fit.trust(i), into.equations);
                into.squares += block_.row(i).weight * fit.excess(i) * fit.excess(i);
                for (const RowBlock::Entry& entry : block_.entries(i)) {
                    double& share = shares[entry.column];
                    share = std::max(share, entry.seconds / block_.row(i).seconds);
                }
                continue;
            }
            ++into.refused;
            for (const RowBlock::Entry& entry : block_.entries(i)) {
                into.refused_seconds[entry.column] += entry.seconds;
            }
        }
        into.shares = std::move(shares);
        return fit.noise();
    }

    JudgedRows judged_;
    CounterNoise noise_;                    // of the last block
    std::optional<CounterNoise> weighing_;  // once known
    RowBlock block_;
    std::vector<RowBlock::Entry> row_;  // under construction
    std::vector<std::size_t> place_;    // of a column in it
};

}  // namespace kdvfs::measure
