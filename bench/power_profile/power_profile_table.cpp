// SPDX-License-Identifier: MIT
// How well FinGraV's power profiles find a waveform that is known (simulated): a table over many
// seeds, and exit status 1 where a bound is missed. Arguments: the number of seeds (100), and where
// to draw the first seed's profiles (nowhere).
#include <bench/power_profile/deblur.hpp>
#include <bench/power_profile/power_profile.hpp>
#include <tests/measure/known_waveform.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace {

using namespace kdvfs;
using namespace kdvfs::measure;
using namespace std::chrono_literals;

ProfileSettings settings() {
    return {.components = {"total", "xcd"}, .read_delay = Duration{3150}, .most_executions = 64};
}

struct Errors {
    std::vector<double> values;

    void print(const char* name) {
        std::sort(values.begin(), values.end());
        std::printf("%-52s | %6.2f %6.2f\n", name, 100 * values[values.size() / 2],
                    100 * values.back());
    }
    [[nodiscard]] double median() const { return values[values.size() / 2]; }
    [[nodiscard]] double worst() const { return values.back(); }
};

template <class Profile>
Errors over(int seeds, Profile error_of_seed) {
    Errors errors;
    for (int seed = 1; seed <= seeds; ++seed) {
        errors.values.push_back(error_of_seed(static_cast<std::uint64_t>(seed)));
    }
    return errors;
}

bool failed = false;

void check(bool holds, const char* what) {
    if (holds) return;
    failed = true;
    std::printf("    MISSED: %s\n", what);
}

void write_profiles(const char* path) {
    PowerProfiler profiler{KnownWaveform{1}, settings()};
    const PowerProfile execution = profiler.profile_execution();
    const PowerProfile power = profiler.profile_power();
    std::ofstream out{path};
    write_profile_json(out, {{"SSE", &execution}, {"SSP", &power}, {"SSP of XCD", &power, 1}},
                       true);
    std::printf("wrote %s\n", path);
}

}  // namespace

int main(int argc, char** argv) {
    const int seeds = argc > 1 ? std::atoi(argv[1]) : 100;
    if (seeds < 1) {
        std::fprintf(stderr, "usage: %s [SEEDS [FILE.json]]\n", argv[0]);
        return 2;
    }
    std::printf(
        "SIMULATED: a kernel of 200 us, a 1 ms logger, 20 ppm drift, 5 %% jitter; %d seeds\n",
        seeds);
    std::printf("%-52s | %6s %6s\n", "RMS of the profile, % of the power", "median", "worst");
    const auto with = [&](bool synchronise, bool bin) {
        return over(seeds, [=](std::uint64_t seed) {
            ProfileSettings its = settings();
            its.synchronise = synchronise;
            its.bin = bin;
            return error_of(PowerProfiler{KnownWaveform{seed}, its}.profile_power().curves[0]);
        });
    };
    Errors good = with(true, true);
    good.print("steady power (SSP)");
    check(good.worst() <= 0.03, "3 % RMS");
    Errors unsynchronised = with(false, true);
    unsynchronised.print("  without synchronisation");
    Errors unbinned = with(true, false);
    unbinned.print("  without binning");
    check(std::min(unsynchronised.median(), unbinned.median()) > 3 * good.median(),
          "each several times worse");
    Errors execution = over(seeds, [](std::uint64_t seed) {
        const auto profile = PowerProfiler{KnownWaveform{seed}, settings()}.profile_execution();
        return error_of(profile.curves[0], 0.6 + 0.4 * 4 / 11);
    });
    execution.print("steady execution (SSE, the 4th)");
    for (const Duration window : {Duration{100us}, Duration{330us}}) {
        Errors blurred;
        Errors sharp = over(seeds, [&](std::uint64_t seed) {
            ProfileSettings its = settings();
            its.logger_window = window;
            const KnownWaveform::Traits traits{.jitter = 0.01, .window = window.count()};
            const auto profile = PowerProfiler{KnownWaveform{seed, traits}, its}.profile_power();
            blurred.values.push_back(error_of(profile.curves[0]));
            return error_of(deblur(profile));
        });
        std::printf("a logger that averages over %lld us, 1 %% jitter\n",
                    static_cast<long long>(window / 1us));
        blurred.print("  as it is");
        sharp.print("  deblurred");
        check(sharp.median() < 0.05, "5 % RMS");
    }
    std::printf("first steady execution, true: found (least, median, most)\n");
    for (const std::size_t steady : {4U, 11U, 40U}) {
        std::vector<std::size_t> found;
        for (int seed = 1; seed <= seeds; ++seed) {
            const auto its = static_cast<std::uint64_t>(seed);
            found.push_back(PowerProfiler{KnownWaveform{its, {.steady = steady}}, settings()}
                                .steady_power_execution());
        }
        std::sort(found.begin(), found.end());
        std::printf("  %2zu: %zu %zu %zu\n", steady, found.front(), found[found.size() / 2],
                    found.back());
    }
    if (argc > 2) write_profiles(argv[2]);
    return failed ? 1 : 0;
}
