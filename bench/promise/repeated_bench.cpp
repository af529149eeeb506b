// SPDX-License-Identifier: MIT
// What plans from repeated sweeps promise and keep: five sweeps of one board that share luck within
// a block, along a sweep and between kernels; planned on three, judged by the mean of the other two
// and by the truth. Kernels and noise are drawn from ranges.
#include <bench/promise/repeated_samples.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace kdvfs::tune;

double mean(const std::vector<double>& all) {
    return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}
double mean_size(std::vector<double> all) {
    for (double& one : all) one = std::abs(one);
    return mean(all);
}
double worst(const std::vector<double>& all) {
    double most = 0;
    for (const double one : all) most = std::max(most, std::abs(one));
    return most;
}
double quantile(std::vector<double> all, double share) {
    std::sort(all.begin(), all.end());
    return all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1) + 0.5)];
}
double share_within(const std::vector<double>& all, double most) {
    double within = 0;
    for (const double one : all) within += one <= most ? 1 : 0;
    return 100 * within / static_cast<double>(all.size());
}

}  // namespace

/// @param argv programs (20), first seed (1), scale of the noise of time and of energy in percent
/// (0.3, 1), then boards (all three)
int main(int argc, char** argv) {
    const auto number = [&](int i, double otherwise) {
        return argc > i ? std::atof(argv[i]) : otherwise;
    };
    const int programs = static_cast<int>(number(1, 20));
    const auto seed = static_cast<std::uint64_t>(number(2, 1));
    std::vector<std::string> boards(argv + std::min(argc, 5), argv + argc);
    if (boards.empty()) boards = {"mi210", "h100", "a100"};
    std::vector<RepeatedTally> tallies(repeated_bounds.size());
    for (int i = 0; i < programs; ++i) {
        std::mt19937_64 random{seed + static_cast<std::uint64_t>(i)};
        const std::string& board = boards[static_cast<std::size_t>(i) % boards.size()];
        judge(draw_sweeps(board, number(3, 0.3) / 100, number(4, 1) / 100, random), tallies);
    }
    std::printf(
        "All simulated: %d programs, three sweeps planned on, two judged by. Points of the "
        "baseline; truth: without noise\n%6s | %24s %8s | %24s | %17s %13s | %22s\n",
        programs, "bound", "promised - kept: mean", "truth", "mean size, worst, truth",
        "slower 90 %, truth", "within by 0.1", "kept, of the oracles'");
    for (std::size_t b = 0; b < repeated_bounds.size(); ++b) {
        const RepeatedTally& t = tallies[b];
        std::printf(
            "%5.1f %% | %+24.2f %+8.2f | %8.2f %6.2f %8.2f | %+8.2f %+8.2f %4.0f, %3.0f %% | "
            "%7.2f %5.0f %% %5.0f %%\n",
            100 * repeated_bounds[b], mean(t.off), mean(t.off_truth), mean_size(t.off),
            worst(t.off), mean_size(t.off_truth), quantile(t.slowdown, 0.9),
            quantile(t.slower, 0.9), share_within(t.slowdown, 0.1), share_within(t.slower, 0.1),
            t.kept / programs, 100 * t.kept / t.oracle, 100 * t.kept_truth / t.oracle_truth);
    }
}
