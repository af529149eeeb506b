// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/plan_follower.hpp>
#include <kdvfs/detail/solve/switch_model.hpp>
#include <kdvfs/detail/tune/launch_template.hpp>
#include <kdvfs/detail/tune/launch_trace.hpp>
#include <kdvfs/detail/tune/segments.hpp>
#include <kdvfs/detail/tune/trace_replay.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/segments.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

/// Plans for programs whose iterations are not alike. Every plan is judged by replaying the
/// recorded iterations with the follower that will follow it, so that what is promised has rare
/// kernels, lengths that vary and lost places in it.
namespace kdvfs::inline v0_3::tune::detail {

/// Whether iterations are so alike that one of them stands for all.
inline bool is_regular(const LaunchTrace& trace) {
    constexpr double nearly_all = 0.995;
    constexpr double jitter = 0.05;  // of launches, relative, weighted by their time
    std::map<std::vector<std::uint32_t>, double> kinds;
    struct Moments {
        double count = 0;
        double sum = 0;
        double squares = 0;
    };
    std::map<std::uint32_t, Moments> kernels;
    double all = 0;
    for (const LaunchTrace::Iteration& iteration : trace.iterations) {
        std::vector<std::uint32_t> names;
        for (const LaunchTrace::Launch& launch : iteration.launches) {
            names.push_back(launch.kernel);
            const double time = launch.time.count();
            if (time <= 0) continue;
            Moments& moments = kernels[launch.kernel];
            moments.count += iteration.count;
            moments.sum += iteration.count * time;
            moments.squares += iteration.count * time * time;
        }
        kinds[std::move(names)] += iteration.count;
        all += iteration.count;
    }
    double most = 0;
    for (const auto& [names, count] : kinds) most = std::max(most, count);
    double time = 0;
    double spread = 0;
    for (const auto& [kernel, moments] : kernels) {
        const double mean = moments.sum / moments.count;
        const double variance = std::max(0.0, moments.squares / moments.count - mean * mean);
        time += moments.sum;
        spread += moments.sum * std::sqrt(variance) / mean;
    }
    return most >= nearly_all * all && spread <= jitter * time;
}

/// Which clock each name asks for, by index; `TraceReplay::keep` for names without one.
using NameClocks = std::vector<std::uint32_t>;

/// Finds a clock for each name, so that the replayed trace scores least within the time limit:
/// coordinate descent at prices of time, from one clock and from each name's best by itself, and at
/// last without a price within the limit. Counted work, not timed: plans repeat.
class NameClockSearch {
public:
    /// @param iterations what is replayed; its rows are those of `replay`'s costs
    NameClockSearch(const TraceReplay& replay, std::vector<ReplayIteration> iterations,
                    const Objective& objective, std::size_t names)
        : replay_{&replay},
          iterations_{std::move(iterations)},
          objective_{&objective},
          names_(names, TraceReplay::keep) {
        launches_ = 0;
        for (const ReplayIteration& iteration : iterations_) launches_ += iteration.launches.size();
        base_ = evaluate(NameClocks(names, replay.baseline()));
        limit_ = time_limit(*objective_, {Seconds{base_.time}, Joules{base_.energy}}).count();
        make_groups();
    }

    /// The best single clock, and whether it is better than the baseline.
    [[nodiscard]] std::uint32_t best_single() {
        std::uint32_t best = replay_->baseline();
        double least = score(base_);
        for (std::uint32_t clock = 0; clock < clocks(); ++clock) {
            if (measured_share(clock) < enough_measured) continue;
            const ReplayPoint found = evaluate(NameClocks(names_.size(), clock));
            if (found.careful > limit_ || score(found) >= least) continue;
            least = score(found);
            best = clock;
        }
        return best;
    }

    [[nodiscard]] NameClocks run() {
        const std::uint32_t single = best_single();
        best_ = with_all(single);
        best_score_ = std::numeric_limits<double>::infinity();
        note(best_, evaluate(best_));
        const bool bounded = std::isfinite(limit_);
        double low = 0;   // price of time that breaks the limit
        double high = 0;  // that keeps it
        NameClocks from = best_;
        for (int step = 0; step < (bounded ? 12 : 1) && work_ < most_work; ++step) {
            const double price = !bounded    ? 0
                                 : step == 0 ? 0
                                 : high == 0 ? std::max(0.25, 4 * low)
                                             : std::sqrt(std::max(low, 0.01) * high);
            NameClocks a = descend(from, price);
            NameClocks b = descend(each_alone(price), price);
            const ReplayPoint of_a = evaluate(a);
            const ReplayPoint of_b = evaluate(b);
            const bool first = value(of_a, price) <= value(of_b, price);
            from = first ? std::move(a) : std::move(b);
            const bool keeps = (first ? of_a : of_b).careful <= limit_;
            if (keeps && step == 0) break;
            (keeps ? high : low) = price;
        }
        polish();
        return best_;
    }

    [[nodiscard]] ReplayPoint evaluate(const NameClocks& clocks) {
        work_ += launches_;
        return replay_->run(iterations_, [&](std::size_t, const ReplayLaunch& launch) {
            return clocks[launch.name];
        });
    }

private:
    static constexpr std::size_t most_work = 120'000'000;  // launches
    static constexpr std::size_t most_groups = 40;
    static constexpr double enough_measured = 0.9;

    [[nodiscard]] std::size_t clocks() const { return replay_->costs().clocks().size(); }
    [[nodiscard]] double score(const ReplayPoint& point) const {
        return objective_->score({Seconds{point.time}, Joules{point.energy}},
                                 {Seconds{base_.time}, Joules{base_.energy}});
    }
    [[nodiscard]] double value(const ReplayPoint& point, double price) const {
        return score(point) / score(base_) + price * point.careful / base_.time;
    }

    /// Names by the time that they take; those that take least share a clock.
    void make_groups() {
        std::vector<double> time(names_.size(), 0);
        std::vector<std::vector<double>> measured(names_.size(), std::vector<double>(clocks(), 0));
        std::vector<bool> planned(names_.size(), false);
        for (const ReplayIteration& iteration : iterations_)
            for (const ReplayLaunch& launch : iteration.launches) {
                if (launch.row == ReplayLaunch::no_row) continue;
                const auto& row = replay_->costs().row(launch.row);
                const double seconds =
                    iteration.share * launch.scale * row[replay_->baseline()].time;
                planned[launch.name] = true;
                time[launch.name] += seconds;
                for (std::size_t c = 0; c < row.size(); ++c)
                    if (row[c].measured) measured[launch.name][c] += seconds;
            }
        std::vector<std::uint32_t> order;
        for (std::uint32_t name = 0; name < names_.size(); ++name)
            if (planned[name]) order.push_back(name);
        std::stable_sort(order.begin(), order.end(),
                         [&](auto a, auto b) { return time[a] > time[b]; });
        all_time_ = 0;
        measured_time_.assign(clocks(), 0);
        for (std::size_t i = 0; i < order.size(); ++i) {
            if (i < most_groups) groups_.emplace_back();
            Group& group = groups_.back();
            group.names.push_back(order[i]);
            group.time += time[order[i]];
            group.measured.resize(clocks(), 0);
            all_time_ += time[order[i]];
            for (std::size_t c = 0; c < clocks(); ++c) {
                group.measured[c] += measured[order[i]][c];
                measured_time_[c] += measured[order[i]][c];
            }
        }
    }

    [[nodiscard]] double measured_share(std::uint32_t clock) const {
        return all_time_ > 0 ? measured_time_[clock] / all_time_ : 0;
    }
    struct Group {
        std::vector<std::uint32_t> names;
        double time = 0;
        std::vector<double> measured;  // seconds, by clock
    };
    [[nodiscard]] bool allowed(const Group& group, std::uint32_t clock) const {
        return clock == replay_->baseline() ||
               group.measured[clock] >= enough_measured * group.time;
    }
    static void set(NameClocks& clocks, const Group& group, std::uint32_t clock) {
        for (const std::uint32_t name : group.names) clocks[name] = clock;
    }
    [[nodiscard]] NameClocks with_all(std::uint32_t clock) const {
        NameClocks clocks = names_;
        for (const Group& group : groups_) set(clocks, group, clock);
        return clocks;
    }

    /// Each group at its best clock, as if switching took no time.
    [[nodiscard]] NameClocks each_alone(double price) const {
        NameClocks clocks = names_;
        std::vector<std::size_t> group_of(names_.size(), groups_.size());
        for (std::size_t g = 0; g < groups_.size(); ++g)
            for (const std::uint32_t name : groups_[g].names) group_of[name] = g;
        std::vector<std::vector<ReplayPoint>> sums(groups_.size(),
                                                   std::vector<ReplayPoint>(this->clocks()));
        for (const ReplayIteration& iteration : iterations_)
            for (const ReplayLaunch& launch : iteration.launches) {
                if (launch.row == ReplayLaunch::no_row) continue;
                const auto& row = replay_->costs().row(launch.row);
                const double weight = iteration.share * launch.scale;
                for (std::size_t c = 0; c < row.size(); ++c) {
                    ReplayPoint& sum = sums[group_of[launch.name]][c];
                    sum.time += weight * row[c].time;
                    sum.careful += weight * row[c].careful;
                    sum.energy += weight * row[c].energy;
                }
            }
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            std::uint32_t best = replay_->baseline();
            const auto worth = [&](std::uint32_t c) {
                return sums[g][c].energy / base_.energy + price * sums[g][c].careful / base_.time;
            };
            for (std::uint32_t c = 0; c < this->clocks(); ++c)
                if (allowed(groups_[g], c) && worth(c) < worth(best)) best = c;
            set(clocks, groups_[g], best);
        }
        return clocks;
    }

    void note(const NameClocks& clocks, const ReplayPoint& found) {
        if (found.careful > limit_ || score(found) >= best_score_) return;
        best_ = clocks;
        best_score_ = score(found);
    }

    [[nodiscard]] NameClocks descend(NameClocks from, double price) {
        return improve(std::move(from),
                       [&](const ReplayPoint& found) { return value(found, price); });
    }
    void polish() {
        best_ = improve(best_, [&](const ReplayPoint& found) {
            return found.careful > limit_ ? std::numeric_limits<double>::infinity() : score(found);
        });
    }

    template <class Value>
    NameClocks improve(NameClocks from, Value value_of) {
        constexpr double least_gain = 1e-9;
        double best = value_of(evaluate(from));
        const auto attempt = [&](const NameClocks& next) {
            const ReplayPoint found = evaluate(next);
            note(next, found);
            const double value = value_of(found);
            if (!(value < best - least_gain * std::abs(best))) return false;
            best = value;
            from = next;
            return true;
        };
        for (bool improved = true; improved && work_ < most_work;) {
            improved = false;
            for (const Group& group : groups_)
                for (std::uint32_t clock = 0; clock < clocks() && work_ < most_work; ++clock) {
                    if (clock == from[group.names.front()] || !allowed(group, clock)) continue;
                    NameClocks next = from;
                    set(next, group, clock);
                    improved = attempt(next) || improved;
                }
            improved = move_together(from, attempt) || improved;
        }
        return from;
    }

    /// All names at one clock move to another: where switches cost, one alone may not pay.
    template <class Attempt>
    bool move_together(const NameClocks& from, Attempt attempt) {
        bool improved = false;
        std::set<std::uint32_t> used;
        for (const Group& group : groups_) used.insert(from[group.names.front()]);
        for (const std::uint32_t before : used)
            for (std::uint32_t after = 0; after < clocks() && work_ < most_work; ++after) {
                if (after == before) continue;
                NameClocks next = from;
                bool moved = false;
                for (const Group& group : groups_) {
                    if (from[group.names.front()] != before || !allowed(group, after)) continue;
                    set(next, group, after);
                    moved = true;
                }
                improved = (moved && attempt(next)) || improved;
            }
        return improved;
    }

    const TraceReplay* replay_;
    std::vector<ReplayIteration> iterations_;
    const Objective* objective_;
    NameClocks names_;  // none has a clock
    std::size_t launches_ = 0;
    std::size_t work_ = 0;
    ReplayPoint base_;
    double limit_ = 0;
    double all_time_ = 0;
    std::vector<double> measured_time_;  // by clock
    std::vector<Group> groups_;
    NameClocks best_;
    double best_score_ = std::numeric_limits<double>::infinity();
};

}  // namespace kdvfs::inline v0_3::tune::detail
