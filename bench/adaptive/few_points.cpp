// SPDX-License-Identifier: MIT
//
// How many clock points a sweep measures until its plan is within 0.3 points of the plan of the
// full grid, and how many until it ends by itself: few_points [RECORDINGS [TITANX.csv]]
//
// Simulated boards with 1 % of noise, the simulated H100 with the noise of RECORDINGS (a folder
// with mix_runs.csv and mix_power.csv), and the kernels of a published sweep. Plans are judged by
// what launches cost without noise.
#include <bench/adaptive/scheduled_sweep.hpp>
#include <bench/promise/noisy_profile.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace kdvfs;
using namespace kdvfs::tune;

Noise normal_noise(double deviation, std::uint64_t seed) {
    return [random = std::mt19937_64{seed},
            normal = std::normal_distribution<double>{0, deviation}](std::size_t) mutable {
        return BlockNoise{1 + normal(random), 1 + normal(random)};
    };
}

/// What runs of eight recorded kernels were off from their means, in time and in energy, in the
/// order in which they were recorded: a kernel of the program takes one recorded kernel's, from a
/// run that is drawn on, so that what drifts drifts.
class RecordedNoise {
public:
    RecordedNoise(const std::filesystem::path& folder, std::uint64_t seed) : random_{seed} {
        std::vector<std::pair<double, double>> power;
        for_each_row(folder / "mix_power.csv", [&](const std::vector<std::string>& row) {
            power.emplace_back(std::stod(row[0]), std::stod(row[1]));
        });
        std::map<std::string, std::vector<BlockNoise>> runs;
        for_each_row(folder / "mix_runs.csv", [&](const std::vector<std::string>& row) {
            if (row[5] == "1") return;  // a long run
            const double from = std::stod(row[1]);
            const double to = std::stod(row[2]);
            double watts = 0;
            double readings = 0;
            for (const auto& [at, value] : power)  // each is a mean of the 25 ms before
                if (at - 25e6 >= from && at <= to) watts += value, ++readings;
            if (readings < 3) return;
            const double time = (to - from) / std::stod(row[3]);
            runs[row[0]].push_back({time, watts / readings * time});
        });
        for (auto& [name, of_kernel] : runs) {
            BlockNoise mean{0, 0};
            for (const BlockNoise& run : of_kernel)
                mean.time += run.time, mean.energy += run.energy;
            const auto count = static_cast<double>(of_kernel.size());
            for (BlockNoise& run : of_kernel)
                run = {run.time * count / mean.time, run.energy * count / mean.energy};
            runs_.push_back(std::move(of_kernel));
        }
    }

    BlockNoise operator()(std::size_t kernel) {
        const std::vector<BlockNoise>& runs = runs_[kernel % runs_.size()];
        const auto [at, is_new] = next_.try_emplace(kernel, random_());
        return runs[at->second++ % runs.size()];
    }

private:
    template <class Row>
    static void for_each_row(const std::filesystem::path& path, Row row) {
        std::ifstream file{path};
        if (!file) throw std::runtime_error{"there is no " + path.string()};
        bool header = true;
        for (std::string line; std::getline(file, line);) {
            if (line.empty() || line[0] == '#' || std::exchange(header, false)) continue;
            std::vector<std::string> fields;
            std::istringstream words{line};
            for (std::string word; std::getline(words, word, ',');) fields.push_back(word);
            row(fields);
        }
    }

    std::mt19937_64 random_;
    std::vector<std::vector<BlockNoise>> runs_;  ///< by recorded kernel
    std::map<std::size_t, std::uint64_t> next_;
};

Profile measured_grid(const CostTable& truth, Noise noise) {
    Profile grid{truth.gpu};
    for (std::uint32_t sample = 0; sample < SweepOptions{}.samples; ++sample)
        for (std::size_t p = 0; p < truth.kernels.front().points.size(); ++p)
            for (std::size_t k = 0; k < truth.kernels.size(); ++k) {
                const KernelCosts& kernel = truth.kernels[k];
                const BlockNoise off = noise(k);
                const PointCost& point = kernel.points[p];
                ProfileRow row{kernel.key,
                               point.clock,
                               {point.cost.time * off.time, point.cost.energy * off.energy},
                               kernel.group,
                               kernel.count,
                               sample};
                row.is_baseline = point.clock == truth.baseline;
                grid.add(row);
            }
    return grid;
}

Cost kept_by(const Plan& plan, const CostTable& truth) {
    Cost sum;
    for (const PlannedKernel& planned : plan.kernels)
        for (const KernelCosts& kernel : truth.kernels) {
            if (kernel.key != planned.key) continue;
            for (const PointCost& point : kernel.points)
                if (point.clock == planned.clock) sum += point.cost * kernel.count;
        }
    return sum;
}

void judge(const char* name, const CostTable& truth, double bound, const Noise& noise) {
    const Objective objective = relaxed_waste(bound);
    const auto kept = [&](const Profile& profile) {
        return kept_by(make_plan(shrunk_costs(profile), objective, Aggregate::global, {1e-4, 0}),
                       truth);
    };
    const Cost baseline = truth.baseline_cost();
    const Cost grid = kept(measured_grid(truth, noise));
    SweepOptions options;
    options.objective = objective;
    constexpr double near = 0.3;  // points
    std::size_t fewest = 0;
    std::size_t all = 0;
    Cost last = baseline;
    ScheduledSweep{truth, options, noise}.run([&](const Profile& profile, std::size_t points) {
        last = kept(profile);
        all = points;
        const bool is_near =
            energy_percent(last, baseline) <= energy_percent(grid, baseline) + near;
        fewest = !is_near ? 0 : fewest == 0 ? points : fewest;
    });
    const std::string within = fewest > 0 ? std::to_string(fewest) : "never";
    std::printf("%-22s %3.0f %% %5zu %9s %9zu %+10.2f %+7.2f %+10.2f %+7.2f\n", name, 100 * bound,
                truth.kernels.front().points.size(), within.c_str(), all,
                energy_percent(grid, baseline), energy_percent(last, baseline),
                time_percent(grid, baseline), time_percent(last, baseline));
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    std::printf("%-22s %5s %5s %9s %9s %10s %7s %10s %7s\n", "", "bound", "grid", "within", "ends",
                "energy:", "", "time:", "");
    std::printf("%-22s %5s %5s %9s %9s %10s %7s %10s %7s\n", "", "", "", "0.3 after", "after",
                "grid", "swept", "grid", "swept");
    for (const char* board : {"mi210", "mi250x", "mi300x", "mi325x", "mi355x", "h100"})
        for (const double bound : {0.01, 0.05})
            judge(board, simulated_truth(board), bound, normal_noise(0.01, 7));
    if (argc > 1)
        for (const double bound : {0.01, 0.05})
            judge("h100, recorded noise", simulated_truth("h100"), bound,
                  RecordedNoise{argv[1], 7});
    if (argc > 2) {
        const CostTable titan = mean_costs(read_profile(std::filesystem::path{argv[2]}));
        for (const double bound : {0.01, 0.05})
            judge("Titan X, 25 kernels", titan, bound, normal_noise(0.01, 7));
    }
}
