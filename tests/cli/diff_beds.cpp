// SPDX-License-Identifier: MIT
// How often `kdvfs diff` raises a false alarm between two runs of the same program, and how often
// it finds a change: pairs of runs of 60 s of simulated work, 20 kernels at once in a step, under a
// counter of 1 ms. Exit status 1 where a bound is missed. Argument: the number of pairs (200).
#include <kdvfs/measure/report_files.hpp>
#include <tests/measure/metered_work.hpp>
#include <tools/cli/report_diff.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace kdvfs;
using namespace kdvfs::measure;

constexpr std::size_t kernels = 20;

struct Program {
    double watts = 1;   ///< of kernel 7, in what it draws before
    double length = 1;  ///< of kernel 3
};

/// @param seed of the run; kernels are those of `program_seed`
cli::DiffItems run(const Program& program, std::uint64_t program_seed, std::uint64_t seed) {
    std::mt19937_64 random{program_seed};
    const auto uniform = [&](double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random);
    };
    std::vector<double> watts;
    std::vector<double> lengths;
    for (std::size_t k = 0; k < kernels; ++k) {
        watts.push_back(uniform(250, 680));
        lengths.push_back(uniform(2e-3, 4e-3));
    }
    watts[7] *= program.watts;
    lengths[3] *= program.length;
    random.seed(seed);
    KernelTable table;
    std::vector<KernelId> ids;
    for (std::uint32_t k = 0; k < kernels; ++k) ids.push_back(table.id("kernel", {k + 1}));
    EnergyAccumulator accumulator{table, {.counter_period = std::chrono::milliseconds{1}}};
    MeteredWork work{accumulator, {.power_noise = 0.01}, seed};
    std::normal_distribution<double> normal;
    while (work.now() < std::chrono::seconds{60}) {
        accumulator.iteration(TimePoint{work.now()}, IterationMark::begins);
        for (std::size_t k = 0; k < kernels; ++k) {
            const double length = lengths[k] * (1 + 0.01 * normal(random));
            work.run(ids[k], std::chrono::duration_cast<Duration>(Seconds{length}),
                     watts[k] * (1 + 0.03 * normal(random)));
        }
        work.idle(std::chrono::microseconds{800});
    }
    Report report;
    accumulator.fill(report);
    std::stringstream text;
    write_json(text, report);
    return cli::diff_items(nlohmann::json::parse(text.str()), "a run");
}

bool finds(const cli::ReportDiff& diff, const char* name, bool energy) {
    for (const cli::DiffLine& line : diff.lines) {
        if (line.name != name) continue;
        const auto& change = energy ? line.energy : line.time;
        return change && change->more_than(0);
    }
    return false;
}

bool judge(const char* what, int count, int pairs, double least, double most) {
    const double share = 100.0 * count / pairs;
    // Few pairs move the share by chance: three standard errors.
    const double spare = 300 * std::sqrt(0.05 * 0.95 / pairs);
    const bool good = share >= least - spare && share <= most + spare;
    std::printf("%-52s %5.1f %%%s\n", what, share, good ? "" : "  MISSED");
    return good;
}

}  // namespace

int main(int argc, char** argv) {
    const int pairs = argc > 1 ? std::atoi(argv[1]) : 200;
    if (pairs < 1) {
        std::fprintf(stderr, "usage: %s [PAIRS]\n", argv[0]);
        return 2;
    }
    int alarms = 0;
    int dearer = 0;
    int slower = 0;
    for (int i = 0; i < pairs; ++i) {
        const auto seed = static_cast<std::uint64_t>(i);
        const cli::DiffItems before = run({}, seed, 1000 + 3 * seed);
        const auto same = cli::diff_reports(before, run({}, seed, 1001 + 3 * seed), 0);
        bool differs = false;
        for (const cli::DiffLine& line : same.lines) {
            for (const auto& change : {line.time, line.energy}) {
                differs = differs || (change && (change->more_than(0) || change->less_than(0)));
            }
        }
        alarms += differs ? 1 : 0;
        const auto other = cli::diff_reports(
            before, run({.watts = 1.03, .length = 1.01}, seed, 1002 + 3 * seed), 0);
        dearer += finds(other, "kernel#8", true) ? 1 : 0;
        slower += finds(other, "kernel#4", false) ? 1 : 0;
    }
    std::printf("%d pairs of runs of 60 s, 20 kernels\n", pairs);
    bool good = judge("false alarms, any difference", alarms, pairs, 0, 5);
    good = judge("found: 3 % more energy of one kernel in 20", dearer, pairs, 95, 100) && good;
    good = judge("found: 1 % more time of one kernel", slower, pairs, 95, 100) && good;
    return good ? 0 : 1;
}
