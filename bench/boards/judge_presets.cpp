// SPDX-License-Identifier: MIT
//
// judge_presets [FOLDER]
// Holds the presets of simulated boards against published points: FOLDER has amd_published.csv,
// nvidia_published.csv and energaizer/idle_and_voltage.csv.
#include <bench/boards/single_points.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

namespace {

using namespace board_fit;
namespace simulated = kdvfs::simulated;

void print(const char* board, const char* what, const char* how, const Errors& errors, bool rms,
           double wanted_pct) {
    std::printf("| %s | %s | %s | %zu | %.1f%s | %.1f | %.1f |\n", board, what, how,
                errors.pct.size(), rms ? errors.rms() : errors.mean(), rms ? " rms" : "",
                errors.worst(), wanted_pct);
}

void print(const char* board, const char* what, const char* how, const PointErrors& errors) {
    print(board, (std::string{what} + ", watts").c_str(), how, errors.watts, false, 6);
    print(board, (std::string{what} + ", relative time").c_str(), how, errors.time, false, 5);
    print(board, (std::string{what} + ", relative energy").c_str(), how, errors.energy, false, 5);
}

void judge_all(const std::filesystem::path& folder) {
    const auto amd = read_published((folder / "amd_published.csv").string());
    const auto nvidia = read_published((folder / "nvidia_published.csv").string());
    const std::string idle = (folder / "energaizer/idle_and_voltage.csv").string();
    std::printf(
        "Errors of simulated boards, %% of published values. Held out: not fitted.\n\n"
        "| board | what | how | points | mean | worst | wanted |\n|---|---|---|---|---|---|---|\n");
    const char* fitted = "fitted";
    print("A100 PCIe 40GB", "idle watts by clock", fitted,
          idle_by_clock(idle, "a100_pcie40", simulated::a100_pcie40()), true, 1.2);
    print("A100 SXM 80GB", "idle watts by clock", fitted,
          idle_by_clock(idle, "a100_sxm80", simulated::a100_sxm80()), true, 1.2);
    print("H100 SXM", "idle watts by clock", fitted,
          idle_by_clock(idle, "h100_sxm", simulated::h100()), true, 2);
    print("H100", "DGEMM, energy per FLOP by clock", "held out, 3 clocks fitted",
          h100_dgemm(nvidia), false, 5);
    print("H100", "LLM training by power limit, throughput", "held out, 400 W fitted",
          h100_training(nvidia, "Llama-3-8B continued"), false, 6);
    print("H100", "ViT training by power limit, throughput", "held out, 400 W fitted",
          h100_training(nvidia, "ViT-L/16 training"), false, 6);
    print("MI355X", "BF16 GEMM by clock", "held out by board", Mi355xGemm{amd}.judge());
    print("MI355X", "BF16 GEMM, clock held under a limit", "held out by board",
          Mi355xGemm{amd}.judge_held_clocks(), false, 5);
    print("MI325X", "GEMMs by limits", "held out by GEMM", Mi325xGemm{amd}.judge());
    const char* by_full = "known by all CUs busy";
    print("MI325X", "busy CUs, watts", by_full, busy_cus(amd, simulated::mi325x(), "MI325X"), false,
          10);
    print("MI300X", "busy CUs, watts", by_full, busy_cus(amd, simulated::mi300x(), "MI300X"), false,
          10);
    const std::pair<const char*, simulated::Board> boards[]{{"MI355X", simulated::mi355x()},
                                                            {"MI325X", simulated::mi325x()},
                                                            {"MI300X", simulated::mi300x()},
                                                            {"MI250X", simulated::mi250x()}};
    for (const auto& [name, board] : boards)
        print(name, "idle watts, single points", fitted, idle_points(amd, board, name), false, 10);
    const Errors mi210 = idle_points(amd, simulated::mi210(), "MI210");
    std::printf(
        "| MI210 | idle watts, single points | assumption: %.1f to %.1f of the preset | %zu | "
        "holds "
        "%.0f %% | | 90 %% |\n",
        mi210_idle.low, mi210_idle.high, mi210.pct.size(), mi210_idle.holds_pct(mi210));
    const std::vector<double> gemm = Mi355xGemm{amd}.fit("");
    const std::vector<double> gemms = Mi325xGemm{amd}.fit("");
    std::printf(
        "\nFitted to all points: MI355X knee %.0f MHz, %.3f of the lowest volts at 2400 MHz, %.3f "
        "pJ\nper FLOP; MI325X %.3f of the lowest volts at 2100 MHz.\n",
        gemm[0], gemm[1], gemm[2], gemms[0]);
}

}  // namespace

int main(int argc, char** argv) try {
    const std::filesystem::path folder = argc > 1 ? argv[1] : "../shared/data";
    if (!std::filesystem::exists(folder / "amd_published.csv")) {
        std::printf("%s has no published points: skipped\n", folder.c_str());
        return 77;
    }
    judge_all(folder);
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "judge_presets: %s\n", error.what());
    return 1;
}
