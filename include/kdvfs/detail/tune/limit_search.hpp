// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/solve/schedule_hull.hpp>
#include <kdvfs/detail/solve/switch_model.hpp>
#include <kdvfs/detail/tune/segments.hpp>
#include <kdvfs/device/power_limiter.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/limited_plan.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

namespace detail {

/// An iteration under the limiter, once it repeats.
struct LimitedLap {
    Cost cost;
    /// By launch: how far the ceiling was above the clock that was asked for, at its least, as a
    /// logarithm; below zero where the limiter held the launch back.
    std::vector<double> room;
    /// By launch: whether the ceiling was as high as it goes, so that watts were left to nobody.
    std::vector<bool> full;
};

/// Runs schedules under a power limiter, in a model's costs. Above the ceiling a launch runs at the
/// ceiling. Between the clocks of the model its time is linear in the length of a cycle, and its
/// power a power of the clock.
class LimiterRun {
public:
    LimiterRun(const SwitchModel& model, const SwitchCosts& costs,
               const device::PowerLimiter& limiter)
        : model_{model}, costs_{costs}, limiter_{limiter}, below_(model.size()) {
        for (std::size_t clock = 0; clock < model.size(); ++clock) {
            for (std::size_t other = 0; other < model.size(); ++other)
                if (model.clocks()[other].memory == model.clocks()[clock].memory &&
                    mhz(other) <= mhz(clock))
                    below_[clock].push_back(other);
            std::sort(below_[clock].begin(), below_[clock].end(),
                      [&](std::size_t a, std::size_t b) { return mhz(a) < mhz(b); });
        }
    }

    [[nodiscard]] LimitedLap operator()(const solve::Schedule& schedule) const {
        constexpr int most_laps = 200;
        constexpr double settled = 1e-6;
        double highest = mhz(schedule.start);
        for (const auto& request : schedule.requests)
            highest = std::max(highest, mhz(request.clock));
        device::ClockCeiling ceiling{limiter_};
        LimitedLap lap;
        bool brought_down = false;
        for (int i = 0; i < most_laps; ++i) {
            const double before = ceiling.mhz();
            const Seconds last = lap.cost.time;
            lap = run_lap(schedule, ceiling);
            if (std::abs(ceiling.mhz() / before - 1) < settled) break;
            const bool unfelt = std::abs(lap.cost.time / last - 1) < 1e-12;
            if (!unfelt || brought_down || ceiling.mhz() > before) continue;
            // It comes down, unfelt for as many laps as the mean power is near the limit.
            ceiling = device::ClockCeiling{std::min(highest, ceiling.mhz())};
            brought_down = true;
        }
        return lap;
    }

private:
    static constexpr Seconds step{1e-3};

    struct Point {
        Seconds time{};
        Watts power{};
    };
    struct Switching {
        bool under_way = false;
        std::size_t to = 0;
        Seconds works_on{0};
        Seconds pause{0};
    };

    [[nodiscard]] double mhz(std::size_t clock) const {
        const Megahertz core = model_.clocks()[clock].core;
        return core == auto_clock ? limiter_.top_mhz : core.count;
    }
    [[nodiscard]] Point at_clock(std::size_t launch, std::size_t clock) const {
        const solve::Choice& cost = model_.cost(launch, clock);
        return {Seconds{cost.time}, Watts{cost.energy / cost.time}};
    }
    [[nodiscard]] Point at(std::size_t launch, std::size_t clock, double ceiling) const {
        if (mhz(clock) <= ceiling) return at_clock(launch, clock);
        const std::vector<std::size_t>& known = below_[clock];
        const auto above =
            std::upper_bound(known.begin(), known.end(), ceiling,
                             [&](double at, std::size_t other) { return at < mhz(other); });
        if (above == known.begin()) return at_clock(launch, *above);
        const Point high = at_clock(launch, *above);
        const Point low = at_clock(launch, *(above - 1));
        const double below = mhz(*(above - 1));
        const double in_time = (1 / ceiling - 1 / below) / (1 / mhz(*above) - 1 / below);
        const double in_power = std::log(ceiling / below) / std::log(mhz(*above) / below);
        return {low.time + (high.time - low.time) * in_time,
                low.power * std::pow(high.power.count / low.power.count, in_power)};
    }

    LimitedLap run_lap(const solve::Schedule& schedule, device::ClockCeiling& ceiling) const {
        LimitedLap lap;
        const auto pass = [&](Watts power, Seconds time) {
            lap.cost += {time, power * time};
            ceiling.pass(limiter_, power, time);
        };
        std::size_t held = schedule.start;
        Switching switching;
        const auto arrive = [&] {
            pass(costs_.paused_power, switching.pause);
            held = switching.to;
            switching.under_way = false;
        };
        auto request = schedule.requests.begin();
        for (std::size_t launch = 0; launch < model_.launches(); ++launch) {
            if (request != schedule.requests.end() && request->before == launch) {
                if (switching.under_way) arrive();
                pass(costs_.paused_power, costs_.asking);
                const SwitchDelay delay =
                    costs_.delay(model_.clocks()[held], model_.clocks()[request->clock]);
                const Seconds pause = std::min(delay.transition, delay.latency);
                switching = {true, request->clock, delay.latency - pause, pause};
                ++request;
            }
            double room = std::numeric_limits<double>::infinity();
            bool full = false;
            for (double left = 1; left > 1e-12;) {
                if (switching.under_way && switching.works_on <= Seconds{0}) arrive();
                room = std::min(room, std::log(ceiling.mhz() / mhz(held)));
                full = full || ceiling.mhz() >= limiter_.top_mhz;
                const Point point = at(launch, held, ceiling.mhz());
                Seconds time = std::min(left * point.time, step);
                if (switching.under_way) time = std::min(time, switching.works_on);
                pass(point.power, time);
                left -= time / point.time;
                switching.works_on -= time;
            }
            lap.room.push_back(room);
            lap.full.push_back(full);
        }
        if (switching.under_way) arrive();
        return lap;
    }

    const SwitchModel& model_;
    const SwitchCosts& costs_;
    device::PowerLimiter limiter_;
    std::vector<std::vector<std::size_t>> below_;  // by clock: that and lower ones, ascending
};

/// A schedule, and what it costs under the limiter.
struct LimitedSchedule {
    solve::Schedule schedule;
    Cost held;
};

/// What schedules save where the limit is another than stated, against the program as found there.
class OtherLimit {
public:
    OtherLimit(const SwitchModel& model, const SwitchCosts& costs,
               const device::PowerLimiter& limiter, double times, std::size_t baseline)
        : run_{model,
               costs,
               {limiter.limit * times, limiter.rate, limiter.lowest_mhz, limiter.top_mhz}},
          found_{run_(solve::one_clock(model, baseline)).cost} {}

    [[nodiscard]] LimitedSaving saving(const solve::Schedule& schedule) const {
        const Cost planned = run_(schedule).cost;
        return {time_percent(planned, found_), energy_percent(planned, found_)};
    }

private:
    LimiterRun run_;
    Cost found_;
};

/// The search for a plan at the limit. Each launch has a price of the watts beyond the limit; the
/// schedule that is cheapest at these prices is run under the limiter, which shows where watts are
/// short and where they are left over, and prices rise and fall by it. What is left below the
/// ceiling is lost where the ceiling is as high as it goes: prices are the same up to there, and
/// others behind it.
class LimitSearch {
public:
    LimitSearch(const SwitchModel& model, const SwitchCosts& costs,
                const device::PowerLimiter& limiter, const LimitObjective& objective,
                std::size_t baseline)
        : model_{model},
          run_{model, costs, limiter},
          lower_{model, costs, limiter, 1 - objective.limit_error, baseline},
          higher_{model, costs, limiter, 1 + objective.limit_error, baseline},
          limiter_{limiter},
          objective_{objective},
          baseline_{baseline},
          found_{solve::one_clock(model, baseline), {}},
          prices_(model.launches()) {
        found_.held = run_(found_.schedule).cost;
        single_ = found_;
        for (std::size_t clock = 0; clock < model.size(); ++clock) {
            const solve::Schedule schedule = solve::one_clock(model, clock);
            const Cost held = run_(schedule).cost;
            const double least =
                goal(found_.held) * (1 - objective_.worthwhile_pct / 100);  // auto, unless it pays
            if (goal(held) < least && is_better(held, single_.held)) single_ = {schedule, held};
        }
        best_ = single_;
    }

    [[nodiscard]] const LimitedSchedule& found() const { return found_; }
    [[nodiscard]] const LimitedSchedule& best() const { return best_; }
    [[nodiscard]] const LimitedSchedule& single() const { return single_; }
    [[nodiscard]] const OtherLimit& lower() const { return lower_; }
    [[nodiscard]] const OtherLimit& higher() const { return higher_; }
    /// What is made small, of a cost.
    [[nodiscard]] double goal(const Cost& cost) const {
        return by_time() ? cost.time.count() : cost.energy.count;
    }
    /// No schedule of the model's clocks whose mean power is within the limit has less of the goal.
    [[nodiscard]] double bound() const { return std::min(bound_, goal(best_.held)); }

    void search() {
        const double scale = by_time() ? 1 : limiter_.limit.count;  // of a second of the limit
        // One price for all: that at which the mean power is the limit.
        double low = 0;
        double high = 4 * scale;
        for (int i = 0; i < bisections; ++i) {
            const double price = i == 0 ? 0 : 0.5 * (low + high);
            std::fill(prices_.begin(), prices_.end(), price);
            const Cost planned = kdvfs::detail::to_cost(cheapest().total);
            const bool too_much = planned.energy > limiter_.limit * planned.time;
            if (!too_much && i == 0) break;
            (too_much ? low : high) = price;
        }
        std::fill(prices_.begin(), prices_.end(), high < 4 * scale ? high : 0);
        const int rounds = by_time() ? 40 : 12;
        const auto is_enough = [&] {
            return goal(best_.held) - bound_ < good_enough * goal(found_.held);
        };
        for (int i = 0; i < rounds && !is_enough(); ++i) {
            const LimitedLap lap = consider(cheapest());
            const double late = lap.cost.time / most_time() - 1;
            if (!by_time())
                time_share_ = std::min(
                    1.0, time_share_ * (late > 0 ? 1 - 1.2 * late - 1e-6 : 1 - 0.6 * late));
            if (by_time() || i >= rounds_in_time)
                move_prices(lap, first_step * scale * std::pow(0.9, i));
        }
        if (!is_enough()) polish();
        if (by_time()) prefer_robust();
    }

private:
    static constexpr int bisections = 10;
    static constexpr int rounds_in_time =
        6;  // of a plan of least energy: to be no later than asked
    static constexpr double first_step = 0.1;
    static constexpr Seconds usual_lack{5e-3};  // of the limit: where steps are whole

    [[nodiscard]] bool by_time() const { return objective_.goal == LimitGoal::least_time; }
    [[nodiscard]] Seconds most_time() const {
        return found_.held.time * (1 + objective_.max_slowdown + 1e-9);
    }
    [[nodiscard]] bool is_better(const Cost& cost, const Cost& than) const {
        return goal(cost) < goal(than) && (by_time() || cost.time <= most_time());
    }

    /// The schedule that is cheapest at the prices, within the time that is tolerated.
    solve::Schedule cheapest() {
        const SwitchModel priced = model_.priced_by_power(by_time(), limiter_.limit, prices_);
        double given = 0;
        for (std::size_t i = 0; i < prices_.size(); ++i) given += prices_[i] * model_.slowest(i);
        solve::Schedule schedule;
        if (by_time()) {
            solve::ClosedSchedules closed{priced, tolerance, own_laps};
            const solve::PricedSchedule found = closed.cheapest({0, 1});
            bound_ = std::max(bound_, found.bound - given);
            schedule = found.schedule;
        } else {
            const solve::Schedule start = solve::one_clock(priced, baseline_);
            Objective objective = minimum_energy();
            objective.max_slowdown = most_time().count() * time_share_ / start.total.time - 1;
            const solve::ScheduleMinimum minimum = kdvfs::detail::minimise(
                priced, objective, baseline_, {tolerance, own_laps, 1'000'000, 1e-4});
            if (time_share_ == 1)
                bound_ = std::max(bound_, minimum.schedule.total.energy -
                                              minimum.gap_pct / 100 * std::abs(start.total.energy) -
                                              given);
            schedule = minimum.schedule;
        }
        return priced_by(model_, schedule).value_or(single_.schedule);
    }

    /// Raises prices where the limiter held launches back, lowers them where it never came near.
    void move_prices(const LimitedLap& lap, double step) {
        const std::size_t launches = lap.room.size();
        std::size_t first = 0;
        while (first < launches && !lap.full[first]) ++first;
        first %= launches;
        for (std::size_t done = 0; done < launches;) {
            double room = std::numeric_limits<double>::infinity();
            std::size_t end = done;
            do room = std::min(room, lap.room[(first + end++) % launches]);
            while (end < launches && !lap.full[(first + end) % launches]);
            const double lack = -room / limiter_.rate / usual_lack.count();
            const double change = step * std::clamp(lack, -0.5, 1.0);
            for (; done < end; ++done) {
                double& price = prices_[(first + done) % launches];
                price = std::max(0.0, price + change);
            }
        }
    }

    /// The schedule, and those in which its highest clocks are left to the limiter.
    LimitedLap consider(const solve::Schedule& schedule) {
        LimitedLap lap = adopt(schedule);
        for (const solve::Schedule& raised : variants(schedule)) adopt(raised);
        return lap;
    }
    [[nodiscard]] std::vector<solve::Schedule> variants(const solve::Schedule& schedule) const {
        std::vector<solve::Schedule> found;
        std::vector<std::size_t> asked{schedule.start};
        for (const auto& request : schedule.requests) asked.push_back(request.clock);
        std::sort(asked.begin(), asked.end());
        asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
        const std::size_t stride = asked.size() / most_variants + 1;
        for (std::size_t i = 0; i < asked.size(); i += stride) {
            if (auto raised = priced_by(model_, raised_from(schedule, asked[i])))
                found.push_back(std::move(*raised));
        }
        return found;
    }
    /// Of a plan of least time: that which loses least where the limit is another than stated.
    /// Clocks that are left to the limiter follow it; those that are asked for do not.
    void prefer_robust() {
        constexpr double given_up = 3e-4;  // of the time, at the stated limit
        const auto worst = [&](const solve::Schedule& schedule) {
            return std::max(lower_.saving(schedule).time_pct, higher_.saving(schedule).time_pct);
        };
        double least = worst(best_.schedule);
        LimitedSchedule chosen = best_;
        for (const solve::Schedule& raised : variants(best_.schedule)) {
            const Cost held = run_(raised).cost;
            if (held.time > best_.held.time * (1 + given_up)) continue;
            if (const double pct = worst(raised); pct < least) least = pct, chosen = {raised, held};
        }
        best_ = std::move(chosen);
    }
    [[nodiscard]] solve::Schedule raised_from(const solve::Schedule& schedule,
                                              std::size_t least) const {
        const auto raise = [&](std::size_t clock) { return clock >= least ? baseline_ : clock; };
        solve::Schedule raised{raise(schedule.start), {}, {}};
        std::size_t held = raised.start;
        for (const solve::Schedule::Request& request : schedule.requests) {
            if (raise(request.clock) == held) continue;
            held = raise(request.clock);
            raised.requests.push_back({request.before, held});
        }
        return raised;
    }
    /// Tries other clocks, at one place after the other: with few launches no price has a schedule
    /// that draws the limit and no less.
    void polish() {
        constexpr std::size_t most_work = 500'000;  // launches run, in all
        constexpr std::size_t few_launches = 64;    // each of which may get a clock of its own
        const std::size_t tries = most_work / model_.launches();
        std::vector<solve::Schedule::Request> places{{0, best_.schedule.start}};
        for (const auto& request : best_.schedule.requests) {
            if (request.before == 0) places.clear();
            places.push_back(request);
        }
        if (model_.launches() <= few_launches) {
            std::vector<solve::Schedule::Request> all;
            for (std::size_t launch = 0, p = 0; launch < model_.launches(); ++launch) {
                if (p + 1 < places.size() && places[p + 1].before == launch) ++p;
                all.push_back({launch, places[p].clock});
            }
            places = std::move(all);
        }
        std::size_t tried = 0;
        for (bool better = true; better && tried < tries;) {
            better = false;
            for (solve::Schedule::Request& place : places)
                for (std::size_t clock = 0; clock < model_.size() && tried < tries; ++clock) {
                    const std::size_t before = std::exchange(place.clock, clock);
                    const double least = goal(best_.held);
                    ++tried;
                    if (const auto other = priced_by(model_, closed_through(places))) adopt(*other);
                    if (goal(best_.held) < least)
                        better = true;
                    else
                        place.clock = before;
                }
        }
    }
    /// The schedule that asks for these clocks at these places, the first of which is 0.
    [[nodiscard]] static solve::Schedule closed_through(
        const std::vector<solve::Schedule::Request>& places) {
        solve::Schedule schedule{places.back().clock, {}, {}};
        std::size_t held = schedule.start;
        for (const solve::Schedule::Request& place : places)
            if (std::exchange(held, place.clock) != place.clock) schedule.requests.push_back(place);
        return schedule;
    }
    LimitedLap adopt(const solve::Schedule& schedule) {
        LimitedLap lap = run_(schedule);
        if (is_better(lap.cost, best_.held)) best_ = {schedule, lap.cost};
        return lap;
    }

    static constexpr double good_enough = 1e-4;  // of the goal, from the bound
    static constexpr double tolerance = 1e-5;
    static constexpr std::size_t own_laps = 4;
    static constexpr std::size_t most_variants = 12;

    const SwitchModel& model_;
    LimiterRun run_;
    OtherLimit lower_;
    OtherLimit higher_;
    device::PowerLimiter limiter_;
    LimitObjective objective_;
    std::size_t baseline_;
    LimitedSchedule found_;
    LimitedSchedule single_;
    LimitedSchedule best_;
    std::vector<double> prices_;
    double bound_ = -std::numeric_limits<double>::infinity();
    double time_share_ = 1;
};

}  // namespace detail

}  // namespace kdvfs::inline v0_3::tune

// What tune/limited_plan.hpp declares; it stands on the above.
#include <kdvfs/detail/tune/limited_plan.hpp>
