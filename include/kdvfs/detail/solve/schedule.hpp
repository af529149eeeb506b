// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/solve/multiple_choice.hpp>
#include <kdvfs/tune/switch_model.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// When which clock is asked for in an iteration, and what that costs. The clock asked for last is
/// the one that holds at the start: the sequence repeats.
struct Schedule {
    struct Request {
        std::size_t before = 0;  ///< the launch before which it is asked for
        std::size_t clock = 0;   ///< index into `tune::SwitchModel::clocks`
    };
    std::size_t start = 0;
    std::vector<Request> requests;
    Choice total;
};

/// What a second is worth in joules.
struct Prices {
    double time = 0;
    double energy = 1;

    [[nodiscard]] double of(const Choice& choice) const {
        return time * choice.time + energy * choice.energy;
    }
};

inline constexpr double unreachable = std::numeric_limits<double>::infinity();

/// For each launch and clock that holds before it: the least price of what is left of the
/// iteration, and what that costs.
class CostToGo {
public:
    CostToGo(const tune::SwitchModel& model, const Prices& prices)
        : model_{&model}, prices_{prices}, price_(model.launches() * model.size()) {
        for (std::size_t launch = 0; launch < model.launches(); ++launch)
            for (std::size_t clock = 0; clock < model.size(); ++clock)
                price_[launch * model.size() + clock] = prices.of(model.cost(launch, clock));
    }

    /// Solves backwards. `end` is the clock that must hold at the end; `any` where it is free.
    static constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
    void solve(std::size_t end) {
        const std::size_t n = model_->size();
        value_.assign((model_->launches() + 1) * n, unreachable);
        for (std::size_t clock = 0; clock < n; ++clock)
            if (end == any || end == clock) value_[model_->launches() * n + clock] = 0;
        next_.assign(model_->launches() * n, 0);
        for (std::size_t launch = model_->launches(); launch-- > 0;)
            for (std::size_t clock = 0; clock < n; ++clock) solve_at(launch, clock);
    }

    [[nodiscard]] double operator()(std::size_t launch, std::size_t clock) const {
        return value_[launch * model_->size() + clock];
    }
    /// The clock asked for before a launch; the one that holds, if none is.
    [[nodiscard]] std::size_t asked(std::size_t launch, std::size_t clock) const {
        return next_[launch * model_->size() + clock];
    }
    [[nodiscard]] double price(std::size_t launch, std::size_t clock) const {
        return price_[launch * model_->size() + clock];
    }
    [[nodiscard]] const Prices& prices() const { return prices_; }

    /// The price of a transition, less what comes after it.
    [[nodiscard]] double price_before_arrival(const tune::Transition& transition,
                                              std::size_t from) const {
        return prices_.of(transition.before) +
               transition.old_share * price(transition.arrives_in, from);
    }

private:
    void solve_at(std::size_t launch, std::size_t clock) {
        const std::size_t n = model_->size();
        double best = price(launch, clock) + (*this)(launch + 1, clock);
        std::size_t asked = clock;
        std::size_t slot = std::numeric_limits<std::size_t>::max();
        const tune::Transition* transition = nullptr;
        double fixed = 0;
        for (std::size_t to = 0; to < n; ++to) {
            if (to == clock) continue;
            if (const std::size_t its_slot = model_->slot(clock, to); its_slot != slot) {
                slot = its_slot;
                transition = model_->transition(launch, slot);
                if (transition != nullptr)
                    fixed =
                        price_before_arrival(*transition, clock) + prices_.of(model_->pause(slot));
            }
            if (transition == nullptr) continue;
            const double value =
                fixed + (1 - transition->old_share) * price_[transition->arrives_in * n + to] +
                value_[transition->effective_at * n + to];
            if (value < best) {
                best = value;
                asked = to;
            }
        }
        value_[launch * n + clock] = best;
        next_[launch * n + clock] = asked;
    }

    const tune::SwitchModel* model_;
    Prices prices_;
    std::vector<double> price_;      // [launch][clock]
    std::vector<double> value_;      // [launch][clock], one launch more
    std::vector<std::size_t> next_;  // [launch][clock]
};

/// Follows the solution from a clock that holds before a launch to the end.
inline void follow(const tune::SwitchModel& model, const CostToGo& to_go, std::size_t launch,
                   std::size_t clock, Schedule& schedule) {
    while (launch < model.launches()) {
        const std::size_t asked = to_go.asked(launch, clock);
        if (asked == clock) {
            schedule.total += model.cost(launch++, clock);
            continue;
        }
        const tune::Transition& transition = *model.transition(launch, model.slot(clock, asked));
        schedule.requests.push_back({launch, asked});
        schedule.total += model.cost(transition, clock, asked);
        launch = transition.effective_at;
        clock = asked;
    }
}

/// What a schedule starts at and how cheap it can at best be.
struct Start {
    std::size_t clock = 0;
    double bound = 0;
};

/// All starts, most promising first: a free end bounds the price of ending where one began.
inline std::vector<Start> starts(const tune::SwitchModel& model, const CostToGo& free_end) {
    std::vector<Start> starts;
    for (std::size_t clock = 0; clock < model.size(); ++clock)
        starts.push_back({clock, free_end(0, clock)});
    std::sort(starts.begin(), starts.end(),
              [](const Start& a, const Start& b) { return a.bound < b.bound; });
    return starts;
}

/// A schedule, and what no schedule can be cheaper than at its prices.
struct PricedSchedule {
    Schedule schedule;
    Prices prices;
    double bound = 0;
};

/// The cheapest schedule at given prices that ends as it began: dynamic programming over launches
/// and clocks. One pass with a free end bounds each start, so few starts need a pass of their own:
/// at most `most_starts`, and none once the relative distance to the bound is `tolerance`.
inline PricedSchedule cheapest_schedule(const tune::SwitchModel& model, const Prices& prices,
                                        double tolerance, std::size_t most_starts) {
    CostToGo to_go{model, prices};
    to_go.solve(CostToGo::any);
    PricedSchedule cheapest{{}, prices, unreachable};
    double best = unreachable;
    for (const Start& start : starts(model, to_go)) {
        cheapest.bound = std::min(best, start.bound);
        if (best <= start.bound * (1 + tolerance) || most_starts-- == 0) break;
        to_go.solve(start.clock);
        if (to_go(0, start.clock) >= best) continue;
        best = to_go(0, start.clock);
        cheapest.bound = best;
        cheapest.schedule = {start.clock, {}, {}};
        follow(model, to_go, 0, start.clock, cheapest.schedule);
    }
    return cheapest;
}

/// A schedule launch by launch: what it has cost before each, and the clock that holds there.
class ScheduleTrace {
public:
    static constexpr std::size_t switching = std::numeric_limits<std::size_t>::max();

    ScheduleTrace(const tune::SwitchModel& model, const Schedule& schedule)
        : before_(model.launches() + 1), clock_(model.launches() + 1, switching) {
        std::size_t clock = schedule.start;
        std::size_t launch = 0;
        Choice total;
        const auto run_to = [&](std::size_t end) {
            for (;; total += model.cost(launch++, clock)) {
                before_[launch] = total;
                clock_[launch] = clock;
                if (launch == end) return;
            }
        };
        for (const Schedule::Request& request : schedule.requests) {
            run_to(request.before);
            const tune::Transition& transition =
                *model.transition(launch, model.slot(clock, request.clock));
            total += model.cost(transition, clock, request.clock);
            launch = transition.effective_at;
            clock = request.clock;
        }
        run_to(model.launches());
    }

    /// Launches before which both schedules hold the same clock: there one can go over into the
    /// other.
    [[nodiscard]] std::vector<std::size_t> meetings(const ScheduleTrace& other) const {
        std::vector<std::size_t> launches;
        for (std::size_t i = 0; i < clock_.size(); ++i)
            if (clock_[i] != switching && clock_[i] == other.clock_[i]) launches.push_back(i);
        return launches;
    }
    [[nodiscard]] const Choice& before(std::size_t launch) const { return before_[launch]; }

private:
    std::vector<Choice> before_;
    std::vector<std::size_t> clock_;
};

/// The best schedule within a time limit that is `outer`, but `inner` between two launches; `outer`
/// itself if there is none better. `outer` may be over the limit.
inline Schedule best_crossover(const tune::SwitchModel& model, const Schedule& outer,
                               const Schedule& inner, double time_limit) {
    const ScheduleTrace a{model, outer};
    const ScheduleTrace b{model, inner};
    const std::vector<std::size_t> meetings = a.meetings(b);
    const auto change = [&](std::size_t launch) {
        Choice difference = b.before(launch);
        return difference -= a.before(launch);
    };
    double best = outer.total.time <= time_limit ? outer.total.energy : unreachable;
    std::size_t from = 0;
    std::size_t to = 0;
    Choice total;
    for (std::size_t i = 0; i < meetings.size(); ++i) {
        const Choice first = change(meetings[i]);
        for (std::size_t j = i + 1; j < meetings.size(); ++j) {
            Choice sum = outer.total + change(meetings[j]);
            sum -= first;
            if (sum.time > time_limit || sum.energy >= best) continue;
            best = sum.energy;
            total = sum;
            from = meetings[i];
            to = meetings[j];
        }
    }
    if (from == to) return outer;
    Schedule crossed{from == 0 ? inner.start : outer.start, {}, total};
    for (const auto& request : outer.requests)
        if (request.before < from) crossed.requests.push_back(request);
    for (const auto& request : inner.requests)
        if (request.before >= from && request.before < to) crossed.requests.push_back(request);
    for (const auto& request : outer.requests)
        if (request.before >= to) crossed.requests.push_back(request);
    return crossed;
}

}  // namespace kdvfs::inline v0_3::detail
