// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/plan_follower.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/solve/switch_model.hpp>
#include <kdvfs/detail/tune/iteration_sample.hpp>
#include <kdvfs/detail/tune/launch_template.hpp>
#include <kdvfs/detail/tune/launch_trace.hpp>
#include <kdvfs/detail/tune/trace_plan.hpp>
#include <kdvfs/detail/tune/trace_replay.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/segments.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {
namespace detail {

/// Plans a program by its recorded iterations. In order: one clock; a clock for each phase, where
/// scopes are nested; a clock for each kernel; segments of the iteration that most have in common.
/// Each must save more by `worthwhile_pct` than those before it.
class TracePlanner {
public:
    /// @param trace with launches of at least one kernel of the table
    TracePlanner(const CostTable& table, const LaunchTrace& trace, const SwitchCosts& switches,
                 const Objective& objective, const SegmentOptions& options)
        : table_{table},
          trace_{trace},
          switches_{switches},
          objective_{objective},
          options_{options},
          costs_{table, careful_deviations(objective)},
          replay_{costs_, switches, table.baseline},
          iterations_{to_replay(table, trace)} {
        for (const ReplayIteration& iteration : iterations_) {
            WeightedLaunches& all = launches_.emplace_back();
            all.weight = iteration.share;
            for (const ReplayLaunch& launch : iteration.launches)
                if (launch.row != ReplayLaunch::no_row) all.names.push_back(launch.name);
        }
        std::erase_if(launches_, [](const WeightedLaunches& each) { return each.names.empty(); });
        template_ = LaunchTemplate{launches_}.names();
        if (template_.empty()) template_ = launches_.front().names;
        base_ = replay_.run(iterations_,
                            [](std::size_t, const ReplayLaunch&) { return TraceReplay::keep; });
        limit_ = time_limit(objective_, to_cost(base_)).count();
    }

    [[nodiscard]] SegmentPlan run() {
        NameClockSearch search{replay_, sampled(iterations_), objective_, trace_.kernels.size()};
        single_ = search.best_single();
        Candidate best = by_name(NameClocks(trace_.kernels.size(), single_), "");
        if (best.cost.careful > limit_ || score(best.cost) > score(base_)) {
            single_ = replay_.baseline();
            best = by_name(NameClocks(trace_.kernels.size(), single_), "");
        }
        const ReplayPoint single_cost = best.cost;
        double gain_pct = 0;
        const auto consider = [&](std::optional<Candidate> candidate) {
            if (!candidate || candidate->cost.careful > limit_) return;
            const double gain = percent(score(best.cost) - score(candidate->cost));
            if (gain >= options_.worthwhile_pct)
                best = *std::move(candidate);
            else if (best.level.empty())
                gain_pct = std::max(gain_pct, gain);
        };
        consider(by_phase());
        const NameClocks names = search.run();
        consider(by_name(names, "clocks change by kernel: iterations are not alike"));
        consider(by_segments(names));
        return to_plan(best, single_cost, gain_pct);
    }

private:
    struct Candidate {
        PlannedSequence sequence;
        ReplayPoint cost;
        std::string level;  ///< what clocks change with; empty for one clock
    };

    static Cost to_cost(const ReplayPoint& point) {
        return {Seconds{point.time}, Joules{point.energy}};
    }
    [[nodiscard]] double score(const ReplayPoint& point) const {
        return objective_.score(to_cost(point), to_cost(base_));
    }
    [[nodiscard]] double percent(double score) const {
        return 100 * score / std::abs(this->score(base_));
    }

    /// Enough of the iterations of each kind to search with.
    static std::vector<ReplayIteration> sampled(const std::vector<ReplayIteration>& all) {
        constexpr std::size_t most_launches = 3000;
        return limited_to(most_launches, all, &ReplayLaunch::name, &ReplayIteration::share);
    }

    /// What the follower of a plan makes of the recorded iterations.
    [[nodiscard]] ReplayPoint judge(const PlannedSequence& sequence) const {
        const kdvfs::detail::PlanTrack track{sequence};
        kdvfs::detail::PlanFollower follower{track};
        std::vector<kdvfs::detail::PlanKernel> numbers;
        for (const KernelKey& key : trace_.kernels) numbers.push_back(track.number(key));
        std::vector<std::uint32_t> clocks;
        for (const ClockPoint clock : track.clocks()) {
            const std::size_t at = costs_.index_of(clock);
            const bool known = at < costs_.clocks().size() && costs_.clocks()[at] == clock;
            clocks.push_back(known ? static_cast<std::uint32_t>(at) : replay_.baseline());
        }
        return replay_.run(iterations_, [&](std::size_t i, const ReplayLaunch& launch) {
            if (&launch == &iterations_[i].launches.front()) follower.begin_iteration();
            const kdvfs::detail::PlanClock clock = follower.launched(numbers[launch.name]);
            return track.is_passed_over(numbers[launch.name]) ? TraceReplay::keep : clocks[clock];
        });
    }

    /// A sequence of names, each kernel at a clock of its own.
    /// @param launches names, by index into the trace's kernels
    [[nodiscard]] PlannedSequence sequence_of(const std::vector<std::uint32_t>& launches,
                                              const NameClocks& clocks) const {
        PlannedSequence sequence;
        sequence.gpu = table_.gpu;
        for (std::uint32_t name = 0; name < trace_.kernels.size(); ++name) {
            PlannedSequence::Kernel& kernel = sequence.kernels.emplace_back();
            kernel.key = trace_.kernels[name];
            kernel.lasts = lasts(kernel.key);
            if (clocks[name] != TraceReplay::keep)
                kernel.own = {.asks = true, .point = costs_.clocks()[clocks[name]]};
        }
        sequence.launches = launches;
        for (std::size_t i = 0; i < launches.size(); ++i) {
            const ClockPoint clock = sequence.kernels[launches[i]].own.point;
            if (i == 0 || clock != sequence.boundaries.back().clock)
                sequence.boundaries.push_back({i, clock});
        }
        return sequence;
    }
    [[nodiscard]] Duration lasts(const KernelKey& key) const {
        for (const KernelCosts& kernel : table_.kernels)
            if (kernel.key == key)
                return std::chrono::round<Duration>(kernel.points[kernel.baseline].cost.time);
        return Duration{0};
    }

    /// Names that the profile does not have keep the clock, but for kernels that are too rare to
    /// have been measured: those run at the baseline.
    [[nodiscard]] NameClocks with_unmeasured(NameClocks clocks) const {
        std::vector<double> share(clocks.size(), 0);  // of iterations
        std::vector<bool> measured(clocks.size(), false);
        std::vector<bool> encloses(clocks.size(), false);
        for (const ReplayIteration& iteration : iterations_) {
            std::vector<bool> met(clocks.size(), false);
            for (std::size_t i = 0; i < iteration.launches.size(); ++i) {
                const ReplayLaunch& launch = iteration.launches[i];
                if (!met[launch.name]) share[launch.name] += iteration.share;
                met[launch.name] = true;
                if (launch.row != ReplayLaunch::no_row) measured[launch.name] = true;
                if (i > 0 && launch.depth > iteration.launches[i - 1].depth)
                    encloses[iteration.launches[i - 1].name] = true;
            }
        }
        for (std::size_t name = 0; name < clocks.size(); ++name) {
            if (measured[name]) continue;
            const bool rare = share[name] < 0.5 && !encloses[name];
            clocks[name] = rare ? replay_.baseline() : TraceReplay::keep;
        }
        return clocks;
    }

    [[nodiscard]] Candidate by_name(const NameClocks& names, std::string level) const {
        const NameClocks clocks = with_unmeasured(names);
        Candidate candidate{sequence_of(template_, clocks), {}, std::move(level)};
        candidate.cost = judge(candidate.sequence);
        return candidate;
    }

    /// A clock for each outermost scope; nothing where no scopes are nested.
    [[nodiscard]] std::optional<Candidate> by_phase() const {
        ReplayCosts costs = costs_;
        std::vector<ReplayIteration> phases;
        std::vector<WeightedLaunches> names;
        bool nested = false;
        for (const ReplayIteration& iteration : sampled(iterations_)) {
            phases.push_back(merge_nested(iteration, costs));
            nested = nested || phases.back().launches.size() < iteration.launches.size();
            WeightedLaunches& each = names.emplace_back();
            each.weight = iteration.share;
            for (const ReplayLaunch& launch : phases.back().launches)
                each.names.push_back(launch.name);
        }
        if (!nested) return std::nullopt;
        const TraceReplay replay{costs, switches_, table_.baseline};
        NameClockSearch search{replay, std::move(phases), objective_, trace_.kernels.size()};
        const std::vector<std::uint32_t> pattern = LaunchTemplate{names}.names();
        if (pattern.empty()) return std::nullopt;
        Candidate candidate{sequence_of(pattern, search.run()), {}, "clocks change by phase"};
        candidate.cost = judge(candidate.sequence);
        return candidate;
    }

    /// Each outermost scope with all inside it as one launch.
    [[nodiscard]] static ReplayIteration merge_nested(const ReplayIteration& iteration,
                                                      ReplayCosts& costs) {
        ReplayIteration merged{iteration.share, {}};
        const auto& launches = iteration.launches;
        for (std::size_t begin = 0; begin < launches.size();) {
            std::size_t end = begin + 1;
            while (end < launches.size() && launches[end].depth > 0) ++end;
            ReplayLaunch phase = launches[begin];
            if (end > begin + 1) {
                std::vector<ReplayPoint> sum(costs.clocks().size(), {0, 0, 0, true});
                for (std::size_t i = begin; i < end; ++i) {
                    const bool known = launches[i].row != ReplayLaunch::no_row;
                    const double waits =
                        (i > begin ? launches[i].gap : 0) + (known ? 0 : launches[i].scale);
                    for (std::size_t c = 0; c < sum.size(); ++c) {
                        ReplayPoint cost{waits, waits, 0, true};
                        if (known) {
                            const ReplayPoint& point = costs.row(launches[i].row)[c];
                            const double scale = launches[i].scale;
                            cost += {scale * point.time, scale * point.careful,
                                     scale * point.energy, point.measured};
                        }
                        sum[c] += cost;
                    }
                }
                phase.row = static_cast<std::uint32_t>(costs.add_row(std::move(sum)));
                phase.scale = 1;
            }
            merged.launches.push_back(phase);
            begin = end;
        }
        return merged;
    }

    /// Segments of the template, at the bound at which the replayed iterations use up the
    /// objective's.
    [[nodiscard]] std::optional<Candidate> by_segments(const NameClocks& names) const {
        constexpr int tries = 4;
        constexpr double close = 5e-4;  // of the baseline's time
        SwitchCosts costs = switches_;
        place_means(costs);
        std::vector<KernelKey> keys;
        for (const std::uint32_t name : template_) keys.push_back(trace_.kernels[name]);
        const std::vector<std::size_t> indices = launch_indices(table_, keys);
        NameClocks outside = with_unmeasured(names);
        const NameClocks all = outside;
        for (const std::uint32_t name : template_) outside[name] = TraceReplay::keep;
        std::optional<Candidate> best;
        double bound = objective_.max_slowdown;
        for (int i = 0; i < tries && bound >= 0; ++i) {
            Objective objective = objective_;
            objective.max_slowdown = bound;
            const SegmentPlan plan = plan_segments(table_, indices, costs, objective, options_);
            double slowest = 0;
            for (const NameClocks* own : std::initializer_list<const NameClocks*>{&outside, &all}) {
                Candidate found{sequence_of(template_, *own), {}, "segments of a common iteration"};
                found.sequence.boundaries = plan.sequence.boundaries;
                found.cost = judge(found.sequence);
                slowest = std::max(slowest, found.cost.careful);
                if (found.cost.careful <= limit_ &&
                    (!best || score(found.cost) < score(best->cost)))
                    best = std::move(found);
            }
            const double slack = (limit_ - slowest) / base_.time;
            if (!std::isfinite(slack) || std::abs(slack) < close) break;
            bound += slack;
        }
        return best;
    }

    /// What launches take at each place of the template on average, against their kernels' means,
    /// and the gaps before them.
    void place_means(SwitchCosts& costs) const {
        std::vector<double> work(template_.size(), 0);
        std::vector<double> gaps(template_.size(), 0);
        std::vector<double> weights(template_.size(), 0);
        std::size_t aligned = 0;
        for (const ReplayIteration& iteration : sampled(iterations_)) {
            std::vector<std::uint32_t> names;
            std::vector<const ReplayLaunch*> launches;
            for (const ReplayLaunch& launch : iteration.launches) {
                if (launch.row == ReplayLaunch::no_row) continue;
                names.push_back(launch.name);
                launches.push_back(&launch);
            }
            const Alignment alignment{template_, names};
            if (2 * alignment.edits() > template_.size() + names.size()) continue;
            for (std::size_t i = 0; i < names.size(); ++i) {
                const std::size_t place = alignment.places()[i];
                if (place == Alignment::nowhere) continue;
                work[place] += iteration.share * launches[i]->scale;
                gaps[place] += iteration.share * launches[i]->gap;
                weights[place] += iteration.share;
            }
            if (++aligned == 64) break;
        }
        costs.gaps.clear();
        costs.work.clear();
        for (std::size_t place = 0; place < template_.size(); ++place) {
            const bool met = weights[place] > 0;
            costs.work.push_back(met ? work[place] / weights[place] : 1);
            costs.gaps.emplace_back(met ? gaps[place] / weights[place] : 0);
        }
    }

    /// What no plan can use less energy than, whatever switches take: each launch at its cheapest
    /// clock at a price of time, less what the limit is worth at that price.
    [[nodiscard]] double energy_bound() const {
        std::vector<double> weights(table_.kernels.size(), 0);
        double fixed = 0;
        for (const ReplayIteration& iteration : iterations_)
            for (const ReplayLaunch& launch : iteration.launches) {
                fixed += iteration.share * launch.gap;
                if (launch.row == ReplayLaunch::no_row)
                    fixed += iteration.share * launch.scale;
                else
                    weights[launch.row] += iteration.share * launch.scale;
            }
        const auto bound_at = [&](double price) {
            double sum = std::isfinite(limit_) ? price * (fixed - limit_) : 0;
            for (std::size_t row = 0; row < weights.size(); ++row) {
                double least = std::numeric_limits<double>::infinity();
                for (const ReplayPoint& point : costs_.row(row))
                    least = std::min(least, point.energy + price * point.careful);
                sum += weights[row] * least;
            }
            return sum;
        };
        if (!std::isfinite(limit_)) return bound_at(0);
        double low = 0;
        double high = 100 * base_.energy / base_.time;
        for (int step = 0; step < 60; ++step) {  // the bound is concave in the price
            const double a = low + (high - low) / 3;
            const double b = high - (high - low) / 3;
            (bound_at(a) < bound_at(b) ? low : high) = bound_at(a) < bound_at(b) ? a : b;
        }
        return bound_at(0.5 * (low + high));
    }

    [[nodiscard]] SegmentPlan to_plan(const Candidate& best, const ReplayPoint& single,
                                      double gain_pct) const {
        SegmentPlan plan;
        plan.gpu = table_.gpu;
        plan.objective = objective_.name;
        plan.max_slowdown = objective_.max_slowdown;
        plan.baseline_clock = table_.baseline;
        plan.baseline = to_cost(base_);
        plan.expected = to_cost(best.cost);
        plan.single = to_cost(single);
        plan.single_clock = costs_.clocks()[single_];
        const bool by_energy = objective_.name == "waste" || objective_.name == "energy";
        plan.gap_pct = by_energy
                           ? std::max(0.0, 100 * (best.cost.energy - energy_bound()) / base_.energy)
                           : 100;
        plan.without_latency = without_latency();
        plan.level = best.level;
        if (best.level.empty())
            plan.reason = "several clocks gain " +
                          kdvfs::detail::to_text(std::round(gain_pct * 1e4) / 1e4) +
                          " % over one, less than the " +
                          kdvfs::detail::to_text(options_.worthwhile_pct) + " % that count";
        plan.sequence = best.sequence;
        const auto& boundaries = plan.sequence.boundaries;
        for (std::size_t b = 0; b < boundaries.size(); ++b) {
            const std::size_t first = boundaries[b].before;
            const std::size_t last = b + 1 < boundaries.size() ? boundaries[b + 1].before
                                                               : plan.sequence.launches.size();
            plan.segments.push_back({first, last, first, Seconds{0}, boundaries[b].clock, {}});
        }
        return plan;
    }

    [[nodiscard]] Cost without_latency() const {
        const TraceReplay at_once{costs_, SwitchCosts{}, table_.baseline};
        NameClockSearch search{at_once, sampled(iterations_), objective_, trace_.kernels.size()};
        const NameClocks clocks = search.run();
        return to_cost(at_once.run(iterations_, [&](std::size_t, const ReplayLaunch& launch) {
            return clocks[launch.name];
        }));
    }

    const CostTable& table_;
    const LaunchTrace& trace_;
    SwitchCosts switches_;
    Objective objective_;
    SegmentOptions options_;
    ReplayCosts costs_;
    TraceReplay replay_;
    std::vector<ReplayIteration> iterations_;
    std::vector<WeightedLaunches> launches_;  // that can be planned
    std::vector<std::uint32_t> template_;
    ReplayPoint base_;
    double limit_ = 0;
    std::uint32_t single_ = 0;
};

}  // namespace detail

/// Plans what a program was recorded to launch: by its iteration where all are alike, else by the
/// iterations of the trace.
/// @throws Error (invalid_input) if the table has none of the kernels
inline SegmentPlan plan_program(const CostTable& table, const LaunchSequence& sequence,
                                const detail::LaunchTrace& trace, const SwitchCosts& switches,
                                const Objective& objective, const SegmentOptions& options = {}) {
    if (trace.iterations.empty() || (!sequence.launches.empty() && detail::is_regular(trace)))
        return plan_segments(
            table, match_launches(table, sequence.launches, sequence.gaps, sequence.depths),
            switches, objective, options);
    static_cast<void>(match_launches(table, trace.kernels));
    return detail::TracePlanner{table, trace, switches, objective, options}.run();
}

}  // namespace kdvfs::inline v0_3::tune
