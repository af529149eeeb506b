// SPDX-License-Identifier: MIT
// How well a minute of square waves finds a sensor (`kdvfs measure-sensor`), and what a report
// gains by it: a table over many seeds, and exit status 1 where a bound is missed. Arguments: the
// number of seeds (100), the first of them (1), and a word in the names of the beds that are
// wanted; a fourth prints each seed.
#include <tests/sensor_beds/calibration_bed.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace {

using sensor_bed::Bed;
using sensor_bed::Log;
using sensor_bed::median;
using sensor_bed::Run;
using sensor_bed::Truth;

/// A bed, and what is asked of its calibration.
struct Row {
    Bed bed;
    bool precise = true;  ///< delay and rise are found to 0.1 ms; of 60 readings nobody can
    bool powers = true;   ///< are judged: those of fast counters are by `report_beds`
};

std::vector<Row> rows() {
    return {
        {{.name = "log of 20 ms with a memory", .log = Log::memory}},
        {{.name = "log of 20 ms, means since the last", .log = Log::since_last}},
        {{.name = "log of 20 ms, 25-100 % of the time", .log = Log::part}},
        {{.name = "log of 25 of every 100 ms", .log = Log::mean_25_ms, .log_period = 0.1}},
        {{.name = "log of 100 ms with a memory", .log = Log::memory, .log_period = 0.1}},
        {{.name = "log of means of 1 s", .log = Log::since_last, .log_period = 1}, false},
        {{.name = "log of 1 s, 25-100 % of the time", .log = Log::part, .log_period = 1}, false},
        {{.name = "counter of 1 ms", .counter_period = 1e-3}, true, false},
        {{.name = "counter of 20 ms", .counter_period = 20e-3}},
        {{.name = "counter of 20 ms with a memory", .counter_period = 20e-3, .remembers = true}},
    };
}

struct Score {
    int sensors = 0;          ///< measured
    int shapes = 0;           ///< of them with the right shape
    std::array<int, 3> in{};  ///< truth within the interval: delay and rise, rise, length
    int lengths = 0;          ///< sensors that have a memory or a window
    int near_delay = 0;       ///< delay and rise found to 0.1 ms
    int near_length = 0;      ///< memory or window found to 5 %
    std::vector<double> delay_widths{};   ///< half-widths, ms
    std::vector<double> length_widths{};  ///< %
    int resolved = 0;
    int covered = 0;
    int far = 0;
    double time = 0;
    double oracle_time = 0;
    double all_time = 0;
    std::vector<double> widths{};

    void add(const kdvfs::measure::MeasuredSensor& sensor, const Truth& truth, bool all) {
        using kdvfs::measure::SensorShape;
        ++sensors;
        const auto& c = sensor.covariance;
        const auto& m = sensor.mean;
        const double rest = truth.delay + truth.rise;
        const double half = 1.96 * std::sqrt(c[0] + 2 * c[3] + c[5]);
        in[0] += std::abs(m[0] + m[2] - rest) <= half;
        in[1] += std::abs(m[2] - truth.rise) <= 1.96 * std::sqrt(c[5]);
        near_delay += std::abs(m[0] + m[2] - rest) <= 1e-4;
        delay_widths.push_back(1e3 * half);
        const double length = truth.memory > 0 ? truth.memory : truth.window;
        const bool has_length = sensor.shape != SensorShape::since_last;
        shapes += (sensor.shape == SensorShape::memory) == (truth.memory > 0);
        if (has_length && length > 0) {
            ++lengths;
            const double off = std::abs(m[1] - std::log(length));
            in[2] += off <= 1.96 * std::sqrt(c[2]);
            near_length += off <= std::log(1.05);
            length_widths.push_back(196 * std::sqrt(c[2]));
        }
        if (!all) return;
        std::printf(
            "    truth %.3f +%.3f, %.2f ms; found %s %.3f +%.3f, %.2f ms; +-%.3f ms %.1f %%\n",
            1e3 * truth.delay, 1e3 * truth.rise, 1e3 * length,
            std::string{to_string(sensor.shape)}.c_str(), 1e3 * m[0], 1e3 * m[2],
            1e3 * std::exp(m[1]), 1e3 * half, 196 * std::sqrt(c[2]));
    }
    void add(const Run& run) {
        for (const auto& kernel : run.kernels()) {
            all_time += kernel.seconds;
            if (kernel.oracle) oracle_time += kernel.seconds;
            if (!kernel.found) continue;
            const auto [watts, half_width] = *kernel.found;
            const double off = std::abs(watts - kernel.watts);
            ++resolved;
            covered += off <= half_width;
            far += off > 2 * half_width;
            time += kernel.seconds;
            if (kernel.oracle) widths.push_back(half_width / kernel.oracle->second);
        }
    }
};

bool judge(const Row& row, int seeds, std::uint64_t first, bool all) {
    Score score;
    const std::clock_t begin = std::clock();
    std::clock_t measuring = 0;
    for (int i = 0; i < seeds; ++i) {
        const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
        Run run{row.bed, seed};
        const auto pulses = kdvfs::measure::square_waves(kdvfs::Seconds{60}, seed + 100);
        const auto record = record_of_waves(row.bed, run.truth(), pulses, seed + 200);
        const std::clock_t before = std::clock();
        const auto found = kdvfs::measure::measure_sensors(record);
        measuring += std::clock() - before;
        const auto& sensor = row.bed.log != Log::none ? found.log : found.counter;
        if (!sensor) {
            std::printf("    seed %d: not measured\n", static_cast<int>(seed));
            continue;
        }
        score.add(*sensor, run.truth(), all);
        run.judge(kdvfs::measure::SensorPrior::of(*sensor));
        score.add(run);
    }
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    const auto percent = [](double part, double of) { return of > 0 ? 100 * part / of : 0.0; };
    std::printf(
        "%-36s | %3d %3d | %3.0f %3.0f %3.0f | %3.0f %6.3f | %3.0f %5.1f | %4d %5.1f %3d | "
        "%5.1f %5.1f %5.2f | %4.1f %4.1f\n",
        row.bed.name.c_str(), score.sensors, score.shapes, percent(score.in[0], score.sensors),
        percent(score.in[1], score.sensors), percent(score.in[2], score.lengths),
        percent(score.near_delay, score.sensors), median(score.delay_widths),
        percent(score.near_length, score.lengths), median(score.length_widths), score.resolved,
        percent(score.covered, score.resolved), score.far, percent(score.time, score.all_time),
        percent(score.oracle_time, score.all_time), median(score.widths),
        static_cast<double>(measuring) / CLOCKS_PER_SEC / seeds, seconds / seeds);
    std::fflush(stdout);
    // Kernels of one seed share its sensor, and few seeds move a share by chance.
    const double spare = seeds >= 100 ? 0 : 15;
    bool good = true;
    const auto demand = [&](bool holds, const char* what) {
        if (holds) return;
        std::printf("    MISSED: %s\n", what);
        good = false;
    };
    demand(score.sensors == seeds, "every sensor is measured");
    demand(percent(score.in[0], score.sensors) >= 95 - spare &&
               (score.lengths == 0 || percent(score.in[2], score.lengths) >= 95 - spare),
           "95 % of the intervals hold the truth");
    demand(!row.precise || percent(score.near_delay, score.sensors) >= 95 - spare,
           "delay and rise to 0.1 ms");
    demand(score.lengths == 0 || percent(score.near_length, score.lengths) >= 95 - spare,
           "memory or window to 5 %");
    if (!row.powers || score.resolved == 0) return good;
    demand(percent(score.covered, score.resolved) >= 90 - spare, "90 % of kernels covered");
    demand(score.time >= (0.95 - spare / 300) * score.oracle_time, "95 % of the oracle's time");
    demand(median(score.widths) <= 1.15, "1.15 times the oracle's width");
    return good;
}

}  // namespace

int main(int argc, char** argv) {
    const int seeds = argc > 1 ? std::atoi(argv[1]) : 100;
    const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    if (seeds < 1) {
        std::fprintf(stderr, "usage: %s [SEEDS [FIRST_SEED [WORD [all]]]]\n", argv[0]);
        return 2;
    }
    std::printf("%d seeds of 60 s; %% of sensors within their interval, half-widths in ms and %%\n",
                seeds);
    std::printf("%-36s | %7s | %11s | %10s | %9s | %14s | %17s | %s\n", "", "sensors", "within",
                "to 0.1 ms", "to 5 %", "kernels", "time", "CPU s");
    std::printf(
        "%-36s | %3s %3s | %3s %3s %3s | %3s %6s | %3s %5s | %4s %5s %3s | %5s %5s %5s | "
        "%4s %4s\n",
        "", "all", "shp", "d+r", "r", "m/w", "%", "width", "%", "width", "", "cov.", "far", "",
        "oracl", "width", "fit", "all");
    bool good = true;
    for (const Row& row : rows()) {
        if (argc > 3 && row.bed.name.find(argv[3]) == std::string::npos) continue;
        good = judge(row, seeds, first, argc > 4) && good;
    }
    return good ? 0 : 1;
}
