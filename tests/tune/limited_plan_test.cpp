// SPDX-License-Identifier: MIT
// Plans at a power limit of the mean: against all plans there are, and followed live on a simulated
// board that averages.
#include <bench/limit/limited_program.hpp>
#include <kdvfs/tune/limited_plan.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <random>
#include <vector>

namespace kdvfs::tune {
namespace {

using simulated::Board;
using simulated::KernelModel;

/// Of the time that a plan of least energy may take; runs by hand scatter by a tenth of it.
constexpr double slack = 2e-3;

/// Programs of a few kernels, none like the other; each a hundredth to some tens of milliseconds.
struct MadeUpProgram {
    std::vector<KernelModel> kernels;
    CostTable table;
    std::vector<std::size_t> launches;
};

MadeUpProgram made_up(const Board& board, std::size_t kernels,
                      const std::vector<ClockPoint>& clocks, std::mt19937_64& random) {
    const auto between = [&](double low, double high) {
        return low * std::pow(high / low, std::uniform_real_distribution{0.0, 1.0}(random));
    };
    Board unlimited = board;
    unlimited.power_cap = {1e6};
    MadeUpProgram program{{}, {board.name, {}, {}}, {}};
    for (std::size_t k = 0; k < kernels; ++k) {
        const double seconds = between(3e-4, 1e-2);
        const double hungry = std::uniform_real_distribution{0.2, 1.4}(random);
        program.kernels.push_back({Seconds{seconds * between(0.2, 1)},
                                   Seconds{seconds * between(0.2, 1)},
                                   Seconds{3e-6},
                                   6,
                                   {hungry * 0.35 * board.power_cap.count * seconds},
                                   {0.1 * board.power_cap.count * seconds}});
        KernelCosts costs;
        costs.key.name = "kernel" + std::to_string(k);
        for (const ClockPoint clock : clocks) {
            const auto run = operate(unlimited, program.kernels[k], clock);
            if (clock == program.table.baseline) costs.baseline = costs.points.size();
            costs.points.push_back({clock, {run.time, run.power * run.time}});
        }
        program.table.kernels.push_back(std::move(costs));
        program.launches.push_back(k);
    }
    return program;
}

/// The program at these clocks for a second and a half, the last tenth of it counted: kernel by
/// kernel on the board's physics, the ceiling moved every 100 us by the law as it is written down.
/// What draws a little over the limit is held back after most of a second only.
Cost run_by_hand(const Board& board, const MadeUpProgram& program,
                 const std::vector<ClockPoint>& clocks) {
    double ceiling = board.core_max.count;
    Cost sum;
    int laps = 0;
    for (Seconds passed{0}; passed < Seconds{1.5};) {
        const bool counts = passed > Seconds{1.35};
        laps += counts ? 1 : 0;
        for (const std::size_t launch : program.launches) {
            for (double left = 1; left > 1e-9;) {
                const auto run =
                    operate_below(board, program.kernels[launch], clocks[launch], ceiling);
                const Seconds time = std::min(left * run.time, Seconds{1e-4});
                left -= time / run.time;
                ceiling +=
                    ceiling * 11 * (1 - run.power.count / board.power_cap.count) * time.count();
                ceiling = std::min<double>(ceiling, board.core_max.count);
                passed += time;
                if (counts) sum += {time, run.power * time};
            }
        }
    }
    return sum * (1.0 / laps);
}

/// The best of all plans with a few clocks.
double best_by_hand(const Board& board, const MadeUpProgram& program,
                    const std::vector<ClockPoint>& clocks, LimitGoal goal, const Cost& found) {
    std::vector<ClockPoint> chosen(program.launches.size());
    std::vector<std::size_t> digits(chosen.size());
    double best = 1e9;
    for (bool more = true; more;) {
        for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = clocks[digits[i]];
        const Cost cost = run_by_hand(board, program, chosen);
        const bool in_time = goal == LimitGoal::least_time || cost.time <= found.time * (1 + slack);
        if (in_time)
            best = std::min(best, goal == LimitGoal::least_time ? time_percent(cost, found)
                                                                : energy_percent(cost, found));
        more = false;
        for (std::size_t i = 0; i < digits.size() && !more; ++i) {
            more = ++digits[i] < clocks.size();
            if (!more) digits[i] = 0;
        }
    }
    return best;
}

TEST(LimitedPlan, IsAsGoodAsAllPlansOfSomeClocks) {
    const Board board = limited::averaging(simulated::h100());
    const std::vector<ClockPoint> clocks = limited::core_clocks(board, 55);
    const std::vector<ClockPoint> few = limited::core_clocks(board, 5);
    std::mt19937_64 random{7};
    int at_limit = 0;
    for (int i = 0; i < 4; ++i) {
        const MadeUpProgram program = made_up(board, 3, clocks, random);
        const Cost found = run_by_hand(board, program, {3, ClockPoint{}});
        for (const LimitGoal goal : {LimitGoal::least_time, LimitGoal::least_energy}) {
            const LimitedPlan plan =
                plan_at_limit(program.table, program.launches, uniform_switch_costs(Seconds{0}),
                              limited::limiter_of(board), {.goal = goal, .max_slowdown = slack});
            at_limit += plan.at_limit ? 1 : 0;
            std::vector<ClockPoint> chosen(3, plan.segments.segments.front().clock);
            for (const Segment& segment : plan.segments.segments)
                for (std::size_t l = segment.first; l < segment.last; ++l)
                    chosen[l] = segment.clock;
            const Cost kept = run_by_hand(board, program, chosen);
            const bool by_time = goal == LimitGoal::least_time;
            const double saved = by_time ? time_percent(kept, found) : energy_percent(kept, found);
            const double best = best_by_hand(board, program, few, goal, found);
            EXPECT_LE(saved, best + 0.05) << i << (by_time ? " time" : " energy");
            EXPECT_LE(time_percent(kept, found), 100 * slack + 0.02) << i;
            std::printf("program %d, least %s: %+.2f %%, best of all plans of 6 clocks %+.2f %%\n",
                        i, by_time ? "time" : "energy", saved, best);
        }
    }
    EXPECT_GE(at_limit, 4) << "programs that the limit holds back are what this is about";
}

TEST(LimitedPlan, KeepsLiveWhatItPromises) {
    const gpt3::Case found = *gpt3::find_case("h100");
    const Board board = limited::averaging(found.board);
    const CostTable table =
        limited::measure_bursts(board, found.kernels, limited::core_clocks(board, 28));
    const auto sequence = gpt3::launch_sequence();
    const std::vector<std::size_t> launches{sequence.begin(), sequence.end()};
    SwitchCosts costs = uniform_switch_costs(Seconds{1e-3});
    costs.asking = 2 * limited::marker_time;
    costs.paused_power = simulated::idle_power(board, {});
    const LimitedPlan plan = plan_at_limit(table, launches, costs, limited::limiter_of(board), {});
    EXPECT_TRUE(plan.at_limit);
    const auto live = [&](const std::vector<Segment>& segments) {
        return limited::run_live(board, found.kernels, launches, segments,
                                 std::chrono::milliseconds{1});
    };
    const Cost as_found = live({});
    const Cost kept = live(plan.segments.segments);
    std::printf(
        "simulated H100 at its limit, 1 ms: bound %+.2f, promised %+.2f, kept %+.2f %% time\n",
        plan.bound_pct, plan.segments.time_pct(), time_percent(kept, as_found));
    EXPECT_NEAR(time_percent(kept, as_found), plan.segments.time_pct(), 0.3);
    EXPECT_LT(plan.segments.time_pct(), 0.8 * plan.bound_pct);
    EXPECT_GE(plan.segments.time_pct(), plan.bound_pct);
}

/// Runs of 20 ms to 2 s with rests between them on boards whose limiter is drawn: means over about
/// 10 to 500 ms. Only clocks and times are seen.
TEST(FitLimiter, FindsTheRateFromClocksAndTimes) {
    std::mt19937_64 random{11};
    const auto between = [&](double low, double high) {
        return low * std::pow(high / low, std::uniform_real_distribution{0.0, 1.0}(random));
    };
    double worst = 0;
    for (int i = 0; i < 8; ++i) {
        Board board = simulated::h100();
        board.limiter_rate = between(0.8, 40);
        const KernelModel gemm{
            Seconds{1e-3}, {}, {}, 6, {between(0.5, 0.8) * board.power_cap.count * 1e-3}, {}};
        const std::vector<PowerByClock> kernels{
            [&](double mhz) { return operate_below(board, gemm, {}, mhz).power; }};
        const PowerByClock idle = [&](double) { return idle_power(board, {}); };
        simulated::Device device = limited::device_of(board, Duration{0});
        simulated::Stream* stream = device.create_stream();
        std::vector<LimitedRun> runs;
        for (int run = 0; run < 30; ++run) {
            const Seconds rest{between(1e-3, 0.3)};
            device.advance(std::chrono::round<Duration>(rest));
            const TimePoint began = device.now();
            const auto launches = static_cast<int>(between(20, 2000));
            for (int launch = 0; launch < launches; ++launch) device.launch(stream, gemm);
            device.synchronize(stream);
            const Seconds time = device.now() - began;
            runs.push_back(
                {0, rest, time, board.reference_core.count * 1e-3 * launches / time.count()});
        }
        device::PowerLimiter known = limited::limiter_of(board);
        known.rate = 0;
        const device::PowerLimiter found =
            fit_limiter(kernels, idle, runs, known, [](const LimitedRun&) { return true; });
        EXPECT_NEAR(found.rate / board.limiter_rate, 1, 0.1) << board.limiter_rate;
        const std::vector<double> clocks = clocks_at_limit(kernels, idle, runs, found);
        for (std::size_t run = 0; run < runs.size(); ++run)
            EXPECT_NEAR(clocks[run] / runs[run].mhz, 1, 0.02) << board.limiter_rate;
        // A mix that was not run before, with a second kernel: its time on the board, and by the
        // limiter that was found.
        const KernelModel other{
            Seconds{1e-3}, {}, {}, 6, {between(0.2, 0.5) * board.power_cap.count * 1e-3}, {}};
        const auto is_other = [&](int launch) { return (launch / 40) % 3 == 1; };
        constexpr int launches = 4000;
        device.advance(std::chrono::seconds{3});
        const TimePoint began = device.now();
        for (int launch = 0; launch < launches; ++launch)
            device.launch(stream, is_other(launch) ? other : gemm);
        device.synchronize(stream);
        device::ClockCeiling ceiling{found};
        Seconds foretold{0};
        for (int launch = 0; launch < launches; ++launch) {
            const auto point =
                operate_below(board, is_other(launch) ? other : gemm, {}, ceiling.mhz());
            ceiling.pass(found, point.power, point.time);
            foretold += point.time;
        }
        worst = std::max(worst, std::abs(foretold / Seconds{device.now() - began} - 1));
    }
    std::printf("limiters of 8 drawn boards: unseen mixes take what is foretold within %.2f %%\n",
                100 * worst);
    EXPECT_LT(worst, 0.01);
    EXPECT_THROW(static_cast<void>(fit_limiter({}, {}, {}, {}, {})), Error);
}

TEST(LimitedPlan, SaysWhereTheLimitHoldsNothingBack) {
    Board board = limited::averaging(simulated::h100());
    std::mt19937_64 random{1};
    const auto clocks = limited::core_clocks(board, 7);
    const MadeUpProgram program = made_up(board, 3, clocks, random);
    device::PowerLimiter limiter = limited::limiter_of(board);
    limiter.limit = {2000};
    const LimitedPlan plan = plan_at_limit(program.table, program.launches,
                                           uniform_switch_costs(Seconds{0}), limiter, {});
    EXPECT_FALSE(plan.at_limit);
    EXPECT_EQ(plan.segments.expected.time, plan.segments.baseline.time);
    limiter.limit = {0};
    EXPECT_THROW(static_cast<void>(plan_at_limit(program.table, program.launches, {}, limiter, {})),
                 Error);
}

}  // namespace
}  // namespace kdvfs::tune
