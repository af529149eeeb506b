// SPDX-License-Identifier: MIT
// Clocks for work on several streams: the critical path against all choices there are, each played
// by a simulation of its own.
#include <kdvfs/tune/segments.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

const std::vector<ClockPoint> stream_clocks{
    {{600}, auto_clock}, {{900}, auto_clock}, {{1500}, auto_clock}};
const ClockPoint stream_top = stream_clocks.back();

/// @param bound by the core clock, from none (0) to all of the time (1)
KernelCosts kernel_with(const std::string& name, double seconds, double watts, double bound) {
    KernelCosts kernel;
    kernel.key.name = name;
    for (const ClockPoint clock : stream_clocks) {
        const double ratio = static_cast<double>(clock.core.count) / stream_top.core.count;
        const double time = seconds * (1 - bound + bound / ratio);
        kernel.points.push_back(
            {clock, {Seconds{time}, Joules{time * watts * std::pow(ratio, 1.8)}}});
    }
    kernel.baseline = stream_clocks.size() - 1;
    return kernel;
}

/// Plays an iteration: each launch waits for all that had ended before it began in the recording,
/// and for what passed since the last of them, or since its stretch began.
/// @param clock_of each launch
Cost play(const CostTable& table, const std::vector<StreamLaunch>& launches,
          const std::vector<std::size_t>& stretch, const std::vector<std::size_t>& clock_of) {
    std::vector<double> end(launches.size());
    double last_end = 0;       // of all stretches before
    double recorded_last = 0;  // likewise in the recording
    Cost cost{};
    for (std::size_t j = 0; j < launches.size(); ++j) {
        const bool begins = j == 0 || stretch[j] != stretch[j - 1];
        if (begins)
            for (std::size_t i = 0; i < j; ++i) {
                last_end = std::max(last_end, end[i]);
                recorded_last = std::max(recorded_last, launches[i].end.count());
            }
        double recorded = recorded_last;
        double ready = last_end;
        std::size_t head = j;
        while (head > 0 && stretch[head - 1] == stretch[j]) --head;
        if (head < j) {  // its stretch begins with another
            recorded = launches[head].start.count();
            ready = end[head] -
                    (launches[head].end - launches[head].start).count() *
                        (table.kernels[launches[head].kernel].points[clock_of[head]].cost.time /
                         table.kernels[launches[head].kernel].points.back().cost.time);
        }
        for (std::size_t i = head; i < j; ++i)
            if (launches[i].end <= launches[j].start) {
                recorded = std::max(recorded, launches[i].end.count());
                ready = std::max(ready, end[i]);
            }
        const auto& points = table.kernels[launches[j].kernel].points;
        const double slower = points[clock_of[j]].cost.time / points.back().cost.time;
        end[j] = ready + (launches[j].start.count() - recorded) +
                 (launches[j].end - launches[j].start).count() * slower;
        cost.time = std::max(cost.time, Seconds{end[j]});
        cost.energy += points[clock_of[j]].cost.energy;
    }
    return cost;
}

TEST(StreamPlan, WorkThatIsWaitedOutIsSlowerForNothing) {
    // 10 ms of a collective beside 6 ms of compute: 900 MHz takes 10 ms for that.
    const CostTable table{
        "g", stream_top, {kernel_with("gemm", 2e-3, 400, 1), kernel_with("reduce", 10e-3, 90, 0)}};
    const std::vector<StreamLaunch> launches{
        {0, 1, Seconds{0}, Seconds{2e-3}},     {1, 2, Seconds{2e-3}, Seconds{12e-3}},
        {0, 1, Seconds{2e-3}, Seconds{4e-3}},  {0, 1, Seconds{4e-3}, Seconds{6e-3}},
        {0, 1, Seconds{6e-3}, Seconds{8e-3}},  {0, 1, Seconds{12e-3}, Seconds{14e-3}},
        {0, 1, Seconds{14e-3}, Seconds{16e-3}}};
    const SegmentPlan plan = plan_segments(table, launches, uniform_switch_costs(Seconds{0}),
                                           with_max_slowdown(minimum_energy(), 0), {});
    EXPECT_NEAR(plan.baseline.time.count(), 16e-3, 1e-12);
    EXPECT_NEAR(plan.expected.time.count(), 16e-3, 1e-9);
    EXPECT_LT(plan.energy_pct(), -15);
    ASSERT_EQ(plan.sequence.launches.size(), 6U) << "the stream with most work is followed";
    ASSERT_GE(plan.segments.size(), 3U);
    const auto at = [&](std::size_t launch) {
        ClockPoint clock = plan.segments.front().clock;
        for (const Segment& segment : plan.segments)
            if (segment.first <= launch) clock = segment.clock;
        return clock;
    };
    EXPECT_EQ(at(0), stream_top);
    EXPECT_EQ(at(1), stream_clocks[1]);
    EXPECT_EQ(at(3), stream_clocks[1]);
    EXPECT_EQ(at(4), stream_top);
}

/// An iteration drawn at random on two or three streams.
std::vector<StreamLaunch> drawn_launches(const CostTable& table, std::mt19937_64& random) {
    const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<StreamLaunch> launches;
    double now = 0;
    const std::size_t phases = 2 + pick(4);
    for (std::size_t phase = 0; phase < phases; ++phase) {
        now += 1e-4 * static_cast<double>(pick(3));
        double ended = now;
        const std::size_t streams = 1 + pick(3);
        for (std::uint32_t stream = 0; stream < streams; ++stream) {
            double at = now + (stream > 0 ? 2e-4 * static_cast<double>(pick(3)) : 0);
            for (std::size_t n = 1 + pick(4); n > 0; --n) {
                const std::size_t kernel = pick(table.kernels.size());
                const double lasts = table.kernels[kernel].points.back().cost.time.count() *
                                     (1 + 0.2 * static_cast<double>(pick(2)));
                launches.push_back({kernel, stream, Seconds{at}, Seconds{at + lasts}});
                at += lasts + 1e-5 * static_cast<double>(pick(3));
                ended = std::max(ended, launches.back().end.count());
            }
        }
        now = ended;
    }
    std::stable_sort(launches.begin(), launches.end(),
                     [](const auto& a, const auto& b) { return a.start < b.start; });
    return launches;
}

TEST(StreamPlan, IsAsGoodAsAllChoicesOfClocks) {
    std::mt19937_64 random{5};
    std::uniform_real_distribution<double> share{0, 1};
    double gained = 0;
    for (int round = 0; round < 12; ++round) {
        CostTable table{"g", stream_top, {}};
        for (int k = 0; k < 4; ++k)
            table.kernels.push_back(kernel_with("k" + std::to_string(k),
                                                1e-3 * (0.2 + 2 * share(random)),
                                                100 + 400 * share(random), share(random)));
        const std::vector<StreamLaunch> launches = drawn_launches(table, random);
        std::vector<std::size_t> stretch(launches.size(), 0);  // where nothing runs, a new one
        std::vector<double> work(3, 0.0);
        for (const StreamLaunch& launch : launches)
            work[launch.stream] += (launch.end - launch.start).count();
        const auto main =
            static_cast<std::uint32_t>(std::max_element(work.begin(), work.end()) - work.begin());
        const auto has_main = [&](std::size_t begin, std::size_t end) {
            return std::any_of(launches.begin() + static_cast<std::ptrdiff_t>(begin),
                               launches.begin() + static_cast<std::ptrdiff_t>(end),
                               [&](const StreamLaunch& launch) { return launch.stream == main; });
        };
        std::size_t begin = 0;
        for (std::size_t i = 1; i < launches.size(); ++i) {
            bool runs = false;
            for (std::size_t j = 0; j < i; ++j) runs = runs || launches[j].end > launches[i].start;
            const bool cuts = !runs && has_main(begin, i) && has_main(i, launches.size());
            stretch[i] = stretch[i - 1] + (cuts ? 1 : 0);
            if (cuts) begin = i;
        }
        const std::size_t stretches = stretch.back() + 1;
        const double slowdown = 0.1 * share(random);
        const auto clocks_by = [&](std::size_t code) {
            std::vector<std::size_t> of_stretch(stretches);
            for (std::size_t& clock : of_stretch) clock = code % 3, code /= 3;
            std::vector<std::size_t> clocks;
            for (const std::size_t s : stretch) clocks.push_back(of_stretch[s]);
            return clocks;
        };
        std::size_t codes = 1;
        for (std::size_t s = 0; s < stretches; ++s) codes *= 3;
        const Cost as_found = play(table, launches, stretch, clocks_by(codes - 1));
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t code = 0; code < codes; ++code) {
            const Cost cost = play(table, launches, stretch, clocks_by(code));
            if (cost.time <= as_found.time * (1 + slowdown) * (1 + 1e-12))
                least = std::min(least, cost.energy.count);
        }
        const SegmentPlan plan =
            plan_segments(table, launches, uniform_switch_costs(Seconds{0}),
                          with_max_slowdown(minimum_energy(), slowdown), {}, {.worthwhile_pct = 0});
        EXPECT_NEAR(plan.baseline.time / as_found.time, 1, 1e-9);
        EXPECT_LE(plan.expected.time.count(), as_found.time.count() * (1 + slowdown) * (1 + 1e-9));
        EXPECT_NEAR(plan.expected.energy.count / least, 1, 1e-6) << round;
        gained += 1 - least / as_found.energy.count;
    }
    EXPECT_GT(gained / 12, 0.02) << "there is something to choose";
}

TEST(StreamPlan, RefusesLaunchesOutOfOrder) {
    const CostTable table{"g", stream_top, {kernel_with("gemm", 2e-3, 400, 1)}};
    const auto plan = [&](std::vector<StreamLaunch> launches) {
        return plan_segments(table, launches, uniform_switch_costs(Seconds{0}), minimum_energy(),
                             {});
    };
    EXPECT_THROW(plan({}), Error);
    EXPECT_THROW(plan({{1, 0, Seconds{0}, Seconds{1}}}), Error);
    EXPECT_THROW(plan({{0, 0, Seconds{1}, Seconds{1}}}), Error);
    EXPECT_THROW(plan({{0, 0, Seconds{1}, Seconds{2}}, {0, 1, Seconds{0}, Seconds{1}}}), Error);
    EXPECT_THROW(plan({{0, 0, Seconds{0}, Seconds{2}}, {0, 0, Seconds{1}, Seconds{3}}}), Error);
    std::istringstream file{"kernel,stream,start_s,end_s\ngemm,3,0.25,0.5\n"};
    const auto read = stream_launches(table, read_launches(file, "file"));
    ASSERT_EQ(read.size(), 1U);
    EXPECT_EQ(read[0].stream, 3U);
    EXPECT_EQ(read[0].end, Seconds{0.5});
    EXPECT_THROW(stream_launches(table, {{{"gemm", {}}}, {}}), Error) << "no times";
}

}  // namespace
}  // namespace kdvfs::tune
