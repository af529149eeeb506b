// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/solve/schedule.hpp>
#include <kdvfs/detail/solve/schedule_hull.hpp>
#include <kdvfs/detail/solve/switch_model.hpp>
#include <kdvfs/detail/train/clock_rounding.hpp>
#include <kdvfs/detail/train/stage_clocks.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/tune/cost_table.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// The time-energy frontier of one operation by the clocks of its kernels: the corners of the hull
/// of all schedules of clocks, at a switching latency. An operation ends at the clock that it began
/// with, so that a stage may run it again and again. Immutable.
class KernelFrontier {
public:
    /// One schedule: the clock before the first launch, and changes within the operation.
    struct Point {
        CurvePoint cost;
        std::vector<ClockChange> changes{};
        std::vector<std::size_t> before{};  ///< by change: the launch that it is requested before
    };

    /// @param launches of one operation, in order: indices into the table's kernels
    /// @param costs how late clocks come, and what a pause draws
    /// @param blocking what the stage draws while it waits for another
    /// @param most corners at most; beyond some dozens the frontier gains little
    KernelFrontier(const tune::CostTable& table, const std::vector<std::size_t>& launches,
                   const tune::SwitchCosts& costs, Watts blocking, std::size_t most = 48)
        : blocking_{blocking} {
        tune::SwitchCosts effective = costs;
        effective.paused_power = costs.paused_power - blocking;
        const tune::SwitchModel model{beyond_waiting(table), launches, effective};
        const solve::ScheduleEffort effort = solve::effort_for(model);
        solve::ClosedSchedules closed{model, effort.tolerance, effort.own_laps};
        std::vector<solve::Schedule> found;
        explore(model, closed, most, found);
        launches_ = model.launches();
        clocks_ = model.clocks();
        share_.assign(1, 0);
        for (std::size_t k = 0; k < launches_; ++k) {
            for (std::size_t c = 0; c < clocks_.size(); ++c) costs_.push_back(model.cost(k, c));
            share_.push_back(share_.back() + costs_.back().time);
        }
        const double whole = share_.back();
        for (double& share : share_) share /= whole;
        for (const solve::Schedule& schedule : found) points_.push_back(point(model, schedule));
    }

    /// Fastest first; each later one takes longer, and less energy beyond that of waiting.
    [[nodiscard]] const std::vector<Point>& points() const { return points_; }

    /// What a point takes more, and needs more beyond waiting, where its first clock comes `late`:
    /// until then another one holds.
    [[nodiscard]] tune::Cost entered_late(const Point& point, ClockPoint held, Seconds late) const {
        const std::size_t old = column(held);
        solve::Choice more;
        double left = late.count();
        std::size_t now = column(point.cost.clock);
        std::size_t next = 0;
        for (std::size_t k = 0; k < launches_ && left > 0; ++k) {
            while (next < point.before.size() && point.before[next] == k)
                now = column(point.changes[next++].clock);
            const solve::Choice& before = cost(k, old);
            const solve::Choice& planned = cost(k, now);
            const double share = std::min(1.0, left / before.time);
            more.time += share * (before.time - planned.time);
            more.energy += share * (before.energy - planned.energy);
            left -= before.time;
        }
        return {Seconds{more.time}, Joules{more.energy}};
    }

    /// A request within a point for the clock of what comes behind it.
    struct Lead {
        ClockChange change;
        tune::Cost more;  ///< what the point takes more; its end is at the new clock, if early
        Seconds late;     ///< how long after the point's end the clock arrives
    };
    /// The last launch before which a request for `next` arrives by the point's end.
    /// @param early how long before the end the request is due: the latency less what the stage
    ///              waits then
    /// @returns nothing where a change of the point's own is on its way then
    [[nodiscard]] std::optional<Lead> lead(const Point& point, ClockPoint next, Seconds early,
                                           Seconds latency) const {
        const std::size_t to = column(next);
        std::vector<std::size_t> clock(launches_, column(point.cost.clock));
        for (std::size_t c = 0; c < point.changes.size(); ++c)
            std::fill(clock.begin() + static_cast<std::ptrdiff_t>(point.before[c]), clock.end(),
                      column(point.changes[c].clock));
        double rest = 0;  // from the launch to the end
        std::size_t at = launches_;
        while (at > 0 && rest < early.count()) {
            --at;
            rest += cost(at, clock[at]).time;
        }
        if (rest < early.count()) return std::nullopt;
        double since = 0;  // from the point's last change to the launch
        for (std::size_t k = point.before.empty() ? 0 : point.before.back(); k < at; ++k)
            since += cost(k, clock[k]).time;
        if (!point.before.empty() && (point.before.back() >= at || since < latency.count()))
            return std::nullopt;
        solve::Choice more;
        double arrives = latency.count();
        for (std::size_t k = at; k < launches_; ++k) {
            const solve::Choice& planned = cost(k, clock[k]);
            const double share = std::clamp(1 - arrives / planned.time, 0.0, 1.0);
            more.time += share * (cost(k, to).time - planned.time);
            more.energy += share * (cost(k, to).energy - planned.energy);
            arrives -= planned.time;
        }
        return Lead{{share_[at], next},
                    {Seconds{more.time}, Joules{more.energy}},
                    Seconds{std::max(arrives, 0.0)}};
    }

    /// As the curve of a pipeline: point k of it is point k here.
    [[nodiscard]] Curve curve(std::string name) const {
        std::vector<CurvePoint> points;
        for (const Point& point : points_) points.push_back(point.cost);
        const Shape shape = points.size() == 1 ? Shape::constant : Shape::schedules;
        return {std::move(name), std::move(points), blocking_, shape};
    }

private:
    /// Energies beyond what the stage draws while it waits.
    [[nodiscard]] tune::CostTable beyond_waiting(tune::CostTable table) const {
        for (tune::KernelCosts& kernel : table.kernels)
            for (tune::PointCost& point : kernel.points)
                point.cost.energy = point.cost.energy - blocking_ * point.cost.time;
        return table;
    }

    /// Halves the widest of the gaps between neighbouring corners until nothing is found in any.
    static void explore(const tune::SwitchModel& model, solve::ClosedSchedules& closed,
                        std::size_t most, std::vector<solve::Schedule>& found) {
        const solve::Choice top = solve::one_clock(model, model.size() - 1).total;
        const double exchange = std::abs(top.energy) / top.time;
        found.push_back(closed.cheapest({1, 1e-9 / exchange}).schedule);
        const solve::Schedule frugal = closed.cheapest({1e-9 * exchange, 1}).schedule;
        if (!(frugal.total.time > found.front().total.time) ||
            !(frugal.total.energy < found.front().total.energy))
            return;
        found.push_back(frugal);
        std::vector<bool> open{true};
        while (found.size() < most) {
            std::size_t widest = open.size();
            double width = 0;
            for (std::size_t k = 0; k < open.size(); ++k) {
                const double gap = found[k + 1].total.time - found[k].total.time;
                if (!open[k] || gap <= width) continue;
                widest = k;
                width = gap;
            }
            if (widest == open.size()) return;
            const solve::Choice& a = found[widest].total;
            const solve::Choice& b = found[widest + 1].total;
            const solve::Prices prices{(a.energy - b.energy) / (b.time - a.time), 1};
            solve::Schedule between = closed.cheapest(prices).schedule;
            const double gain = prices.of(a) - prices.of(between.total);
            const bool is_between = between.total.time > a.time && between.total.time < b.time;
            if (!is_between || gain <= 1e-7 * std::abs(prices.of(a))) {
                open[widest] = false;
                continue;
            }
            const auto at = static_cast<std::ptrdiff_t>(widest + 1);
            found.insert(found.begin() + at, std::move(between));
            open.insert(open.begin() + at, true);
        }
    }

    /// Changes are at shares of the operation's work: of its time at the highest clock.
    [[nodiscard]] Point point(const tune::SwitchModel& model,
                              const solve::Schedule& schedule) const {
        Point point;
        point.cost = {model.clocks()[schedule.start], Seconds{schedule.total.time},
                      Joules{schedule.total.energy} + blocking_ * Seconds{schedule.total.time}};
        for (const solve::Schedule::Request& request : schedule.requests) {
            point.changes.push_back({share_[request.before], model.clocks()[request.clock]});
            point.before.push_back(request.before);
        }
        return point;
    }

    [[nodiscard]] const solve::Choice& cost(std::size_t launch, std::size_t clock) const {
        return costs_[launch * clocks_.size() + clock];
    }
    /// The highest clock not above; the lowest where all are.
    [[nodiscard]] std::size_t column(ClockPoint clock) const {
        const auto after = std::upper_bound(clocks_.begin(), clocks_.end(), clock);
        return after == clocks_.begin() ? 0 : static_cast<std::size_t>(after - clocks_.begin()) - 1;
    }

    Watts blocking_;
    std::vector<Point> points_;
    std::size_t launches_ = 0;
    std::vector<ClockPoint> clocks_;
    std::vector<solve::Choice> costs_;  ///< [launch][clock], energy beyond that of waiting
    std::vector<double> share_;         ///< of the work before each launch, and 1
};

namespace detail {

/// Makes one plan of operations whose kernels have clocks of their own.
class KernelPlanner {
public:
    KernelPlanner(const Frontier& frontier, std::span<const KernelFrontier* const> kernels,
                  Seconds latency)
        : frontier_{frontier},
          pipeline_{frontier.pipeline()},
          kernels_{kernels},
          latency_{latency},
          network_{pipeline_},
          table_{pipeline_, ClockTable::Columns::points} {}

    /// Rounds the frontier at lengths so much shorter that what late clocks take more fits.
    [[nodiscard]] PipelinePlan make(Seconds length) const {
        PipelinePlan best = with_leads(length);
        Seconds aimed = length;
        for (int tries = 0; tries < most_tries && best.makespan > length; ++tries) {
            if (aimed == frontier_.shortest()) break;
            aimed = std::max(aimed - 1.1 * (best.makespan - length), frontier_.shortest());
            PipelinePlan plan = with_leads(aimed);
            if (plan.makespan < best.makespan) best = std::move(plan);
        }
        best.time = std::max(length, best.makespan);
        best.total = best.effective + pipeline_.blocking_energy(best.time);
        best.bound =
            to_joules(frontier_.timing(best.time).bound) + pipeline_.blocking_energy(best.time);
        plan_waits(pipeline_, latency_, best);
        return best;
    }

private:
    using Leads = std::vector<std::optional<KernelFrontier::Lead>>;  // by operation
    static constexpr int most_tries = 4;

    /// The frontier's durations as points; then raises for the next operation are requested within
    /// the one before it, where the stage does not wait long enough between.
    [[nodiscard]] PipelinePlan with_leads(Seconds aimed) const {
        std::vector<std::uint32_t> chosen =
            ClockRounding{pipeline_, network_, table_, frontier_.timing(aimed).nanoseconds}.round(
                frontier_);
        Leads leads(chosen.size());
        const PipelinePlan plain = priced(chosen, leads);
        for (std::uint32_t i = 1; i < chosen.size(); ++i) {
            const PlannedOperation& before = plain.operations[i - 1];
            const PlannedOperation& planned = plain.operations[i];
            const Operation& operation = before.clocks.operation;
            const KernelFrontier* its = kernels_[operation.curve];
            const Seconds early = latency_ - (planned.start - before.start - before.duration);
            if (operation.stage != pipeline_.operations[i].stage || its == nullptr ||
                early <= Seconds{0} || !(before.last_clock() < planned.clocks.first))
                continue;
            // Changes of the point's own may be in the way: a slightly faster one has others.
            const std::uint32_t point = chosen[i - 1];
            const std::uint32_t others = plain.makespan > aimed ? std::min(point, 3U) : 0;
            for (std::uint32_t k = 0; k <= others && !leads[i - 1]; ++k) {
                leads[i - 1] =
                    its->lead(its->points()[point - k], planned.clocks.first, early, latency_);
                if (leads[i - 1]) chosen[i - 1] = point - k;
            }
        }
        return priced(chosen, leads);
    }

    [[nodiscard]] PipelinePlan priced(const std::vector<std::uint32_t>& chosen,
                                      const Leads& leads) const {
        PipelinePlan plan;
        std::vector<Seconds> ends(pipeline_.operations.size());
        plan.operations.resize(ends.size());
        std::vector<std::vector<Dependency>> awaited(ends.size());
        for (const Dependency& d : pipeline_.dependencies) awaited[d.then].push_back(d);
        for (const std::uint32_t i : pipeline_.topological_order) {
            PlannedOperation& planned = plan.operations[i];
            for (const Dependency& d : awaited[i])
                planned.start = std::max(planned.start, ends[d.first] + d.time);
            const bool is_first = i == pipeline_.stage_begin[pipeline_.operations[i].stage];
            place(planned, i, chosen[i], is_first ? nullptr : &plan.operations[i - 1]);
            if (leads[i]) {
                planned.changes.push_back(leads[i]->change);
                planned.duration += leads[i]->more.time;
                planned.effective += leads[i]->more.energy;
            }
            const ClockPoint before =
                is_first ? planned.clocks.first : plan.operations[i - 1].last_clock();
            plan.switches += before != planned.clocks.first ? 1U : 0U;
            plan.switches += static_cast<std::uint32_t>(planned.changes.size());
            plan.effective += planned.effective;
            ends[i] = planned.start + planned.duration;
            plan.makespan = std::max(plan.makespan, ends[i]);
        }
        return plan;
    }

    /// @param before the operation before in the stage; null for the first
    void place(PlannedOperation& planned, std::uint32_t i, std::uint32_t column,
               const PlannedOperation* before) const {
        const Operation& operation = pipeline_.operations[i];
        const Curve& curve = pipeline_.curves[operation.curve];
        const ClockTable::Cell& cell = table_.at(i, column);
        planned.duration = to_seconds(cell.time);
        planned.effective = {cell.energy};
        const bool keeps = curve.is_constant() && before != nullptr;
        const ClockPoint clock = keeps ? before->last_clock() : curve.points()[cell.point].clock;
        planned.clocks = {operation, clock, 1, clock};
        const KernelFrontier* its = kernels_[operation.curve];
        if (its == nullptr || keeps) return;
        const KernelFrontier::Point& point = its->points()[cell.point];
        planned.changes = point.changes;
        if (before == nullptr || clock == before->last_clock()) return;
        const Seconds late = latency_ - (planned.start - before->start - before->duration);
        if (late <= Seconds{0}) return;
        const tune::Cost more = its->entered_late(point, before->last_clock(), late);
        planned.duration += more.time;
        planned.effective += more.energy;
    }

    const Frontier& frontier_;
    const Pipeline& pipeline_;
    std::span<const KernelFrontier* const> kernels_;
    Seconds latency_;
    Network network_;
    ClockTable table_;
};

}  // namespace detail

/// A plan whose operations change clocks between their kernels: each runs at a corner of its
/// frontier, chosen with the slack that the pipeline leaves it. Clocks come late within operations,
/// as their frontiers know, and between them.
/// @param frontier of a pipeline whose curves are those of `kernels`
/// @param kernels by curve of the pipeline; null for one that is not made of kernels
/// @param latency of a switch
/// @throws Error (invalid_input) for a time shorter than possible
inline PipelinePlan make_kernel_plan(const Frontier& frontier,
                                     std::span<const KernelFrontier* const> kernels, Seconds length,
                                     Seconds latency = {}) {
    return detail::KernelPlanner{frontier, kernels, latency}.make(length);
}

}  // namespace kdvfs::inline v0_3::train
