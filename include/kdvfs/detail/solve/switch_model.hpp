// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/solve/multiple_choice.hpp>
#include <kdvfs/detail/tune/planner.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/switch_costs.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

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
    SwitchModel(const CostTable& table, const std::vector<std::size_t>& launches,
                const SwitchCosts& costs, double many = 0)
        : launches_{launches.size()},
          paused_power_{costs.paused_power.count},
          asking_{costs.asking.count()} {
        clocks_ = detail::shared_clocks(table, launches);
        fill_costs(table, launches, costs, many);
        fill_delays(costs);
    }

    [[nodiscard]] std::size_t launches() const { return launches_; }
    [[nodiscard]] std::size_t size() const { return clocks_.size(); }
    [[nodiscard]] const std::vector<ClockPoint>& clocks() const { return clocks_; }
    /// Where one of them is.
    [[nodiscard]] std::size_t index_of(ClockPoint clock) const {
        const auto at = std::lower_bound(clocks_.begin(), clocks_.end(), clock);
        return static_cast<std::size_t>(at - clocks_.begin());
    }
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
            const double gap = launch < costs.gaps.size() ? costs.gaps[launch].count() : 0;
            const double work = launch < costs.work.size() ? costs.work[launch] : 1;
            for (const ClockPoint clock : clocks_) {
                const std::size_t p = detail::point_index(kernel, clock);
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

}  // namespace kdvfs::inline v0_3::tune
