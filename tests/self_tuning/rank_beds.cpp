// SPDX-License-Identifier: MIT
//
// rank_beds [SEEDS [RANKS...]]: jobs of equal programs on simulated boards that wait for each other
// tune themselves together, in virtual time. Prints when each followed its first plan and how long
// each phase before took, beside a job of one rank, and what was saved.
#include <tests/self_tuning/rank_bed.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

using namespace self_tuning_bed;
using Kind = tune::SessionMode::Kind;

namespace {

/// "warm-up 9.7 s, explore 137.3 s, plan 1.0 s"
std::string phases_of(const RankBed::Course& run) {
    std::string text;
    for (std::size_t i = 0; i + 1 < run.phases.size() && run.phases[i + 1].second <= run.planned;
         ++i) {
        char part[64];
        std::snprintf(part, sizeof part, "%s%s %.1f s", i > 0 ? ", " : "",
                      std::string{to_string(run.phases[i].first)}.c_str(),
                      run.phases[i + 1].second - run.phases[i].second);
        text += part;
    }
    return text;
}

/// Processor seconds of rank 0 in kdvfs, of an iteration: the mean of those that began from then
/// on.
double cost_since(const RankBed::Course& run, double seconds) {
    double sum = 0;
    std::size_t count = 0;
    for (std::size_t i = 1; i < run.leading.size(); ++i) {
        if (run.passed[i - 1] < seconds) continue;
        sum += run.leading[i] + run.entering[i];
        ++count;
    }
    return count > 0 ? sum / static_cast<double>(count) : 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2;
    std::vector<std::uint32_t> sizes;
    for (int i = 2; i < argc; ++i)
        sizes.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
    if (sizes.empty()) sizes = {8};
    std::map<std::uint32_t, std::vector<double>> shares;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const simulated::Board board = seed % 2 == 0 ? simulated::mi210() : simulated::mi250x();
        const Program program = draw_program(board, seed);
        double alone = 0;
        std::vector<std::uint32_t> all{1};
        all.insert(all.end(), sizes.begin(), sizes.end());
        for (const std::uint32_t ranks : all) {
            RankBed::Options options;
            options.ranks = ranks;
            options.seed = seed;
            const RankBed bed{board, options};
            const RankBed::Course run = bed.run(program, Kind::tune, 1'000'000,
                                                Seconds{ranks > 64  ? 120.0
                                                        : ranks > 8 ? 400.0
                                                                    : 3600.0});
            const RankBed::Course twin =
                bed.run(program, Kind::off, run.passed.size(), Seconds{1e9});
            if (ranks == 1) {
                alone = run.planned;
                const RankBed::Course measured =
                    bed.run(program, Kind::measure, 1000, Seconds{1e9});
                const double more = cost_since(run, run.planned + 60) - cost_since(measured, 60);
                const double each = run.passed.back() / static_cast<double>(run.passed.size());
                std::printf(
                    "simulated %s, program %ju, on the host: an iteration that follows costs "
                    "%.1f us more than one that is only measured, %.5f %% of its %.2f s\n",
                    board.name.c_str(), static_cast<std::uintmax_t>(seed), 1e6 * more,
                    100 * more / each, each);
            }
            shares[ranks].push_back(run.planned / alone);
            std::printf(
                "simulated %s, program %ju, %u ranks: first plan after %.0f s (%.3f of one "
                "rank's; %s), saved %.2f %%, lost %.1f s; %s\n",
                board.name.c_str(), static_cast<std::uintmax_t>(seed), ranks, run.planned,
                run.planned / alone, phases_of(run).c_str(),
                100 * (1 - run.energy.back() / twin.energy.back()),
                run.passed.back() - twin.passed.back(), to_string(run.savings[0]).c_str());
            const double steps = run.passed.back();
            double leading = 0;
            for (const double seconds : run.leading) leading += seconds;
            std::printf(
                "  on the host, ranks' texts in memory: rank 0 takes %.4f %% of a step "
                "(%.1f ms at most), each other rank %.5f %%\n",
                100 * leading / steps,
                1e3 * *std::max_element(run.leading.begin(), run.leading.end()),
                ranks > 1 ? 100 * run.obeying / (ranks - 1) / steps : 0.0);
            std::fflush(stdout);
        }
    }
    for (auto& [ranks, of_one] : shares) {
        std::sort(of_one.begin(), of_one.end());
        std::printf(
            "simulated, %u ranks: time to plan %.3f of one rank's in the median of %zu "
            "programs (%.3f to %.3f)\n",
            ranks, of_one[of_one.size() / 2], of_one.size(), of_one.front(), of_one.back());
    }
    return 0;
}
