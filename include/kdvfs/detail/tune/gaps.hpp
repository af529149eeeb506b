// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/segments.hpp>

#include <kdvfs/detail/solve/switch_model.hpp>
#include <kdvfs/detail/tune/csv_fields.hpp>
#include <kdvfs/detail/tune/segments.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <istream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

namespace detail {

/// A sequence in which gaps are positions of their own, and launches that the host waits out are
/// one with the gap behind them.
class GapPositions {
public:
    /// One position: where it begins, as a plan says it.
    struct Position {
        std::size_t kernel = 0;        ///< of `table`
        std::size_t launch = 0;        ///< the first of it, or the one behind the gap
        std::optional<Seconds> after;  ///< a gap: since the launch before it has ended
    };

    /// @param bursts in front of a gap that the host ends, all launches since the gap before it are
    ///               one position; else as many as wait at every clock
    GapPositions(const CostTable& table, const ProgramLaunches& program, const SwitchCosts& costs,
                 const GapModel& gaps, bool bursts)
        : source_{table}, program_{program}, gaps_{gaps}, table_{table}, bursts_{bursts} {
        clocks_ = shared_clocks(table, program.launches);
        for (const ClockPoint from : clocks_)
            for (const ClockPoint to : clocks_)
                lead_ = std::max(lead_, costs.delay(from, to).latency);
        find_waits();
        lay_out();
    }

    [[nodiscard]] const CostTable& table() const { return table_; }
    [[nodiscard]] const std::vector<Position>& positions() const { return positions_; }
    [[nodiscard]] std::vector<std::size_t> kernels() const {
        std::vector<std::size_t> kernels;
        for (const Position& position : positions_) kernels.push_back(position.kernel);
        return kernels;
    }
    /// How long before its nominal end a launch ends at a clock, in front of a gap that the host
    /// ends.
    [[nodiscard]] Seconds waits(std::size_t launch, ClockPoint clock) const {
        const Wait& wait = waits_[launch];
        Seconds time{0};
        for (std::size_t i = wait.first; i <= launch; ++i) time += at(i, clock).time;
        return wait.until > Seconds{0} ? std::max(wait.until - time, Seconds{0}) : Seconds{0};
    }

private:
    /// Of the launches that end with one: from `first` on they and what the host waits take no less
    /// than `until`.
    struct Wait {
        std::size_t first = 0;
        Seconds until{0};
    };

    [[nodiscard]] Seconds gap(std::size_t i) const {
        return i < program_.gaps.size() ? program_.gaps[i] : Seconds{0};
    }
    [[nodiscard]] Cost at(std::size_t launch, ClockPoint clock) const {
        const KernelCosts& kernel = source_.kernels[program_.launches[launch]];
        return kernel.points[point_index(kernel, clock)].cost;
    }
    [[nodiscard]] Seconds longest(std::size_t launch) const {
        Seconds time{0};
        for (const ClockPoint clock : clocks_) time = std::max(time, at(launch, clock).time);
        return time;
    }

    void find_waits() {
        const std::size_t launches = program_.launches.size();
        rest_.resize(launches);
        waits_.resize(launches);
        for (std::size_t i = 0; i < launches; ++i) {
            rest_[i] = gap(i);
            if (i >= gaps_.host_bound.size() || !gaps_.host_bound[i]) continue;
            const std::size_t last = (i + launches - 1) % launches;
            std::size_t first = last;
            Seconds slower = longest(last) - at(last, source_.baseline).time;
            Seconds whole = at(last, source_.baseline).time;
            while (first > 0 && gap(first) <= tiny && waits_[first - 1].until == Seconds{0}) {
                const Seconds base = at(first - 1, source_.baseline).time;
                const Seconds more = longest(first - 1) - base;
                if (!bursts_ && slower + more > gap(i)) break;
                slower += more;
                whole += base;
                --first;
            }
            const Seconds absorbed = std::min(slower, gap(i));
            waits_[last] = {first, whole + absorbed};
            rest_[i] = gap(i) - absorbed;
        }
    }

    void lay_out() {
        const std::size_t launches = program_.launches.size();
        std::vector<std::size_t> ends(launches);  // by first launch: one past the last
        for (std::size_t i = 0; i < launches; ++i) ends[i] = i + 1;
        for (std::size_t last = 0; last < launches; ++last)
            if (waits_[last].until > Seconds{0}) ends[waits_[last].first] = last + 1;
        std::vector<std::size_t> begins;
        for (std::size_t i = 0; i < launches; i = ends[i]) begins.push_back(i);
        const auto is_place = [&](std::size_t i) { return rest_[i] > gaps_.shortest; };
        // What is asked for in a launch arrives in a gap behind it only if the sequence does not
        // end between them: it ends with the longest gap, but for the part that is for raising.
        const auto longest_gap =
            std::max_element(begins.begin(), begins.end(),
                             [&](std::size_t a, std::size_t b) { return rest_[a] < rest_[b]; });
        std::rotate(begins.begin(), longest_gap, begins.end());
        const std::size_t first = begins.front();
        for (const std::size_t i : begins) {
            if (is_place(i)) add_gap(i, rest_[i], i != first, true);
            lay_launches(i, ends[i], is_place(i) ? Seconds{0} : rest_[i]);
        }
        if (is_place(first)) add_gap(first, rest_[first], true, false);
    }

    void lay_launches(std::size_t first, std::size_t end, Seconds before) {
        const Seconds until = waits_[end - 1].until;
        if (before == Seconds{0} && until == Seconds{0})
            positions_.push_back({program_.launches[first], first, {}});
        else
            add_launches(first, end, before, until);
    }

    /// The end of a gap, as long as a switch takes, is a position by itself: what is asked for
    /// there is in time.
    void add_gap(std::size_t launch, Seconds length, bool with_begin, bool with_end) {
        const Seconds needed = lead_ + gaps_.margin;
        const Seconds lead = length > needed ? needed : Seconds{0};
        if (with_begin) add(launch, length - lead, Seconds{0});
        if (with_end && lead > Seconds{0}) add(launch, lead, length - lead);
    }
    void add(std::size_t launch, Seconds length, Seconds after) {
        const auto [known, is_new] = by_length_.try_emplace(length, table_.kernels.size());
        if (is_new) {
            KernelCosts costs;
            costs.key.name = "gap of " + std::to_string(length.count()) + " s";
            for (const ClockPoint clock : clocks_)
                add_point(costs, clock, {length, gaps_.idle_power(clock) * length}, Seconds{0});
            table_.kernels.push_back(std::move(costs));
        }
        positions_.push_back({known->second, launch, after});
    }

    void add_launches(std::size_t first, std::size_t end, Seconds before, Seconds until) {
        KernelCosts costs;
        costs.key.name = "launch " + std::to_string(first);
        for (const ClockPoint clock : clocks_) {
            Cost cost{};
            Seconds deviation{0};
            for (std::size_t i = first; i < end; ++i) {
                const KernelCosts& kernel = source_.kernels[program_.launches[i]];
                const std::size_t p = point_index(kernel, clock);
                cost += kernel.points[p].cost;
                deviation += kernel.time_deviation(p);
                if (i == first) continue;
                cost.time += gap(i);
                cost.energy += gaps_.idle_power(clock) * gap(i);
            }
            const Seconds idle = before + std::max(until - cost.time, Seconds{0});
            cost.time += idle;
            cost.energy += gaps_.idle_power(clock) * idle;
            add_point(costs, clock, cost, deviation);
        }
        positions_.push_back({table_.kernels.size(), first, {}});
        table_.kernels.push_back(std::move(costs));
    }

    void add_point(KernelCosts& costs, ClockPoint clock, const Cost& cost,
                   Seconds deviation) const {
        if (clock == table_.baseline) costs.baseline = costs.points.size();
        costs.points.push_back({clock, cost});
        costs.time_errors.push_back(deviation / cost.time);
    }

    /// Between two launches of a burst, at most.
    static constexpr Seconds tiny{20e-6};

    const CostTable& source_;
    const ProgramLaunches& program_;
    const GapModel& gaps_;
    CostTable table_;
    std::vector<ClockPoint> clocks_;
    std::vector<Seconds> rest_;  // of each launch's gap, beyond what launches before it take of it
    std::vector<Wait> waits_;    // by last launch
    std::vector<Position> positions_;
    std::map<Seconds, std::size_t> by_length_;
    Seconds lead_{0};
    bool bursts_;
};

/// The clocks of a plan over positions, as launches and gaps say them, in the program's order.
inline void place_segments(SegmentPlan& plan, const GapPositions& gaps, const CostTable& table,
                           const std::vector<std::size_t>& launches) {
    const std::vector<GapPositions::Position>& positions = gaps.positions();
    if (plan.segments.size() == 1) {
        plan.segments.front().last = launches.size();
        plan.sequence = to_sequence(plan, table, launches);
        return;
    }
    ClockPoint clock = plan.segments.back().clock;  // the iteration repeats
    for (Segment& segment : plan.segments) {
        const GapPositions::Position& begin = positions[segment.first];
        segment.after = begin.after;
        if (begin.after > Seconds{0}) {
            const std::size_t before = (begin.launch + launches.size() - 1) % launches.size();
            *segment.after += gaps.waits(before, clock);
        }
        segment.arrives_in = positions[segment.arrives_in].launch;
        segment.first = begin.launch;
        clock = segment.clock;
    }
    constexpr Seconds launch_comes{std::numeric_limits<double>::infinity()};
    std::sort(plan.segments.begin(), plan.segments.end(), [&](const Segment& a, const Segment& b) {
        return std::pair{a.first, a.after.value_or(launch_comes)} <
               std::pair{b.first, b.after.value_or(launch_comes)};
    });
    if (const Segment& first = plan.segments.front(); first.first > 0)
        plan.segments.insert(plan.segments.begin(),
                             {0, first.first, 0, Seconds{0}, plan.segments.back().clock, {}, {}});
    for (std::size_t s = 0; s < plan.segments.size(); ++s)
        plan.segments[s].last =
            s + 1 < plan.segments.size() ? plan.segments[s + 1].first : launches.size();
    plan.sequence = to_sequence(plan, table, launches);
}

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::function<Watts(ClockPoint)> read_idle_power(std::istream& input,
                                                              const std::string& name) {
    using ByCore = std::map<Megahertz, double>;
    io::CsvReader reader{input, name};
    detail::NamedColumns columns{reader, {"core_mhz", "idle_w"}};
    auto known = std::make_shared<std::map<Megahertz, ByCore>>();
    while (columns.next()) {
        const auto clock = [&](const char* column) {
            return detail::parse_clock_field(columns.get(column), column, reader);
        };
        const auto watts = detail::parse_field<double>(columns.get("idle_w"), "idle_w", reader);
        if (!(watts >= 0 && watts <= 1e5)) reader.fail("idle_w is no power");
        const Megahertz memory = columns.has("mem_mhz") ? clock("mem_mhz") : auto_clock;
        if (!(*known)[memory].emplace(clock("core_mhz"), watts).second)
            reader.fail("this clock is there twice");
    }
    if (known->empty()) reader.fail("there are no clocks");
    return [known](ClockPoint clock) {
        auto cores = known->find(clock.memory);
        if (cores == known->end()) cores = known->find(auto_clock);
        if (cores == known->end()) cores = std::prev(known->end());
        const ByCore& by_core = cores->second;
        const auto above = by_core.lower_bound(clock.core);
        const bool is_known = above != by_core.end() && above->first == clock.core;
        if (above == by_core.end() || (clock.core == auto_clock && !is_known))
            return Watts{std::prev(by_core.end())->second};
        if (is_known || above == by_core.begin()) return Watts{above->second};
        const auto below = std::prev(above);
        if (below->first == auto_clock) return Watts{above->second};
        const double share = static_cast<double>(clock.core.count - below->first.count) /
                             static_cast<double>(above->first.count - below->first.count);
        return Watts{below->second + share * (above->second - below->second)};
    };
}

KDVFS_INLINE std::vector<bool> host_bound_gaps(const std::vector<Seconds>& fast,
                                               const std::vector<Seconds>& slow,
                                               const std::vector<Seconds>& slower) {
    const std::size_t launches = fast.size();
    if (slow.size() != launches || slower.size() != launches)
        throw Error{Errc::invalid_input,
                    {"compare two recordings", "of " + std::to_string(launches) + " launches",
                     "they are not of the same iteration", "record both with the same program"}};
    std::vector<bool> bound(launches, false);
    const auto ends = [&](std::size_t i, Seconds longer) {
        const Seconds shrunk = fast[i] - slow[i];
        const Seconds expected = std::min(longer, fast[i]);
        return longer > Seconds{0} && shrunk > 0.5 * expected;
    };
    Seconds longer{0};  // launches since the last gap that the host ended
    for (std::size_t step = 0; step < 2 * launches; ++step) {  // the first round finds where
        const std::size_t i = step % launches;
        bound[i] = ends(i, longer);
        if (bound[i]) longer = Seconds{0};
        longer += slower[i];
    }
    return bound;
}

KDVFS_INLINE SegmentPlan plan_segments(const CostTable& table, const ProgramLaunches& program,
                                       const SwitchCosts& costs, const Objective& objective,
                                       const GapModel& gaps, const SegmentOptions& options) {
    SwitchCosts without_gaps = costs;
    without_gaps.gaps.clear();
    const auto plan_for = [&](bool bursts) {
        const detail::GapPositions positions{table, program, costs, gaps, bursts};
        SegmentPlan plan =
            plan_segments(positions.table(), positions.kernels(), without_gaps, objective, options);
        detail::place_segments(plan, positions, table, program.launches);
        return plan;
    };
    SegmentPlan plan = plan_for(false);
    if (std::find(gaps.host_bound.begin(), gaps.host_bound.end(), true) != gaps.host_bound.end()) {
        SegmentPlan by_bursts = plan_for(true);
        if (objective.score(by_bursts.expected, plan.baseline) <
            objective.score(plan.expected, plan.baseline))
            plan = std::move(by_bursts);
    }
    for (const KernelKey& key : program.unplanned) plan.sequence.kernels.push_back({key, {}});
    return plan;
}

#endif

}  // namespace kdvfs::inline v0_3::tune
