// SPDX-License-Identifier: MIT
//
// limit_beds [BOARD...]
// Plans at the power limit, followed live: the GPT-3-XL iteration on simulated boards whose limiter
// averages. Kernels are measured in bursts on the same board; a marker takes 2 us and one iteration
// in 16 is metered. "Bound" is what no plan of these clocks can save at that latency, by the model;
// "kept" is the run that follows the plan against the run without.
#include <bench/limit/limited_program.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
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

}  // namespace

int main(int argc, char** argv) try {
    std::vector<std::string> boards{argv + 1, argv + argc};
    if (boards.empty()) boards = {"h100", "mi250x", "mi210", "mi300x"};
    for (const std::string& board : boards) judge(board);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "limit_beds: %s\n", error.what());
    return 1;
}
