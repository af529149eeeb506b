// SPDX-License-Identifier: MIT
// Plans of segments against an independent solver that keeps every schedule no other dominates.
// KDVFS_SOAK in the environment: 1000 programs of up to 2000 launches instead of 60.
#include <kdvfs/tune/segments.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::tune {
namespace {

/// Layers of kernels that repeat; times after a roofline, without noise.
struct Program {
    CostTable table;
    std::vector<std::size_t> launches;
    double latency = 0;  // seconds
};

KernelCosts random_kernel(std::mt19937_64& random, const std::string& name, std::uint32_t clocks) {
    std::uniform_real_distribution<double> uniform{0, 1};
    constexpr double top = 1700;
    const double core = uniform(random);
    const double scale = std::pow(10, -3.3 + 2 * uniform(random));
    const double idle_watts = 60 + 60 * uniform(random);
    const double watts_per_mhz = 0.08 + 0.17 * uniform(random);
    KernelCosts kernel{{name, {}}, "", 1, {}, clocks - 1};
    for (std::uint32_t c = 0; c < clocks; ++c) {
        const double mhz = std::floor(500 + (top - 500) * c / (clocks - 1.0));
        const double time =
            scale * std::pow(std::pow(core * top / mhz, 6) + std::pow(1 - core, 6), 1.0 / 6);
        const double voltage = std::max(0.75, mhz / top);
        const double energy = time * (idle_watts + watts_per_mhz * mhz * voltage * voltage * 0.4) +
                              0.6 * watts_per_mhz * top * voltage * voltage * scale * core;
        kernel.points.push_back(
            {{{static_cast<std::uint32_t>(mhz)}, auto_clock}, {Seconds{time}, Joules{energy}}});
    }
    return kernel;
}

Program random_program(std::mt19937_64& random, std::size_t launches, std::uint32_t clocks) {
    std::uniform_real_distribution<double> uniform{0, 1};
    Program program{{"g", {}, {}}, {}, 1e-4 * std::pow(1500, uniform(random))};
    const std::size_t kernels = 3 + random() % 17;
    for (std::size_t k = 0; k < kernels; ++k)
        program.table.kernels.push_back(random_kernel(random, "k" + std::to_string(k), clocks));
    program.table.baseline = program.table.kernels[0].points.back().clock;
    while (program.launches.size() < launches) {
        std::vector<std::size_t> layer(2 + random() % 4);
        for (std::size_t& kernel : layer) kernel = random() % kernels;
        for (std::size_t times = 1 + random() % 12; times > 0; --times)
            program.launches.insert(program.launches.end(), layer.begin(), layer.end());
    }
    program.launches.resize(launches);
    return program;
}

/// The least energy within a time limit, by all labels that no other dominates. Knows the program
/// alone: a request before a launch, the old clock until it arrives inside a launch, one at a time.
class Reference {
public:
    Reference(const Program& program, double limit) : program_{program}, limit_{limit} {
        fastest_.assign(program.launches.size() + 1, 0);
        for (std::size_t i = program.launches.size(); i-- > 0;) {
            double least = std::numeric_limits<double>::infinity();
            for (std::size_t c = 0; c < clocks(); ++c) least = std::min(least, cost(i, c).first);
            fastest_[i] = fastest_[i + 1] + least;
        }
    }

    double least_energy() {
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t start = 0; start < clocks(); ++start) least = std::min(least, from(start));
        return least;
    }

private:
    using Label = std::pair<double, double>;  // seconds, joules

    [[nodiscard]] std::size_t clocks() const { return program_.table.kernels[0].points.size(); }
    [[nodiscard]] Label cost(std::size_t launch, std::size_t clock) const {
        const Cost& cost = program_.table.kernels[program_.launches[launch]].points[clock].cost;
        return {cost.time.count(), cost.energy.count};
    }

    double from(std::size_t start) {
        const std::size_t n = program_.launches.size();
        std::vector<std::vector<std::vector<Label>>> labels(
            n + 1, std::vector<std::vector<Label>>(clocks()));
        labels[0][start].push_back({0, 0});
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t c = 0; c < clocks(); ++c) {
                keep_best(labels[i][c]);
                for (const Label& label : labels[i][c]) {
                    const auto [time, energy] = cost(i, c);
                    add(labels, i + 1, c, {label.first + time, label.second + energy});
                    for (std::size_t to = 0; to < clocks(); ++to)
                        if (to != c) request(labels, i, c, to, label);
                }
                labels[i][c].clear();
            }
        double least = std::numeric_limits<double>::infinity();
        for (const Label& label : labels[n][start]) least = std::min(least, label.second);
        return least;
    }

    void request(std::vector<std::vector<std::vector<Label>>>& labels, std::size_t launch,
                 std::size_t from, std::size_t to, Label label) const {
        double left = program_.latency;
        for (std::size_t i = launch; i < program_.launches.size(); ++i) {
            const auto [time, energy] = cost(i, from);
            if (time <= left) {
                left -= time;
                label.first += time;
                label.second += energy;
                continue;
            }
            const double old_share = left / time;
            const auto [new_time, new_energy] = cost(i, to);
            label.first += left + (1 - old_share) * new_time;
            label.second += old_share * energy + (1 - old_share) * new_energy;
            return add(labels, i + 1, to, label);
        }
    }

    void add(std::vector<std::vector<std::vector<Label>>>& labels, std::size_t launch,
             std::size_t clock, const Label& label) const {
        if (label.first + fastest_[launch] <= limit_) labels[launch][clock].push_back(label);
    }

    static void keep_best(std::vector<Label>& labels) {
        std::sort(labels.begin(), labels.end());
        double least = std::numeric_limits<double>::infinity();
        std::erase_if(labels, [&](const Label& label) {
            if (label.second >= least) return true;
            least = label.second;
            return false;
        });
    }

    const Program& program_;
    double limit_;
    std::vector<double> fastest_;  // time of what is left, all at the fastest clock
};

SegmentPlan plan_of(const Program& program, double bound_pct) {
    return plan_segments(program.table, program.launches,
                         uniform_switch_costs(Seconds{program.latency}),
                         with_confidence(relaxed_waste(bound_pct / 100), 0.5));
}

bool is_soak() { return std::getenv("KDVFS_SOAK") != nullptr; }

TEST(SegmentOptimum, EqualsTheReferenceOnShortPrograms) {
    std::mt19937_64 random{11};
    int switching = 0;
    for (int i = 0; i < (is_soak() ? 200 : 24); ++i) {
        const std::size_t length = is_soak() ? 10 + random() % 31 : 8 + random() % 9;
        const auto clocks = static_cast<std::uint32_t>(4 + random() % (is_soak() ? 9 : 5));
        const Program program = random_program(random, length, clocks);
        for (const double bound_pct : {0.01, 1.0, 5.0}) {
            const SegmentPlan plan = plan_of(program, bound_pct);
            const double limit = plan.baseline.time.count() * (1 + bound_pct / 100);
            // Sums in another order differ in their last digits: a limit on each side of them.
            const auto off_pct = [&](double just_beside) {
                const double least = Reference{program, limit * just_beside}.least_energy();
                return 100 * (plan.expected.energy.count - least) / plan.baseline.energy.count;
            };
            EXPECT_GE(off_pct(1 + 1e-9), -1e-6) << "cheaper than any schedule there is";
            const double lost_pct = off_pct(1 - 1e-9);
            EXPECT_LE(lost_pct, 0.05) << i << ", bound " << bound_pct << " %";
            EXPECT_LE(lost_pct, plan.gap_pct + 1e-6) << i << ", bound " << bound_pct << " %";
            EXPECT_LE(plan.expected.time.count(), limit * (1 + 1e-9));
            switching += plan.segments.size() > 1 ? 1 : 0;
        }
    }
    EXPECT_GT(switching, 10) << "too few plans switch to test switching";
}

TEST(SegmentOptimum, ALooserBoundNeverSavesLess) {
    std::mt19937_64 random{12};
    std::uniform_real_distribution<double> uniform{0, 1};
    std::vector<double> gaps;
    for (int i = 0; i < (is_soak() ? 1000 : 12); ++i) {
        const auto length =
            static_cast<std::size_t>(10 * std::pow(is_soak() ? 200 : 20, uniform(random)));
        const auto clocks = static_cast<std::uint32_t>(5 + random() % (is_soak() ? 56 : 16));
        const Program program = random_program(random, length, clocks);
        double before = 0;
        for (const double bound_pct : {0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0}) {
            const SegmentPlan plan = plan_of(program, bound_pct);
            EXPECT_LE(plan.energy_pct(), before + 0.05)
                << i << ": " << length << " launches, " << clocks << " clocks, bound " << bound_pct;
            before = std::min(before, plan.energy_pct());
            gaps.push_back(plan.gap_pct);
        }
    }
    std::sort(gaps.begin(), gaps.end());
    EXPECT_LE(gaps[gaps.size() * 99 / 100], 0.05);
    EXPECT_LE(gaps.back(), 0.3);
    RecordProperty("gap_median", std::to_string(gaps[gaps.size() / 2]));
    RecordProperty("gap_worst", std::to_string(gaps.back()));
}

/// Twelve layers on 17 clocks, which need the right clock at the iteration's start.
TEST(SegmentOptimum, TheStartOfTheIterationIsNoChoiceOfThree) {
    std::mt19937_64 random{13};
    Program program = random_program(random, 61, 17);
    program.latency = 10e-3;
    EXPECT_LE(plan_of(program, 5).gap_pct, 0.05);
}

}  // namespace
}  // namespace kdvfs::tune
