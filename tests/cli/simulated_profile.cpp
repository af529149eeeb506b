// SPDX-License-Identifier: MIT
// Prints a profile for scripts to plan from: the kernels of a GPT-3-XL iteration, each by itself at
// every clock point of a simulated board, measured with 1 % noise where there is more than one
// sample.
// @param argv board, samples
#include <bench/promise/noisy_profile.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
    if (argc != 3) return 1;
    const auto samples = static_cast<std::uint32_t>(std::atoi(argv[2]));
    const double noise = samples > 1 ? 0.01 : 0;
    std::fputs(to_csv(kdvfs::tune::measured_grid(argv[1], noise, samples, 1)).c_str(), stdout);
}
