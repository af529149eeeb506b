// SPDX-License-Identifier: MIT
#include <bench/promise/promise_case.hpp>
#include <kdvfs/detail/tune/clock_curves.hpp>
#include <kdvfs/detail/tune/shrinkage.hpp>
#include <kdvfs/detail/tune/sweep_design.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/validation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace kdvfs::tune {
namespace {

/// Four seeds by default; more on request (bench/promise has all boards).
int promise_seeds() {
    const char* text = std::getenv("KDVFS_PROMISE_SEEDS");
    return text == nullptr ? 4 : std::atoi(text);
}

TEST(Promises, AreKeptThroughHeavyTailedNoise) {
    for (const PromiseTally& found : judge_promises("rtx_3080_ti", 0.01, promise_seeds())) {
        std::printf("bound %.0f %% %s: promised %+.2f %%, kept %+.2f %%, %d of %d bounds\n",
                    100 * found.bound, std::string{to_string(found.aggregate)}.c_str(),
                    found.promised, found.kept, found.bounds_kept, found.seeds);
        EXPECT_TRUE(found.holds(0.01)) << found.bound << to_string(found.aggregate);
    }
}

TEST(Promises, AreBrokenByPlainMeansAndWithoutConfidence) {
    const CostTable truth = simulated_truth();
    const Profile profile = heavy_tailed_profile(truth, 0.03, 3, 1);
    const auto time_kept = [&](const CostTable& table, double confidence) {
        const Plan plan =
            make_plan(table, with_confidence(strict_waste(), confidence), Aggregate::global);
        return time_percent(cost_under(plan, truth), truth.baseline_cost());
    };
    EXPECT_GT(time_kept(mean_costs(profile), 0.9), 1);
    EXPECT_GT(time_kept(shrunk_costs(profile), 0.5), time_kept(shrunk_costs(profile), 0.9) + 0.5);
}

TEST(Promises, DoNotChangeByRounding) {
    // Samples that are all alike leave nothing to shrink: a strict bound finds what it finds.
    const CostTable truth = simulated_truth();
    const Profile alike = noisy_profile(
        truth, [](auto&) { return 0.0; }, 3, 1);
    for (const Aggregate aggregate : {Aggregate::local, Aggregate::global})
        EXPECT_EQ(make_plan(shrunk_costs(alike), strict_waste(), aggregate).energy_pct(),
                  make_plan(mean_costs(alike), strict_waste(), aggregate).energy_pct());
}

TEST(Objective, SaysHowManyDeviationsAConfidenceIs) {
    EXPECT_NEAR(deviations(with_confidence(strict_waste(), 0.9)), 1.281552, 1e-6);
    EXPECT_NEAR(deviations(with_confidence(strict_waste(), 0.975)), 1.959964, 1e-6);
    EXPECT_EQ(deviations(with_confidence(strict_waste(), 0.5)), 0);
    for (const double confidence : {0.0, 0.4999, 1.0, 2.0, std::nan("")})
        EXPECT_THROW(static_cast<void>(with_confidence(strict_waste(), confidence)), Error);
}

TEST(Shrinkage, ComesCloserToTheTruthThanMeansDo) {
    const CostTable truth = simulated_truth();
    const Profile profile = noisy_profile(truth, 0.01, 5, 99);
    const auto error_of = [&](const CostTable& estimates, auto quantity) {
        double sum = 0;
        std::size_t count = 0;
        for (std::size_t k = 0; k < truth.kernels.size(); ++k) {
            for (std::size_t p = 0; p < truth.kernels[k].points.size(); ++p, ++count) {
                const double off = quantity(estimates.kernels[k].points[p].cost) /
                                       quantity(truth.kernels[k].points[p].cost) -
                                   1;
                sum += off * off;
            }
        }
        return std::sqrt(sum / static_cast<double>(count));
    };
    const auto time = [](const Cost& cost) { return cost.time.count(); };
    const auto energy = [](const Cost& cost) { return cost.energy.count; };
    const CostTable means = mean_costs(profile);
    const CostTable shrunk = shrunk_costs(profile);
    std::printf("rms error of time: means %.4f, shrunk %.4f; of energy: means %.4f, shrunk %.4f\n",
                error_of(means, time), error_of(shrunk, time), error_of(means, energy),
                error_of(shrunk, energy));
    EXPECT_NEAR(error_of(means, time), 0.01 / std::sqrt(5), 0.0005);
    // Where a quantity bends much between neighbouring clocks, they tell little of each other.
    EXPECT_LT(error_of(shrunk, time), error_of(means, time));
    EXPECT_LT(error_of(shrunk, energy), error_of(means, energy));
}

TEST(Shrinkage, LeavesWhatItCannotTellApart) {
    const CostTable truth = simulated_truth();
    const Profile once = noisy_profile(truth, 0.01, 1, 3);
    EXPECT_EQ(shrunk_costs(once).kernels[5].points[7].cost,
              mean_costs(once).kernels[5].points[7].cost);
    EXPECT_NE(shrunk_costs(once).caveat.find("no point was measured twice"), std::string::npos);
    EXPECT_EQ(shrunk_costs(noisy_profile(truth, 0.01, 3, 3)).caveat, "");
}

TEST(Shrinkage, KeepsAKernelThatReallyIsOdd) {
    // One point is 20 % cheaper than its neighbours, again and again: no noise.
    Profile profile{"g"};
    std::mt19937_64 random{1};
    std::normal_distribution<double> noise{1, 0.01};
    for (std::uint32_t c = 0; c <= 20; ++c) {
        const ClockPoint clock{{c == 20 ? 0 : 1000 + 50 * c}, auto_clock};
        const double energy = c == 9 ? 80 : 100;
        for (std::uint32_t s = 0; s < 10; ++s) {
            profile.add({{"a", {}},
                         clock,
                         {Seconds{noise(random)}, Joules{energy * noise(random)}},
                         "",
                         1,
                         s});
        }
    }
    const auto costs = shrunk_costs(profile);
    for (const PointCost& point : costs.kernels[0].points) {
        const double truth = point.clock.core == Megahertz{1450} ? 80 : 100;
        EXPECT_NEAR(point.cost.energy.count, truth, 0.015 * truth) << to_string(point.clock);
    }
}

TEST(BlockTotals, TellsRowsAndTotalApartAsTheyWereStated) {
    // Put together again, each row and the sum are known as well as was stated.
    const std::vector<double> rows{4e-4, 1e-4, 2e-4, 3e-4, 2e-4};
    const double total = 1e-5;
    const detail::BlockVariances found = detail::apart(rows, total);
    double sum = 0;
    for (const double row : found.rows) sum += row;
    EXPECT_NEAR(1 / (1 / sum + 1 / found.total), total, 1e-3 * total);
    for (std::size_t k = 0; k < rows.size(); ++k)
        EXPECT_NEAR(found.rows[k] - found.rows[k] * found.rows[k] / (sum + found.total), rows[k],
                    0.02 * rows[k]);
    // Errors that are not opposed leave the total nothing to say.
    EXPECT_EQ(detail::apart(rows, 13e-4).rows, rows);
    EXPECT_TRUE(std::isinf(detail::apart(rows, 13e-4).total));
}

/// A mix that is measured together: the sum is known to 0.1 %, its kernels to a tenth, and what one
/// is given too much, the next one lacks.
Profile measured_together(const CostTable& truth, std::uint64_t seed, bool with_blocks) {
    std::mt19937_64 random{seed};
    std::normal_distribution<double> normal;
    Profile profile{truth.gpu};
    std::uint32_t id = 0;
    for (std::uint32_t s = 0; s < 2; ++s) {
        for (std::size_t p = 0; p < truth.kernels.front().points.size(); ++p) {
            double whole = 0;
            for (const KernelCosts& kernel : truth.kernels) whole += kernel.at(p).energy.count;
            std::vector<double> off;
            double sum = 0;
            for (const KernelCosts& kernel : truth.kernels) {
                off.push_back(0.1 * kernel.at(p).energy.count * normal(random));
                sum += off.back();
            }
            double squares = 0;
            for (const KernelCosts& kernel : truth.kernels)
                squares += kernel.at(p).energy.count * kernel.at(p).energy.count;
            const double wanted = 1e-3 * whole * normal(random);
            ++id;
            std::vector<ProfileRow> rows;
            for (std::size_t k = 0; k < truth.kernels.size(); ++k) {
                const KernelCosts& kernel = truth.kernels[k];
                const double energy = kernel.at(p).energy.count;
                const double measured =
                    energy + off[k] + (wanted - sum) * energy * energy / squares;
                const Cost cost{kernel.points[p].cost.time * (1 + 1e-3 * normal(random)),
                                {std::max(measured, 0.1 * energy) / kernel.count}};
                rows.push_back({kernel.key,
                                kernel.points[p].clock,
                                cost,
                                "",
                                kernel.count,
                                s,
                                p == kernel.baseline,
                                {0.1 * energy / kernel.count},
                                {id, {whole + wanted}, {1e-3 * whole}}});
                if (!with_blocks) rows.back().block = {};
            }
            for (const ProfileRow& row : rows) profile.add(row);
        }
    }
    return profile;
}

TEST(BlockTotals, KeepWhatPlansOfAMixPromise) {
    // Root mean squares over boards and seeds of promised less kept, in points.
    const auto promise_off = [](bool with_blocks) {
        double squares = 0;
        int plans = 0;
        for (const char* board : {"mi210", "h100", "rtx_3080_ti"}) {
            const CostTable truth = simulated_truth(board);
            for (std::uint64_t seed = 0; seed < 3; ++seed, ++plans) {
                const CostTable table = shrunk_costs(measured_together(truth, seed, with_blocks));
                const Plan plan = make_plan(table, relaxed_waste(0.1), Aggregate::global);
                const double off = plan.energy_pct() -
                                   energy_percent(cost_under(plan, truth), truth.baseline_cost());
                std::printf("%+.2f ", off);
                squares += off * off;
            }
        }
        std::printf("%s\n", with_blocks ? "together" : "each by itself");
        return std::sqrt(squares / plans);
    };
    const double apart = promise_off(false);
    EXPECT_LT(promise_off(true), 0.75 * apart);
}

TEST(BlockTotals, LeaveOutABlockThatWasCutShort) {
    const CostTable truth = simulated_truth("mi210");
    const Profile whole = measured_together(truth, 1, true);
    // Of the last block only the first kernels; with its total, and without.
    const auto cut = [&](bool with_total) {
        Profile profile{whole.gpu()};
        std::size_t rows = 0;
        for (const KernelProfile& kernel : whole.kernels()) {
            for (const ProfilePoint& point : kernel.points)
                for (const ProfileSample& sample : point.samples) {
                    const bool last = sample.block == whole.blocks().rbegin()->first;
                    if (last && ++rows > 5) continue;
                    profile.add({kernel.key, point.clock, sample.cost, kernel.group, kernel.count,
                                 sample.index, point.clock == whole.baseline(), sample.energy_sd,
                                 last && !with_total ? ProfileBlock{} : whole.block_of(sample)});
                }
        }
        return shrunk_costs(profile);
    };
    const CostTable with = cut(true);
    const CostTable without = cut(false);
    for (std::size_t k = 0; k < with.kernels.size(); ++k)
        for (std::size_t p = 0; p < with.kernels[k].points.size(); ++p)
            EXPECT_NEAR(
                with.kernels[k].points[p].cost.energy / without.kernels[k].points[p].cost.energy, 1,
                0.02);
}

TEST(Validation, FindsASavingThroughDriftAndNoise) {
    std::mt19937_64 random{7};
    std::normal_distribution<double> noise{1, 0.01};
    Plan plan;
    plan.baseline = {Seconds{1}, Joules{100}};
    plan.expected = {Seconds{1}, Joules{90}};
    double drift = 1;
    const Validation found = validate(plan, 20, [&](bool planned) {
        drift *= 1.02;  // the board warms up, and how
        return Cost{Seconds{noise(random)}, Joules{drift * (planned ? 90 : 100) * noise(random)}};
    });
    EXPECT_EQ(found.promised_energy_pct, plan.energy_pct());
    EXPECT_TRUE(found.energy.contains(-10)) << found.energy.low << " " << found.energy.high;
    EXPECT_FALSE(found.energy.contains(0));
    EXPECT_TRUE(found.time.contains(0));
    EXPECT_LT(found.energy.high - found.energy.low, 4);
    EXPECT_THROW(validate(plan, 1, [](bool) { return Cost{}; }), Error);
}

TEST(Validation, JudgesBoundAndSaving) {
    Validation found{10, 0, -12, {0.2, 0.05, 0.4}, {-11.9, -12.2, -11.8}, 0};
    EXPECT_EQ(found.energy_verdict(), Verdict::kept);
    EXPECT_EQ(found.time_verdict(), Verdict::undecided);  // 0.1 points are not told apart
    EXPECT_EQ(found.verdict(), Verdict::undecided);
    found.time_bound_pct = 1;
    EXPECT_EQ(found.verdict(), Verdict::kept);
    found.time = {1.4, 1.2, 1.6};
    EXPECT_EQ(found.verdict(), Verdict::broken);
    found.time_bound_pct = std::numeric_limits<double>::infinity();
    found.promised_time_pct = 1.5;  // without a bound, the promised time is one
    EXPECT_EQ(found.verdict(), Verdict::kept);
    found.energy = {-10, -11, -9};
    EXPECT_EQ(found.verdict(), Verdict::broken);
    found.pairs = 3;
    EXPECT_EQ(found.verdict(), Verdict::undecided);
    EXPECT_TRUE(found.too_few_pairs());
}

TEST(CurvePriors, PredictARooflineFromFewPoints) {
    const auto seconds = [](double core) { return std::pow(std::pow(1 / core, 6) + 64, 1.0 / 6); };
    std::vector<ClockPoint> clocks;
    for (std::uint32_t core = 100; core <= 1000; core += 50) clocks.push_back({{core}, auto_clock});
    ClockCurve curve{clocks.size()};
    const auto index = [](std::uint32_t core) { return static_cast<Eigen::Index>(core / 50 - 2); };
    for (const std::uint32_t core : {300U, 500U, 700U, 1000U}) {
        curve.value(index(core)) = std::log(seconds(core / 1000.0));
        curve.noise(index(core)) = 0;
    }
    const CurvePriors priors{clock_shares(clocks), {curve}};
    const CurvePosterior posterior{priors.of(0), curve};
    for (const std::uint32_t core : {400U, 600U, 850U})
        EXPECT_NEAR(std::exp(posterior.mean()(index(core))) / seconds(core / 1000.0), 1, 0.1)
            << core;
    const Eigen::VectorXd variance =
        priors.of(0).diagonal() - posterior.explained().colwise().squaredNorm().transpose();
    EXPECT_LT(variance(index(500)), variance(index(100)));
}

/// Noise that drifts along the clocks of a sweep and is partly common to kernels, drawn here.
std::vector<detail::KernelSamples> drawn_samples(double drift, double common, double memory) {
    std::mt19937_64 random{7};
    std::normal_distribution<double> normal;
    constexpr std::size_t points = 80;
    constexpr double scale = 0.003;
    const auto walk = [&] {
        std::vector<double> at;
        double now = normal(random);
        for (std::size_t p = 0; p < points; ++p) {
            at.push_back(now);
            now = memory * now + std::sqrt(1 - memory * memory) * normal(random);
        }
        return at;
    };
    std::vector<detail::KernelSamples> kernels(20);
    for (auto& kernel : kernels)
        kernel = {std::vector<std::vector<detail::LogSample>>(points), scale * scale};
    for (std::uint32_t sweep = 0; sweep < 3; ++sweep) {
        const std::vector<double> all = walk();
        for (auto& kernel : kernels) {
            const std::vector<double> own = walk();
            const double level = 0.05 * normal(random);
            for (std::size_t p = 0; p < points; ++p)
                kernel.at[p].push_back(
                    {level + scale * (std::sqrt(common) * all[p] + std::sqrt(drift) * own[p] +
                                      std::sqrt(1 - drift - common) * normal(random)),
                     0, 0, sweep});
        }
    }
    return kernels;
}

TEST(SweepLuck, IsFoundWhereSamplesHaveItAndOnlyThere) {
    auto own = drawn_samples(0, 0, 0);
    detail::remove_levels(own);
    EXPECT_TRUE(detail::SweepLuck{own}.is_own());
    auto drifting = drawn_samples(0.4, 0.3, 0.9);
    detail::remove_levels(drifting);
    const detail::SweepLuck luck{drifting};
    // Of drift, what a sweep's level takes is gone.
    EXPECT_NEAR(luck.kernels, 0.3, 0.15);
    EXPECT_NEAR(luck.neighbours, 0.5, 0.15);
    EXPECT_GT(luck.variance, 3);
    // What is drawn again is like it.
    detail::LuckDraws draws{luck, 80, 3};
    double products = 0;
    double squares = 0;
    for (int kernel = 0; kernel < 40; ++kernel) {
        draws.begin_kernel();
        for (std::size_t p = 0; p + 1 < 80; ++p) {
            products += draws.draw(p, 0) * draws.draw(p + 1, 0);
            squares += draws.draw(p, 0) * draws.draw(p, 0);
        }
    }
    EXPECT_NEAR(products / squares, luck.neighbours, 0.25);
}

TEST(SmallBounds, TakeWhatIsCertain) {
    CostTable table{"g", {}, {{{"copy", {}}, "", 1, {}, 0, {0, 0.0001}}}};
    table.kernels[0].points = {{{}, {Seconds{1}, Joules{100}}},
                               {{{900}, auto_clock}, {Seconds{1.0001}, Joules{80}}}};
    EXPECT_NEAR(make_plan(table, strict_waste(), Aggregate::global).energy_pct(), -20, 1e-9);
    table.kernels[0].time_errors[1] = 0.0003;
    EXPECT_EQ(make_plan(table, strict_waste(), Aggregate::global).energy_pct(), 0);
}

/// A node that draws much is better off with a fast GPU; the choice is that of trying all.
TEST(NodePower, MovesTheBestClockUp) {
    const CostTable truth = simulated_truth("mi210");
    double before = std::numeric_limits<double>::infinity();
    for (const double watts : {0.0, 100.0, 1000.0, 10'000.0}) {
        const Objective objective =
            with_node_power(with_max_slowdown(minimum_energy(), 0.5), Watts{watts});
        const Plan plan = make_plan(truth, objective, Aggregate::single);
        double least = std::numeric_limits<double>::infinity();
        Cost best;
        for (const PointCost& point : truth.kernels.front().points) {
            Cost sum;
            for (const KernelCosts& kernel : truth.kernels)
                for (const PointCost& each : kernel.points)
                    if (each.clock == point.clock) sum += each.cost * kernel.count;
            const double joules = sum.energy.count + watts * sum.time.count();
            if (sum.time <= truth.baseline_cost().time * 1.5 && joules < least)
                least = joules, best = sum;
        }
        EXPECT_NEAR(plan.expected.time / best.time, 1, 1e-9) << watts;
        EXPECT_LE(plan.expected.time.count(), before * (1 + 1e-9)) << watts;
        before = plan.expected.time.count();
    }
    EXPECT_LT(before, make_plan(truth, minimum_energy(), Aggregate::single).expected.time.count());
    EXPECT_THROW(with_node_power(minimum_energy(), Watts{-1}), Error);
}

TEST(SweepDesign, NeedsTheBaseline) {
    EXPECT_THROW((SweepDesign{{{{900}, auto_clock}, {auto_clock, {810}}}, ClockPoint{}}), Error);
}

}  // namespace
}  // namespace kdvfs::tune
