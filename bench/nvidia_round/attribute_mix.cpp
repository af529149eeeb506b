// SPDX-License-Identifier: MIT
// Attributes a recorded mix of kernels, and says how far each kernel is from its truth. Needs no
// GPU: attribute_mix FOLDER, with the mix_runs.csv and mix_power.csv of a round.
#include "mix_replay.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

double milliseconds(kdvfs::Duration time) { return static_cast<double>(time.count()) * 1e-6; }

void print(const measuring::MixResult& result) {
    std::printf("%-14s %9s %9s %12s %8s %8s %8s %12s\n", "kernel", "s", "truth W", "attributed W",
                "+- W", "error", "covered", "long runs W");
    std::vector<double> errors;
    int covered = 0;
    for (const measuring::MixKernel& kernel : result.kernels) {
        const double settled = kernel.settled ? kernel.settled->count : 0.0;
        if (!kernel.error()) {
            std::printf("%-14s %9.2f %s\n", kernel.name.c_str(), kernel.seconds,
                        kernel.truth ? "unresolved" : "no sample inside a run");
            continue;
        }
        std::printf("%-14s %9.2f %9.1f %12.1f %8.1f %+7.2f%% %8s %12.1f\n", kernel.name.c_str(),
                    kernel.seconds, kernel.truth->count, kernel.attributed->count,
                    kernel.half_width.count, 100 * *kernel.error(), kernel.covered() ? "yes" : "no",
                    settled);
        errors.push_back(100 * std::abs(*kernel.error()));
        covered += kernel.covered() ? 1 : 0;
    }
    if (errors.empty()) return;
    std::sort(errors.begin(), errors.end());
    const auto& totals = result.report.totals;
    std::printf(
        "error: median %.2f %%, largest %.2f %%; %d of %zu covered; unexplained %.1f +- %.1f "
        "of %.1f J\n",
        errors[errors.size() / 2], errors.back(), covered, result.kernels.size(),
        totals.unexplained.count, totals.unexplained_half_width.count, totals.counter.count);
    const auto& fit = result.report.fit;
    std::printf(
        "%llu rows, a row's power is off by %.1f W (sd), correlation with the row before "
        "%.2f%s\n",
        static_cast<unsigned long long>(fit.rows), fit.scatter.count, fit.autocorrelation,
        fit.whitened ? ", whitened" : "");
    for (const std::string& note : result.report.notes) std::printf("note: %s\n", note.c_str());
}

int run(const std::filesystem::path& folder) {
    using namespace measuring;
    const RecordedMix mix = read_mix(folder);
    const MeterResponse response = find_response(mix);
    std::printf(
        "%zu runs, %zu power samples; a sample is best explained as the mean over %.0f ms "
        "that ended %.0f ms before its time\n",
        mix.runs.size(), mix.samples.size(), milliseconds(response.window),
        milliseconds(response.delay));
    const StepResponse step = find_step_response(mix);
    std::printf(
        "%zu samples after changes of the load below the power limit: they follow %.2f ms late "
        "with a memory of %.1f ms\n",
        step.samples, step.delay, step.memory);
    const MixResult by_power = MixReplay{mix}.by_power(response);
    print(by_power);
    if (!mix.counter.empty()) {
        const CounterClock clock = find_clock(mix);
        std::printf(
            "%zu readings of the energy counter, which is best explained as moving every "
            "%.3f ms\n",
            mix.counter.size(), milliseconds(clock.period));
        print(MixReplay{mix}.by_counter(clock, response));
        std::printf("the same at the times of its readings\n");
        print(MixReplay{mix}.by_counter({}, response));
    }
    return by_power.kernels.empty() ? 1 : 0;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        return run(count > 1 ? arguments[1] : ".");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "attribute_mix: %s\n", error.what());
        return 2;
    }
}
