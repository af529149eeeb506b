// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/segments.hpp>

#include <kdvfs/detail/tune/segments.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::tune {

namespace detail {

/// An iteration on several streams, cut where nothing runs: within a stretch one clock holds, and
/// its time is that of the longest chain of launches in it. A launch begins when all those have
/// ended that had ended before it in the recording, and what lay between them has passed. Orders
/// that the program does not need are kept, too, so that no plan is promised too short a time.
class OverlapStretches {
public:
    OverlapStretches(const CostTable& table, std::span<const StreamLaunch> launches)
        : table_{table}, launches_{launches} {
        check();
        find_main();
        cut();
    }

    /// One past the last launch of each.
    [[nodiscard]] const std::vector<std::size_t>& ends() const { return ends_; }
    /// Of the stream that has the most work, those that a plan is followed by.
    [[nodiscard]] const std::vector<std::size_t>& main() const { return main_; }

    /// A kernel for each stretch, at the clocks that all launches have.
    [[nodiscard]] CostTable costs(const std::function<Watts(ClockPoint)>& idle_power) const {
        std::vector<std::size_t> kernels;
        for (const StreamLaunch& launch : launches_) kernels.push_back(launch.kernel);
        CostTable stretches{table_.gpu, table_.baseline, {}};
        std::size_t begin = 0;
        for (const std::size_t end : ends_) {
            KernelCosts costs;
            costs.key.name = "stretch " + std::to_string(stretches.kernels.size());
            for (const ClockPoint clock : shared_clocks(table_, kernels)) {
                const Seconds rest = rests_[stretches.kernels.size()];
                const Seconds time = rest + longest_chain(begin, end, clock, 0);
                const Seconds late = longest_chain(begin, end, clock, 1) + rest - time;
                Joules energy = idle_power ? idle_power(clock) * rest : Joules{};
                for (std::size_t i = begin; i < end; ++i) energy += cost(i, clock, 0).energy;
                if (clock == table_.baseline) costs.baseline = costs.points.size();
                costs.points.push_back({clock, {time, energy}});
                costs.time_errors.push_back(late / time);
            }
            stretches.kernels.push_back(std::move(costs));
            begin = end;
        }
        return stretches;
    }

private:
    void check() const {
        const auto reject = [](std::size_t launch, const char* why, const char* remedy) {
            throw Error{
                Errc::invalid_input,
                {"plan for several streams", "launch " + std::to_string(launch + 1), why, remedy}};
        };
        if (launches_.empty()) reject(0, "there is none", "record an iteration");
        std::map<std::uint32_t, Seconds> ended;
        for (std::size_t i = 0; i < launches_.size(); ++i) {
            const StreamLaunch& launch = launches_[i];
            if (launch.kernel >= table_.kernels.size())
                reject(i, "its kernel is not in the profile", "profile what is planned");
            if (!(launch.end > launch.start) || !(launch.start >= Seconds{0}))
                reject(i, "it does not end after it begins", "give times since one moment");
            if (i > 0 && launch.start < launches_[i - 1].start)
                reject(i, "it begins before the launch in front of it", "sort by begin");
            if (launch.start < ended[launch.stream])
                reject(i, "its stream is still at the launch before it", "give each its stream");
            ended[launch.stream] = launch.end;
        }
    }

    void find_main() {
        std::map<std::uint32_t, Seconds> busy;
        for (const StreamLaunch& launch : launches_)
            busy[launch.stream] += launch.end - launch.start;
        const auto most =
            std::max_element(busy.begin(), busy.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
        for (std::size_t i = 0; i < launches_.size(); ++i)
            if (launches_[i].stream == most->first) main_.push_back(i);
    }

    /// A stretch ends where nothing runs and both sides have launches of the main stream.
    void cut() {
        Seconds ended{0};
        bool has_main = false;
        std::size_t after_main = 0;  // stretches before the last launch of the main stream
        for (std::size_t i = 0; i < launches_.size(); ++i) {
            if (i == 0 || (launches_[i].start >= ended && has_main)) {
                if (i > 0) ends_.push_back(i);
                rests_.push_back(launches_[i].start - ended);
                has_main = false;
            }
            has_main = has_main || launches_[i].stream == launches_[main_.front()].stream;
            if (has_main) after_main = ends_.size();
            ended = std::max(ended, launches_[i].end);
        }
        ends_.resize(after_main);
        ends_.push_back(launches_.size());
    }

    [[nodiscard]] Cost cost(std::size_t launch, ClockPoint clock, double deviations) const {
        const KernelCosts& kernel = table_.kernels[launches_[launch].kernel];
        return kernel.launch(point_index(kernel, clock), deviations);
    }

    /// @param deviations by which all launches are slower
    [[nodiscard]] Seconds longest_chain(std::size_t begin, std::size_t end, ClockPoint clock,
                                        double deviations) const {
        std::vector<Seconds> finished(end - begin);
        std::vector<std::size_t> by_end(end - begin);
        for (std::size_t i = begin; i < end; ++i) by_end[i - begin] = i;
        std::sort(by_end.begin(), by_end.end(), [&](std::size_t a, std::size_t b) {
            return launches_[a].end < launches_[b].end;
        });
        auto next = by_end.begin();
        Seconds before = launches_[begin].start;  // the last end in the recording
        Seconds ready{0};                         // the last of the same launches here
        Seconds last{0};
        for (std::size_t j = begin; j < end; ++j) {
            const StreamLaunch& launch = launches_[j];
            for (; next != by_end.end() && launches_[*next].end <= launch.start; ++next) {
                before = launches_[*next].end;
                ready = std::max(ready, finished[*next - begin]);
            }
            const KernelCosts& kernel = table_.kernels[launch.kernel];
            const double slower =
                cost(j, clock, deviations).time / kernel.launch(kernel.baseline).time;
            finished[j - begin] =
                ready + (launch.start - before) + (launch.end - launch.start) * slower;
            last = std::max(last, finished[j - begin]);
        }
        return last;
    }

    const CostTable& table_;
    std::span<const StreamLaunch> launches_;
    std::vector<std::size_t> main_;
    std::vector<std::size_t> ends_;
    std::vector<Seconds> rests_;  // before each stretch, in which nothing runs
};

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::vector<StreamLaunch> stream_launches(const CostTable& table,
                                                       const LaunchSequence& recorded) {
    if (recorded.runs.size() != recorded.launches.size())
        throw Error{Errc::invalid_input,
                    {"plan for several streams", "the launches", "their times are not known",
                     "give the columns stream, start_s and end_s"}};
    const std::vector<std::size_t> kernels = launch_indices(table, recorded.launches);
    std::vector<StreamLaunch> launches;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        const LaunchSequence::Run& run = recorded.runs[i];
        launches.push_back({kernels[i], run.stream, run.start, run.end});
    }
    return launches;
}

KDVFS_INLINE SegmentPlan plan_segments(const CostTable& table,
                                       std::span<const StreamLaunch> launches,
                                       const SwitchCosts& costs, const Objective& objective,
                                       const std::function<Watts(ClockPoint)>& idle_power,
                                       const SegmentOptions& options) {
    const detail::OverlapStretches stretches{table, launches};
    const CostTable by_stretch = stretches.costs(idle_power);
    std::vector<std::size_t> all(by_stretch.kernels.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    SegmentPlan plan = plan_segments(by_stretch, all, costs, objective, options);
    std::vector<std::size_t> followed;  // kernels of the main stream
    for (const std::size_t i : stretches.main()) followed.push_back(launches[i].kernel);
    // By stretch, then one more: how many launches of the main stream come before it.
    std::vector<std::size_t> first{0};
    for (const std::size_t end : stretches.ends())
        first.push_back(static_cast<std::size_t>(
            std::lower_bound(stretches.main().begin(), stretches.main().end(), end) -
            stretches.main().begin()));
    for (Segment& segment : plan.segments) {
        segment.first = first[segment.first];
        segment.last = first[segment.last];
        segment.arrives_in = first[segment.arrives_in];
    }
    plan.sequence = detail::to_sequence(plan, table, followed);
    return plan;
}

#endif

}  // namespace kdvfs::inline v0_3::tune
