// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/solve/switch_model.hpp>
#include <kdvfs/detail/tune/launch_trace.hpp>
#include <kdvfs/tune/cost_table.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// What a launch costs at a clock.
struct ReplayPoint {
    double time = 0;     ///< seconds
    double careful = 0;  ///< seconds, longer by the margin that the objective's confidence asks for
    double energy = 0;   ///< joules
    bool measured = false;

    ReplayPoint& operator+=(const ReplayPoint& other) {
        time += other.time;
        careful += other.careful;
        energy += other.energy;
        measured = measured && other.measured;
        return *this;
    }
};

/// The clocks of a table, and what its kernels cost at each: as measured, or where a rare kernel
/// was not measured, guessed from its neighbours so that slow clocks are rather too slow.
class ReplayCosts {
public:
    ReplayCosts(const CostTable& table, double many) {
        std::set<ClockPoint> clocks;
        for (const KernelCosts& kernel : table.kernels)
            for (const PointCost& point : kernel.points) clocks.insert(point.clock);
        clocks_.assign(clocks.begin(), clocks.end());
        for (const ClockPoint clock : clocks_) {
            if (clock.core != auto_clock) top_core_ = std::max<double>(top_core_, clock.core.count);
            if (clock.memory != auto_clock)
                top_memory_ = std::max<double>(top_memory_, clock.memory.count);
        }
        for (const KernelCosts& kernel : table.kernels) rows_.push_back(row_of(kernel, many));
    }

    [[nodiscard]] const std::vector<ClockPoint>& clocks() const { return clocks_; }
    /// By clock.
    [[nodiscard]] const std::vector<ReplayPoint>& row(std::size_t row) const { return rows_[row]; }
    [[nodiscard]] std::size_t index_of(ClockPoint clock) const {
        const auto at = std::lower_bound(clocks_.begin(), clocks_.end(), clock);
        return static_cast<std::size_t>(at - clocks_.begin());
    }
    /// @returns its index
    std::size_t add_row(std::vector<ReplayPoint> row) {
        rows_.push_back(std::move(row));
        return rows_.size() - 1;
    }

private:
    [[nodiscard]] double core_of(ClockPoint clock) const {
        return clock.core == auto_clock ? top_core_ : clock.core.count;
    }
    [[nodiscard]] double memory_of(ClockPoint clock) const {
        return clock.memory == auto_clock ? top_memory_ : clock.memory.count;
    }
    [[nodiscard]] double distance(ClockPoint a, ClockPoint b) const {
        const auto apart = [](double x, double y) {
            return std::abs(std::log(std::max(x, 1.0) / std::max(y, 1.0)));
        };
        return apart(core_of(a), core_of(b)) + 4 * apart(memory_of(a), memory_of(b));
    }

    [[nodiscard]] std::vector<ReplayPoint> row_of(const KernelCosts& kernel, double many) const {
        std::vector<ReplayPoint> row(clocks_.size());
        for (std::size_t p = 0; p < kernel.points.size(); ++p) {
            const Cost cost = kernel.points[p].cost;
            row[index_of(kernel.points[p].clock)] = {
                cost.time.count(), kernel.launch(p, many).time.count(), cost.energy.count, true};
        }
        for (std::size_t c = 0; c < row.size(); ++c) {
            if (row[c].measured) continue;
            const PointCost* nearest = &kernel.points.front();
            for (const PointCost& point : kernel.points)
                if (distance(point.clock, clocks_[c]) < distance(nearest->clock, clocks_[c]))
                    nearest = &point;
            const ReplayPoint& known = row[index_of(nearest->clock)];
            const double slower =
                std::max(1.0, core_of(nearest->clock) / std::max(core_of(clocks_[c]), 1.0)) *
                std::max(1.0, memory_of(nearest->clock) / std::max(memory_of(clocks_[c]), 1.0));
            row[c] = {known.time * slower, known.careful * slower, known.energy * slower, false};
        }
        return row;
    }

    std::vector<ClockPoint> clocks_;
    std::vector<std::vector<ReplayPoint>> rows_;
    double top_core_ = 1;
    double top_memory_ = 1;
};

/// A launch of a trace as it is replayed.
struct ReplayLaunch {
    static constexpr std::uint32_t no_row = std::numeric_limits<std::uint32_t>::max();

    std::uint32_t name = 0;      ///< index into the trace's kernels
    std::uint32_t row = no_row;  ///< of `ReplayCosts`; none: `scale` is its time at any clock
    std::uint32_t depth = 0;     ///< as of its trace
    double scale = 1;            ///< of the row's costs
    double gap = 0;              ///< seconds before it
};
struct ReplayIteration {
    double share = 0;  ///< of all iterations
    std::vector<ReplayLaunch> launches;
};

/// The iterations of a trace, with what each launch took against the table's figure. Launches that
/// were not measured take as long as others of their kernel do on average.
inline std::vector<ReplayIteration> to_replay(const CostTable& table, const LaunchTrace& trace) {
    std::map<KernelKey, std::uint32_t> rows;
    for (std::uint32_t k = 0; k < table.kernels.size(); ++k) rows[table.kernels[k].key] = k;
    std::vector<std::uint32_t> row_of(trace.kernels.size(), ReplayLaunch::no_row);
    struct Mean {
        double time = 0;
        double count = 0;
    };
    std::vector<Mean> means(trace.kernels.size());
    for (std::size_t k = 0; k < trace.kernels.size(); ++k)
        if (const auto row = rows.find(trace.kernels[k]); row != rows.end())
            row_of[k] = row->second;
    double all = 0;
    for (const LaunchTrace::Iteration& iteration : trace.iterations) {
        all += iteration.count;
        for (const LaunchTrace::Launch& launch : iteration.launches) {
            if (launch.time <= Seconds{0}) continue;
            means[launch.kernel].time += iteration.count * launch.time.count();
            means[launch.kernel].count += iteration.count;
        }
    }
    std::vector<ReplayIteration> replayed;
    for (const LaunchTrace::Iteration& iteration : trace.iterations) {
        ReplayIteration& each = replayed.emplace_back();
        each.share = iteration.count / all;
        for (const LaunchTrace::Launch& launch : iteration.launches) {
            const Mean& mean = means[launch.kernel];
            const std::uint32_t row = row_of[launch.kernel];
            double scale = launch.time.count();
            if (launch.time <= Seconds{0}) scale = mean.count > 0 ? mean.time / mean.count : 0;
            if (row != ReplayLaunch::no_row) {
                const KernelCosts& kernel = table.kernels[row];
                const double known = kernel.points[kernel.baseline].cost.time.count();
                scale = scale > 0 ? scale / known : 1;
            }
            each.launches.push_back({launch.kernel, row, launch.depth, scale, launch.gap.count()});
        }
    }
    return replayed;
}

/// Runs the iterations of a trace with clocks that are asked for launch by launch, by the model of
/// a switch of `SwitchCosts`: until it arrives, the old clock works on.
class TraceReplay {
public:
    static constexpr std::uint32_t keep = std::numeric_limits<std::uint32_t>::max();

    /// @param costs must outlive the replay
    TraceReplay(const ReplayCosts& costs, const SwitchCosts& switches, ClockPoint baseline)
        : costs_{&costs},
          baseline_{static_cast<std::uint32_t>(costs.index_of(baseline))},
          paused_power_{switches.paused_power.count},
          asking_{switches.asking.count()} {
        const std::vector<ClockPoint>& clocks = costs.clocks();
        for (const ClockPoint from : clocks)
            for (const ClockPoint to : clocks) {
                const SwitchDelay delay = from == to ? SwitchDelay{} : switches.delay(from, to);
                const double pause = std::min(delay.transition, delay.latency).count();
                delays_.push_back({delay.latency.count() - pause, pause});
            }
    }

    [[nodiscard]] const ReplayCosts& costs() const { return *costs_; }
    [[nodiscard]] std::uint32_t baseline() const { return baseline_; }

    /// What an iteration costs on average.
    /// @param wanted (iteration index, launch) -> the clock that it asks for, or `keep`
    template <class Wanted>
    [[nodiscard]] ReplayPoint run(const std::vector<ReplayIteration>& iterations,
                                  Wanted&& wanted) const {
        State state{baseline_, baseline_, 0, 0};
        ReplayPoint sum;
        // The last iterations lead to the clock that the first one finds.
        const std::size_t lead_in = std::min<std::size_t>(iterations.size(), 2);
        for (std::size_t i = 0; i < lead_in + iterations.size(); ++i) {
            const std::size_t at = (i + iterations.size() - lead_in) % iterations.size();
            const ReplayPoint cost = run_once(iterations[at], at, state, wanted);
            if (i < lead_in) continue;
            sum.time += iterations[at].share * cost.time;
            sum.careful += iterations[at].share * cost.careful;
            sum.energy += iterations[at].share * cost.energy;
        }
        return sum;
    }

private:
    struct Delay {
        double works_on = 0;
        double pause = 0;
    };
    struct State {
        std::uint32_t held;
        std::uint32_t asked;
        double arrives_after;  // seconds of work at the old clock
        double pause;
    };

    void wait(double seconds, ReplayPoint& sum) const {
        sum.time += seconds;
        sum.careful += seconds;
        sum.energy += seconds * paused_power_;
    }

    template <class Wanted>
    ReplayPoint run_once(const ReplayIteration& iteration, std::size_t index, State& state,
                         Wanted&& wanted) const {
        ReplayPoint sum;
        for (const ReplayLaunch& launch : iteration.launches) {
            pass(launch.gap, state, sum);
            const std::uint32_t clock = wanted(index, launch);
            if (clock != keep && clock != state.asked) {
                state.asked = clock;
                const Delay& delay = delays_[state.held * costs_->clocks().size() + clock];
                state.pause = delay.pause;
                state.arrives_after = delay.works_on;
                wait(asking_, sum);
            }
            if (launch.row == ReplayLaunch::no_row) {
                pass(launch.scale, state, sum);
                continue;
            }
            work(costs_->row(launch.row), launch.scale, state, sum);
        }
        return sum;
    }

    /// Time in which nothing depends on the clock.
    static void pass(double seconds, State& state, ReplayPoint& sum) {
        sum.time += seconds;
        sum.careful += seconds;
        if (state.held == state.asked) return;
        state.arrives_after -= seconds;
        if (state.arrives_after <= 0) state.held = state.asked;
    }

    void work(const std::vector<ReplayPoint>& row, double scale, State& state,
              ReplayPoint& sum) const {
        const auto add = [&](const ReplayPoint& point, double share) {
            sum.time += share * point.time;
            sum.careful += share * point.careful;
            sum.energy += share * point.energy;
        };
        const ReplayPoint& old = row[state.held];
        if (state.held == state.asked) return add(old, scale);
        if (old.time * scale <= state.arrives_after) {
            state.arrives_after -= old.time * scale;
            return add(old, scale);
        }
        const double done = std::max(state.arrives_after, 0.0) / old.time;  // in units of `scale`
        add(old, done);
        add(row[state.asked], scale - done);
        wait(state.pause, sum);
        state.held = state.asked;
    }

    const ReplayCosts* costs_;
    std::uint32_t baseline_;
    double paused_power_;
    double asking_;
    std::vector<Delay> delays_;  // [from][to]
};

}  // namespace kdvfs::inline v0_3::tune::detail
