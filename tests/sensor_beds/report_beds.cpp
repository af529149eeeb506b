// SPDX-License-Identifier: MIT
// How often the 95 % intervals of reports hold the truth on boards whose sensor nobody knows, and
// what reports say where the model does not hold: a table over many seeds. Exit status 1 where a
// bound is missed: coverage, alarms on clean beds, or a power that no board draws. Arguments: the
// number of seeds (100), the first of them (1), and the name of a bed or a word in the names
// that are wanted; a fourth prints each seed's notes.
#include <tests/sensor_beds/calibration_bed.hpp>
#include <tests/sensor_beds/report_bed.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <set>
#include <thread>
#include <utility>

namespace {

using sensor_bed::Bed;
using sensor_bed::Log;
using sensor_bed::Run;

/// A bed, and what is asked of its reports.
struct Row {
    Bed bed;
    double least_covered = 0;  ///< %; 0: shown only
    bool measured = false;     ///< the sensor was, by a minute of square waves
};

/// What goes wrong on boards with a log, or with a good counter.
Row by_log(Bed fault) {
    fault.name = "log of 20 ms, " + fault.name;
    fault.log = Log::memory;
    fault.counter_period = 0.1;
    return {std::move(fault), 90};
}
Row by_counter(Bed fault) {
    fault.name = "counter of 1 ms, " + fault.name;
    fault.counter_period = 1e-3;
    return {std::move(fault), 90};
}

std::vector<Row> rows() {
    return {
        {{.name = "log of 20 ms with a memory", .log = Log::memory, .counter_period = 0.1}, 90},
        {{.name = "log of 20 ms with a memory, measured",
          .log = Log::memory,
          .counter_period = 0.1},
         90,
         true},
        by_log({.name = "nearly NVIDIA's",
                .most_delay = 3e-3,
                .least_delay = 1.5e-3,
                .least_memory = 10e-3,
                .most_memory = 16e-3}),
        {{.name = "log of 25 of every 100 ms", .log = Log::mean_25_ms, .log_period = 0.1}, 90},
        {{.name = "log of 25 of every 100 ms, measured", .log = Log::mean_25_ms, .log_period = 0.1},
         90,
         true},
        {{.name = "means of 1 s", .log = Log::since_last, .log_period = 1}},
        {{.name = "counter of 1 ms", .counter_period = 1e-3}, 90},
        {{.name = "counter of 1 ms, measured", .counter_period = 1e-3}, 90, true},
        {{.name = "counter of 100 ms", .counter_period = 0.1}},
        {{.name = "counter of 100 ms, up to 100 ms late",
          .counter_period = 0.1,
          .most_delay = 0.1}},
        {{.name = "counter of exactly 100 ms", .counter_period = 0.1, .exactly = true}, 90},
        by_log({.name = "a kernel without a scope", .leaves_out = true}),
        by_counter({.name = "a kernel without a scope", .leaves_out = true}),
        by_log({.name = "1 % of the markers lost", .lost = 0.01}),
        by_log({.name = "5 % of the markers lost", .lost = 0.05}),
        by_log({.name = "20 % of the markers lost", .lost = 0.2}),
        by_log({.name = "5 % of the markers lost, 50 in a row", .lost = 0.05, .burst = 50}),
        by_log({.name = "half of one kernel's markers lost", .lost = 0.5, .of_one = true}),
        by_counter({.name = "1 % of the markers lost", .lost = 0.01}),
        by_counter({.name = "5 % of the markers lost", .lost = 0.05}),
        by_counter({.name = "20 % of the markers lost", .lost = 0.2}),
        by_counter({.name = "5 % of the markers lost, 50 in a row", .lost = 0.05, .burst = 50}),
        by_counter({.name = "half of one kernel's markers lost", .lost = 0.5, .of_one = true}),
        by_log({.name = "the GPU's clock jumps", .most_jump = 2e-3}),
        by_counter({.name = "the GPU's clock jumps", .most_jump = 2e-3}),
        {{.name = "log of 20 ms, another process",
          .log = Log::memory,
          .counter_period = 0.1,
          .outside = true,
          .listed = false}},
        {{.name = "counter of 1 ms, another process",
          .counter_period = 1e-3,
          .outside = true,
          .listed = false}},
        {{.name = "20 W from outside that never rest, listed",
          .log = Log::memory,
          .counter_period = 0.1,
          .outside = true,
          .always = true,
          .least_load = 20,
          .most_load = 20,
          .rests = 1}},
        {{.name = "the same, not listed",
          .log = Log::memory,
          .counter_period = 0.1,
          .outside = true,
          .always = true,
          .listed = false,
          .least_load = 20,
          .most_load = 20,
          .rests = 1},
         90},
        {{.name = "40 to 150 W that never rest, not listed",
          .log = Log::memory,
          .counter_period = 0.1,
          .outside = true,
          .always = true,
          .listed = false,
          .rests = 1},
         90},
        {{.name = "the same, counter of 1 ms, not listed",
          .counter_period = 1e-3,
          .outside = true,
          .always = true,
          .listed = false,
          .rests = 1},
         90},
        by_log({.name = "nobody else, not listed", .listed = false, .rests = 1}),
        {{.name = "counter of 1 ms that stops", .counter_period = 1e-3, .stops = true}, 90},
        by_log({.name = "the counter stops", .stops = true}),
        {{.name = "counter of 1 ms beside a log of 50 to 1000 ms",
          .log = Log::since_last,
          .log_period = 0.05,
          .counter_period = 1e-3,
          .slowest_log = 1},
         90},
        {{.name = "counter of 20 ms beside a log of 50 to 1000 ms",
          .log = Log::since_last,
          .log_period = 0.05,
          .counter_period = 20e-3,
          .slowest_log = 1},
         90},
        by_log({.name = "at the limit", .limited = true}),
        {{.name = "counter of 1 ms, at the limit", .counter_period = 1e-3, .limited = true}},
    };
}

/// What a note warns of; empty where it is no alarm.
std::string alarm(const std::string& note) {
    constexpr std::array kinds{std::array{"worked on this GPU", "others are listed"},
                               std::array{"others of its kind at most", "rests too high"},
                               std::array{"from second to second", "wanders"},
                               std::array{"kernels beside it are not resolved", "gap"},
                               std::array{"in gaps between kernels", "hidden gap"},
                               std::array{"refused powers", "impossible power"},
                               std::array{"impossible and were refused", "refused intervals"},
                               std::array{"do not rely on the joules", "too many joules"},
                               std::array{"that no scope covers: unexplained", "unexplained"},
                               std::array{"not as it was measured", "stale"},
                               std::array{"at its power limit", "counter at the limit"},
                               std::array{"counter difference disagree", "counter difference"},
                               std::array{"it did not move", "called dead"},
                               std::array{"frozen of its reads", "frozen counter"}};
    for (const auto& [words, name] : kinds) {
        if (note.find(words) != std::string::npos) return name;
    }
    return {};
}

/// What is kept of a seed.
struct Judged {
    std::vector<sensor_bed::Kernel> kernels;
    double limit = 0;  ///< W
    std::vector<std::string> notes;
    std::optional<double> iteration{};  ///< how far its joules are off, half-widths
    double iteration_width = 0;         ///< half-width, of its joules
    double iteration_off = 0;           ///< of its joules
};

Judged report_of(const Row& row, std::uint64_t seed) {
    Run run{row.bed, seed};
    std::optional<kdvfs::measure::SensorCalibration> sensors;
    if (row.measured) {
        const auto pulses = kdvfs::measure::square_waves(kdvfs::Seconds{60}, seed + 100);
        sensors = kdvfs::measure::measure_sensors(
            sensor_bed::record_of_waves(row.bed, run.truth(), pulses, seed + 200));
    }
    const kdvfs::measure::Report report = sensor_bed::report(run, row.bed, sensors);
    sensor_bed::take(run, report);
    Judged judged{run.kernels(), run.truth().limit, report.notes};
    for (const auto& level : report.levels) {
        if (!level.iteration) continue;
        const auto each = level.per_run();
        if (!each.resolved) continue;
        const double truth = run.step_joules();
        judged.iteration = std::abs(each.joules.count - truth) / each.half_width.count;
        judged.iteration_width = each.half_width.count / truth;
        judged.iteration_off = std::abs(each.joules.count - truth) / truth;
    }
    return judged;
}

/// Of seeds that follow each other, on as many threads as there are cores.
std::vector<Judged> reports(const Row& row, int seeds, std::uint64_t first) {
    std::vector<Judged> all(static_cast<std::size_t>(seeds));
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
        threads.emplace_back([&] {
            for (std::size_t k = next++; k < all.size(); k = next++) {
                all[k] = report_of(row, first + k);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    return all;
}

bool judge(const Row& row, int seeds, std::uint64_t first, bool notes) {
    int resolved = 0;
    int covered = 0;
    int far = 0;
    int alarmed = 0;
    int hidden = 0;          // reports whose kernel without a scope has 2 % of the time
    int hidden_alarmed = 0;  // of them
    int silent_and_far = 0;  // reports without an alarm that have a kernel far off
    std::map<std::string, int> alarms;
    int impossible = 0;
    double worst = 0;
    double highest = 0;
    double time = 0;
    double all_time = 0;
    double oracle_time = 0;
    std::vector<double> widths;
    std::vector<double> iteration_widths;
    double iteration_off = 0;
    int iterations_covered = 0;
    const std::clock_t begin = std::clock();
    std::uint64_t seed = first;
    for (const Judged& judged : reports(row, seeds, first)) {
        std::set<std::string> kinds;
        for (const std::string& note : judged.notes) kinds.insert(alarm(note));
        kinds.erase("");
        if (row.bed.counter_period <= 0) kinds.erase("called dead");
        for (const std::string& kind : kinds) ++alarms[kind];
        alarmed += kinds.empty() ? 0 : 1;
        if (judged.iteration) {
            iteration_widths.push_back(judged.iteration_width);
            iterations_covered += *judged.iteration <= 1 ? 1 : 0;
            iteration_off = std::max(iteration_off, judged.iteration_off);
        }
        const int far_before = far;
        double of_kernels = 0;
        for (const auto& kernel : judged.kernels) of_kernels += kernel.seconds;
        if (row.bed.leaves_out && judged.kernels[0].seconds > 0.02 * of_kernels) {
            ++hidden;
            hidden_alarmed += kinds.empty() ? 0 : 1;
        }
        for (const auto& kernel : judged.kernels) {
            all_time += kernel.seconds;
            if (kernel.oracle) oracle_time += kernel.seconds;
            if (!kernel.found) continue;
            const auto [watts, half_width] = *kernel.found;
            const double off = std::abs(watts - kernel.watts);
            ++resolved;
            covered += off <= half_width;
            far += off > 2 * half_width;
            worst = std::max(worst, off / kernel.watts);
            highest = std::max(highest, watts - half_width);
            time += kernel.seconds;
            impossible += watts - half_width > 2.2 * judged.limit ? 1 : 0;
            if (kernel.oracle) widths.push_back(half_width / kernel.oracle->second);
        }
        silent_and_far += kinds.empty() && far > far_before ? 1 : 0;
        for (const std::string& note : judged.notes) {
            if (notes) {
                std::printf("    seed %llu: %s\n", static_cast<unsigned long long>(seed),
                            note.c_str());
            }
        }
        ++seed;
    }
    const double share = 100.0 * covered / std::max(resolved, 1);
    const auto middle = widths.begin() + static_cast<std::ptrdiff_t>(widths.size() / 2);
    std::nth_element(widths.begin(), middle, widths.end());
    std::printf("%-42s | %5d %5.1f %4d %5.0f %5.0f | %5.1f %5.1f %5.2f | %3d of %d | %4.1f\n",
                row.bed.name.c_str(), resolved, share, far, 100 * worst, highest,
                100 * time / all_time, 100 * oracle_time / all_time, widths.empty() ? 0.0 : *middle,
                alarmed, seeds, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / seeds);
    if (!iteration_widths.empty()) {
        std::printf(
            "    iteration: resolved in %zu of %d reports, %.1f %% covered, half-width %.2f, "
            "widest %.2f, furthest off %.2f %%\n",
            iteration_widths.size(), seeds,
            100.0 * iterations_covered / static_cast<double>(iteration_widths.size()),
            100 * sensor_bed::median(iteration_widths),
            100 * *std::max_element(iteration_widths.begin(), iteration_widths.end()),
            100 * iteration_off);
    }
    for (const auto& [kind, count] : alarms) {
        std::printf("    alarm: %s, %d of %d reports\n", kind.c_str(), count, seeds);
    }
    if (row.bed.leaves_out) {
        std::printf(
            "    %d of %d reports whose kernel without a scope has 2 %% of the time alarm\n",
            hidden_alarmed, hidden);
    }
    if (silent_and_far > 0) {
        std::printf("    %d reports without an alarm have a kernel far off\n", silent_and_far);
    }
    std::fflush(stdout);
    bool good = true;
    if (impossible > 0) {
        std::printf("    MISSED: %d powers beyond the board's limit\n", impossible);
        good = false;
    }
    const bool clean = !row.bed.outside && !row.bed.leaves_out && !row.bed.limited &&
                       row.bed.lost == 0 && row.bed.most_jump == 0 && !row.bed.stops;
    if (clean && alarmed > 1 && 100 * alarmed > seeds) {
        std::printf("    MISSED: alarms in 1 %% at most\n");
        good = false;
    }
    const bool few_marks = row.bed.lost > 0 || row.bed.leaves_out;
    if (few_marks && 100.0 * iterations_covered / seeds < (seeds >= 100 ? 90 : 80)) {
        std::printf("    MISSED: 90 %% of iterations resolved and covered\n");
        good = false;
    }
    // Kernels of one seed share its sensor: few seeds move the share by chance.
    if (resolved > 0 && share < row.least_covered - (seeds >= 100 ? 0 : 10)) {
        std::printf("    MISSED: %.0f %% covered\n", row.least_covered);
        good = false;
    }
    return good;
}

}  // namespace

int main(int argc, char** argv) {
    const int seeds = argc > 1 ? std::atoi(argv[1]) : 100;
    const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    if (seeds < 1) {
        std::fprintf(stderr, "usage: %s [SEEDS [FIRST_SEED [WORD [notes]]]]\n", argv[0]);
        return 2;
    }
    std::printf("%d seeds of 60 s; %% of kernels, of their joules, of the time\n", seeds);
    std::printf("%-42s | %28s | %17s | %8s | %s\n", "", "resolved", "time", "alarms", "CPU");
    std::printf("%-42s | %5s %5s %4s %5s %5s | %5s %5s %5s | %8s | %s\n", "", "", "cov.", "far",
                "worst", "W", "", "oracl", "width", "reports", "s");
    bool good = true;
    const std::vector<Row> all = rows();
    const bool whole = argc > 3 && std::any_of(all.begin(), all.end(), [&](const Row& row) {
                           return row.bed.name == argv[3];
                       });
    for (const Row& row : all) {
        if (whole && row.bed.name != argv[3]) continue;
        if (argc > 3 && row.bed.name.find(argv[3]) == std::string::npos) continue;
        good = judge(row, seeds, first, argc > 4) && good;
    }
    return good ? 0 : 1;
}
