// SPDX-License-Identifier: MIT
//
// few_clocks FOLDER [PROGRAMS]
// What plans without a sweep keep and save: programs of 5 to 20 kernels on boards that were swept
// (FOLDER holds the sweeps) and on simulated ones. Plans are made from the row as found and up to
// three more clock points, and judged by the whole sweep. The laws that predict hold no measurement
// of any board.
#include <bench/boards/few_clock_plans.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <vector>

namespace {

using namespace savings;

std::vector<Sweep> all_beds(const std::filesystem::path& folder) {
    constexpr auto all = MemoryClocks::all;
    constexpr auto one = MemoryClocks::as_found;
    std::vector<Sweep> beds{read_grid(folder / "titanx_real.csv", "Titan X", 250, one),
                            read_grid(folder / "titanx_real.csv", "Titan X", 250, all),
                            read_sweep(folder / "energaizer/a100_pcie40_prefill.csv", "A100", 250),
                            read_sweep(folder / "a800_qwen3_layers.csv", "A800", 400),
                            simulated_sweep("rtx_3080_ti", "RTX 3080 Ti, fitted", one),
                            simulated_sweep("rtx_3080_ti", "RTX 3080 Ti, fitted", all)};
    for (const char* preset :
         {"a100", "a100_sxm", "h100", "mi210", "mi250x", "mi300x", "mi325x", "mi355x"})
        beds.push_back(simulated_sweep(preset, "simulated", all));
    return beds;
}

void print_row(const Sweep& bed, std::size_t points, double bound, const FewClockScore& score) {
    bool memory = false;
    for (const kdvfs::ClockPoint clock : bed.clocks)
        memory = memory || clock.memory != bed.as_found.memory;
    std::printf(
        "%-42s %-6s %zu  %.0f %%   %3.0f %%  %6.2f %%   %5.2f %5.2f   %3.0f %%   %3.0f %%\n",
        bed.board.c_str(), memory ? "both" : "core", points, bound, score.kept_pct(),
        score.worst_time_pct, score.saved_pct / score.programs, score.swept_pct / score.programs,
        score.part_pct(), score.promised_pct());
}

}  // namespace

int main(int argc, char** argv) try {
    const std::filesystem::path folder = argc > 1 ? argv[1] : "../shared/data";
    const int programs = argc > 2 ? std::atoi(argv[2]) : 40;
    if (!std::filesystem::exists(folder / "titanx_real.csv")) {
        std::printf("%s has no sweeps: skipped\n", folder.c_str());
        return 77;
    }
    std::printf(
        "board                                      clocks points     kept  worst time   saved "
        "swept"
        "   part  promise kept\n");
    FewClockScore none, real, simulated;
    for (const Sweep& bed : all_beds(folder))
        for (const std::size_t points : {0, 1, 3})
            for (const double bound : {1.0, 5.0}) {
                const FewClockScore score = judge_few_clocks(bed, points, bound, programs);
                print_row(bed, points, bound, score);
                if (points == 0) none += score;
                if (points == 3) (bed.group == "simulated" ? simulated : real) += score;
            }
    std::printf("as found alone: kept in %.0f %%\n", none.kept_pct());
    std::printf("three points, swept boards: kept in %.0f %%, %.0f %% of the swept saving\n",
                real.kept_pct(), real.part_pct());
    std::printf("three points, simulated boards: kept in %.0f %%, %.0f %% of the swept saving\n",
                simulated.kept_pct(), simulated.part_pct());
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "few_clocks: %s\n", error.what());
    return 1;
}
