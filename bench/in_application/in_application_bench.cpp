// SPDX-License-Identifier: MIT
// A GPT-3-XL iteration that sweeps itself while it runs, on the simulated GPUs: what its plan saves
// in truth beside the plan from an isolated sweep, and what the sweep cost the run.
#include <bench/in_application/in_application_case.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace kdvfs::tune;

void compare(const std::string& board, double max_slowdown) {
    SweepOptions options;
    options.objective = relaxed_waste(max_slowdown);
    const InApplicationComparison found = compare_in_application(board, options, 0.01, 5);
    std::printf("%-12s %5.0f %% %+12.3f %+9.3f %+12.3f %+9.3f %+10.3f\n", board.c_str(),
                100 * max_slowdown, time_percent(found.isolated, found.baseline),
                energy_percent(found.isolated, found.baseline),
                time_percent(found.application, found.baseline),
                energy_percent(found.application, found.baseline), found.promised_energy_pct);
    std::printf("    %s; %llu iterations, slowed by %+.2f %% in truth, %llu blocks dropped\n",
                to_string(found.progress).c_str(),
                static_cast<unsigned long long>(found.progress.iterations), found.slowdown_pct,
                static_cast<unsigned long long>(found.progress.blocks_dropped));
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> boards{argv + 1, argv + argc};
    if (boards.empty()) boards = {"mi300x", "mi250x", "mi210", "h100", "rtx_3080_ti"};
    std::printf(
        "All simulated. Isolated: the full grid, 1 %% noise, 5 samples a point. In the "
        "application: "
        "the board's own counter, read every 10 ms, and its own switching latency; the run may be "
        "slowed by 5 %%.\n%-12s %7s %22s %22s %10s\n%-12s %7s %12s %9s %12s %9s %10s\n",
        "", "plan's", "isolated", "in the application", "", "", "bound", "time %", "energy %",
        "time %", "energy %", "promised");
    for (const std::string& board : boards)
        for (const double max_slowdown : {0.01, 0.1}) compare(board, max_slowdown);
}
