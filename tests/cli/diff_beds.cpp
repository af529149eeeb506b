// SPDX-License-Identifier: MIT
// How often `kdvfs diff` raises a false alarm between two runs of the same program, and how often
// it finds a change: pairs of runs of 60 s, 20 kernels at once in a fixed step, every iteration
// metered, on simulated boards whose sensor nobody knows and which is the same in both runs. Exit
// status 1 where a bound is missed. Arguments: the number of pairs (100), the first seed (1), and
// the folders of recorded runs of gpt_train, of whose parts as many pairs are compared.
#include <bench/nvidia_round/training_replay.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <tests/sensor_beds/report_bed.hpp>
#include <tools/cli/report_diff.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using sensor_bed::Bed;
using sensor_bed::Run;

cli::DiffItems items(const kdvfs::measure::Report& report) {
    std::stringstream text;
    kdvfs::measure::write_json(text, report);
    return cli::diff_items(nlohmann::json::parse(text.str()), "a run");
}

/// What one run changes against the other, and the line of the diff that is to show it.
struct Case {
    const char* what;
    Run::Change change;
    const char* line;
    bool energy = true;
    bool judged = true;  ///< or shown only
};

bool finds(const cli::ReportDiff& diff, const Case& wanted) {
    for (const cli::DiffLine& line : diff.lines) {
        if (line.name != wanted.line) continue;
        const auto& change = wanted.energy ? line.energy : line.time;
        return change && change->more_than(0);
    }
    return false;
}
bool differs(const cli::ReportDiff& diff) {
    return std::any_of(diff.lines.begin(), diff.lines.end(), [](const cli::DiffLine& line) {
        const auto off = [](const auto& change) {
            return change && (change->more_than(0) || change->less_than(0));
        };
        return off(line.time) || off(line.energy);
    });
}

bool judge(const char* what, int count, int pairs, double least, double most, bool judged = true) {
    const double share = 100.0 * count / std::max(pairs, 1);
    // Few pairs move the share by chance: three standard errors.
    const double spare = 300 * std::sqrt(0.05 * 0.95 / std::max(pairs, 1));
    const bool good = share >= least - spare && share <= most + spare;
    std::printf("    %-48s %5.1f %% of %d%s\n", what, share, pairs,
                good     ? ""
                : judged ? "  MISSED"
                         : "  (short)");
    std::fflush(stdout);
    return good || !judged;
}

bool run(const Bed& bed, const std::vector<Case>& cases, int pairs, std::uint64_t first) {
    int alarms = 0;
    std::vector<int> found(cases.size());
    // What is only shown is worth its time where there are enough pairs for a share.
    const auto asked = [&](const Case& each) { return each.judged || pairs >= 10; };
    for (int i = 0; i < pairs; ++i) {
        const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
        std::uint64_t again = 1000 * seed;
        const auto of = [&](const Run::Change& change) {
            return items(sensor_bed::report(Run{bed, seed, ++again, change}, bed));
        };
        const cli::DiffItems before = of({});
        alarms += differs(cli::diff_reports(before, of({}), 0)) ? 1 : 0;
        for (std::size_t k = 0; k < cases.size(); ++k) {
            if (!asked(cases[k])) continue;
            found[k] += finds(cli::diff_reports(before, of(cases[k].change), 0), cases[k]) ? 1 : 0;
        }
    }
    std::printf("%s\n", bed.name.c_str());
    bool good = judge("false alarms, any difference", alarms, pairs, 0, 5);
    for (std::size_t k = 0; k < cases.size(); ++k) {
        if (!asked(cases[k])) continue;
        good = judge(cases[k].what, found[k], pairs, 95, 100, cases[k].judged) && good;
    }
    return good;
}

/// Parts of a recorded run that do not overlap: what differs is the board and chance.
bool compare_parts(const std::vector<std::string>& folders, int pairs, bool repeated) {
    std::mt19937_64 random{28};
    const auto uniform = [&](double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random);
    };
    std::vector<measuring::RecordedTraining> all;
    for (const std::string& folder : folders) {
        all.push_back(measuring::read_training(folder));
        if (all.back().record.runs.empty()) {
            std::printf("nothing was recorded in %s: left out\n", folder.c_str());
            all.pop_back();
        }
    }
    int alarms = 0;
    int done = 0;
    for (; !all.empty() && done < pairs; ++done) {
        const double middle = uniform(0.35, 0.65);
        const auto part = [&](double from, double to) {
            return items(measuring::replay(all[static_cast<std::size_t>(done) % all.size()],
                                           {.repeated = repeated, .from = from, .to = to}));
        };
        const cli::DiffItems before = part(uniform(0, 0.05), middle);
        alarms += differs(cli::diff_reports(before, part(middle, uniform(0.95, 1)), 0)) ? 1 : 0;
    }
    std::printf("parts of recorded runs%s\n", repeated ? ", kernels repeated" : "");
    return judge("false alarms, any difference", alarms, done, 0, 5, false);
}

/// Factors of 20 kernels, of which one is another.
std::vector<double> but(std::size_t kernel, double factor) {
    std::vector<double> factors(20, 1.0);
    factors[kernel] = factor;
    return factors;
}

}  // namespace

int main(int argc, char** argv) {
    const int pairs = argc > 1 ? std::atoi(argv[1]) : 100;
    const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    if (pairs < 1) {
        std::fprintf(stderr, "usage: %s [PAIRS [FIRST_SEED [FOLDER]...]]\n", argv[0]);
        return 2;
    }
    std::printf("%d pairs of runs of 60 s, 20 kernels at once\n", pairs);
    Case dearer{"found: 1 % more energy of the iteration",
                {.watts = std::vector<double>(20, 1.012)},  // with idle and the gap
                "iteration"};
    const Case slower{
        "found: 1 % more time of a kernel", {.lengths = but(0, 1.01)}, "kernel", false};
    bool good = run({.name = "accumulator of 1 ms", .counter_period = 1e-3, .fixed_step = true},
                    {{"found: 3 % of a kernel of 5 % of the time",
                      {.watts = but(1, 1.03)},
                      "kernel#1",
                      true,
                      false},
                     dearer,
                     slower},
                    pairs, first);
    dearer.judged = false;
    good = run({.name = "log of 20 ms with a memory",
                .log = sensor_bed::Log::memory,
                .counter_period = 0.1,
                .fixed_step = true,
                .spread = 0.01},
               {{"found: 15 % of a kernel of 5 % of the time",
                 {.watts = but(1, 1.15)},
                 "kernel#1",
                 true,
                 false},
                {"found: 5 % of a kernel of 20 % of the time",
                 {.watts = but(0, 1.05)},
                 "kernel",
                 true,
                 false},
                dearer,
                slower},
               pairs, first) &&
           good;
    const std::vector<std::string> folders(argv + std::min(argc, 3), argv + argc);
    for (const bool repeated : {false, true}) {
        if (!folders.empty()) good = compare_parts(folders, pairs, repeated) && good;
    }
    return good ? 0 : 1;
}
