// SPDX-License-Identifier: MIT
//
// limit_beds [BOARD... | drawn SEED | size]
// Plans at the power limit, followed live: the GPT-3-XL iteration on simulated boards whose limiter
// averages. Kernels are measured in bursts on the same board; a marker takes 2 us and one iteration
// in 16 is metered. "Bound" is what no plan of these clocks can save at that latency, by the model;
// "kept" is the run that follows the plan against the run without.
// `drawn`: 40 programs, boards, limiters and latencies drawn from ranges; those whose promise is
// off by over 0.3 points, or that are over 0.1 % slower than as found, are marked.
// `size`: what planning 10^4 launches at 60 clocks takes of a core.
#include <bench/limit/limited_program.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <exception>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace limited;

void judge(const std::string& name) {
    const gpt3::Case found = *gpt3::find_case(name);
    const simulated::Board board = averaging(found.board);
    const auto clocks = core_clocks(board, 110);
    const tune::CostTable table = measure_bursts(board, found.kernels, clocks);
    const auto sequence = gpt3::launch_sequence();
    const std::vector<std::size_t> launches{sequence.begin(), sequence.end()};
    for (const double milliseconds : {0.0, 1.0, 10.0}) {
        const auto latency = std::chrono::round<Duration>(Seconds{1e-3 * milliseconds});
        const tune::Cost as_found = run_live(board, found.kernels, launches, {}, latency);
        for (const auto goal : {tune::LimitGoal::least_time, tune::LimitGoal::least_energy}) {
            tune::SwitchCosts costs = tune::uniform_switch_costs(Seconds{latency});
            costs.asking = 2 * marker_time;
            costs.paused_power = simulated::idle_power(board, {});
            const auto began = std::chrono::steady_clock::now();
            const tune::LimitedPlan plan =
                tune::plan_at_limit(table, launches, costs, limiter_of(board), {.goal = goal});
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
            const tune::Cost kept =
                run_live(board, found.kernels, launches, plan.segments.segments, latency);
            const bool by_time = goal == tune::LimitGoal::least_time;
            std::printf(
                "%-7s %4.0f ms  least %-6s  bound %+.2f %%, promised %+.2f %% time %+.2f %% energy "
                "(%+.2f to %+.2f), kept %+.2f %% time %+.2f %% energy; %zu segments, as found "
                "%.1f ms at %.0f W; %.1f s\n",
                name.c_str(), milliseconds, by_time ? "time" : "energy", plan.bound_pct,
                plan.segments.time_pct(), plan.segments.energy_pct(),
                by_time ? plan.if_lower.time_pct : plan.if_lower.energy_pct,
                by_time ? plan.if_higher.time_pct : plan.if_higher.energy_pct,
                tune::time_percent(kept, as_found), tune::energy_percent(kept, as_found),
                plan.segments.segments.size(), 1e3 * as_found.time.count(),
                as_found.energy.count / as_found.time.count(), took.count());
            std::fflush(stdout);
        }
    }
}

/// How far the promise was off and how much slower than as found the plan was, in percent.
struct Kept {
    double off = 0;
    double slower = 0;
};

Kept judge_drawn(std::mt19937_64& random) {
    const auto between = [&](double low, double high) {
        return std::uniform_real_distribution{low, high}(random);
    };
    const auto spread = [&](double low, double high) {
        return low * std::pow(high / low, between(0, 1));
    };
    const std::array<const char*, 5> names{"h100", "mi250x", "mi210", "mi300x", "a100_sxm"};
    const char* name = names[random() % names.size()];
    simulated::Board board = gpt3::find_case(name)->board;
    board.limiter_rate = spread(2, 40);
    const Seconds latency{std::array{0.0, 1e-3, 1e-2}[random() % 3]};
    const double limit = board.power_cap.count;
    std::vector<simulated::KernelModel> kernels(2 + random() % 12);
    for (simulated::KernelModel& kernel : kernels) {
        const double seconds = spread(5e-5, 2e-2);
        kernel = {Seconds{seconds * spread(0.15, 1)},
                  Seconds{seconds * spread(0.15, 1)},
                  Seconds{3e-6},
                  between(2, 8),
                  {between(0.1, 0.75) * limit * seconds},
                  {0.12 * limit * seconds}};
    }
    std::vector<std::size_t> launches;
    for (std::size_t most = 5 + random() % 195; launches.size() < most;)
        launches.insert(launches.end(), 1 + random() % 6, random() % kernels.size());
    const tune::CostTable table = measure_bursts(board, kernels, core_clocks(board, 40));
    tune::SwitchCosts costs = tune::uniform_switch_costs(latency);
    costs.asking = 2 * marker_time;
    costs.paused_power = simulated::idle_power(board, {});
    const Duration late = std::chrono::round<Duration>(latency);
    const tune::Cost as_found = run_live(board, kernels, launches, {}, late);
    Kept worst;
    for (const auto goal : {tune::LimitGoal::least_time, tune::LimitGoal::least_energy}) {
        const tune::LimitedPlan plan =
            tune::plan_at_limit(table, launches, costs, limiter_of(board), {.goal = goal});
        const tune::Cost run = run_live(board, kernels, launches, plan.segments.segments, late);
        const double time = tune::time_percent(run, as_found);
        const double energy = tune::energy_percent(run, as_found);
        const bool by_time = goal == tune::LimitGoal::least_time;
        const double off = std::abs(by_time ? time - plan.segments.time_pct()
                                            : energy - plan.segments.energy_pct());
        std::printf(
            "%s %-8s rate %4.1f /s, %4.1f ms, %3zu launches%s: least %-6s bound %+.2f, promised "
            "%+.2f / %+.2f, kept %+.2f / %+.2f %%\n",
            off > 0.3 || time > 0.1 ? "**" : "  ", name, board.limiter_rate, 1e3 * latency.count(),
            launches.size(), plan.at_limit ? "" : ", below its limit", by_time ? "time" : "energy",
            plan.bound_pct, plan.segments.time_pct(), plan.segments.energy_pct(), time, energy);
        worst = {std::max(worst.off, off), std::max(worst.slower, time)};
    }
    return worst;
}

void judge_drawn_programs(unsigned seed) {
    std::mt19937_64 random{seed};
    Kept worst;
    for (int i = 0; i < 40; ++i) {
        const Kept kept = judge_drawn(random);
        worst = {std::max(worst.off, kept.off), std::max(worst.slower, kept.slower)};
    }
    std::printf("worst promise off by %.2f points, slowest %+.3f %%\n", worst.off, worst.slower);
}

/// CPU seconds of plans for 10^4 launches of twelve kernels at 60 clocks.
void judge_size() {
    std::mt19937_64 random{1};
    const simulated::Board board = averaging(gpt3::find_case("h100")->board);
    std::vector<simulated::KernelModel> kernels(12);
    for (simulated::KernelModel& kernel : kernels) {
        const double seconds = std::pow(10.0, std::uniform_real_distribution{-4.3, -2.0}(random));
        const double bound = std::uniform_real_distribution{0.2, 1.0}(random);
        kernel = {Seconds{seconds * bound},
                  Seconds{seconds * (1.2 - bound)},
                  Seconds{3e-6},
                  4,
                  {std::uniform_real_distribution{0.2, 0.75}(random)*700 * seconds},
                  {80 * seconds}};
    }
    std::vector<std::size_t> launches(10'000);
    for (std::size_t& launch : launches) launch = random() % kernels.size();
    const auto clocks = core_clocks(board, 60);
    const tune::CostTable table = measure_bursts(board, kernels, clocks);
    for (const double latency : {0.0, 1e-3, 1e-2})
        for (const auto goal : {tune::LimitGoal::least_time, tune::LimitGoal::least_energy}) {
            tune::SwitchCosts costs = tune::uniform_switch_costs(Seconds{latency});
            costs.asking = 2 * marker_time;
            const std::clock_t began = std::clock();
            const tune::LimitedPlan plan =
                tune::plan_at_limit(table, launches, costs, limiter_of(board), {.goal = goal});
            std::printf(
                "%zu launches, %zu clocks, %2.0f ms, least %-6s %.1f s of CPU, %zu segments, "
                "bound %+.2f %%, promised %+.2f %% time %+.2f %% energy%s\n",
                launches.size(), clocks.size(), 1e3 * latency,
                goal == tune::LimitGoal::least_time ? "time" : "energy",
                static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC,
                plan.segments.segments.size(), plan.bound_pct, plan.segments.time_pct(),
                plan.segments.energy_pct(), plan.at_limit ? "" : ", below its limit");
            std::fflush(stdout);
        }
}

}  // namespace

int main(int argc, char** argv) try {
    std::vector<std::string> boards{argv + 1, argv + argc};
    if (boards.size() == 2 && boards.front() == "drawn") {
        judge_drawn_programs(static_cast<unsigned>(std::stoul(boards.back())));
        return 0;
    }
    if (boards.size() == 1 && boards.front() == "size") {
        judge_size();
        return 0;
    }
    if (boards.empty()) boards = {"h100", "mi250x", "mi210", "mi300x"};
    for (const std::string& board : boards) judge(board);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "limit_beds: %s\n", error.what());
    return 1;
}
