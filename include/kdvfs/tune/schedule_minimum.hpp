// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/minimise.hpp>
#include <kdvfs/tune/objective.hpp>
#include <kdvfs/tune/schedule.hpp>
#include <kdvfs/tune/schedule_search.hpp>
#include <kdvfs/tune/switch_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::tune {

/// A schedule and how far from the best it can be.
struct ScheduleMinimum {
    Schedule schedule;
    double gap_pct = 0;  ///< of the baseline's score; 0 = proven best
};

namespace detail {

/// Walks down the lower left hull of all schedules' times and energies, corner by corner, only
/// where a corner could still beat the best: each corner is the cheapest schedule at some prices.
/// The same proof as `minimise` gives for kernels.
class ScheduleHull {
public:
    ScheduleHull(const SwitchModel& model, const Objective& objective, Schedule baseline)
        : model_{model},
          objective_{objective},
          baseline_{to_cost(baseline.total)},
          limit_{time_limit(objective, baseline_).count()},
          best_{std::move(baseline)} {}

    ScheduleMinimum run(ScheduleEffort effort) {
        const double exchange = baseline_.energy.count / baseline_.time.count();
        const Corner fast = corner({1, 1e-9 / exchange});
        const Corner frugal = corner({1e-9 * exchange, 1});
        fastest_ = fast.schedule.total.time;
        explore(fast, frugal);
        double bound = score(best_.total);
        if (crossed_) bound = search_at_limit(effort);
        const double whole = std::abs(objective_.score(baseline_, baseline_));
        return {best_, 100 * std::max(0.0, score(best_.total) - bound) / whole};
    }

private:
    struct Corner {
        Schedule schedule;
        Prices prices;
    };
    /// The hull's edge that the time limit cuts.
    struct Crossed {
        double time_price = 0;
        double energy = 0;  ///< of the hull at the limit
    };

    [[nodiscard]] double score(const Choice& total) const {
        return objective_.score(to_cost(total), baseline_);
    }

    Corner corner(const Prices& prices) {
        Corner found{cheapest_schedule(model_, prices), prices};
        const Choice& total = found.schedule.total;
        if (total.time <= limit_ && score(total) < score(best_.total)) best_ = found.schedule;
        return found;
    }

    /// Where the lines that bound the hull at two corners meet: no schedule between is below both.
    static Choice meeting_point(const Corner& fast, const Corner& frugal) {
        const double a = fast.prices.of(fast.schedule.total);
        const double b = frugal.prices.of(frugal.schedule.total);
        const double det =
            fast.prices.time * frugal.prices.energy - frugal.prices.time * fast.prices.energy;
        if (!(det > 0)) return {fast.schedule.total.time, frugal.schedule.total.energy};
        return {(a * frugal.prices.energy - b * fast.prices.energy) / det,
                (fast.prices.time * b - frugal.prices.time * a) / det};
    }

    void explore(const Corner& fast, const Corner& frugal) {
        const Choice& a = fast.schedule.total;
        const Choice& b = frugal.schedule.total;
        if (a.time > limit_ || !(b.time > a.time) || !(a.energy > b.energy)) return;
        const double promise = std::min(score(meeting_point(fast, frugal)), score(b));
        if (promise >= score(best_.total)) return;
        const Prices prices{(a.energy - b.energy) / (b.time - a.time), 1};
        const Corner between = corner(prices);
        const double gain = prices.of(a) - prices.of(between.schedule.total);
        if (gain <= 1e-12 * prices.of(a)) {
            if (b.time > limit_)
                crossed_ = {prices.time, a.energy - prices.time * (limit_ - a.time)};
            return;
        }
        explore(fast, between);
        explore(between, frugal);
    }

    /// @returns what no schedule can score below
    double search_at_limit(const ScheduleEffort& effort) {
        const double corner_score = score(best_.total);
        const double hull_bound = std::min(corner_score, score({limit_, crossed_->energy}));
        if (hull_bound >= corner_score) return corner_score;
        ScheduleSearch search{model_, limit_, crossed_->time_price, best_, effort};
        const double energy_bound = search.run();
        if (score(search.best().total) < corner_score) best_ = search.best();
        return std::min(score(best_.total), std::max(hull_bound, score({fastest_, energy_bound})));
    }

    const SwitchModel& model_;
    const Objective& objective_;
    Cost baseline_;
    double limit_;
    Schedule best_;
    double fastest_ = 0;
    std::optional<Crossed> crossed_;
};

/// All launches at one clock.
inline Schedule one_clock(const SwitchModel& model, std::size_t clock) {
    Schedule schedule{clock, {}, {}};
    for (std::size_t launch = 0; launch < model.launches(); ++launch)
        schedule.total += model.cost(launch, clock);
    return schedule;
}

}  // namespace detail

/// Finds the schedule of least score within the objective's time limit. `baseline` is the clock
/// that everything is compared with, an index into the model's clocks.
inline ScheduleMinimum minimise(const SwitchModel& model, const Objective& objective,
                                std::size_t baseline, const ScheduleEffort& effort = {}) {
    return detail::ScheduleHull{model, objective, detail::one_clock(model, baseline)}.run(effort);
}

}  // namespace kdvfs::tune
