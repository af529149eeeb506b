// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/solve/knapsack.hpp>
#include <kdvfs/detail/solve/schedule.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/switch_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// How hard the search for the best schedule tries.
struct ScheduleEffort {
    double tolerance = 1e-5;        ///< relative, of the cheapest schedule at given prices
    std::size_t starts = 3;         ///< clocks at the iteration's start that are tried for it
    std::size_t labels = 16;        ///< partial schedules kept per launch and clock
    std::size_t patience = 30'000;  ///< partial schedules looked at in all
};

/// Finds the schedule of least energy within a time limit: partial schedules that no other
/// dominates, launch by launch, as long as the relaxation of the rest (its price at the time
/// limit's shadow price) can beat the incumbent.
class ScheduleSearch {
public:
    /// `incumbent` is any schedule within the limit, `time_price` the limit's shadow price.
    ScheduleSearch(const tune::SwitchModel& model, double time_limit, double time_price,
                   Schedule incumbent, ScheduleEffort effort)
        : model_{model},
          limit_{time_limit},
          to_go_{model, {time_price, 1}},
          best_{std::move(incumbent)},
          effort_{effort} {}

    [[nodiscard]] const Schedule& best() const { return best_; }

    /// Searches all starts. @returns what no schedule within the limit can use less energy than
    double run() {
        CostToGo free_end = to_go_;
        free_end.solve(CostToGo::any);
        double proven = unreachable;
        for (const Start& start : starts(model_, free_end)) {
            if (bound_of(start.bound) >= best_.total.energy) break;
            if (looked_at_ > effort_.patience) {
                proven = std::min(proven, bound_of(start.bound));
                break;
            }
            to_go_.solve(start.clock);
            proven = std::min(proven, search(start.clock));
        }
        return std::min(proven, best_.total.energy);
    }

private:
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

    struct Label {
        Choice total;
        double bound = 0;             ///< no completion uses less energy
        std::uint32_t parent = none;  ///< index into `history_`
    };
    /// A request made on the way to a label.
    struct Step {
        Schedule::Request request;
        std::uint32_t parent = none;
    };

    [[nodiscard]] double bound_of(double price) const {
        return price - to_go_.prices().time * limit_;
    }
    [[nodiscard]] double bound_of(const Choice& total, std::size_t launch,
                                  std::size_t clock) const {
        return bound_of(to_go_.prices().of(total) + to_go_(launch, clock));
    }

    double search(std::size_t start) {
        start_ = start;
        double lost = unreachable;
        history_.clear();
        labels_.assign((model_.launches() + 1) * model_.size(), {});
        push({}, none, 0, start);
        for (std::size_t launch = 0; launch < model_.launches(); ++launch) {
            for (std::size_t clock = 0; clock < model_.size(); ++clock) {
                std::vector<Label> labels = std::move(at(launch, clock));
                lost = std::min(lost, sparsify(labels));
                if (looked_at_ > effort_.patience) {
                    for (const Label& label : labels) lost = std::min(lost, label.bound);
                    continue;
                }
                for (const Label& label : labels) extend(label, launch, clock);
            }
        }
        adopt_best_end();
        return lost;
    }

    std::vector<Label>& at(std::size_t launch, std::size_t clock) {
        return labels_[launch * model_.size() + clock];
    }

    void push(const Choice& total, std::uint32_t parent, std::size_t launch, std::size_t clock) {
        const double bound = bound_of(total, launch, clock);
        if (bound < best_.total.energy && total.time <= limit_)
            at(launch, clock).push_back({total, bound, parent});
    }

    void extend(const Label& label, std::size_t launch, std::size_t clock) {
        ++looked_at_;
        complete(label, launch, clock);
        push(label.total + model_.cost(launch, clock), label.parent, launch + 1, clock);
        for (std::size_t to = 0; to < model_.size(); ++to) {
            if (to == clock) continue;
            const tune::Transition* transition = model_.transition(launch, model_.slot(clock, to));
            if (transition == nullptr) continue;
            const Choice total = label.total + model_.cost(*transition, clock, to);
            if (bound_of(total, transition->effective_at, to) >= best_.total.energy) continue;
            history_.push_back({{launch, to}, label.parent});
            push(total, static_cast<std::uint32_t>(history_.size() - 1), transition->effective_at,
                 to);
        }
    }

    /// The cheapest way on at the shadow price is a schedule; where it is in time, it may be the
    /// best so far. Tried where a label's own request was just made, and at the start.
    void complete(const Label& label, std::size_t launch, std::size_t clock) {
        if (label.bound >= best_.total.energy) return;
        if (launch != 0 && (label.parent == none || last_completed_ == label.parent)) return;
        last_completed_ = label.parent;
        Schedule rest{start_, {}, label.total};
        follow(model_, to_go_, launch, clock, rest);
        if (rest.total.time > limit_ || rest.total.energy >= best_.total.energy) return;
        std::vector<Schedule::Request> requests = requests_of(label.parent);
        requests.insert(requests.end(), rest.requests.begin(), rest.requests.end());
        rest.requests = std::move(requests);
        best_ = std::move(rest);
    }

    [[nodiscard]] std::vector<Schedule::Request> requests_of(std::uint32_t step) const {
        std::vector<Schedule::Request> requests;
        for (; step != none; step = history_[step].parent)
            requests.push_back(history_[step].request);
        std::reverse(requests.begin(), requests.end());
        return requests;
    }

    /// Removes what is dominated or too much. @returns the least bound of what was too much
    double sparsify(std::vector<Label>& labels) const {
        std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) {
            return a.total.time < b.total.time ||
                   (a.total.time == b.total.time && a.total.energy < b.total.energy);
        });
        double least = unreachable;
        std::erase_if(labels, [&](const Label& label) {
            if (label.bound >= best_.total.energy || label.total.energy >= least) return true;
            least = label.total.energy;
            return false;
        });
        if (labels.size() <= effort_.labels) return unreachable;
        const auto end = labels.begin() + static_cast<std::ptrdiff_t>(effort_.labels);
        std::nth_element(labels.begin(), end, labels.end(),
                         [](const Label& a, const Label& b) { return a.bound < b.bound; });
        const double lost = end->bound;
        labels.erase(end, labels.end());
        return lost;
    }

    void adopt_best_end() {
        for (const Label& label : at(model_.launches(), start_)) {
            if (label.total.time <= limit_ && label.total.energy < best_.total.energy)
                best_ = {start_, requests_of(label.parent), label.total};
        }
    }

    const tune::SwitchModel& model_;
    double limit_;
    CostToGo to_go_;
    Schedule best_;
    ScheduleEffort effort_;
    std::size_t start_ = 0;
    std::size_t looked_at_ = 0;
    std::uint32_t last_completed_ = none;
    std::vector<std::vector<Label>> labels_;  // [launch][clock]
    std::vector<Step> history_;
};

/// A schedule and how far from the best it can be.
struct ScheduleMinimum {
    Schedule schedule;
    double gap_pct = 0;  ///< of the baseline's score; 0 = proven best
};

/// Walks down the lower left hull of all schedules' times and energies, corner by corner, only
/// where a corner could still beat the best: each corner is the cheapest schedule at some prices.
/// The same proof as `minimise` gives for kernels.
class ScheduleHull {
public:
    ScheduleHull(const tune::SwitchModel& model, const tune::Objective& objective,
                 Schedule baseline, const ScheduleEffort& effort)
        : model_{model},
          objective_{objective},
          baseline_{to_cost(baseline.total)},
          limit_{time_limit(objective, baseline_).count()},
          effort_{effort},
          best_{std::move(baseline)} {}

    ScheduleMinimum run() {
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
    /// Where the time limit cuts the hull: between two corners, at a shadow price.
    struct Crossed {
        Schedule within;
        Schedule beyond;
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
        PricedSchedule found = cheapest_schedule(model_, prices, effort_.tolerance, effort_.starts);
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
        if (crossing) note_crossing(fast, frugal, between);
        const double chord = between.prices.of(a);
        const double gain = chord - between.prices.of(between.schedule.total);
        if (gain <= std::max(effort_.tolerance, 1e-12) * chord) {
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
    void note_crossing(const PricedSchedule& fast, const PricedSchedule& frugal,
                       const PricedSchedule& between) {
        const double bound = between.bound - between.prices.time * limit_;
        crossed_->within = fast.schedule;
        crossed_->beyond = frugal.schedule;
        if (bound <= crossed_->energy_bound) return;
        crossed_->energy_bound = bound;
        crossed_->time_price = between.prices.time;
    }

    /// @returns what no schedule can score below
    double search_at_limit() {
        const double corner_score = std::min(score(best_.total), corners_bound_);
        const double hull_bound = std::min(corner_score, score({limit_, crossed_->energy_bound}));
        if (hull_bound >= score(best_.total)) return hull_bound;
        cross_over();
        ScheduleSearch search{model_, limit_, crossed_->time_price, best_, effort_};
        const double energy_bound = search.run();
        consider(search.best());
        return std::min(score(best_.total), std::max(hull_bound, score({fastest_, energy_bound})));
    }

    /// Fills what is left of the time limit with stretches of the schedules on both sides of it.
    void cross_over() {
        consider(best_crossover(model_, crossed_->beyond, crossed_->within, limit_));
        consider(best_crossover(model_, crossed_->within, crossed_->beyond, limit_));
        for (int round = 0; round < 8; ++round) {
            const double before = score(best_.total);
            consider(best_crossover(model_, best_, crossed_->beyond, limit_));
            consider(best_crossover(model_, best_, crossed_->within, limit_));
            if (score(best_.total) >= before) return;
        }
    }

    const tune::SwitchModel& model_;
    const tune::Objective& objective_;
    tune::Cost baseline_;
    double limit_;
    ScheduleEffort effort_;
    Schedule best_;
    double fastest_ = 0;
    double corners_bound_ = unreachable;
    std::optional<Crossed> crossed_;
};

/// All launches at one clock.
inline Schedule one_clock(const tune::SwitchModel& model, std::size_t clock) {
    Schedule schedule{clock, {}, {}};
    for (std::size_t launch = 0; launch < model.launches(); ++launch)
        schedule.total += model.cost(launch, clock);
    return schedule;
}

/// Small problems exactly, large ones (an iteration of hundreds of launches) in about a second.
inline ScheduleEffort effort_for(const tune::SwitchModel& model) {
    if (model.launches() * model.size() <= 1024) return {0, model.size(), 4096, 10'000'000};
    return {};
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

}  // namespace kdvfs::inline v0_3::detail
