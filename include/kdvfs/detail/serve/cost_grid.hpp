// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::serve::detail {

/// What one clock costs over a rectangular grid; cells that were never measured are empty.
class CostGrid {
public:
    CostGrid(std::vector<std::uint32_t> rows, std::vector<std::uint32_t> columns)
        : rows_{std::move(rows)}, columns_{std::move(columns)} {
        cells_.resize(rows_.size() * columns_.size());
    }

    std::optional<tune::Cost>& cell(std::size_t row, std::size_t column) {
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
    [[nodiscard]] std::optional<tune::Cost> at(std::uint32_t row, std::uint32_t column) const {
        const auto along_rows = locate(rows_, row);
        const auto along_columns = locate(columns_, column);
        if (!along_rows || !along_columns) return std::nullopt;
        tune::Cost sum;
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
    std::vector<std::optional<tune::Cost>> cells_;
};

}  // namespace kdvfs::inline v0_3::serve::detail
