// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/segments.hpp>

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/solve/knapsack.hpp>
#include <kdvfs/detail/solve/schedule_hull.hpp>
#include <kdvfs/detail/solve/switch_model.hpp>
#include <kdvfs/detail/tune/planner.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace kdvfs::inline v0_3::tune {

namespace detail {

inline std::map<KernelKey, std::size_t> kernel_indices(const CostTable& table) {
    std::map<KernelKey, std::size_t> index;
    for (std::size_t k = 0; k < table.kernels.size(); ++k) index[table.kernels[k].key] = k;
    return index;
}

/// The same requests at other times of the launches. One that is on its way when the next is to be
/// made puts that off; nothing if one would arrive after the end.
inline std::optional<solve::Schedule> priced_by(const SwitchModel& model,
                                                const solve::Schedule& schedule) {
    solve::Schedule priced{schedule.start, {}, {}};
    std::size_t clock = schedule.start;
    std::size_t launch = 0;
    const auto run_to = [&](std::size_t end) {
        while (launch < end) priced.total += model.cost(launch++, clock);
    };
    for (solve::Schedule::Request request : schedule.requests) {
        request.before = std::max(request.before, launch);
        if (request.before == model.launches()) return std::nullopt;
        run_to(request.before);
        const Transition* transition = model.transition(launch, model.slot(clock, request.clock));
        if (transition == nullptr) return std::nullopt;
        priced.total += model.cost(*transition, clock, request.clock);
        priced.requests.push_back(request);
        launch = transition->effective_at;
        clock = request.clock;
    }
    run_to(model.launches());
    return priced;
}

inline std::vector<Segment> to_segments(const SwitchModel& model, const solve::Schedule& schedule) {
    std::vector<Segment> segments;
    std::size_t clock = schedule.start;
    const auto open = [&](std::size_t first, std::size_t to) {
        if (!segments.empty()) segments.back().last = first;
        segments.push_back({first, model.launches(), first, Seconds{0}, model.clocks()[to], {}});
        if (to == clock) return;
        const std::size_t slot = model.slot(clock, to);
        const Transition& transition = *model.transition(first, slot);
        segments.back().arrives_in = transition.arrives_in;
        segments.back().lead =
            Seconds{transition.before.time +
                    transition.old_share * model.cost(transition.arrives_in, clock).time +
                    model.pause(slot).time};
        segments.back().expected = kdvfs::detail::to_cost(model.cost(transition, clock, to));
    };
    const auto fill = [&] {
        Segment& segment = segments.back();
        const bool holds = segment.lead.count() == 0 && segment.expected.time.count() == 0;
        for (std::size_t i = holds ? segment.first : segment.arrives_in + 1; i < segment.last; ++i)
            segment.expected += kdvfs::detail::to_cost(model.cost(i, clock));
    };
    if (schedule.requests.empty() || schedule.requests.front().before > 0) open(0, clock);
    for (const solve::Schedule::Request& request : schedule.requests) {
        if (!segments.empty()) {
            segments.back().last = request.before;
            fill();
        }
        open(request.before, request.clock);
        clock = request.clock;
    }
    fill();
    return segments;
}

inline solve::Schedule best_single(const SwitchModel& model, const Objective& objective,
                                   std::size_t baseline) {
    solve::Schedule best = kdvfs::detail::one_clock(model, baseline);
    const Cost reference = kdvfs::detail::to_cost(best.total);
    const double limit = time_limit(objective, reference).count();
    for (std::size_t clock = 0; clock < model.size(); ++clock) {
        const solve::Schedule candidate = kdvfs::detail::one_clock(model, clock);
        if (candidate.total.time <= limit &&
            objective.score(kdvfs::detail::to_cost(candidate.total), reference) <
                objective.score(kdvfs::detail::to_cost(best.total), reference))
            best = candidate;
    }
    return best;
}

inline std::optional<Duration> to_duration(const std::optional<Seconds>& time) {
    if (!time) return std::nullopt;
    return std::chrono::round<Duration>(*time);
}

/// What those who follow a plan go by; `launches` are the table's kernels that it was made for.
inline PlannedSequence to_sequence(const SegmentPlan& plan, const CostTable& table,
                                   const std::vector<std::size_t>& launches) {
    constexpr std::uint32_t not_launched = std::numeric_limits<std::uint32_t>::max();
    PlannedSequence sequence;
    sequence.gpu = plan.gpu;
    std::vector<std::uint32_t> numbers(table.kernels.size(), not_launched);
    for (const std::size_t index : launches) {
        std::uint32_t& number = numbers[index];
        if (number == not_launched) {
            number = static_cast<std::uint32_t>(sequence.kernels.size());
            const KernelCosts& kernel = table.kernels[index];
            sequence.kernels.push_back({kernel.key, std::chrono::round<Duration>(
                                                        kernel.points[kernel.baseline].cost.time)});
        }
        sequence.launches.push_back(number);
    }
    for (const Segment& segment : plan.segments)
        sequence.boundaries.push_back({segment.first, segment.clock, to_duration(segment.after)});
    return sequence;
}

/// A figure to compare with, which no plan depends on: solved in little memory, near the optimum.
inline Cost best_without_latency(const SwitchModel& model, const Objective& objective,
                                 const Cost& baseline) {
    kdvfs::detail::MultipleChoice problem;
    std::vector<solve::Choice> choices(model.size());
    for (std::size_t launch = 0; launch < model.launches(); ++launch) {
        for (std::size_t clock = 0; clock < model.size(); ++clock)
            choices[clock] = model.cost(launch, clock);
        problem.add_class(choices);
    }
    constexpr solve::KnapsackEffort little{.states = 256, .open_classes = 256};
    const auto minimum = kdvfs::detail::minimise(problem, objective, baseline, little);
    return minimum ? kdvfs::detail::to_cost(minimum->selection.total) : baseline;
}

}  // namespace detail

namespace detail {

/// A sequence in which all launches of an outer scope are one, and where each begins.
struct OuterLaunches {
    CostTable table;
    std::vector<std::size_t> launches;
    std::vector<std::size_t> first;  ///< by outer launch; one more at the end
    std::vector<Seconds> gaps;       ///< before each; those inside count as its time
};

/// What the launches from one place to before another cost, at every clock that all were measured
/// at.
inline KernelCosts sum_costs(const CostTable& table, std::span<const std::size_t> launches,
                             Seconds gaps, const std::vector<ClockPoint>& clocks) {
    KernelCosts sum;
    for (const ClockPoint clock : clocks) {
        Cost cost{gaps, Joules{0}};
        Seconds deviation{0};
        for (const std::size_t launch : launches) {
            const KernelCosts& kernel = table.kernels[launch];
            const std::size_t p = point_index(kernel, clock);
            cost += kernel.points[p].cost;
            deviation += kernel.time_deviation(p);
        }
        if (clock == table.baseline) sum.baseline = sum.points.size();
        sum.points.push_back({clock, cost});
        sum.time_errors.push_back(deviation / cost.time);
    }
    return sum;
}

inline OuterLaunches outer_launches(const CostTable& table, const ProgramLaunches& program,
                                    const std::vector<std::size_t>& level) {
    const std::vector<ClockPoint> clocks = shared_clocks(table, program.launches);
    OuterLaunches outer{{table.gpu, table.baseline, {}}, {}, {}, {}};
    const auto gap = [&](std::size_t i) {
        return i < program.gaps.size() ? program.gaps[i] : Seconds{0};
    };
    for (std::size_t begin = 0; begin < level.size();) {
        std::size_t end = begin + 1;
        Seconds inside{0};
        while (end < level.size() && level[end] == level[begin]) inside += gap(end++);
        outer.first.push_back(begin);
        outer.gaps.push_back(gap(begin));
        outer.launches.push_back(outer.table.kernels.size());
        outer.table.kernels.push_back(sum_costs(
            table, std::span{program.launches}.subspan(begin, end - begin), inside, clocks));
        outer.table.kernels.back().key.name = "outer scope " + std::to_string(begin);
        begin = end;
    }
    outer.first.push_back(level.size());
    return outer;
}

/// A plan whose clocks change where an outer scope begins.
inline SegmentPlan plan_outer(const CostTable& table, const ProgramLaunches& program,
                              const std::vector<std::size_t>& level, SwitchCosts costs,
                              const Objective& objective, const SegmentOptions& options) {
    OuterLaunches outer = outer_launches(table, program, level);
    costs.gaps = std::move(outer.gaps);
    SegmentPlan plan = plan_segments(outer.table, outer.launches, costs, objective, options);
    for (Segment& segment : plan.segments) {
        segment.first = outer.first[segment.first];
        segment.last = outer.first[segment.last];
        segment.arrives_in = outer.first[segment.arrives_in];
    }
    plan.sequence = to_sequence(plan, table, program.launches);
    return plan;
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::vector<std::size_t> launch_indices(const CostTable& table,
                                                     std::span<const KernelKey> launches) {
    const std::map<KernelKey, std::size_t> index = detail::kernel_indices(table);
    std::vector<std::size_t> indices;
    const auto fail = [](const std::string& object, const char* why) {
        throw Error{Errc::invalid_input, {"plan a sequence of launches", object, why, ""}};
    };
    for (const KernelKey& key : launches) {
        const auto found = index.find(key);
        if (found == index.end()) fail(to_string(key), "the profile does not have this kernel");
        indices.push_back(found->second);
    }
    if (indices.empty()) fail("the sequence", "there is no launch in it");
    return indices;
}

KDVFS_INLINE ProgramLaunches match_launches(const CostTable& table,
                                            std::span<const KernelKey> launches,
                                            std::span<const Seconds> gaps,
                                            std::span<const std::uint32_t> depths) {
    const std::map<KernelKey, std::size_t> index = detail::kernel_indices(table);
    ProgramLaunches matched;
    std::set<KernelKey> unplanned;
    Seconds gap{0};
    std::uint32_t deepest = 0;
    for (const std::uint32_t depth : depths) deepest = std::max(deepest, depth);
    matched.levels.resize(deepest);
    std::vector<std::size_t> outer(deepest);  // by level, the scope met last
    for (std::size_t i = 0; i < launches.size(); ++i) {
        if (i < gaps.size()) gap += gaps[i];
        for (std::size_t level = i < depths.size() ? depths[i] : 0; level < deepest; ++level)
            outer[level] = i;
        const auto found = index.find(launches[i]);
        if (found == index.end()) {
            unplanned.insert(launches[i]);
            continue;
        }
        matched.launches.push_back(found->second);
        for (std::size_t level = 0; level < deepest; ++level)
            matched.levels[level].push_back(outer[level]);
        if (!gaps.empty()) matched.gaps.push_back(std::exchange(gap, Seconds{0}));
    }
    matched.unplanned.assign(unplanned.begin(), unplanned.end());
    if (matched.launches.empty())
        throw Error{Errc::invalid_input,
                    {"plan a sequence of launches", "the sequence",
                     "the profile has none of its kernels", "record both with the same program"}};
    return matched;
}

KDVFS_INLINE SegmentPlan plan_segments(const CostTable& table,
                                       const std::vector<std::size_t>& launches,
                                       const SwitchCosts& costs, const Objective& objective,
                                       const SegmentOptions& options) {
    if (std::isfinite(objective.launch_limit.count()))
        throw Error{Errc::not_supported,
                    {"plan segments", "with a bound on each launch",
                     "segments are held to a slowdown of the whole iteration",
                     "plan kernel by kernel, or bound the slowdown"}};
    const SwitchModel model{table, launches, costs};
    const std::size_t baseline_index = model.index_of(table.baseline);
    const Cost baseline =
        kdvfs::detail::to_cost(kdvfs::detail::one_clock(model, baseline_index).total);
    const auto score = [&](const solve::Schedule& schedule) {
        return objective.score(kdvfs::detail::to_cost(schedule.total), baseline);
    };

    // Chosen with margins, promised without.
    const SwitchModel careful{table, launches, costs, careful_deviations(objective)};
    const solve::Schedule single = kdvfs::detail::one_clock(
        model, detail::best_single(careful, objective, baseline_index).start);
    kdvfs::detail::ScheduleMinimum minimum =
        kdvfs::detail::minimise(careful, objective, baseline_index,
                                options.effort.value_or(kdvfs::detail::effort_for(careful)));
    minimum.schedule = detail::priced_by(model, minimum.schedule).value_or(single);
    SegmentPlan plan{table.gpu,
                     objective.name,
                     objective.max_slowdown,
                     table.baseline,
                     baseline,
                     {},
                     minimum.gap_pct,
                     {},
                     "",
                     {},
                     kdvfs::detail::to_cost(single.total),
                     model.clocks()[single.start],
                     detail::best_without_latency(careful, objective, baseline)};

    const double whole = std::abs(objective.score(baseline, baseline));
    const double gain_pct = 100 * (score(single) - score(minimum.schedule)) / whole;
    if (minimum.schedule.requests.empty()) {
        plan.reason = "no switch pays for its latency";
    } else if (gain_pct < options.worthwhile_pct) {
        plan.reason = "several clocks gain " +
                      kdvfs::detail::to_text(std::round(gain_pct * 1e4) / 1e4) +
                      " % over one, less than the " +
                      kdvfs::detail::to_text(options.worthwhile_pct) + " % that count";
        plan.gap_pct += std::max(0.0, gain_pct);
        minimum.schedule = single;
    }
    plan.expected = kdvfs::detail::to_cost(minimum.schedule.total);
    plan.segments = detail::to_segments(model, minimum.schedule);
    plan.sequence = detail::to_sequence(plan, table, launches);
    return plan;
}

KDVFS_INLINE SegmentPlan plan_segments(const CostTable& table, const ProgramLaunches& program,
                                       SwitchCosts costs, const Objective& objective,
                                       const SegmentOptions& options) {
    costs.gaps = program.gaps;
    SegmentPlan plan = plan_segments(table, program.launches, costs, objective, options);
    const double whole = std::abs(objective.score(plan.baseline, plan.baseline));
    for (std::size_t level = 0; level < program.levels.size(); ++level) {
        if (!plan.reason.empty()) break;  // one clock already
        SegmentPlan outer =
            detail::plan_outer(table, program, program.levels[level], costs, objective, options);
        const double gain_pct = 100 *
                                (objective.score(outer.expected, plan.baseline) -
                                 objective.score(plan.expected, plan.baseline)) /
                                whole;
        if (gain_pct >= options.worthwhile_pct || outer.segments.size() >= plan.segments.size())
            continue;
        outer.without_latency = plan.without_latency;
        outer.gap_pct = plan.gap_pct + std::max(0.0, gain_pct);
        outer.level = "clocks change with scopes that have " + std::to_string(level) +
                      " around them: kernel by kernel " +
                      kdvfs::detail::to_text(std::round(gain_pct * 1e4) / 1e4) + " % more";
        plan = std::move(outer);
        break;
    }
    for (const KernelKey& key : program.unplanned) plan.sequence.kernels.push_back({key, {}});
    return plan;
}

#endif

}  // namespace kdvfs::inline v0_3::tune

// The rest of what tune/segments.hpp declares; it stands on the above.
#include <kdvfs/detail/tune/gaps.hpp>
#include <kdvfs/detail/tune/spare_time.hpp>
#include <kdvfs/detail/tune/streams.hpp>
