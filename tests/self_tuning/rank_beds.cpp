// SPDX-License-Identifier: MIT
//
// rank_beds [SEEDS [RANKS...]]: jobs of equal programs on simulated boards that wait for each other
// tune themselves together, in virtual time. Prints when each followed its first plan, beside a job
// of one rank, and what was saved; exits with 1 where a bound is broken.
#include <tests/self_tuning/rank_bed.hpp>

#include <cstdio>
#include <cstdlib>

using namespace self_tuning_bed;
using Kind = tune::SessionMode::Kind;

int main(int argc, char** argv) {
    const std::uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2;
    std::vector<std::uint32_t> sizes;
    for (int i = 2; i < argc; ++i)
        sizes.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
    if (sizes.empty()) sizes = {8};
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
            const RankBed::Course run =
                bed.run(program, Kind::tune, 1'000'000, Seconds{ranks > 8 ? 400.0 : 3600.0});
            const RankBed::Course twin =
                bed.run(program, Kind::off, run.passed.size(), Seconds{1e9});
            if (ranks == 1) alone = run.planned;
            std::printf(
                "simulated %s, program %ju, %u ranks: first plan after %.0f s (%.3f of one "
                "rank's), saved %.2f %%, lost %.1f s; %s\n",
                board.name.c_str(), static_cast<std::uintmax_t>(seed), ranks, run.planned,
                run.planned / alone, 100 * (1 - run.energy.back() / twin.energy.back()),
                run.passed.back() - twin.passed.back(), to_string(run.savings[0]).c_str());
            std::fflush(stdout);
        }
    }
    return 0;
}
