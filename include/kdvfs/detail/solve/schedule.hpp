// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/solve/multiple_choice.hpp>
#include <kdvfs/detail/solve/switch_model.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::solve {

/// The clock requests of one iteration, and its cost. The sequence repeats: the clock requested
/// last holds at the start.
struct Schedule {
    struct Request {
        std::size_t before = 0;  ///< the launch before which the clock is requested
        std::size_t clock = 0;   ///< index into `tune::SwitchModel::clocks`
    };
    std::size_t start = 0;
    std::vector<Request> requests;
    Choice total;
};

/// Weights of a second and of a joule.
struct Prices {
    double time = 0;
    double energy = 1;

    [[nodiscard]] double of(const Choice& choice) const {
        return time * choice.time + energy * choice.energy;
    }
};

inline constexpr double unreachable = std::numeric_limits<double>::infinity();

/// The least of `weight * a[i] + b[i]`. Four independent minima: one would wait for itself.
inline double least_sum(double weight, std::span<const double> a, std::span<const double> b) {
    double least[4] = {unreachable, unreachable, unreachable, unreachable};
    std::size_t i = 0;
    for (; i + 4 <= a.size(); i += 4)
        for (std::size_t lane = 0; lane < 4; ++lane) {
            const double sum = weight * a[i + lane] + b[i + lane];
            least[lane] = sum < least[lane] ? sum : least[lane];
        }
    for (; i < a.size(); ++i) least[0] = std::min(least[0], weight * a[i] + b[i]);
    return std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
}

/// The least price of the rest of an iteration, by launch and by the clock that holds before it:
/// dynamic programming, backwards from given prices of the clocks that hold at the end.
class CostToGo {
public:
    CostToGo(const tune::SwitchModel& model, const Prices& prices)
        : model_{&model}, prices_{prices}, price_(model.launches() * model.size()) {
        for (std::size_t launch = 0; launch < model.launches(); ++launch)
            for (std::size_t clock = 0; clock < model.size(); ++clock)
                price_[launch * model.size() + clock] = prices.of(model.cost(launch, clock));
        for (std::size_t from = 0; from < model.size(); ++from) add_runs(from);
    }

    /// @param end by clock: what ending there costs; `unreachable` forbids it
    void solve(std::span<const double> end) {
        const std::size_t n = model_->size();
        value_.resize((model_->launches() + 1) * n);
        std::copy(end.begin(), end.end(), value_.end() - static_cast<std::ptrdiff_t>(n));
        for (std::size_t launch = model_->launches(); launch-- > 0;)
            for (std::size_t clock = 0; clock < n; ++clock)
                value_[launch * n + clock] = solve_at(launch, clock);
    }
    /// The same with `end` as the only clock that may hold at the end.
    void solve_to(std::size_t end) {
        std::vector<double> ends(model_->size(), unreachable);
        ends[end] = 0;
        solve(ends);
    }

    [[nodiscard]] double operator()(std::size_t launch, std::size_t clock) const {
        return value_[launch * model_->size() + clock];
    }
    [[nodiscard]] std::span<const double> at(std::size_t launch) const {
        return std::span{value_}.subspan(launch * model_->size(), model_->size());
    }
    [[nodiscard]] const Prices& prices() const { return prices_; }

    /// The clock to request before a launch; the one that holds where no request pays.
    [[nodiscard]] std::size_t requested(std::size_t launch, std::size_t clock) const {
        double best = staying(launch, clock);
        std::size_t requested = clock;
        for (const Run& run : runs_of(clock)) {
            const tune::Transition* transition = model_->transition(launch, run.slot);
            if (transition == nullptr) continue;
            const double fixed = price_before_arrival(*transition, clock, run.slot);
            for (std::size_t to = run.begin; to < run.end; ++to) {
                const double value =
                    fixed + (1 - transition->old_share) * price(transition->arrives_in, to) +
                    (*this)(transition->effective_at, to);
                if (value >= best) continue;
                best = value;
                requested = to;
            }
        }
        return requested;
    }

private:
    /// Neighbouring clocks to switch to that share a slot of the model.
    struct Run {
        std::size_t slot = 0;
        std::size_t begin = 0;
        std::size_t end = 0;
    };

    void add_runs(std::size_t from) {
        first_run_.push_back(runs_.size());
        for (std::size_t to = 0; to < model_->size(); ++to) {
            if (to == from) continue;
            const std::size_t slot = model_->slot(from, to);
            const bool goes_on = runs_.size() > first_run_.back() && runs_.back().slot == slot &&
                                 runs_.back().end == to;
            if (goes_on)
                ++runs_.back().end;
            else
                runs_.push_back({slot, to, to + 1});
        }
    }
    [[nodiscard]] std::span<const Run> runs_of(std::size_t from) const {
        const std::size_t end = from + 1 < first_run_.size() ? first_run_[from + 1] : runs_.size();
        return std::span{runs_}.subspan(first_run_[from], end - first_run_[from]);
    }

    [[nodiscard]] double price(std::size_t launch, std::size_t clock) const {
        return price_[launch * model_->size() + clock];
    }
    [[nodiscard]] double staying(std::size_t launch, std::size_t clock) const {
        return price(launch, clock) + (*this)(launch + 1, clock);
    }
    /// The price of a switch up to the arrival of the new clock.
    [[nodiscard]] double price_before_arrival(const tune::Transition& transition, std::size_t from,
                                              std::size_t slot) const {
        return prices_.of(transition.before) +
               transition.old_share * price(transition.arrives_in, from) +
               prices_.of(model_->pause(slot));
    }

    [[nodiscard]] double solve_at(std::size_t launch, std::size_t clock) const {
        const std::size_t n = model_->size();
        double best = staying(launch, clock);
        for (const Run& run : runs_of(clock)) {
            const tune::Transition* transition = model_->transition(launch, run.slot);
            if (transition == nullptr) continue;
            const std::size_t count = run.end - run.begin;
            const double rest = least_sum(
                1 - transition->old_share,
                std::span{price_}.subspan(transition->arrives_in * n + run.begin, count),
                std::span{value_}.subspan(transition->effective_at * n + run.begin, count));
            best = std::min(best, price_before_arrival(*transition, clock, run.slot) + rest);
        }
        return best;
    }

    const tune::SwitchModel* model_;
    Prices prices_;
    std::vector<double> price_;  // [launch][clock]
    std::vector<double> value_;  // [launch][clock], one launch more
    std::vector<Run> runs_;
    std::vector<std::size_t> first_run_;  // [clock]
};

/// Follows a solution from a clock that holds before a launch to the end.
/// @returns the clock that holds at the end
inline std::size_t follow(const tune::SwitchModel& model, const CostToGo& to_go, std::size_t launch,
                          std::size_t clock, Schedule& schedule) {
    while (launch < model.launches()) {
        const std::size_t requested = to_go.requested(launch, clock);
        if (requested == clock) {
            schedule.total += model.cost(launch++, clock);
            continue;
        }
        const tune::Transition& transition =
            *model.transition(launch, model.slot(clock, requested));
        schedule.requests.push_back({launch, requested});
        schedule.total += model.cost(transition, clock, requested);
        launch = transition.effective_at;
        clock = requested;
    }
    return clock;
}

/// All launches at one clock.
inline Schedule one_clock(const tune::SwitchModel& model, std::size_t clock) {
    Schedule schedule{clock, {}, {}};
    for (std::size_t launch = 0; launch < model.launches(); ++launch)
        schedule.total += model.cost(launch, clock);
    return schedule;
}

/// A closed schedule, and a bound: no closed schedule is cheaper at its prices.
struct PricedSchedule {
    Schedule schedule;
    Prices prices;
    double bound = 0;
};

/// Finds the cheapest schedules that end at the clock they began at, price by price.
///
/// A lap solves the iteration backwards from potentials: what it costs to end at each clock. For
/// every start clock c, the lap's value less c's potential bounds the cheapest closed schedule from
/// c from below, whatever the potentials are. Carrying them from lap to lap, and from price to
/// price, makes the least of these bounds the price of a schedule that closes; starts whose bound
/// is still below the best schedule get a lap with their own end.
class ClosedSchedules {
public:
    /// @param tolerance distance to the bound, relative to the energy, that is good enough
    /// @param own_laps at most so many starts get a lap of their own at a price
    ClosedSchedules(const tune::SwitchModel& model, double tolerance, std::size_t own_laps)
        : model_{&model}, tolerance_{tolerance}, own_laps_{own_laps}, potentials_(model.size()) {}

    PricedSchedule cheapest(const Prices& prices) {
        CostToGo to_go{*model_, prices};
        PricedSchedule best = cheapest_at_one_clock(prices);
        bounds_.assign(model_->size(), -unreachable);
        for (int lap = 0; lap < most_laps && !is_enough(best); ++lap) run_lap(to_go, best);
        for (std::size_t laps = own_laps_; laps > 0 && !is_enough(best); --laps)
            run_own_lap(to_go, best);
        best.bound = std::min(least_bound(), prices.of(best.schedule.total));
        return best;
    }
    /// Of the price that was solved last: what closed schedules from a start clock cost at least.
    [[nodiscard]] const std::vector<double>& bounds() const { return bounds_; }

private:
    static constexpr int most_laps = 3;
    static constexpr int followed_starts = 4;

    [[nodiscard]] PricedSchedule cheapest_at_one_clock(const Prices& prices) const {
        PricedSchedule best{one_clock(*model_, 0), prices, 0};
        for (std::size_t clock = 1; clock < model_->size(); ++clock)
            adopt(one_clock(*model_, clock), best);
        return best;
    }
    static void adopt(Schedule schedule, PricedSchedule& best) {
        if (best.prices.of(schedule.total) < best.prices.of(best.schedule.total))
            best.schedule = std::move(schedule);
    }
    [[nodiscard]] double least_bound() const {
        return *std::min_element(bounds_.begin(), bounds_.end());
    }
    [[nodiscard]] bool is_enough(const PricedSchedule& best) const {
        const double price = best.prices.of(best.schedule.total);
        const double enough = tolerance_ * best.prices.energy * best.schedule.total.energy;
        return price - least_bound() <= enough + 1e-13 * price;
    }

    void run_lap(CostToGo& to_go, PricedSchedule& best) {
        to_go.solve(potentials_);
        const auto values = to_go.at(0);
        std::size_t start = 0;
        for (std::size_t clock = 0; clock < values.size(); ++clock) {
            const double bound = values[clock] - potentials_[clock];
            bounds_[clock] = std::max(bounds_[clock], bound);
            if (bound < values[start] - potentials_[start]) start = clock;
        }
        follow_to_closed(to_go, start, best);
        const double least = *std::min_element(values.begin(), values.end());
        for (std::size_t clock = 0; clock < values.size(); ++clock)
            potentials_[clock] = values[clock] - least;
    }

    /// Ways from all starts soon become one: where it ends, a closed schedule begins.
    void follow_to_closed(const CostToGo& to_go, std::size_t start, PricedSchedule& best) const {
        for (int i = 0; i < followed_starts; ++i) {
            Schedule schedule{start, {}, {}};
            const std::size_t end = follow(*model_, to_go, 0, start, schedule);
            if (end == start) return adopt(std::move(schedule), best);
            start = end;
        }
    }

    void run_own_lap(CostToGo& to_go, PricedSchedule& best) {
        const auto least = std::min_element(bounds_.begin(), bounds_.end());
        const auto start = static_cast<std::size_t>(least - bounds_.begin());
        to_go.solve_to(start);
        *least = to_go(0, start);
        if (*least >= best.prices.of(best.schedule.total)) return;
        Schedule schedule{start, {}, {}};
        follow(*model_, to_go, 0, start, schedule);
        adopt(std::move(schedule), best);
    }

    const tune::SwitchModel* model_;
    double tolerance_;
    std::size_t own_laps_;
    std::vector<double> potentials_;  // [clock]
    std::vector<double> bounds_;      // [clock]
};

}  // namespace kdvfs::inline v0_3::solve
