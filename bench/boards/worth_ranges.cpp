// SPDX-License-Identifier: MIT
//
// worth_ranges FOLDER [PROGRAMS] [table]
// What `kdvfs worth` can tell from the watts as found alone: programs of 5 to 20 kernels on Titan X
// and A100 as measured (FOLDER holds titanx_real.csv and energaizer/a100_pcie40_prefill.csv), on
// the fitted RTX 3080 Ti and on simulated boards. Each group of boards is judged by ranges from the
// others: by their quantiles of 85 %, or of 90 or 95 % where those did not hold. A range that held
// in less than 90 % of all or 80 % of a group is not told. `table` prints the constants of
// tools/saving_ranges.hpp, from all groups.
#include <bench/boards/saving_ranges.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace savings;

constexpr const char* names[]{"one clock", "power cap", "by kernel"};

std::vector<LowPointProgram> programs_of(const std::filesystem::path& folder, int each) {
    std::vector<std::vector<Sweep>> groups{
        {read_grid(folder / "titanx_real.csv", "Titan X", 250, MemoryClocks::as_found)},
        {read_sweep(folder / "energaizer/a100_pcie40_prefill.csv", "A100", 250)},
        {simulated_sweep("rtx_3080_ti", "RTX 3080 Ti", MemoryClocks::as_found)},
        {}};
    for (const char* preset : {"mi210", "mi250x", "mi300x", "mi325x", "mi355x", "h100"})
        groups.back().push_back(simulated_sweep(preset, "simulated", MemoryClocks::as_found));
    std::mt19937_64 random{17};
    std::vector<LowPointProgram> programs;
    for (const std::vector<Sweep>& group : groups)
        for (const Sweep& sweep : group)
            for (int i = 0; i < each / static_cast<int>(group.size()); ++i)
                programs.emplace_back(sweep, Mix{sweep, random});
    return programs;
}

struct Judged {
    double quantile = 0;
    Held held;
};

Judged judged_by_others(const std::vector<Program>& programs, std::size_t way, std::size_t bound) {
    Judged judged;
    for (const double quantile : {0.85, 0.9, 0.95}) {
        judged = {quantile, {}};
        for (const std::string& group : groups_of(programs))
            judge(programs, Ranges{programs, group, quantile}, group, way, bound, judged.held);
        if (judged.held.enough()) break;
    }
    return judged;
}

void print_held(const char* way, std::size_t bound, double quantile, const Held& held) {
    std::printf(
        "%-10s %2.0f %% (quantiles of %.2f)  held %3.0f %%, at worst %3.0f %%  median width %4.1f ",
        way, bounds_pct[bound], quantile, 100 * held.all(), 100 * held.worst(),
        held.median_width());
    for (const auto& [group, share] : held.by_group)
        std::printf("  %s %3.0f %%", group.c_str(), 100 * share);
    std::printf(held.enough() ? "\n" : "  (unknown)\n");
}

void print_judgement(const std::vector<Program>& programs, std::size_t way, std::size_t bound) {
    const auto [quantile, held] = judged_by_others(programs, way, bound);
    print_held(names[way], bound, quantile, held);
}
struct JudgedGuesses {
    double tail = 0;
    Held held;
};

/// Ranges for one clock of programs that were also measured at a lower clock.
JudgedGuesses judged_guesses(const std::vector<LowPointProgram>& programs,
                             const std::set<std::string>& groups, std::size_t bound) {
    JudgedGuesses judged;
    for (const double tail : {0.1, 0.05, 0.02, 0.01, 0.0}) {
        judged = {tail, {}};
        for (const std::string& group : groups)
            judge(programs, GuessErrors{programs, group, bound}, tail, group, bound, judged.held);
        if (judged.held.enough()) break;
    }
    return judged;
}

void print_truth(const std::vector<Program>& programs) {
    for (const std::string& group : groups_of(programs))
        for (std::size_t b = 0; b < bounds_pct.size(); ++b) {
            std::vector<double> saved;
            double share = 0;
            for (const Program& program : programs) {
                if (program.group != group) continue;
                saved.push_back(program.saved_pct[0][b]);
                share += program.power_share;
            }
            std::sort(saved.begin(), saved.end());
            const auto at = [&](double part) {
                return saved[static_cast<std::size_t>(part * static_cast<double>(saved.size()))];
            };
            std::printf(
                "%-12s draws %.2f of its limit; one clock at %.0f %% saves %.1f, %.1f, "
                "%.1f %% (5, 50, 95 of 100 programs)\n",
                group.c_str(), share / static_cast<double>(saved.size()), bounds_pct[b], at(0.05),
                at(0.5), at(0.95));
        }
}

void print_table(const std::vector<Program>& programs) {
    for (std::size_t w = 0; w < ways.size(); ++w) {
        std::printf("    {{");
        for (std::size_t b = 0; b < bounds_pct.size(); ++b) {
            std::printf("%s{{", b == 0 ? "" : ",\n      ");
            const Judged judged = judged_by_others(programs, w, b);
            const Ranges all{programs, "", judged.quantile};
            const bool told = judged.held.enough();
            for (int knot = 0; told && knot <= 6; ++knot)
                std::printf("%s%.1f", knot == 0 ? "" : ", ", all.high(0.4 + 0.1 * knot, w, b));
            std::printf("}}");
        }
        std::printf("}},  // %s\n", names[w]);
    }
}

}  // namespace

int main(int argc, char** argv) try {
    const std::filesystem::path folder = argc > 1 ? argv[1] : "../shared/data";
    const int each = argc > 2 ? std::atoi(argv[2]) : 400;
    if (!std::filesystem::exists(folder / "titanx_real.csv")) {
        std::printf("%s has no sweeps: skipped\n", folder.c_str());
        return 77;
    }
    const std::vector<LowPointProgram> low = programs_of(folder, each);
    std::vector<Program> programs;
    for (const LowPointProgram& one : low) programs.push_back(one.program);
    if (argc > 3) {
        print_table(programs);
        for (std::size_t b = 0; b < bounds_pct.size(); ++b) {
            const auto [tail, held] = judged_guesses(low, groups_of(programs), b);
            const auto [below, above] = GuessErrors{low, "", b}.range(tail);
            std::printf("guesses at %.0f %%: {{%.1f, %.1f}}%s\n", bounds_pct[b], below, above,
                        held.enough() ? "" : " (unknown)");
        }
        return 0;
    }
    print_truth(programs);
    for (std::size_t w = 0; w < ways.size(); ++w)
        for (std::size_t b = 0; b < bounds_pct.size(); ++b) print_judgement(programs, w, b);
    for (std::size_t b = 0; b < bounds_pct.size(); ++b) {
        const auto [tail, held] = judged_guesses(low, groups_of(programs), b);
        std::printf("with a lower clock: ");
        print_held("one clock", b, 1 - 2 * tail, held);
    }
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "worth_ranges: %s\n", error.what());
    return 1;
}
