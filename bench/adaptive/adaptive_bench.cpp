// SPDX-License-Identifier: MIT
// What an adaptive sweep of at most a quarter of the grid leads to, beside the full grid: validated
// on the simulated GPUs' own truth, and on a replayed sweep file given as argument.
#include <bench/adaptive/adaptive_case.hpp>

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) {
    using namespace kdvfs::tune;
    std::vector<std::string> devices{"sim:rtx_3080_ti", "sim:mi210", "sim:mi250x", "sim:mi300x",
                                     "sim:h100"};
    if (argc > 1) devices.push_back(std::string{"replay:"} + argv[1]);
    std::printf(
        "1 %% slowdown tolerated; simulated measurements: 1 %% noise, 5 samples a point\n"
        "%-28s %22s %22s %8s\n",
        "", "grid: time %, energy %", "adaptive", "share");
    for (const std::string& device : devices) {
        const bool simulated = device.starts_with("sim:");
        const AdaptiveComparison found =
            compare_adaptive(device, relaxed_waste(0.01), simulated ? 0.01 : 0, simulated ? 5 : 1);
        const std::string name =
            device.size() > 28 ? "..." + device.substr(device.size() - 25) : device;
        std::printf("%-28s %+11.3f %+10.3f %+11.3f %+10.3f %7.1f%%\n", name.c_str(),
                    found.grid_time_pct, found.grid_energy_pct, found.adaptive_time_pct,
                    found.adaptive_energy_pct, 100 * found.share);
    }
}
