// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/pipeline.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// How late a clock comes: nanoseconds from asking for it, in whose last part the GPU pauses.
struct Lateness {
    std::int64_t latency = 0;
    std::int64_t transition = 0;
};

/// The clock that a stage works at, and the one that it has asked for and that arrives then. Clocks
/// are indices into the `ClockTable`, times nanoseconds.
struct HeldClock {
    std::uint32_t now = 0;
    std::uint32_t asked = 0;
    std::int64_t arrives = 0;

    /// A later request overtakes one that is on its way.
    [[nodiscard]] HeldClock after_asking(std::uint32_t clock, std::int64_t at,
                                         const Lateness& late) const {
        if (clock == asked) return *this;
        return {arrives <= at ? asked : now, clock, at + late.latency};
    }
};

/// The clocks of a pipeline's curves, and what each operation takes at each of them.
class ClockTable {
public:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max() / 4;

    /// What is chosen for an operation: a clock, or one of its curve's points, where these have
    /// several clocks.
    enum class Columns { clocks, points };

    explicit ClockTable(const Pipeline& pipeline, Columns columns = Columns::clocks)
        : columns_{columns} {
        for (const Curve& curve : pipeline.curves)
            for (const CurvePoint& point : curve.points()) clocks_.push_back(point.clock);
        std::sort(clocks_.begin(), clocks_.end());
        clocks_.erase(std::unique(clocks_.begin(), clocks_.end()), clocks_.end());
        if (columns == Columns::points) {
            std::size_t most = 0;
            for (const Curve& curve : pipeline.curves) most = std::max(most, curve.points().size());
            clocks_.assign(most, ClockPoint{});
        }
        for (const Curve& curve : pipeline.curves) {
            std::vector<Cell> row = row_of(curve);
            cells_.insert(cells_.end(), row.begin(), row.end());
            fill_worked(row);
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
    /// The clock of a stage that asks for none: the board's own choice, as the fastest.
    [[nodiscard]] std::uint32_t found() const { return static_cast<std::uint32_t>(size()); }

    struct Run {
        std::int64_t end = 0;
        double energy = 0;  ///< effective, joules
    };
    /// An operation that begins while a clock may still be on its way: until it arrives the work
    /// goes on at the clock before.
    [[nodiscard]] Run run(std::uint32_t operation, std::int64_t begin, const HeldClock& held,
                          const Lateness& late) const {
        const Cell& after = worked(operation, held.asked);
        if (held.arrives <= begin) return {begin + after.time, after.energy};
        const Cell& before = worked(operation, held.now);
        const std::int64_t works_on =
            std::max<std::int64_t>(held.arrives - late.transition - begin, 0);
        if (before.time <= works_on) return {begin + before.time, before.energy};
        const double done = static_cast<double>(works_on) / static_cast<double>(before.time);
        const double rest = (1 - done) * static_cast<double>(after.time);
        return {std::max(held.arrives, begin) + std::llround(rest),
                done * before.energy + (1 - done) * after.energy};
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
    /// What a curve takes at each clock.
    [[nodiscard]] std::vector<Cell> row_of(const Curve& curve) const {
        const auto cell = [&](std::uint32_t p) {
            return Cell{curve.time(p), to_joules(curve.effective(p)).count, p};
        };
        if (curve.is_constant()) return std::vector<Cell>(clocks_.size(), cell(0));
        std::vector<Cell> row(clocks_.size());
        for (std::uint32_t p = 0; p < curve.points().size(); ++p) {
            const auto at =
                std::lower_bound(clocks_.begin(), clocks_.end(), curve.points()[p].clock);
            row[columns_ == Columns::points ? p : static_cast<std::size_t>(at - clocks_.begin())] =
                cell(p);
        }
        return row;
    }
    /// What an operation takes at a clock that another one has left behind: at one that it was not
    /// measured at, as at the next slower one, or at its slowest.
    void fill_worked(const std::vector<Cell>& row) {
        Cell last = *std::find_if(row.begin(), row.end(),
                                  [](const Cell& cell) { return cell.time != never; });
        Cell fastest = last;
        for (const Cell& cell : row) {
            if (cell.time != never) last = cell;
            if (last.time < fastest.time) fastest = last;
            worked_.push_back(last);
        }
        worked_.push_back(fastest);
    }
    [[nodiscard]] const Cell& worked(std::uint32_t operation, std::uint32_t clock) const {
        return worked_[curve_[operation] * (clocks_.size() + 1) + clock];
    }

    Columns columns_;
    std::vector<ClockPoint> clocks_;
    std::vector<Cell> cells_;
    std::vector<Cell> worked_;  ///< with one more of each curve, for `found`
    std::vector<std::uint32_t> curve_;
};

/// When an operation may start, and when it must have ended.
struct Slot {
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

/// Chooses the clocks of one stage's operations, which run one after the other, each in its slot:
/// the least energy, for clocks that come late and a price of a switch. Dynamic programming over
/// (operation, clock); of each such state the combinations of time and cost are kept that no other
/// beats in both, thinned to a few dozen where stages are long.
class StageClocks {
public:
    struct Choice {
        double energy = 0;
        std::vector<std::uint32_t> clock;  ///< of the stage's operations; empty: none ends in time
    };

    /// @param found the clock as the iteration begins
    StageClocks(const ClockTable& table, std::uint32_t first, std::vector<Slot> slots,
                const Lateness& late = {}, const HeldClock& found = {})
        : table_{&table}, first_{first}, slots_{std::move(slots)}, late_{late}, found_{found} {}

    /// The cheapest clocks when a switch costs `worth` joules; ties go to fewer switches.
    [[nodiscard]] Choice at_price(double worth) {
        run(worth);
        return best();
    }

private:
    static constexpr std::uint32_t none = ~0U;

    /// One way to get here: when it ends and what it cost.
    struct Label {
        std::int64_t time = 0;
        double cost = 0;
        std::uint32_t before = none;  ///< label of the operation before
        std::uint32_t clock = 0;
        HeldClock held{};
    };

    /// The labels of one operation: those of a clock lie between `begin` of it and of the next,
    /// sooner ones first, cheaper ones last.
    struct Layer {
        std::vector<Label> labels;
        std::vector<std::uint32_t> begin;
    };

    void run(double worth) {
        const std::size_t clocks = table_->size();
        // Small stages can afford to keep all: a quarter of a million labels are a few megabytes.
        most_labels_ = std::clamp<std::size_t>(250'000 / (clocks * (slots_.size() + 1)), 24, 1024);
        layers_.assign(slots_.size() + 1, {});
        // Before the first operation every clock is free: one label, as if at that clock.
        Layer& origin = layers_.front();
        for (std::uint32_t c = 0; c <= clocks; ++c) {
            origin.begin.push_back(c);
            if (c < clocks) origin.labels.push_back({0, 0, none, 0, found_});
        }
        for (std::uint32_t i = 0; i < slots_.size(); ++i) extend(i, worth);
    }

    void extend(std::uint32_t i, double worth) {
        Layer& to = layers_[i + 1];
        const std::vector<std::uint32_t> any =
            i > 0 ? pareto(layers_[i]) : std::vector<std::uint32_t>{};  // where switches come from
        for (std::uint32_t c = 0; c < table_->size(); ++c) {
            to.begin.push_back(static_cast<std::uint32_t>(to.labels.size()));
            arrive(i, c, any, worth);
        }
        to.begin.push_back(static_cast<std::uint32_t>(to.labels.size()));
    }

    /// The labels, whatever their clock, that no other beats.
    [[nodiscard]] std::vector<std::uint32_t> pareto(const Layer& layer) const {
        std::vector<std::uint32_t> all(layer.labels.size());
        std::iota(all.begin(), all.end(), 0U);
        std::sort(all.begin(), all.end(), [&](std::uint32_t a, std::uint32_t b) {
            return before(layer.labels[a], layer.labels[b]);
        });
        double cheapest = std::numeric_limits<double>::infinity();
        std::erase_if(all, [&](std::uint32_t l) {
            if (layer.labels[l].cost >= cheapest) return true;
            cheapest = layer.labels[l].cost;
            return false;
        });
        return all;
    }

    static bool before(const Label& a, const Label& b) {
        return a.time < b.time || (a.time == b.time && a.cost < b.cost);
    }

    /// Makes the labels of one state: from the same clock, and from any other with a switch.
    void arrive(std::uint32_t i, std::uint32_t clock, std::span<const std::uint32_t> switched,
                double worth) {
        const ClockTable::Cell& cell = table_->at(first_ + i, clock);
        const Slot& slot = slots_[i];
        if (cell.time > slot.end - slot.begin) return;
        const Layer& from = layers_[i];
        fresh_.clear();
        const auto offer = [&](std::uint32_t l, double extra) {
            const Label& label = from.labels[l];
            const std::int64_t begin = std::max(label.time, slot.begin);
            const HeldClock held = label.held.after_asking(clock, label.time, late_);
            const ClockTable::Run run = table_->run(first_ + i, begin, held, late_);
            // A lower clock must leave enough time even where it comes sooner than here.
            const std::int64_t end = std::max(run.end, begin + cell.time);
            if (end <= slot.end)
                fresh_.push_back({end, label.cost + run.energy + extra, l, clock, held});
        };
        for (std::uint32_t l = from.begin[clock]; l < from.begin[clock + 1]; ++l) offer(l, 0);
        for (const std::uint32_t l : switched) offer(l, worth + 1e-9);
        std::sort(fresh_.begin(), fresh_.end(), before);
        keep_best(layers_[i + 1].labels);
    }

    /// Keeps what no other beats: the soonest, the cheapest, and some between.
    void keep_best(std::vector<Label>& labels) {
        double cheapest = std::numeric_limits<double>::infinity();
        std::erase_if(fresh_, [&](const Label& label) {
            if (label.cost >= cheapest) return true;
            cheapest = label.cost;
            return false;
        });
        const std::size_t count = std::min(fresh_.size(), most_labels_);
        for (std::size_t k = 0; k < count; ++k)
            labels.push_back(fresh_[count < 2 ? k : k * (fresh_.size() - 1) / (count - 1)]);
    }

    [[nodiscard]] Choice best() const {
        const std::vector<Label>& last = layers_.back().labels;
        std::uint32_t best = none;
        for (std::uint32_t l = 0; l < last.size(); ++l)
            if (best == none || last[l].cost < last[best].cost) best = l;
        Choice choice;
        if (best == none) return choice;
        choice.clock.resize(slots_.size());
        for (auto i = static_cast<std::uint32_t>(slots_.size()); i-- > 0;) {
            const Label& label = layers_[i + 1].labels[best];
            choice.clock[i] = label.clock;
            choice.energy += table_->at(first_ + i, label.clock).energy;
            best = label.before;
        }
        return choice;
    }

    const ClockTable* table_;
    std::uint32_t first_;
    std::vector<Slot> slots_;
    Lateness late_;
    HeldClock found_;
    std::size_t most_labels_ = 24;
    std::vector<Layer> layers_;
    std::vector<Label> fresh_;
};

}  // namespace kdvfs::inline v0_3::train::detail
