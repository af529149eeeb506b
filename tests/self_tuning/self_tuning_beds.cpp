// SPDX-License-Identifier: MIT
//
// self_tuning_beds [SEEDS [HOURS [FILE]]]: programs drawn from ranges tune themselves on simulated
// boards, in virtual time. Prints what each saved beside the oracle's plan, and what it lost beside
// a twin with the same noise; exits with 1 where a bound is broken. FILE gets what the first of
// them said of itself, minute by minute, as CSV: docs/draw_run.py draws it.
#include <tests/self_tuning/self_tuning_bed.hpp>

#include <cstdio>
#include <cstdlib>

using namespace self_tuning_bed;
using namespace std::chrono_literals;
using Kind = tune::SessionMode::Kind;

namespace {

void write_minutes(const char* file, const Course& run, const Course& twin) {
    std::FILE* const out = std::fopen(file, "w");
    if (out == nullptr) return;
    std::fprintf(out, "passed_s,saved_j,saved_low_j,saved_high_j,true_j,lost_s,budget_s,phase\n");
    std::size_t i = 0;
    for (const tune::Saving& saving : run.minutes) {
        while (i + 1 < run.passed.size() && run.passed[i] < saving.passed.count()) ++i;
        std::fprintf(out, "%.1f,%.1f,%.1f,%.1f,%.1f,%.3f,%.3f,%s\n", saving.passed.count(),
                     saving.saved.count, saving.saved_low.count, saving.saved_high.count,
                     twin.energy[i] - run.energy[i], saving.lost.count(), saving.budget.count(),
                     std::string{to_string(saving.phase)}.c_str());
    }
    std::fclose(out);
}

}  // namespace

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
        if (argc > 3 && seed == 1) write_minutes(argv[3], run, twin);
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
