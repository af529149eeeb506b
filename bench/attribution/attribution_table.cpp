// SPDX-License-Identifier: MIT
// How well attribution finds energies that are known: a table over many seeds, and exit status 1
// where a bound is missed. Arguments: the number of seeds (100), and the first of them (1).
// Coverage is judged from 50 seeds on: with fewer, chance alone moves it by more than its bounds.
#include <bench/attribution/score.hpp>
#include <tests/measure/metered_work.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace kdvfs;
using namespace std::chrono_literals;
using bench::Score;
using measure::CounterModel;
using measure::EnergyAccumulator;
using measure::KernelTable;
using measure::MeteredWork;
using Random = std::mt19937_64;

double uniform(Random& random, double low, double high) {
    return std::uniform_real_distribution<double>{low, high}(random);
}

Duration nanoseconds(double seconds) {
    return std::chrono::duration_cast<Duration>(Seconds{seconds});
}

Duration jittered(Duration length, double share, Random& random) {
    return nanoseconds(Seconds{length}.count() *
                       std::max(0.1, std::normal_distribution<double>{1, share}(random)));
}

struct KnownKernel {
    KernelId id;
    Duration length;
    double watts;
};

/// One seed of work: kernels, a counter, an accumulator.
struct Bed {
    Bed(std::uint32_t count, double shortest, double longest, CounterModel counter,
        std::uint64_t seed)
        : random{seed}, accumulator{table}, work{accumulator, counter, seed + 1'000'000} {
        for (std::uint32_t i = 0; i < count; ++i) {
            const double length = shortest * std::pow(longest / shortest, i / (count - 1.0));
            kernels.push_back(
                {table.id("kernel", variant(i)), nanoseconds(length), uniform(random, 200, 700)});
        }
    }
    const KnownKernel& any() { return kernels[random() % kernels.size()]; }
    /// Launches leave gaps: mostly of 2 us, now and then of a millisecond.
    void gap() { work.idle(random() % 50 == 0 ? 1ms : 2us); }

    KernelTable table;
    Random random;
    std::vector<KnownKernel> kernels;
    EnergyAccumulator accumulator;
    MeteredWork work;
};

void score(Bed& bed, Score& score) {
    score.add(
        bed.accumulator.sums(),
        [&](KernelId kernel, ClockPoint) { return bed.kernels[kernel.value].watts; },
        MeteredWork::idle_watts);
}

constexpr double shortest = 20e-6;
constexpr double longest = 5e-3;

void random_launches(CounterModel counter, Duration length, std::uint64_t seed, Score& result) {
    Bed bed{20, shortest, longest, counter, seed};
    while (bed.work.now() < length) {
        const KnownKernel& kernel = bed.any();
        bed.work.run(kernel.id, jittered(kernel.length, 0.03, bed.random), kernel.watts);
        bed.gap();
    }
    score(bed, result);
}

/// Each kernel launched again and again for 50 to 500 ms, then another; the host pauses at times,
/// or a short kernel's gaps could not be told from the kernel.
void random_runs(CounterModel counter, Duration length, std::uint64_t seed, Score& result) {
    Bed bed{20, shortest, longest, counter, seed};
    while (bed.work.now() < length) {
        const KnownKernel& kernel = bed.any();
        const Duration end = bed.work.now() + nanoseconds(uniform(bed.random, 0.05, 0.5));
        while (bed.work.now() < end) {
            bed.work.run(kernel.id, jittered(kernel.length, 0.03, bed.random), kernel.watts);
            bed.work.idle(2us);
        }
        if (bed.random() % 4 == 0) bed.work.idle(nanoseconds(uniform(bed.random, 0.02, 0.2)));
    }
    score(bed, result);
}

/// A training iteration: 897 launches of 46 kernels, always in the same order. With `planned`, each
/// iteration caps the clock of one kernel in four, or of none; they last longer and draw less.
void iterations(CounterModel counter, Duration iteration, Duration length, bool planned,
                std::uint64_t seed, Score& result) {
    constexpr std::size_t launches = 897;
    constexpr ClockPoint cap{1100_MHz, auto_clock};
    constexpr double slower = 1.1;
    constexpr double less = 0.7;
    Bed bed{46, 1, 100, counter, seed};
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < launches; ++i) {
        order.push_back(i < bed.kernels.size() ? i : bed.random() % bed.kernels.size());
    }
    Duration sum{0};
    for (const std::size_t i : order) sum += bed.kernels[i].length;
    const double scale = Seconds{iteration} / Seconds{sum};
    while (bed.work.now() < length) {
        const std::size_t capped = planned ? bed.random() % 5 : 4;
        for (const std::size_t i : order) {
            const KnownKernel& kernel = bed.kernels[i];
            const bool is_capped = i % 4 == capped;
            bed.work.clocks_applied(is_capped ? cap : ClockPoint{});
            const double factor = scale * (is_capped ? slower : 1);
            bed.work.run(
                kernel.id,
                jittered(nanoseconds(Seconds{kernel.length}.count() * factor), 0.005, bed.random),
                kernel.watts * (is_capped ? less : 1));
        }
        bed.work.idle(nanoseconds(0.02 * Seconds{iteration}.count()));
    }
    const auto watts = [&](KernelId kernel, ClockPoint clock) {
        return bed.kernels[kernel.value].watts * (clock == cap ? less : 1);
    };
    const measure::EnergySums sums = bed.accumulator.sums();
    result.add(sums, watts, MeteredWork::idle_watts);
    if (!planned) return;
    // What the plan varies tells what it saves, even where no kernel can be told: the joules of one
    // iteration in which a quarter of the kernels is capped, less those of one in which it is not.
    for (std::uint32_t quarter = 0; quarter < 4; ++quarter) {
        std::vector<double> seconds(sums.columns_seen());
        double truth = 0;
        double whole = 0;
        for (const std::size_t i : order) {
            const KnownKernel& kernel = bed.kernels[i];
            const double time = scale * Seconds{kernel.length}.count();
            whole += kernel.watts * time;
            if (i % 4 != quarter) continue;
            const auto usual = sums.columns.find(kernel.id, {});
            const auto low = sums.columns.find(kernel.id, cap);
            if (!usual || !low) return;
            seconds[*usual] -= time;
            seconds[*low] += time * slower;
            truth += kernel.watts * time * (slower * less - 1);
        }
        result.add_effect(sums, seconds, truth, whole);
    }
}

bool failed = false;
std::uint64_t first_seed = 1;

void check(bool holds, const char* what) {
    if (holds) return;
    failed = true;
    std::printf("    MISSED: %s\n", what);
}

template <class Scenario>
Score run(const char* name, int seeds, Scenario scenario) {
    Score result;
    for (int i = 0; i < seeds; ++i) scenario(first_seed + static_cast<std::uint64_t>(i), result);
    std::printf(
        "%-58s | %6.2f %6.2f %6.2f | %5.1f | %5.1f %5.1f | %6.2f %6.2f | %5.1f %5.2f | %llu\n",
        name, 100 * result.median_error(), 100 * result.worst_error(),
        100 * result.widest_interval(), 100 * result.coverage(), 100 * result.resolved_share(),
        100 * result.grouped_share(), 100 * result.median_resolved_error(),
        100 * result.worst_told_error(), 100 * result.resolved_coverage(), result.farthest(),
        static_cast<unsigned long long>(result.refused()));
    std::fflush(stdout);
    return result;
}

void check_coverage(int seeds, double coverage, const char* what) {
    if (seeds >= 50) check(coverage >= 0.93 && coverage <= 0.97, what);
}

}  // namespace

int main(int argc, char** argv) {
    const int seeds = argc > 1 ? std::atoi(argv[1]) : 100;
    if (argc > 2) first_seed = std::strtoull(argv[2], nullptr, 10);
    if (seeds < 1) {
        std::fprintf(stderr, "usage: %s [SEEDS [FIRST_SEED]]\n", argv[0]);
        return 2;
    }
    std::printf("%d seeds; errors in %% of a kernel's energy; 0.5 %% white noise on power\n",
                seeds);
    std::printf("%-58s | %20s | %5s | %11s | %13s | %11s | %s\n", "", "error, all", "cover",
                "told, group", "error, told", "told: cover", "rows");
    std::printf("%-58s | %6s %6s %6s | %5s | %5s %5s | %6s %6s | %5s %5s | %s\n", "", "median",
                "worst", "+-95 %", "%", "%", "%", "median", "worst", "%", "far", "refused");

    const CounterModel fast{.period = 1ms};
    const CounterModel slow{.period = 100ms};
    auto result = run("20 kernels, random launches, 1 ms counter, 10 s", seeds,
                      [&](auto seed, Score& s) { random_launches(fast, 10s, seed, s); });
    check(result.median_error() <= 0.02 && result.worst_error() <= 0.05, "2 % median, 5 % worst");
    check_coverage(seeds, result.coverage(), "coverage 93 to 97 %");

    result = run("20 kernels, runs of 50 to 500 ms, 100 ms counter, 60 s", seeds,
                 [&](auto seed, Score& s) { random_runs(slow, 60s, seed, s); });
    check(result.median_error() <= 0.01 && result.worst_error() <= 0.05, "1 % median, 5 % worst");
    check_coverage(seeds, result.coverage(), "coverage 93 to 97 %");

    result = run("20 kernels, random launches, 100 ms counter, 60 s", seeds,
                 [&](auto seed, Score& s) { random_launches(slow, 60s, seed, s); });
    check(result.median_resolved_error() <= 0.05, "5 % median of what is told");
    check_coverage(seeds, result.coverage(), "coverage 93 to 97 %");

    for (const bool planned : {false, true}) {
        for (const Duration iteration : {Duration{20ms}, Duration{1s}}) {
            const std::string name =
                std::string{"897 launches, "} + (iteration < 1s ? "20 ms" : "1 s") +
                " iterations, 100 ms counter, 30 s" + (planned ? ", planned" : "");
            result = run(name.c_str(), seeds, [&](auto seed, Score& s) {
                iterations(slow, iteration, 30s, planned, seed, s);
            });
            if (planned) {
                std::printf(
                    "    saving of a plan: %.1f %% in the interval, its half-width %.2f %% "
                    "of an iteration\n",
                    100 * result.effect_coverage(), 100 * result.effect_half_width());
                check(result.effect_half_width() < 0.03, "a plan's saving is told within 3 %");
                if (seeds >= 50) check(result.effect_coverage() >= 0.93, "savings are covered");
            }
            if (seeds >= 50)
                check(result.resolved_coverage() >= 0.93, "told intervals hold the truth");
        }
    }

    CounterModel faulty = fast;
    faulty.fault_rate = 0.01;
    result = run("20 kernels, random launches, 1 ms counter, 1 % faults", seeds,
                 [&](auto seed, Score& s) { random_launches(faulty, 10s, seed, s); });
    check(result.median_error() <= 0.02 && result.worst_error() <= 0.05, "2 % median, 5 % worst");
    check_coverage(seeds, result.coverage(), "coverage 93 to 97 %");
    faulty = slow;
    faulty.fault_rate = 0.01;
    result = run("20 kernels, runs of 50 to 500 ms, 100 ms, 1 % faults", seeds,
                 [&](auto seed, Score& s) { random_runs(faulty, 60s, seed, s); });
    check(result.median_error() <= 0.01 && result.worst_error() <= 0.05, "1 % median, 5 % worst");
    check_coverage(seeds, result.coverage(), "coverage 93 to 97 %");
    return failed ? 1 : 0;
}
