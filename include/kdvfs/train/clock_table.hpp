// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/pipeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace kdvfs::train::detail {

/// The clocks of a pipeline's curves, and what each operation takes at each of them.
class ClockTable {
public:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max() / 4;

    explicit ClockTable(const Pipeline& pipeline) {
        for (const Curve& curve : pipeline.curves)
            for (const CurvePoint& point : curve.points()) clocks_.push_back(point.clock);
        std::sort(clocks_.begin(), clocks_.end());
        clocks_.erase(std::unique(clocks_.begin(), clocks_.end()), clocks_.end());
        for (const Curve& curve : pipeline.curves) {
            std::vector<Cell> row(clocks_.size());
            for (std::uint32_t p = 0; p < curve.points().size(); ++p) {
                const auto at =
                    std::lower_bound(clocks_.begin(), clocks_.end(), curve.points()[p].clock);
                row[static_cast<std::size_t>(at - clocks_.begin())] = {
                    curve.time(p), to_joules(curve.effective(p)).count, p};
            }
            cells_.insert(cells_.end(), row.begin(), row.end());
        }
        for (const Operation& operation : pipeline.operations) curve_.push_back(operation.curve);
    }

    struct Cell {
        std::int64_t time = never;  ///< `never` where the clock was not measured
        double energy = 1e30;       ///< effective, joules
        std::uint32_t point = 0;    ///< of the curve
    };

    [[nodiscard]] std::size_t size() const { return clocks_.size(); }
    [[nodiscard]] ClockPoint clock(std::size_t index) const { return clocks_[index]; }
    [[nodiscard]] const Cell& at(std::uint32_t operation, std::size_t clock) const {
        return cells_[curve_[operation] * clocks_.size() + clock];
    }
    /// The clock that needs least of those that fit into a time; the fastest if none does.
    [[nodiscard]] std::uint32_t best_within(std::uint32_t operation, std::int64_t time) const {
        std::uint32_t best = fastest(operation);
        for (std::uint32_t c = 0; c < clocks_.size(); ++c) {
            const Cell& cell = at(operation, c);
            if (cell.time <= time && cell.energy < at(operation, best).energy) best = c;
        }
        return best;
    }
    [[nodiscard]] std::uint32_t fastest(std::uint32_t operation) const {
        std::uint32_t best = 0;
        for (std::uint32_t c = 1; c < clocks_.size(); ++c) {
            const Cell& cell = at(operation, c);
            const Cell& before = at(operation, best);
            if (cell.time < before.time ||
                (cell.time == before.time && cell.energy < before.energy))
                best = c;
        }
        return best;
    }

private:
    std::vector<ClockPoint> clocks_;
    std::vector<Cell> cells_;
    std::vector<std::uint32_t> curve_;
};

}  // namespace kdvfs::train::detail
