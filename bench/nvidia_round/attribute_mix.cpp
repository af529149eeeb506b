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

int run(const std::filesystem::path& folder) {
    using namespace measuring;
    const RecordedMix mix = read_mix(folder);
    const MeterResponse response = find_response(mix);
    const auto milliseconds = [](Duration d) { return static_cast<double>(d.count()) * 1e-6; };
    std::printf(
        "%zu runs, %zu power samples; a sample is best explained as the mean over %.0f ms "
        "that ended %.0f ms before its time\n",
        mix.runs.size(), mix.samples.size(), milliseconds(response.window),
        milliseconds(response.delay));
    const MixResult result = attribute_mix(mix, response);
    std::printf("%-14s %9s %9s %12s %8s %8s %18s\n", "kernel", "s", "truth W", "attributed W",
                "+- W", "error", "truth's first 0.2 s");
    std::vector<double> errors;
    for (const MixKernel& kernel : result.kernels) {
        if (!kernel.attributed || !kernel.truth) {
            std::printf("%-14s %9.2f %s\n", kernel.name.c_str(), kernel.seconds,
                        kernel.truth ? "too_short_to_tell" : "no truth run");
            continue;
        }
        std::printf("%-14s %9.2f %9.1f %12.1f %8.1f %+7.2f%% %18.1f\n", kernel.name.c_str(),
                    kernel.seconds, kernel.truth->count, kernel.attributed->count,
                    kernel.half_width.count, 100 * *kernel.error(),
                    kernel.unsettled ? kernel.unsettled->count : 0.0);
        errors.push_back(100 * std::abs(*kernel.error()));
    }
    if (errors.empty()) return 1;
    std::sort(errors.begin(), errors.end());
    std::printf("error: median %.2f %%, largest %.2f %%; a window's power is off by %.1f W (sd)\n",
                errors[errors.size() / 2], errors.back(), result.residual);
    return 0;
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
