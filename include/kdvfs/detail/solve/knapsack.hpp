// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/solve/effort.hpp>
#include <kdvfs/detail/solve/multiple_choice.hpp>
#include <kdvfs/tune/cost_table.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::solve {

/// A selection within a time limit, and a proof: no selection within it uses less than
/// `energy_bound`.
struct KnapsackSolution {
    Selection selection;
    double energy_bound = 0;
};

/// The linear relaxation of some of the classes, for any time limit: the hull walk through them.
class Relaxation {
public:
    /// Begins anew, in the memory that it has.
    void restart(const Choice& fastest) {
        sums_.assign(1, fastest);
        prices_.clear();
    }

    void add(double price, const Choice& from, const Choice& to) {
        Choice sum = sums_.back();
        sum -= from;
        sums_.push_back(sum += to);
        prices_.push_back(price);
    }
    /// How many steps fit within a time limit; the limit is at least the fastest sum's time.
    [[nodiscard]] std::size_t steps_within(double time_limit) const {
        const auto beyond =
            std::upper_bound(sums_.begin() + 1, sums_.end(), time_limit,
                             [](double limit, const Choice& sum) { return limit < sum.time; });
        return static_cast<std::size_t>(beyond - sums_.begin()) - 1;
    }
    [[nodiscard]] const Choice& after(std::size_t steps) const { return sums_[steps]; }
    /// No selection of these classes within the limit uses less.
    [[nodiscard]] double energy_bound(std::size_t steps, double time_limit) const {
        const double energy = sums_[steps].energy;
        if (steps == prices_.size()) return energy;
        return energy - prices_[steps] * std::max(0.0, time_limit - sums_[steps].time);
    }

private:
    std::vector<Choice> sums_{{}};
    std::vector<double> prices_;
};

/// Exact search: decides class by class, widest first, keeping the partial sums that no other
/// partial sum dominates and whose relaxation of the rest can still beat the incumbent. The
/// relaxation of each partial sum rounds to a selection, so the incumbent improves on the way.
class KnapsackSearch {
public:
    /// `price` and `bound` are the relaxation's, `incumbent` any selection within the limit.
    KnapsackSearch(const MultipleChoice& problem, const HullWalk& walk, double time_limit,
                   double price, double bound, Selection incumbent, const KnapsackEffort& effort)
        : problem_{problem},
          walk_{walk},
          time_limit_{time_limit},
          price_{price},
          relaxed_bound_{bound},
          bound_{bound},
          effort_{effort},
          best_{std::move(incumbent)},
          looked_at_{problem.choices()} {}

    /// Searches with ever more states kept, as each round's incumbent shortens the next.
    KnapsackSolution run() {
        for (std::size_t states = std::min<std::size_t>(64, effort_.states);
             !is_proven() && !is_enough(); states = std::min(8 * states, effort_.states)) {
            open_classes();
            if (open_.size() > effort_.open_classes) break;
            const std::size_t room = std::max<std::size_t>(
                1, effort_.all_states / std::max<std::size_t>(1, open_.size()));
            search(std::min(states, room));
            if (states == effort_.states || 2 * states > room) break;
        }
        return {best_, std::min(best_.total.energy, bound_)};
    }

private:
    struct OpenClass {
        std::uint32_t index = 0;
        std::vector<std::uint32_t> kept;  ///< choices that the price alone does not rule out
        double spread = 0;                ///< between the times of the slowest and the fastest kept
        Choice fastest_rest;              ///< of all open classes after this one
    };
    struct State {
        Choice total;
        double bound = 0;  ///< no completion uses less
        std::uint32_t parent = 0;
        std::uint32_t choice = 0;
    };
    /// How a state of a layer came about.
    struct Link {
        std::uint32_t parent = 0;
        std::uint32_t choice = 0;
    };
    using Layers = std::vector<std::vector<Link>>;

    [[nodiscard]] bool is_proven() const { return best_.total.energy <= bound_; }
    [[nodiscard]] bool is_enough() const {
        return looked_at_ >= effort_.patience &&
               best_.total.energy - bound_ <= effort_.good_enough * best_.total.energy;
    }
    [[nodiscard]] double priced(const Choice& choice) const {
        return choice.energy + price_ * choice.time;
    }

    /// A choice that at the relaxation's price costs so much more than its class' best that the gap
    /// is used up cannot be in a better selection.
    [[nodiscard]] std::vector<std::uint32_t> worth_keeping(std::size_t index) const {
        const std::span<const Choice> choices = problem_[index];
        double least = priced(choices.front());
        for (const Choice& choice : choices) least = std::min(least, priced(choice));
        std::vector<std::uint32_t> kept;
        for (std::uint32_t j = 0; j < choices.size(); ++j) {
            if (relaxed_bound_ + priced(choices[j]) - least < best_.total.energy ||
                j == best_.chosen[index])
                kept.push_back(j);
        }
        return kept;
    }

    /// Decides what needs no search: classes with one choice left keep the incumbent's.
    void open_classes() {
        open_.clear();
        decided_ = {};
        for (std::size_t i = 0; i < problem_.size(); ++i) {
            OpenClass open{static_cast<std::uint32_t>(i), worth_keeping(i), 0, {}};
            if (open.kept.size() == 1) {
                decided_ += problem_[i][open.kept.front()];
                continue;
            }
            const auto [low, high] = std::minmax_element(
                open.kept.begin(), open.kept.end(), [&](std::uint32_t a, std::uint32_t b) {
                    return problem_[i][a].time < problem_[i][b].time;
                });
            open.spread = problem_[i][*high].time - problem_[i][*low].time;
            open_.push_back(std::move(open));
        }
        std::sort(open_.begin(), open_.end(),
                  [](const OpenClass& a, const OpenClass& b) { return a.spread > b.spread; });
        place_open_classes();
    }

    void place_open_classes() {
        position_.assign(problem_.size(), 0);
        Choice fastest;
        for (std::size_t k = open_.size(); k-- > 0;) {
            const std::uint32_t index = open_[k].index;
            open_[k].fastest_rest = fastest;
            fastest += problem_[index][walk_.start().chosen[index]];
            position_[index] = k;
        }
    }

    /// The relaxation of all open classes after one. That of each class at a time: all at once
    /// would take memory by the square of the classes.
    void relax_rest_of(std::size_t open) {
        rest_.restart(open_[open].fastest_rest);
        for (const HullWalk::Step& step : walk_.steps()) {
            if (position_[step.of_class] <= open) continue;
            const std::span<const Choice> choices = problem_[step.of_class];
            rest_.add(step.price, choices[step.from], choices[step.to]);
        }
    }

    /// One round. What it drops for want of room weakens its proof, never its solution.
    void search(std::size_t most_states) {
        lost_bound_ = std::numeric_limits<double>::infinity();
        Layers layers;
        std::vector<State> states{{decided_, relaxed_bound_, 0, 0}};
        for (std::size_t k = 0; k < open_.size(); ++k) {
            if (is_enough()) return;
            relax_rest_of(k);
            extend(states, open_[k]);
            adopt_best_rounding(extended_, layers);
            if (extended_.size() > most_states) drop_least_promising(extended_, most_states);
            states.assign(extended_.begin(), extended_.end());
            std::vector<Link>& links = layers.emplace_back();
            links.reserve(states.size());
            for (const State& state : states) links.push_back({state.parent, state.choice});
        }
        bound_ = std::max(bound_, std::min(best_.total.energy, lost_bound_));
    }

    /// Fills `extended_`.
    void extend(const std::vector<State>& states, const OpenClass& open) {
        extended_.clear();
        std::vector<std::ptrdiff_t> runs{0};  // where each choice's begin: each is sorted
        for (const std::uint32_t j : open.kept) {
            for (std::uint32_t parent = 0; parent < states.size(); ++parent) {
                const Choice total = states[parent].total + problem_[open.index][j];
                const double left = time_limit_ - total.time;
                if (left < rest_.after(0).time) continue;
                const std::size_t steps = rest_.steps_within(left);
                const double bound = total.energy + rest_.energy_bound(steps, left);
                if (bound < best_.total.energy) extended_.push_back({total, bound, parent, j});
            }
            runs.push_back(static_cast<std::ptrdiff_t>(extended_.size()));
        }
        looked_at_ += states.size() * open.kept.size();
        merge(extended_, std::move(runs));
        remove_dominated(extended_);
    }

    static bool comes_before(const State& a, const State& b) {
        return a.total.time < b.total.time ||
               (a.total.time == b.total.time && a.total.energy < b.total.energy);
    }

    /// Sorts what consists of sorted runs, given where these begin, and the end.
    static void merge(std::vector<State>& states, std::vector<std::ptrdiff_t> runs) {
        const auto at = [&](std::size_t run) { return states.begin() + runs[run]; };
        while (runs.size() > 2) {
            std::vector<std::ptrdiff_t> fewer{0};
            for (std::size_t run = 2; run < runs.size(); run += 2) {
                std::inplace_merge(at(run - 2), at(run - 1), at(run), comes_before);
                fewer.push_back(runs[run]);
            }
            if (fewer.back() != runs.back()) fewer.push_back(runs.back());
            runs = std::move(fewer);
        }
    }

    /// @param states sorted
    static void remove_dominated(std::vector<State>& states) {
        double least = std::numeric_limits<double>::infinity();
        std::erase_if(states, [&](const State& state) {
            if (state.total.energy >= least) return true;
            least = state.total.energy;
            return false;
        });
    }

    /// What is dropped could have won: the bound remembers it.
    void drop_least_promising(std::vector<State>& states, std::size_t most_states) {
        const auto end = states.begin() + static_cast<std::ptrdiff_t>(most_states);
        std::nth_element(states.begin(), end, states.end(),
                         [](const State& a, const State& b) { return a.bound < b.bound; });
        lost_bound_ = std::min(lost_bound_, end->bound);
        states.erase(end, states.end());
        std::sort(states.begin(), states.end(), comes_before);
    }

    /// Completes each state of the last layer by the steps of its relaxation that fit whole.
    /// @param layers before the states
    void adopt_best_rounding(const std::vector<State>& states, const Layers& layers) {
        const State* winner = nullptr;
        double least = best_.total.energy;
        for (const State& state : states) {
            const std::size_t steps = rest_.steps_within(time_limit_ - state.total.time);
            const double energy = state.total.energy + rest_.after(steps).energy;
            if (energy < least) {
                least = energy;
                winner = &state;
            }
        }
        if (winner != nullptr) adopt(*winner, layers);
    }

    void adopt(const State& winner, const Layers& layers) {
        Selection found = best_;
        const std::size_t last = layers.size();  // decided class
        for (std::size_t k = last + 1; k < open_.size(); ++k)
            found.chosen[open_[k].index] = walk_.start().chosen[open_[k].index];
        std::size_t steps = rest_.steps_within(time_limit_ - winner.total.time);
        for (auto step = walk_.steps().begin(); steps > 0; ++step) {
            if (position_[step->of_class] <= last) continue;
            found.chosen[step->of_class] = step->to;
            --steps;
        }
        Link link{winner.parent, winner.choice};
        for (std::size_t k = last;; --k) {
            found.chosen[open_[k].index] = link.choice;
            if (k == 0) break;
            link = layers[k - 1][link.parent];
        }
        found.total = sum_of(problem_, found.chosen);
        if (found.total.energy < best_.total.energy && found.total.time <= time_limit_)
            best_ = std::move(found);
    }

    const MultipleChoice& problem_;
    const HullWalk& walk_;
    double time_limit_;
    double price_;
    double relaxed_bound_;
    double bound_;
    KnapsackEffort effort_;
    Selection best_;
    Choice decided_;
    std::vector<OpenClass> open_;
    std::vector<std::size_t> position_;  ///< of each class in `open_`, 0 for decided ones
    Relaxation rest_;                    ///< of the open classes after the one being decided
    /// Of one layer before most are removed: memory of 100 MB that was got anew for each layer took
    /// half the time of a search.
    std::vector<State> extended_;
    std::size_t looked_at_;  ///< starts at the problem's size, which costs as much to look at
    double lost_bound_ = 0;
};

/// Where a hull walk crosses a time limit.
struct Crossing {
    Selection before;         ///< the last selection of the walk within the limit
    std::size_t steps = 0;    ///< the steps that `before` took
    double price = 0;         ///< of the step that would cross, 0 if none would
    double energy_bound = 0;  ///< of the linear relaxation: part of that step
};

inline Crossing cross(const HullWalk& walk, double time_limit) {
    Choice total = walk.start().total;
    std::size_t count = 0;
    for (const HullWalk::Step& step : walk.steps()) {
        const Choice next = walk.after(total, step);
        if (next.time > time_limit) break;
        total = next;
        ++count;
    }
    Crossing crossing{walk.selection_after(count), count, 0, 0};
    crossing.energy_bound = crossing.before.total.energy;
    if (count < walk.steps().size()) {
        crossing.price = walk.steps()[count].price;
        const double slack = std::max(0.0, time_limit - crossing.before.total.time);
        crossing.energy_bound -= crossing.price * slack;
    }
    return crossing;
}

/// Fills what is left of the time limit with later steps of the walk that still fit.
inline void fill_slack(const MultipleChoice& problem, const HullWalk& walk, std::size_t first,
                       double time_limit, Selection& selection) {
    for (std::size_t k = first; k < walk.steps().size(); ++k) {
        const HullWalk::Step& step = walk.steps()[k];
        const Choice& now = problem[step.of_class][selection.chosen[step.of_class]];
        const Choice& then = problem[step.of_class][step.to];
        if (then.energy < now.energy && selection.total.time - now.time + then.time <= time_limit) {
            selection.total -= now;
            selection.total += then;
            selection.chosen[step.of_class] = step.to;
        }
    }
    selection.total = sum_of(problem, selection.chosen);
}

/// Chooses one of each class so that the energy is least within a time limit: the multiple-choice
/// knapsack. Linear relaxation along the hull walk (Sinha and Zoltners, Operations Research 27,
/// 1979), greedy completion, then exact search over what the bound leaves open.
/// Nothing if not even the fastest choices meet the limit. O(n log n) for n choices, plus the
/// search, whose memory `effort` bounds; where it was cut short the bound says so.
inline std::optional<KnapsackSolution> solve_knapsack(const MultipleChoice& problem,
                                                      const HullWalk& walk, double time_limit,
                                                      const KnapsackEffort& effort = {}) {
    if (walk.start().total.time > time_limit) return std::nullopt;
    Crossing crossing = cross(walk, time_limit);
    Selection greedy = crossing.before;
    fill_slack(problem, walk, crossing.steps, time_limit, greedy);
    return KnapsackSearch{
        problem, walk, time_limit, crossing.price, crossing.energy_bound, std::move(greedy), effort}
        .run();
}

/// A selection and how far from the best it can be.
struct Minimum {
    Selection selection;
    double gap_pct = 0;  ///< of the baseline's score; 0 = proven best
};

inline tune::Cost to_cost(const Choice& choice) {
    return {Seconds{choice.time}, Joules{choice.energy}};
}

/// The best selection along a hull walk within a time limit.
struct BestOnWalk {
    std::size_t steps = 0;
    double score = 0;
    bool crossed = false;  ///< the walk goes on beyond the limit
};

inline BestOnWalk best_on_walk(const HullWalk& walk, const tune::Objective& objective,
                               const tune::Cost& baseline, double limit) {
    Choice total = walk.start().total;
    BestOnWalk best{0, objective.score(to_cost(total), baseline), false};
    std::size_t count = 0;
    for (const HullWalk::Step& step : walk.steps()) {
        total = walk.after(total, step);
        ++count;
        if (total.time > limit) return {best.steps, best.score, true};
        const double score = objective.score(to_cost(total), baseline);
        if (score < best.score) best = {count, score, false};
    }
    return best;
}

/// What an objective would pay in joules for a second less, at a cost.
inline double level_slope(const tune::Objective& objective, const tune::Cost& cost,
                          const tune::Cost& baseline) {
    constexpr double step = 1e-4;
    const double here = objective.score(cost, baseline);
    const double by_time = objective.score({cost.time * (1 + step), cost.energy}, baseline) - here;
    const double by_energy =
        objective.score({cost.time, cost.energy * (1 + step)}, baseline) - here;
    return by_energy > 0 ? std::max(0.0, by_time / by_energy * (cost.energy / cost.time).count) : 0;
}

/// The choice of least score of one class within a time limit, the fastest such.
inline std::optional<Minimum> least_choice(std::span<const Choice> choices,
                                           const tune::Objective& objective,
                                           const tune::Cost& baseline, double limit) {
    std::optional<Minimum> least;
    double best = std::numeric_limits<double>::infinity();
    for (std::uint32_t j = 0; j < choices.size(); ++j) {
        if (choices[j].time > limit) continue;
        const double score = objective.score(to_cost(choices[j]), baseline);
        const bool is_faster =
            least && score == best && choices[j].time < least->selection.total.time;
        if (least && score >= best && !is_faster) continue;
        best = score;
        least = Minimum{{{j}, choices[j]}, 0};
    }
    return least;
}

/// Where time has a price: the least energy within the limit that the price counts towards.
inline KnapsackSolution solve_priced(const MultipleChoice& problem, double price, double limit,
                                     const KnapsackEffort& effort) {
    MultipleChoice priced;
    priced.reserve(problem.size(), problem.choices());
    std::vector<Choice> choices;
    for (std::size_t i = 0; i < problem.size(); ++i) {
        choices.assign(problem[i].begin(), problem[i].end());
        for (Choice& choice : choices) choice.energy += price * choice.time;
        priced.add_class(choices);
    }
    KnapsackSolution solution = *solve_knapsack(priced, HullWalk{priced}, limit, effort);
    solution.selection.total = sum_of(problem, solution.selection.chosen);
    return solution;
}

/// The search at the time limit, where the hull walk crosses it. Of a score that weighs time, the
/// least energy there is not the best: time gets the price that the best selection so far gives it,
/// and then the next one's. What is below the level line of a quasi-concave score is better, so
/// each round's selection is.
class LimitedMinimum {
public:
    /// @param minimum any selection within the limit
    LimitedMinimum(const MultipleChoice& problem, const HullWalk& walk,
                   const tune::Objective& objective, const tune::Cost& baseline, Selection minimum)
        : problem_{problem},
          walk_{walk},
          objective_{objective},
          baseline_{baseline},
          limit_{time_limit(objective, baseline).count()},
          best_{std::move(minimum)},
          bound_{-std::numeric_limits<double>::infinity()} {}

    /// @param hull_bound no selection has a lower score
    Minimum run(double hull_bound, const KnapsackEffort& effort) {
        constexpr int most_rounds = 4;
        auto solution = solve_knapsack(problem_, walk_, limit_, effort);
        least_energy_ = solution->energy_bound;
        double price = 0;
        for (int round = 0;;) {
            take(*solution, price);
            const double next = level_slope(objective_, to_cost(best_.total), baseline_);
            if (std::abs(next - price) <= 1e-6 * next || ++round == most_rounds) break;
            price = next;
            solution = solve_priced(problem_, price, limit_, effort);
        }
        const double best = score(best_.total);
        const double bound = std::min(best, std::max(hull_bound, bound_));
        return {best_, 100 * (best - bound) / std::abs(objective_.score(baseline_, baseline_))};
    }

private:
    [[nodiscard]] double score(const Choice& choice) const {
        return objective_.score(to_cost(choice), baseline_);
    }
    void take(const KnapsackSolution& solution, double price) {
        if (score(solution.selection.total) < score(best_.total)) best_ = solution.selection;
        // All sums are above a line, between the least time and the limit or the least energy: the
        // score is least at an end of it.
        const double first = walk_.start().total.time;
        const auto at = [&](double time) {
            return score({time, std::max(0.0, solution.energy_bound - price * time)});
        };
        const double last =
            price > 0 ? std::min(limit_, (solution.energy_bound - least_energy_) / price) : first;
        bound_ = std::max(bound_, std::min(at(first), at(std::max(first, last))));
    }

    const MultipleChoice& problem_;
    const HullWalk& walk_;
    const tune::Objective& objective_;
    const tune::Cost& baseline_;
    double limit_;
    Selection best_;
    double bound_;             ///< no selection has a lower score
    double least_energy_ = 0;  ///< no selection within the limit uses less
};

/// Finds the selection of least score within the objective's time limit; nothing if there is none.
///
/// Why this is proven: a non-decreasing quasi-concave score takes its minimum over the convex hull
/// of all sums at a corner of the hull's lower left side, every corner is on the hull walk, and
/// every corner is itself a selection. A time limit cuts the hull and adds one corner, where the
/// walk crosses it: its score bounds what the knapsacks at the limit may still find.
inline std::optional<Minimum> minimise(const MultipleChoice& problem,
                                       const tune::Objective& objective, const tune::Cost& baseline,
                                       const KnapsackEffort& effort = {}) {
    const double limit = time_limit(objective, baseline).count();
    if (problem.size() == 1) return least_choice(problem[0], objective, baseline, limit);
    const HullWalk walk{problem};
    if (walk.start().total.time > limit) return std::nullopt;

    const BestOnWalk corner = best_on_walk(walk, objective, baseline, limit);
    Selection selection = walk.selection_after(corner.steps);
    if (!corner.crossed) return Minimum{std::move(selection), 0};

    const Choice crossed{limit, cross(walk, limit).energy_bound};
    const double hull_bound = std::min(corner.score, objective.score(to_cost(crossed), baseline));
    return LimitedMinimum{problem, walk, objective, baseline, std::move(selection)}.run(hull_bound,
                                                                                        effort);
}

}  // namespace kdvfs::inline v0_3::solve
