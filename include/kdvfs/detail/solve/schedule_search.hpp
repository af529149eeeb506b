// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/solve/effort.hpp>
#include <kdvfs/detail/solve/multiple_choice.hpp>
#include <kdvfs/detail/solve/schedule.hpp>
#include <kdvfs/detail/solve/switch_model.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::solve {

/// The cheapest ways from each launch and clock to the end of the iteration, at one price.
class Guide {
public:
    Guide(const tune::SwitchModel& model, double time_price, std::size_t end)
        : model_{&model}, to_go_{model, {time_price, 1}} {
        to_go_.solve_to(end);
        const std::size_t n = model.size();
        rest_.resize((model.launches() + 1) * n);
        for (std::size_t launch = model.launches(); launch-- > 0;)
            for (std::size_t clock = 0; clock < n; ++clock)
                rest_[launch * n + clock] = rest_at(launch, clock);
    }

    /// No way from here to the end within the time left uses less energy.
    [[nodiscard]] double energy_bound(std::size_t launch, std::size_t clock, double left) const {
        return to_go_(launch, clock) - to_go_.prices().time * left;
    }
    /// Time and energy of the cheapest way to the end.
    [[nodiscard]] const Choice& rest(std::size_t launch, std::size_t clock) const {
        return rest_[launch * model_->size() + clock];
    }
    [[nodiscard]] const CostToGo& to_go() const { return to_go_; }

private:
    [[nodiscard]] Choice rest_at(std::size_t launch, std::size_t clock) const {
        const std::size_t to = to_go_.requested(launch, clock);
        if (to == clock) return model_->cost(launch, clock) + rest(launch + 1, clock);
        const tune::Transition& transition = *model_->transition(launch, model_->slot(clock, to));
        return model_->cost(transition, clock, to) + rest(transition.effective_at, to);
    }

    const tune::SwitchModel* model_;
    CostToGo to_go_;
    std::vector<Choice> rest_;  // [launch][clock], one launch more
};

/// Finds the schedule of least energy within a time limit: label setting, launch by launch. A label
/// is the beginning of a schedule; one that another from the same start dominates is dropped, and
/// one whose cheapest rest at some price cannot beat the best schedule so far. Each label is
/// completed by its cheapest rests, so the best schedule improves on the way. Rounds with ever more
/// labels per launch and clock end when the gap is small or the work is used up.
class ScheduleSearch {
public:
    /// @param time_price joules per second: the shadow price of the limit
    /// @param start_bounds by clock: what no schedule from there, priced at `time_price`, is below
    /// @param incumbent any schedule within the limit
    ScheduleSearch(const tune::SwitchModel& model, double time_limit, double time_price,
                   std::vector<double> start_bounds, Schedule incumbent,
                   const ScheduleEffort& effort)
        : model_{model},
          limit_{time_limit},
          time_price_{time_price},
          start_bounds_{std::move(start_bounds)},
          best_{std::move(incumbent)},
          effort_{effort} {
        for (double& bound : start_bounds_) bound -= time_price_ * limit_;
    }

    [[nodiscard]] const Schedule& best() const { return best_; }

    /// @returns what no schedule within the limit can use less energy than
    double run() {
        double proven = *std::min_element(start_bounds_.begin(), start_bounds_.end());
        for (most_labels_ = first_labels; most_labels_ <= last_labels && !is_enough(proven);
             most_labels_ *= 4) {
            proven = std::max(proven, search_all_starts());
            if (looked_at_ > effort_.work) break;
        }
        return std::min(proven, best_.total.energy);
    }

private:
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
    static constexpr std::size_t first_labels = 4;
    static constexpr std::size_t last_labels = 16384;
    /// Multiples of the shadow price at which the rest is bounded: where little time is left, a
    /// higher price bounds it better.
    static constexpr std::array<double, 5> price_factors{1, 0.9999, 1.0001, 2, 16};

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

    /// What is not worth looking for: a label that gains less is dropped.
    [[nodiscard]] double slack() const { return 0.25 * effort_.good_enough * best_.total.energy; }
    [[nodiscard]] double to_beat() const { return best_.total.energy - slack(); }
    [[nodiscard]] bool is_enough(double proven) const {
        return best_.total.energy - proven <= effort_.good_enough * best_.total.energy;
    }

    /// @returns what no schedule from any start can use less energy than
    double search_all_starts() {
        std::vector<std::size_t> order(start_bounds_.size());
        for (std::size_t clock = 0; clock < order.size(); ++clock) order[clock] = clock;
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return start_bounds_[a] < start_bounds_[b];
        });
        for (const std::size_t start : order) {
            if (start_bounds_[start] >= to_beat()) break;
            if (looked_at_ > effort_.work) break;
            start_bounds_[start] = std::max(start_bounds_[start], search(start));
        }
        return std::min(to_beat(), *std::min_element(start_bounds_.begin(), start_bounds_.end()));
    }

    double search(std::size_t start) {
        start_ = start;
        guides_.clear();
        for (const double factor : price_factors) {
            guides_.emplace_back(model_, factor * time_price_, start);
            looked_at_ += model_.launches() * model_.size() * 2;
            if (bound_of({}, 0, start) >= to_beat()) return bound_of({}, 0, start);
        }
        double lost = unreachable;
        history_.clear();
        labels_.assign((model_.launches() + 1) * model_.size(), {});
        push({}, none, 0, start);
        for (std::size_t launch = 0; launch < model_.launches(); ++launch) {
            for (std::size_t clock = 0; clock < model_.size(); ++clock) {
                std::vector<Label> labels = std::exchange(at(launch, clock), {});
                lost = std::min(lost, sparsify(labels));
                if (looked_at_ > effort_.work) {
                    for (const Label& label : labels) lost = std::min(lost, label.bound);
                    continue;
                }
                for (const Label& label : labels) extend(label, launch, clock);
            }
        }
        adopt_best_end();
        return std::min(lost, to_beat());
    }

    std::vector<Label>& at(std::size_t launch, std::size_t clock) {
        return labels_[launch * model_.size() + clock];
    }

    [[nodiscard]] double bound_of(const Choice& total, std::size_t launch,
                                  std::size_t clock) const {
        double bound = -unreachable;
        for (const Guide& guide : guides_) {
            bound = std::max(bound, guide.energy_bound(launch, clock, limit_ - total.time));
            if (total.energy + bound >= best_.total.energy) break;
        }
        return total.energy + bound;
    }

    void push(const Choice& total, std::uint32_t parent, std::size_t launch, std::size_t clock) {
        if (total.time > limit_) return;
        const double bound = bound_of(total, launch, clock);
        if (bound < to_beat()) at(launch, clock).push_back({total, bound, parent});
    }

    void extend(const Label& label, std::size_t launch, std::size_t clock) {
        ++looked_at_;
        complete(label, launch, clock);
        push(label.total + model_.cost(launch, clock), label.parent, launch + 1, clock);
        looked_at_ += model_.size();
        for (std::size_t to = 0; to < model_.size(); ++to) {
            if (to == clock) continue;
            const tune::Transition* transition = model_.transition(launch, model_.slot(clock, to));
            if (transition == nullptr) continue;
            const Choice total = label.total + model_.cost(*transition, clock, to);
            if (total.time > limit_ || bound_of(total, transition->effective_at, to) >= to_beat())
                continue;
            history_.push_back({{launch, to}, label.parent});
            push(total, static_cast<std::uint32_t>(history_.size() - 1), transition->effective_at,
                 to);
        }
    }

    void complete(const Label& label, std::size_t launch, std::size_t clock) {
        for (const Guide& guide : guides_) {
            const Choice total = label.total + guide.rest(launch, clock);
            if (total.time > limit_ || !(total.energy < best_.total.energy)) continue;
            if (guide.to_go()(launch, clock) == unreachable) continue;
            Schedule schedule{start_, requests_of(label.parent), label.total};
            follow(model_, guide.to_go(), launch, clock, schedule);
            if (schedule.total.time <= limit_ && schedule.total.energy < best_.total.energy)
                best_ = std::move(schedule);
        }
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
            if (label.bound >= to_beat() || label.total.energy >= least) return true;
            least = label.total.energy;
            return false;
        });
        if (labels.size() <= most_labels_) return unreachable;
        const auto end = labels.begin() + static_cast<std::ptrdiff_t>(most_labels_);
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
    double time_price_;
    std::vector<double> start_bounds_;  // energy, by clock
    Schedule best_;
    ScheduleEffort effort_;
    std::size_t start_ = 0;
    std::size_t most_labels_ = 0;
    std::size_t looked_at_ = 0;
    std::vector<Guide> guides_;
    std::vector<std::vector<Label>> labels_;  // [launch][clock]
    std::vector<Step> history_;
};

}  // namespace kdvfs::inline v0_3::solve
