// SPDX-License-Identifier: MIT
//
// self_tuning_beds [SEEDS [HOURS]]: programs drawn from ranges tune themselves on simulated boards,
// in virtual time. Prints what each saved beside the oracle's plan, and what it lost beside a twin
// with the same noise; exits with 1 where a bound is broken.
#include <tests/self_tuning/self_tuning_bed.hpp>

#include <cstdio>
#include <cstdlib>

using namespace self_tuning_bed;
using namespace std::chrono_literals;
using Kind = tune::SessionMode::Kind;

int main(int argc, char** argv) {
    const std::uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2;
    const double hours = argc > 2 ? std::atof(argv[2]) : 4;
    const Seconds longest{hours * 3600};
    std::vector<double> shares;
    double worst = 0;
    bool failed = false;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const Bed bed{seed % 2 == 0 ? simulated::mi210() : simulated::mi250x(), 10ms, seed};
        const Program program = draw_program(bed.board(), seed);
        const Bed::Oracle oracle = bed.oracle(program);
        const Course run = bed.run(program, Kind::tune, 1'000'000, longest);
        const Course twin = bed.run(program, Kind::off, run.passed.size(), Seconds{1e9});
        const Judged judged = judge(run, twin);
        if (oracle.saved > 0.01) shares.push_back(judged.saved / oracle.saved);
        worst = std::max(worst, judged.beyond);
        failed = failed || judged.beyond_allowed > 0;
        std::printf(
            "simulated %s, program %ju: %zu iterations, saved %.2f %% of energy (oracle %.2f %% at "
            "%.2f %% slowdown), lost %.1f s, at most %.2f s beyond the budget; %s\n",
            bed.board().name.c_str(), static_cast<std::uintmax_t>(seed), run.passed.size(),
            100 * judged.saved, 100 * oracle.saved, 100 * oracle.slower, judged.lost, judged.beyond,
            to_string(*run.saving).c_str());
        std::fflush(stdout);
    }
    std::sort(shares.begin(), shares.end());
    if (!shares.empty())
        std::printf(
            "simulated: %.0f %% of the oracle's saving in the median over %.1f h, "
            "exploration included; at most %.2f s lost beyond the budget\n",
            100 * shares[shares.size() / 2], hours, worst);
    return failed ? 1 : 0;
}
