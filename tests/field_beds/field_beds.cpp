// SPDX-License-Identifier: MIT
// How often attribution's 95 % intervals hold the truth where boards are as in the field: a table
// over many seeds, and exit status 1 where a bound is missed. Arguments: the number of seeds (200),
// the first of them (1), and a word in the names of the beds that are wanted.
#include <tests/field_beds/field_bed.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Intervals of one seed share its noise; few seeds move the share by chance.
double allowance(int seeds) {
    return seeds >= 200 ? 0 : 2 * std::sqrt(0.95 * 0.05 / (4.0 * seeds));
}

bool judge(const field::Bed& bed, int seeds, std::uint64_t first) {
    std::vector<double> errors;
    std::vector<double> widths;
    std::vector<double> oracle;
    std::size_t covered = 0;
    double scatter = 0;
    for (int i = 0; i < seeds; ++i) {
        for (const auto& kernel : field::Run{bed, first + static_cast<std::uint64_t>(i)}.judge()) {
            errors.push_back(std::abs(kernel.error));
            widths.push_back(kernel.half_width);
            oracle.push_back(kernel.oracle_half_width);
            covered += std::abs(kernel.error) <= kernel.half_width ? 1 : 0;
            scatter += kernel.scatter * kernel.scatter;
        }
    }
    const auto count = static_cast<double>(errors.size());
    const double share = static_cast<double>(covered) / count;
    // To an oracle, too, it is noise that a kernel draws more in one run than in another.
    const double best = std::hypot(median(oracle), 1.96 * std::sqrt(scatter / count));
    const double ratio = median(widths) / best;
    std::printf("%-46s | %5.2f %6.2f | %5.2f %5.2f %5.2f | %5.1f\n", bed.name.c_str(),
                100 * median(errors), 100 * *std::max_element(errors.begin(), errors.end()),
                100 * median(widths), 100 * best, ratio, 100 * share);
    std::fflush(stdout);
    if (!bed.judged) {
        std::printf("    not judged: no sample tells these apart\n");
        return true;
    }
    const double spare = allowance(seeds);
    const bool good = share >= bed.least_covered - spare && share <= bed.most_covered + spare &&
                      ratio <= bed.widest;
    if (!good)
        std::printf("    MISSED: %.0f to %.0f %% covered, half-width %.1f x the oracle's\n",
                    100 * bed.least_covered, 100 * bed.most_covered, bed.widest);
    return good;
}

}  // namespace

int main(int argc, char** argv) {
    const int seeds = argc > 1 ? std::atoi(argv[1]) : 200;
    const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    if (seeds < 1) {
        std::fprintf(stderr, "usage: %s [SEEDS [FIRST_SEED [WORD]]]\n", argv[0]);
        return 2;
    }
    std::printf("%d seeds; %% of a kernel's joules\n", seeds);
    std::printf("%-46s | %12s | %17s | %s\n", "", "error", "half-width", "covered");
    std::printf("%-46s | %5s %6s | %5s %5s %5s | %s\n", "", "med", "worst", "med", "oracle",
                "ratio", "%");
    bool good = true;
    for (const field::Bed& bed : field::beds()) {
        if (argc > 3 && bed.name.find(argv[3]) == std::string::npos) continue;
        good = judge(bed, seeds, first) && good;
    }
    return good ? 0 : 1;
}
