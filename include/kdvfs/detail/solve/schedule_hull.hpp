// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/solve/knapsack.hpp>
#include <kdvfs/detail/solve/schedule.hpp>
#include <kdvfs/detail/solve/schedule_search.hpp>
#include <kdvfs/detail/solve/switch_model.hpp>
#include <kdvfs/tune/cost_table.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

namespace kdvfs::inline v0_3::solve {

/// A schedule and how far from the best it can be.
struct ScheduleMinimum {
    Schedule schedule;
    double gap_pct = 0;  ///< of the baseline's score; 0 = proven best
};

/// Walks down the lower left hull of all schedules' times and energies, corner by corner, only
/// where a corner could still beat the best: each corner is the cheapest schedule at some prices.
/// Where the time limit cuts the hull, the label search looks for schedules above it. The same
/// proof as `minimise` gives for kernels.
class ScheduleHull {
public:
    ScheduleHull(const tune::SwitchModel& model, const tune::Objective& objective,
                 Schedule baseline, const ScheduleEffort& effort)
        : model_{model},
          objective_{objective},
          baseline_{to_cost(baseline.total)},
          limit_{time_limit(objective, baseline_).count()},
          effort_{effort},
          closed_{model, effort.tolerance, effort.own_laps},
          best_{std::move(baseline)} {}

    ScheduleMinimum run() {
        for (std::size_t clock = 0; clock < model_.size(); ++clock)
            consider(one_clock(model_, clock));
        const double exchange = baseline_.energy.count / baseline_.time.count();
        const PricedSchedule fast = corner({1, 1e-9 / exchange});
        const PricedSchedule frugal = corner({1e-9 * exchange, 1});
        // Its prices leave the energy 1e-9 of its weight: what it may hide is taken off.
        fastest_ = fast.bound - 1e-9 / exchange * fast.schedule.total.energy;
        explore(fast, frugal);
        double bound = std::min(score(best_.total), corners_bound_);
        if (crossed_) bound = search_at_limit();
        const double whole = std::abs(objective_.score(baseline_, baseline_));
        return {best_, 100 * std::max(0.0, score(best_.total) - bound) / whole};
    }

private:
    /// Where the time limit cuts the hull: its shadow price.
    struct Crossed {
        double time_price = 0;
        double energy_bound = -unreachable;  ///< no schedule within the limit uses less
    };

    [[nodiscard]] double score(const Choice& total) const {
        return objective_.score(to_cost(total), baseline_);
    }

    void consider(const Schedule& schedule) {
        if (schedule.total.time <= limit_ && score(schedule.total) < score(best_.total))
            best_ = schedule;
    }

    PricedSchedule corner(const Prices& prices) {
        PricedSchedule found = closed_.cheapest(prices);
        consider(found.schedule);
        return found;
    }

    /// Where the lines that bound the hull at two corners meet: no schedule between is below both.
    static Choice meeting_point(const PricedSchedule& fast, const PricedSchedule& frugal) {
        const double det =
            fast.prices.time * frugal.prices.energy - frugal.prices.time * fast.prices.energy;
        if (!(det > 0)) return {fast.schedule.total.time, frugal.schedule.total.energy};
        return {(fast.bound * frugal.prices.energy - frugal.bound * fast.prices.energy) / det,
                (fast.prices.time * frugal.bound - frugal.prices.time * fast.bound) / det};
    }

    void explore(const PricedSchedule& fast, const PricedSchedule& frugal) {
        const Choice& a = fast.schedule.total;
        const Choice& b = frugal.schedule.total;
        const bool crossing = a.time <= limit_ && b.time > limit_;
        if (crossing && !crossed_) crossed_ = Crossed{};
        if (a.time > limit_ || !(b.time > a.time) || !(a.energy > b.energy)) return;
        const double promise = std::min(score(meeting_point(fast, frugal)), score(b));
        if (promise >= score(best_.total) * (1 - effort_.tolerance) && !crossing) {
            note_corner(meeting_point(fast, frugal));
            return;
        }
        const PricedSchedule between = corner({(a.energy - b.energy) / (b.time - a.time), 1});
        if (crossing) note_crossing(between);
        const double chord = between.prices.of(a);
        const double gain = chord - between.prices.of(between.schedule.total);
        const double tolerance = crossing ? 0 : effort_.tolerance;
        if (gain <= std::max(tolerance, 1e-12) * chord) {
            note_corner(meeting_point(fast, between));
            note_corner(meeting_point(between, frugal));
            return;
        }
        explore(fast, between);
        explore(between, frugal);
    }

    /// A corner of what is known to bound the hull, not looked into any further. Beyond the limit
    /// the limit's own bound counts.
    void note_corner(const Choice& total) {
        if (total.time <= limit_) corners_bound_ = std::min(corners_bound_, score(total));
    }

    /// Every price bounds the energy at the limit: the best bound counts.
    void note_crossing(const PricedSchedule& between) {
        const double bound = between.bound - between.prices.time * limit_;
        if (bound <= crossed_->energy_bound) return;
        crossed_->energy_bound = bound;
        crossed_->time_price = between.prices.time;
    }

    /// @returns what no schedule can score below
    double search_at_limit() {
        const double corner_score = std::min(score(best_.total), corners_bound_);
        const double hull_bound = std::min(corner_score, score({limit_, crossed_->energy_bound}));
        if (hull_bound >= score(best_.total)) return hull_bound;
        corner({crossed_->time_price, 1});
        ScheduleSearch search{model_,           limit_, crossed_->time_price,
                              closed_.bounds(), best_,  effort_};
        const double energy_bound = search.run();
        consider(search.best());
        return std::min(score(best_.total), std::max(hull_bound, score({fastest_, energy_bound})));
    }

    const tune::SwitchModel& model_;
    const tune::Objective& objective_;
    tune::Cost baseline_;
    double limit_;
    ScheduleEffort effort_;
    ClosedSchedules closed_;
    Schedule best_;
    double fastest_ = 0;
    double corners_bound_ = unreachable;
    std::optional<Crossed> crossed_;
};

/// Small problems exactly, large ones (10^4 launches at 60 clocks) in about 2 seconds.
inline ScheduleEffort effort_for(const tune::SwitchModel& model) {
    ScheduleEffort effort;
    const std::size_t states = model.launches() * model.size();
    if (states <= 512) return {0, model.size(), 1'000'000'000, 0};
    if (states * model.size() <= 1'000'000) effort.own_laps = model.size();
    return effort;
}

/// Finds the schedule of least score within the objective's time limit. `baseline` is the clock
/// that everything is compared with, an index into the model's clocks.
inline ScheduleMinimum minimise(const tune::SwitchModel& model, const tune::Objective& objective,
                                std::size_t baseline, const ScheduleEffort& effort) {
    return ScheduleHull{model, objective, one_clock(model, baseline), effort}.run();
}
inline ScheduleMinimum minimise(const tune::SwitchModel& model, const tune::Objective& objective,
                                std::size_t baseline) {
    return minimise(model, objective, baseline, effort_for(model));
}

}  // namespace kdvfs::inline v0_3::solve
