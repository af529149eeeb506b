// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>
#include <kdvfs/serve/step.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::serve::detail {

/// Fits the cells of a step table to means over steps: the cost of a step is interpolated between
/// cells, as StepTable does, and a cell lies on a plane through all of them but for a deviation
/// that data must justify. Least squares of relative errors.
class StepCellFit {
public:
    /// Several steps, as the cells that they are interpolated between.
    struct Steps {
        std::vector<double> cells{};  ///< by column; empty before the first step
        double count = 0;
    };

    explicit StepCellFit(StepBuckets::Edges grid) : grid_{std::move(grid)} {
        columns_ = first_cell + grid_.prompt_tokens.size() * grid_.prompt_context.size() +
                   grid_.sequences.size() * grid_.context_tokens.size();
        matrix_.grow(columns_);
        right_.resize(columns_);
    }

    /// Adds a step to those that are summed up.
    void add(Steps& steps, StepShape shape) const {
        steps.cells.resize(columns_);
        ++steps.count;
        const auto add = [&](std::size_t column, double value) { steps.cells[column] += value; };
        if (shape.prompt_tokens > 0) {
            add(0, 1);
            add(1, shape.prompt_tokens / prompt_scale);
            add(5, double{1} * shape.prompt_tokens * shape.prompt_context / read_scale);
            for (const auto& [index, weight] : places(grid_.prompt_tokens, shape.prompt_tokens))
                for (const auto& [context, other] :
                     places(grid_.prompt_context, shape.prompt_context))
                    add(prompt_cell(index, context), weight * other);
        }
        if (shape.sequences > 0) decode(add, shape.sequences, shape.context_tokens, 1);
        // A mixed step reads the weights once.
        if (phase_of(shape) == Phase::mixed)
            decode(add, grid_.sequences.front(), reference_context(), -1);
    }
    /// The steps cost so much in the mean, known to a relative standard deviation. Nothing is taken
    /// where the cost is not above zero.
    void close(const Steps& steps, double cost, double deviation) {
        close(steps, cost, cost, noise * noise / (deviation * deviation));
    }
    /// A step. @param usual of such steps: its own cost would give cheap steps too much weight
    void close_one(const Steps& step, double cost, double usual) { close(step, cost, usual, 1); }

    void add(const StepCellFit& other) {
        matrix_ += other.matrix_;
        for (std::size_t c = 0; c < columns_; ++c) right_[c] += other.right_[c];
        rows_ += other.rows_;
        sum_ += other.sum_;
    }
    /// How many rows of 2 % are as precise as those that were taken.
    [[nodiscard]] double rows() const { return rows_; }

    /// What cells cost.
    class Solution {
    public:
        Solution(const StepCellFit& fit, std::vector<double> values)
            : fit_{fit}, values_{std::move(values)} {}
        [[nodiscard]] double prefill(std::size_t index, std::size_t context) const {
            const double tokens = fit_.grid_.prompt_tokens[index];
            return values_[0] + values_[1] * tokens / prompt_scale +
                   values_[5] * tokens * fit_.grid_.prompt_context[context] / read_scale +
                   values_[fit_.prompt_cell(index, context)];
        }
        [[nodiscard]] double decode(std::size_t sequences, std::size_t context) const {
            const double s = fit_.grid_.sequences[sequences];
            const double c = fit_.grid_.context_tokens[context];
            return values_[2] + values_[3] * s / sequence_scale +
                   values_[4] * s * c / context_scale +
                   values_[fit_.decode_cell(sequences, context)];
        }

    private:
        const StepCellFit& fit_;
        std::vector<double> values_;
    };
    /// @pre rows() > 0
    [[nodiscard]] Solution solve() const {
        measure::SymmetricMatrix matrix = matrix_;
        const double mean = sum_ / rows_;
        const auto hold = [&](std::size_t column, double width) {
            const std::size_t columns[]{column};
            const double one[]{1};
            matrix.add_outer(columns, one, noise * noise / (width * width * mean * mean));
        };
        // Parts of steps are free, and never singular; what a few kinds of steps alike cannot tell
        // of sequences and contexts does not grow beyond them.
        for (std::size_t c = 0; c < 3; ++c) hold(c, 1e3);
        for (std::size_t c = 3; c < 6; ++c) hold(c, slope);
        for (std::size_t c = first_cell; c < columns_; ++c) hold(c, from_plane);
        return {*this, measure::Cholesky{matrix}.solve(right_)};
    }

private:
    static constexpr double noise = 0.02;       ///< of a mean, relative
    static constexpr double from_plane = 0.15;  ///< that a cell lies, of the mean cost
    static constexpr double slope = 0.3;        ///< of the plane by a scale, of the mean cost
    static constexpr double prompt_scale = 512, sequence_scale = 16, context_scale = 1e4,
                            read_scale = 1e6;
    static constexpr std::size_t first_cell = 6;

    void close(const Steps& steps, double cost, double usual, double precision) {
        if (!(cost > 0)) return;
        std::vector<std::size_t> columns;
        std::vector<double> values;
        for (std::size_t c = 0; c < steps.cells.size(); ++c) {
            if (steps.cells[c] == 0) continue;
            columns.push_back(c);
            values.push_back(steps.cells[c] / steps.count);
        }
        matrix_.add_outer(columns, values, precision / (usual * usual));
        for (std::size_t i = 0; i < columns.size(); ++i)
            right_[columns[i]] += precision * values[i] * cost / (usual * usual);
        rows_ += precision;
        sum_ += precision * cost;
    }

    using Places = std::vector<std::pair<std::size_t, double>>;

    static Places places(const std::vector<std::uint32_t>& axis, std::uint32_t value) {
        const auto upper = std::lower_bound(axis.begin(), axis.end(), value);
        if (upper == axis.begin()) return {{0, 1}};
        if (upper == axis.end()) return {{axis.size() - 1, 1}};
        const auto index = static_cast<std::size_t>(upper - axis.begin());
        const double above = static_cast<double>(value - axis[index - 1]) /
                             static_cast<double>(axis[index] - axis[index - 1]);
        return {{index - 1, 1 - above}, {index, above}};
    }
    [[nodiscard]] std::uint32_t reference_context() const {
        return std::clamp(256U, grid_.context_tokens.front(), grid_.context_tokens.back());
    }
    [[nodiscard]] std::size_t prompt_cell(std::size_t tokens, std::size_t context) const {
        return first_cell + tokens * grid_.prompt_context.size() + context;
    }
    [[nodiscard]] std::size_t decode_cell(std::size_t sequences, std::size_t context) const {
        return prompt_cell(grid_.prompt_tokens.size(), 0) +
               sequences * grid_.context_tokens.size() + context;
    }
    template <class Add>
    void decode(const Add& add, std::uint32_t sequences, std::uint32_t context, double part) const {
        add(2, part);
        add(3, part * sequences / sequence_scale);
        add(4, part * sequences * context / context_scale);
        for (const auto& [s, weight] : places(grid_.sequences, sequences))
            for (const auto& [c, other] : places(grid_.context_tokens, context))
                add(decode_cell(s, c), part * weight * other);
    }

    StepBuckets::Edges grid_;
    std::size_t columns_ = 0;
    measure::SymmetricMatrix matrix_;
    std::vector<double> right_;
    double rows_ = 0;
    double sum_ = 0;
};

}  // namespace kdvfs::inline v0_3::serve::detail
