// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/solve/multiple_choice.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// How long a clock change takes to arrive.
struct SwitchDelay {
    Seconds latency{0};     ///< from asking to the new clock; the old one works on
    Seconds transition{0};  ///< the end of the latency, in which the GPU pauses
};

/// What a planner must know about switching: during the latency the GPU works on at the old clock,
/// during its last part it may pause, then the new clock holds.
struct SwitchCosts {
    std::function<SwitchDelay(ClockPoint from, ClockPoint to)> delay = [](ClockPoint, ClockPoint) {
        return SwitchDelay{};
    };
    Watts paused_power{};  ///< drawn in a transition, and while a request is made
    Seconds asking{0};     ///< stream time that a request takes: its markers
    /// Before each launch of the sequence, in which the stream runs none; empty where there is
    /// none.
    std::vector<Seconds> gaps{};
    /// What each launch costs against the mean of its kernel; empty: 1.
    std::vector<double> work{};
};

/// The same latency for every pair.
inline SwitchCosts uniform_switch_costs(Seconds latency, Seconds transition = Seconds{0},
                                        Watts paused_power = {}) {
    return {[=](ClockPoint, ClockPoint) {
                return SwitchDelay{latency, transition};
            },
            paused_power,
            Seconds{0},
            {},
            {}};
}

/// What happens if, before launch `begin`, another clock is asked for: the old clock works on until
/// the new one arrives inside launch `arrives_in`; launches from `effective_at` on run at the new
/// clock.
struct Transition {
    std::size_t arrives_in = 0;
    std::size_t effective_at = 0;
    double old_share = 0;  ///< of the work of launch `arrives_in` that the old clock does
    /// What launches `begin` to before `arrives_in` cost at the old clock.
    solve::Choice before;
};

/// A sequence of launches at every clock, and what it means to switch between two of them. One
/// switch at a time, and none that arrives after the sequence's end.
class SwitchModel {
public:
    /// `launches` are indices into `table.kernels`. Clocks that not all of them were measured at
    /// are left out; the baseline is always there.
    /// @param many by how many deviations of what is known of them times are longer
    SwitchModel(const CostTable& table, std::vector<std::size_t> launches, const SwitchCosts& costs,
                double many = 0)
        : launches_{launches.size()},
          paused_power_{costs.paused_power.count},
          asking_{costs.asking.count()} {
        std::vector<std::size_t> kernels = launches;
        std::sort(kernels.begin(), kernels.end());
        kernels.erase(std::unique(kernels.begin(), kernels.end()), kernels.end());
        clocks_ = detail::make_unit(table, std::move(kernels)).clocks;
        fill_costs(table, launches, costs, many);
        fill_delays(costs);
    }

    [[nodiscard]] std::size_t launches() const { return launches_; }
    [[nodiscard]] std::size_t size() const { return clocks_.size(); }
    [[nodiscard]] const std::vector<ClockPoint>& clocks() const { return clocks_; }
    [[nodiscard]] const solve::Choice& cost(std::size_t launch, std::size_t clock) const {
        return costs_[launch * size() + clock];
    }

    /// Pairs of clocks with the same `from` and the same delays share a slot.
    [[nodiscard]] std::size_t slot(std::size_t from, std::size_t to) const {
        return slots_[from * size() + to];
    }
    /// The pairs' pauses, asking included: seconds and joules.
    [[nodiscard]] const solve::Choice& pause(std::size_t slot) const { return pauses_[slot]; }

    /// A switch asked for before a launch; nothing if it would arrive after the end.
    [[nodiscard]] const Transition* transition(std::size_t launch, std::size_t slot) const {
        const Transition& transition = resyncs_[slot * launches_ + launch];
        return transition.effective_at == 0 ? nullptr : &transition;
    }

    /// The cost of everything from asking to landing.
    [[nodiscard]] solve::Choice cost(const Transition& transition, std::size_t from,
                                     std::size_t to) const {
        solve::Choice sum = transition.before + pauses_[slot(from, to)];
        const solve::Choice& old_clock = cost(transition.arrives_in, from);
        const solve::Choice& new_clock = cost(transition.arrives_in, to);
        sum.time +=
            transition.old_share * old_clock.time + (1 - transition.old_share) * new_clock.time;
        sum.energy +=
            transition.old_share * old_clock.energy + (1 - transition.old_share) * new_clock.energy;
        return sum;
    }

    /// The same with another energy: what a launch costs, in joules or in seconds, and what it
    /// draws beyond a mean power at a price of its own. A launch is given as much as it can stay
    /// below, so that none costs less than nothing.
    /// @param limit above zero
    /// @param prices by launch, of a second of the limit; not negative
    [[nodiscard]] SwitchModel priced_by_power(bool in_seconds, Watts limit,
                                              std::span<const double> prices) const {
        SwitchModel other = *this;
        const auto priced = [&](const solve::Choice& cost, double price, double allowed) {
            const double beyond = cost.energy / limit.count - cost.time + allowed;
            return solve::Choice{cost.time,
                                 (in_seconds ? cost.time : cost.energy) + price * beyond};
        };
        for (std::size_t launch = 0; launch < launches_; ++launch)
            for (std::size_t clock = 0; clock < size(); ++clock)
                other.costs_[launch * size() + clock] =
                    priced(cost(launch, clock), prices[launch], slowest(launch));
        const double highest = *std::max_element(prices.begin(), prices.end());
        for (solve::Choice& pause : other.pauses_) pause = priced(pause, highest, 0);
        for (std::size_t from = 0; from < size(); ++from) {
            const std::vector<solve::Choice> prefix = other.sums(from);
            std::size_t last = pauses_.size();
            for (std::size_t to = 0; to < size(); ++to) {
                if (slot(from, to) == last) continue;
                last = slot(from, to);
                for (std::size_t launch = 0; launch < launches_; ++launch) {
                    Transition& transition = other.resyncs_[last * launches_ + launch];
                    if (transition.effective_at == 0) continue;
                    transition.before = prefix[transition.arrives_in];
                    transition.before -= prefix[launch];
                }
            }
        }
        return other;
    }
    /// The time of a launch at its slowest clock.
    [[nodiscard]] double slowest(std::size_t launch) const {
        double slowest = 0;
        for (std::size_t clock = 0; clock < size(); ++clock)
            slowest = std::max(slowest, cost(launch, clock).time);
        return slowest;
    }

private:
    /// Of the launches up to each, at one clock.
    [[nodiscard]] std::vector<solve::Choice> sums(std::size_t clock) const {
        std::vector<solve::Choice> sums(1);
        for (std::size_t i = 0; i < launches_; ++i) sums.push_back(sums.back() + cost(i, clock));
        return sums;
    }

    /// A launch waits as long at every clock, and what idling draws is no plan's doing.
    void fill_costs(const CostTable& table, const std::vector<std::size_t>& launches,
                    const SwitchCosts& costs, double many) {
        costs_.reserve(launches_ * size());
        for (std::size_t launch = 0; launch < launches_; ++launch) {
            const KernelCosts& kernel = table.kernels[launches[launch]];
            const std::vector<PointCost>& points = kernel.points;
            const double gap = launch < costs.gaps.size() ? costs.gaps[launch].count() : 0;
            const double work = launch < costs.work.size() ? costs.work[launch] : 1;
            for (const ClockPoint clock : clocks_) {
                const auto point =
                    std::lower_bound(points.begin(), points.end(), clock,
                                     [](const PointCost& a, ClockPoint b) { return a.clock < b; });
                const auto p = static_cast<std::size_t>(point - points.begin());
                costs_.push_back(detail::to_choice(kernel.launch(p, many) * work));
                costs_.back().time += gap;
            }
        }
    }

    void fill_delays(const SwitchCosts& costs) {
        slots_.resize(size() * size());
        for (std::size_t from = 0; from < size(); ++from) {
            const std::vector<solve::Choice> prefix = sums(from);
            std::map<std::pair<double, double>, std::size_t> known;
            for (std::size_t to = 0; to < size(); ++to) {
                const SwitchDelay delay = costs.delay(clocks_[from], clocks_[to]);
                const double pause = std::min(delay.transition, delay.latency).count();
                const double works_on = delay.latency.count() - pause;
                const auto [slot, is_new] = known.try_emplace({works_on, pause}, pauses_.size());
                slots_[from * size() + to] = slot->second;
                if (!is_new) continue;
                pauses_.push_back({pause + asking_, (pause + asking_) * paused_power_});
                add_resyncs(prefix, works_on);
            }
        }
    }

    void add_resyncs(const std::vector<solve::Choice>& prefix, double works_on) {
        std::size_t arrives_in = 0;
        for (std::size_t launch = 0; launch < launches_; ++launch) {
            const double arrival = prefix[launch].time + works_on;
            arrives_in = std::max(arrives_in, launch);
            while (arrives_in < launches_ && prefix[arrives_in + 1].time <= arrival) ++arrives_in;
            Transition transition;
            if (arrives_in < launches_) {
                const double width = prefix[arrives_in + 1].time - prefix[arrives_in].time;
                transition = {arrives_in, arrives_in + 1,
                              std::clamp((arrival - prefix[arrives_in].time) / width, 0.0, 1.0),
                              prefix[arrives_in]};
                transition.before -= prefix[launch];
            }
            resyncs_.push_back(transition);
        }
    }

    std::size_t launches_;
    double paused_power_;
    double asking_;
    std::vector<ClockPoint> clocks_;
    std::vector<solve::Choice> costs_;  // [launch][clock]
    std::vector<std::size_t> slots_;
    std::vector<solve::Choice> pauses_;  // [slot]
    std::vector<Transition> resyncs_;    // [slot][launch]
};

/// A launch of an iteration, and the clock that is asked for before it.
struct AskedLaunch {
    std::size_t kernel = 0;
    ClockPoint clock;
};

/// What an iteration that repeats costs where each launch asks for a clock of its own, by the same
/// model of a switch; here a request may overtake one that is still on its way, as scopes do. Pure
/// but for `measure(kernel, clock)`, which gives what a launch costs at a clock.
/// @param held the clock that holds before: one iteration of it runs first, and does not count
template <class Measure>
Cost replay_launches(std::span<const AskedLaunch> launches, ClockPoint held,
                     const SwitchCosts& costs, Measure&& measure) {
    ClockPoint asked = held;
    Seconds arrives_after{0};  // where another clock is asked for than held
    Seconds pause{0};
    const auto run_once = [&] {
        Cost sum;
        const auto wait = [&](Seconds time) { sum += {time, costs.paused_power * time}; };
        for (const AskedLaunch& launch : launches) {
            if (launch.clock != asked) {
                asked = launch.clock;
                const SwitchDelay delay = costs.delay(held, asked);
                pause = std::min(delay.transition, delay.latency);
                arrives_after = delay.latency - pause;
                wait(costs.asking);
            }
            const Cost old_clock = measure(launch.kernel, held);
            if (held == asked || old_clock.time <= arrives_after) {
                sum += old_clock;
                arrives_after -= old_clock.time;
                continue;
            }
            const double share = std::max(arrives_after, Seconds{0}) / old_clock.time;
            sum += old_clock * share + measure(launch.kernel, asked) * (1 - share);
            wait(pause);
            held = asked;
        }
        return sum;
    };
    run_once();  // leaves clocks as an iteration finds them
    return run_once();
}

}  // namespace kdvfs::inline v0_3::tune
