// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::serve {

using tune::Cost;

/// One measured row of a step table. `batch` is the number of sequences and `context` the length
/// of each: of a prefill row, batch x context prompt tokens are read in the step. An idle row has
/// neither; its time may be any.
struct StepRow {
    Phase phase = Phase::decode;
    std::uint32_t batch = 0;
    std::uint32_t context = 0;
    Megahertz clock = auto_clock;
    Cost cost{};
};

namespace detail {

/// What one clock costs over a rectangular grid; cells that were never measured are empty.
class CostGrid {
public:
    CostGrid(std::vector<std::uint32_t> rows, std::vector<std::uint32_t> columns)
        : rows_{std::move(rows)}, columns_{std::move(columns)} {
        cells_.resize(rows_.size() * columns_.size());
    }

    std::optional<Cost>& cell(std::size_t row, std::size_t column) {
        return cells_[row * columns_.size() + column];
    }
    [[nodiscard]] const std::vector<std::uint32_t>& rows() const { return rows_; }
    [[nodiscard]] const std::vector<std::uint32_t>& columns() const { return columns_; }

    /// Fills empty cells between two others, first along each row, then along each column.
    void fill_holes() {
        for (std::size_t r = 0; r < rows_.size(); ++r)
            fill_line(
                columns_, [&](std::size_t c) -> auto& { return cell(r, c); });
        for (std::size_t c = 0; c < columns_.size(); ++c)
            fill_line(
                rows_, [&](std::size_t r) -> auto& { return cell(r, c); });
    }

    /// Interpolated between its four neighbours; nothing where one that counts is empty.
    [[nodiscard]] std::optional<Cost> at(std::uint32_t row, std::uint32_t column) const {
        const auto along_rows = locate(rows_, row);
        const auto along_columns = locate(columns_, column);
        if (!along_rows || !along_columns) return std::nullopt;
        Cost sum;
        for (std::size_t r = 0; r < 2; ++r) {
            for (std::size_t c = 0; c < 2; ++c) {
                const double weight = along_rows->weight(r) * along_columns->weight(c);
                if (weight == 0) continue;
                const auto& part =
                    cells_[(along_rows->lower + r) * columns_.size() + along_columns->lower + c];
                if (!part) return std::nullopt;
                sum += *part * weight;
            }
        }
        return sum;
    }

private:
    struct Place {
        std::size_t lower;
        double above;  ///< 0 at `lower`, 1 at the next
        [[nodiscard]] double weight(std::size_t side) const {
            return side == 0 ? 1 - above : above;
        }
    };

    static std::optional<Place> locate(const std::vector<std::uint32_t>& axis,
                                       std::uint32_t value) {
        if (axis.empty() || value < axis.front() || value > axis.back()) return std::nullopt;
        const auto upper = std::lower_bound(axis.begin(), axis.end(), value);
        const auto index = static_cast<std::size_t>(upper - axis.begin());
        if (*upper == value) return Place{index, 0};
        return Place{index - 1, static_cast<double>(value - axis[index - 1]) /
                                    static_cast<double>(axis[index] - axis[index - 1])};
    }

    template <class Cell>
    static void fill_line(const std::vector<std::uint32_t>& axis, Cell cell) {
        std::optional<std::size_t> before;
        for (std::size_t here = 0; here < axis.size(); ++here) {
            if (!cell(here)) continue;
            for (std::size_t gap = before ? *before + 1 : here; gap < here; ++gap) {
                const double above = static_cast<double>(axis[gap] - axis[*before]) /
                                     static_cast<double>(axis[here] - axis[*before]);
                cell(gap) = *cell(*before) * (1 - above) + *cell(here) * above;
            }
            before = here;
        }
    }

    std::vector<std::uint32_t> rows_;
    std::vector<std::uint32_t> columns_;
    std::vector<std::optional<Cost>> cells_;
};

}  // namespace detail

/// What steps cost at each clock, from measurements of pure prefill and pure decode steps.
/// Inside the measured range it interpolates (holes of a clock's grid are filled along the context,
/// then along the batch, then between the neighbouring clocks); outside it knows nothing and says
/// so. A mixed step costs its prefill part and its decode part less the smallest measured decode
/// step near a context of 256 tokens, because the weights are read once. Constant after
/// construction: threads may share it.
class StepTable {
public:
    /// An instance that only decodes, or only reads prompts, has rows of that phase alone.
    /// @throws Error (invalid_input) where neither prefill nor decode has rows, or a row has no
    ///     batch, no context, or a time or energy that is not positive
    explicit StepTable(const std::vector<StepRow>& rows) {
        for (const StepRow& row : rows) check(row);
        find_axes(rows);
        average(rows);
        for (PerClock& clock : costs_) {
            clock.prefill.fill_holes();
            clock.decode.fill_holes();
        }
        fill_between_clocks();
    }

    /// Ascending; auto, if it was measured, is above all.
    [[nodiscard]] const std::vector<Megahertz>& clocks() const { return clocks_; }

    /// What a step takes at a clock of the table; nothing outside the measured range.
    /// Allocates nothing.
    [[nodiscard]] std::optional<Cost> cost(StepShape shape, Megahertz clock) const {
        const auto place = std::find(clocks_.begin(), clocks_.end(), clock);
        if (place == clocks_.end()) return std::nullopt;
        return cost_at(shape, static_cast<std::size_t>(place - clocks_.begin()));
    }

    /// The same by the clock's index in `clocks()`.
    [[nodiscard]] std::optional<Cost> cost_at(StepShape shape, std::size_t clock) const {
        const PerClock& at = costs_[clock];
        const auto decode = [&] { return at.decode.at(shape.sequences, shape.context_tokens); };
        const auto prefill = [&] { return at.prefill.at(shape.prompt_tokens, 0); };
        switch (phase_of(shape)) {
            case Phase::idle: return Cost{};
            case Phase::prefill: return prefill();
            case Phase::decode: return decode();
            case Phase::mixed: break;
        }
        const auto first = prefill();
        const auto second = decode();
        const auto weights = at.decode.at(smallest_.sequences, smallest_.context_tokens);
        if (!first || !second || !weights) return std::nullopt;
        return *first + *second + *weights * -1;
    }

    /// What is wrong with a row by itself, as a clause; null if it is sound.
    [[nodiscard]] static const char* find_fault(const StepRow& row) {
        const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
        if (row.phase == Phase::mixed) return "rows are prefill, decode or idle";
        if (row.phase != Phase::idle && (row.batch == 0 || row.context == 0))
            return "batch and context must be positive";
        if (std::uint64_t{row.batch} * row.context > std::numeric_limits<std::uint32_t>::max())
            return "batch x context is too large";
        if (!positive(row.cost.time.count()) || !positive(row.cost.energy.count))
            return "time and energy must be positive";
        return nullptr;
    }

    /// Drawn while there is nothing to do; 0 where it was not measured.
    [[nodiscard]] Watts idle_power(Megahertz clock) const {
        const auto place = std::find(clocks_.begin(), clocks_.end(), clock);
        if (place == clocks_.end()) return {};
        return costs_[static_cast<std::size_t>(place - clocks_.begin())].idle.value_or(Watts{});
    }

    /// The largest shape that was measured, dimension by dimension.
    [[nodiscard]] StepShape largest() const {
        const PerClock& any = costs_.front();
        const auto last = [](const std::vector<std::uint32_t>& axis) {
            return axis.empty() ? 0 : axis.back();
        };
        return {last(any.prefill.rows()), last(any.decode.rows()), last(any.decode.columns())};
    }

    /// "prefill of 1 to 512 tokens, decode of 1 to 128 sequences of 256 to 8192 tokens".
    [[nodiscard]] std::string range() const {
        const auto span = [](const std::vector<std::uint32_t>& axis) {
            if (axis.empty()) return std::string{"no"};
            return std::to_string(axis.front()) + " to " + std::to_string(axis.back());
        };
        const PerClock& any = costs_.front();
        return "prefill of " + span(any.prefill.rows()) + " tokens, decode of " +
               span(any.decode.rows()) + " sequences of " + span(any.decode.columns()) + " tokens";
    }

private:
    struct PerClock {
        detail::CostGrid prefill;
        detail::CostGrid decode;
        std::optional<Watts> idle{};
    };

    static std::uint32_t prompt_tokens(const StepRow& row) { return row.batch * row.context; }

    static void check(const StepRow& row) {
        if (const char* why = find_fault(row))
            throw Error{Errc::invalid_input,
                        {"use a row of a step table", std::string{to_string(row.phase)}, why,
                         "leave that row out, or measure it again"}};
    }

    void find_axes(const std::vector<StepRow>& rows) {
        std::set<std::uint32_t> prompts, batches, contexts;
        std::set<Megahertz> clocks;
        for (const StepRow& row : rows) {
            clocks.insert(row.clock);
            if (row.phase == Phase::prefill) prompts.insert(prompt_tokens(row));
            if (row.phase != Phase::decode) continue;
            batches.insert(row.batch);
            contexts.insert(row.context);
        }
        if (prompts.empty() && batches.empty())
            throw Error{Errc::invalid_input,
                        {"make a step table", "prefill and decode", "there are no such rows",
                         "measure the steps that the engine runs"}};
        clocks_.assign(clocks.begin(), clocks.end());
        if (clocks_.front() == auto_clock)
            std::rotate(clocks_.begin(), clocks_.begin() + 1, clocks_.end());
        const std::vector<std::uint32_t> batch_axis{batches.begin(), batches.end()};
        const std::vector<std::uint32_t> context_axis{contexts.begin(), contexts.end()};
        for (std::size_t c = 0; c < clocks_.size(); ++c)
            costs_.push_back({{{prompts.begin(), prompts.end()}, {0}}, {batch_axis, context_axis}});
        if (!batch_axis.empty())
            smallest_ = {0, batch_axis.front(),
                         std::clamp(256U, context_axis.front(), context_axis.back())};
    }

    /// Rows of the same place are samples of it.
    void average(const std::vector<StepRow>& rows) {
        using Key = std::pair<std::pair<Megahertz, Phase>, std::pair<std::uint32_t, std::uint32_t>>;
        std::map<Key, std::pair<Cost, double>> sums;
        for (const StepRow& row : rows) {
            const auto place =
                row.phase == Phase::prefill  ? std::pair{prompt_tokens(row), std::uint32_t{0}}
                : row.phase == Phase::decode ? std::pair{row.batch, row.context}
                                             : std::pair<std::uint32_t, std::uint32_t>{};
            auto& [sum, count] = sums[{{row.clock, row.phase}, place}];
            sum += row.cost;
            ++count;
        }
        const auto index = [](const auto& axis, auto value) {
            return static_cast<std::size_t>(std::find(axis.begin(), axis.end(), value) -
                                            axis.begin());
        };
        for (const auto& [key, sum] : sums) {
            PerClock& at = costs_[index(clocks_, key.first.first)];
            const Cost mean = sum.first * (1 / sum.second);
            const auto [row, column] = key.second;
            if (key.first.second == Phase::idle)
                at.idle = mean.energy / mean.time;
            else if (key.first.second == Phase::prefill)
                at.prefill.cell(index(at.prefill.rows(), row), 0) = mean;
            else
                at.decode.cell(index(at.decode.rows(), row), index(at.decode.columns(), column)) =
                    mean;
        }
    }

    /// Cells that are still empty but known at a lower and a higher clock. Time goes with the
    /// period of the clock, so both are interpolated over it.
    void fill_between_clocks() {
        const auto fill_grid = [&](detail::CostGrid PerClock::*grid) {
            const auto& shape = costs_.front().*grid;
            for (std::size_t r = 0; r < shape.rows().size(); ++r)
                for (std::size_t c = 0; c < shape.columns().size(); ++c)
                    fill_line([&](std::size_t clock) -> auto& {
                        return (costs_[clock].*grid).cell(r, c);
                    });
        };
        fill_grid(&PerClock::prefill);
        fill_grid(&PerClock::decode);
        fill_line([&](std::size_t clock) -> auto& { return costs_[clock].idle; });
    }

    template <class Cell>
    void fill_line(Cell cell) {
        std::optional<std::size_t> before;
        for (std::size_t here = 0; here < clocks_.size() && clocks_[here] != auto_clock; ++here) {
            if (!cell(here)) continue;
            const auto period = [&](std::size_t clock) { return 1.0 / clocks_[clock].count; };
            for (std::size_t gap = before ? *before + 1 : here; gap < here; ++gap) {
                const double above =
                    (period(*before) - period(gap)) / (period(*before) - period(here));
                cell(gap) = *cell(*before) * (1 - above) + *cell(here) * above;
            }
            before = here;
        }
    }

    std::vector<Megahertz> clocks_;
    std::vector<PerClock> costs_;
    StepShape smallest_{};
};

}  // namespace kdvfs::inline v0_3::serve
