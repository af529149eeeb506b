// SPDX-License-Identifier: MIT
// Plans of segments for one GPT-3-XL iteration, followed by the scopes around its kernels on
// simulated boards.
#include <kdvfs/tune/planner.hpp>
#include <tests/follow/followed_iteration.hpp>
#include <tests/follow/random_launches.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>

namespace follow_test {
namespace {

using namespace std::chrono_literals;

using Policies = PolicyRegistry<Default<KeepClock>>;

/// How many perturbed iterations are run, and that everything is, where the environment says so.
std::optional<int> soak() {
    const char* text = std::getenv("KDVFS_FOLLOW_SOAK");
    return text == nullptr ? std::nullopt : std::optional{std::atoi(text)};
}

const Job& fitted() {
    static const Job job{"rtx_3080_ti"};
    return job;
}

/// The table of the demo, and its bounds.
struct Figure {
    Duration latency;
    double energy_pct;  ///< at most
};

class FollowLive : public ::testing::TestWithParam<Figure> {};

TEST_P(FollowLive, ScopesAsTheyAreKeepWhatThePlanPromises) {
    const auto [latency, bound] = GetParam();
    if (!soak() && latency != 1ms) GTEST_SKIP() << "with the other latencies in the soak test";
    const Job& job = fitted();
    const tune::SegmentPlan plan = job.plan(latency, tune::strict_waste());
    const auto live =
        gpt3::run_followed<Policies>(job.board.board, job.board.kernels, plan, latency);
    const double energy = tune::energy_percent(live.run.cost, plan.baseline);
    const double time = tune::time_percent(live.run.cost, plan.baseline);
    std::printf(
        "simulated, latency %g ms: %zu segments, promised time %+.3f %% energy %+.3f %%, live time "
        "%+.3f %% energy %+.3f %%, followed %.2f %%, gap %.3f\n",
        Seconds{latency}.count() * 1e3, plan.segments.size(), plan.time_pct(), plan.energy_pct(),
        time, energy, live.followed_pct(), plan.gap_pct);
    EXPECT_NEAR(energy, plan.energy_pct(), 0.3);
    EXPECT_LE(energy, bound);
    EXPECT_LE(time, 0.1);
    EXPECT_LE(plan.gap_pct, 0.1);
    EXPECT_EQ(live.followed_pct(), 100);
    const auto& scopes = live.run.report.scopes;
    EXPECT_EQ(scopes.scopes, gpt3::launch_count);
    EXPECT_EQ(scopes.switches + scopes.device_redundant + scopes.followed, gpt3::launch_count);
    EXPECT_EQ(scopes.kept + scopes.refused + scopes.captured + scopes.not_worth_it, 0U);
}

INSTANTIATE_TEST_SUITE_P(Latencies, FollowLive,
                         ::testing::Values(Figure{0us, -15.5}, Figure{10us, -15.4},
                                           Figure{100us, -14.9}, Figure{1ms, -12.0},
                                           Figure{6ms, -10.3}, Figure{150ms, -8.7}));

/// Iterations launched almost as planned, by entries; the same for everyone who asks.
std::vector<std::vector<std::size_t>> perturbed_iterations(double share, int iterations) {
    const auto planned = gpt3::launch_sequence();
    const std::vector<std::uint32_t> launches{planned.begin(), planned.end()};
    std::mt19937_64 random{11};
    std::vector<std::vector<std::size_t>> result;
    for (int i = 0; i < iterations; ++i) {
        result.emplace_back();
        for (const Launched& launch : perturbed(launches, share, random)) {
            result.back().push_back(launch.kernel == detail::not_in_plan ? gpt3::kernel_count
                                                                         : launch.kernel);
        }
    }
    return result;
}

/// @param plan null: scopes that keep the clocks
tune::Cost run(const std::vector<std::vector<std::size_t>>& iterations,
               std::shared_ptr<const PlanTable> plan, Duration latency,
               measure::Report* report = nullptr) {
    const Job& job = fitted();
    simulated::Device device = gpt3::live_device(job.board.board, latency);
    GpuOptions options = gpt3::live_options(latency);
    options.meter_every = 1'000'000;
    const auto gpu = simulated::open(device, options).with<Policies>(std::move(plan));
    simulated::Stream* stream = device.create_stream();
    for (const auto& iteration : iterations) {
        gpu.next_iteration();
        for (const std::size_t entry : iteration)
            launch_one(gpu, stream, entry, [&](std::size_t kernel) {
                device.launch(stream, job.board.kernels[kernel]);
            });
        device.synchronize(stream);
    }
    const tune::Cost cost{device.now().time_since_epoch(), device.true_energy()};
    if (report != nullptr) *report = gpu.report();
    return cost;
}

TEST(FollowPerturbed, ProgramsAreNoTapes) {
    for (const double share : {0.01, 0.05}) {
        const auto iterations = perturbed_iterations(share, soak().value_or(8));
        const tune::Cost on_auto = run(iterations, nullptr, 0us);
        for (const Duration latency : {Duration{1ms}, Duration{0us}, Duration{6ms}}) {
            if (!soak() && latency != 1ms) continue;
            const auto plan = fitted().plan(latency, tune::strict_waste());
            measure::Report report;
            const tune::Cost cost = run(iterations, fitted().followed(plan), latency, &report);
            const measure::FollowedShare& followed = *report.followed;
            std::printf(
                "simulated, %g %% perturbed, latency %g ms: time %+.3f %% energy %+.3f %% against "
                "auto on the same launches, followed %.2f %% of the time, lost %ju times\n",
                100 * share, Seconds{latency}.count() * 1e3, tune::time_percent(cost, on_auto),
                tune::energy_percent(cost, on_auto), 100 * followed.share(),
                std::uintmax_t{followed.times_lost});
            EXPECT_GE(followed.share(), share < 0.02 ? 0.97 : 0.90);
            EXPECT_LE(tune::time_percent(cost, on_auto), 0.3);
            EXPECT_LE(tune::energy_percent(cost, on_auto), 0.6 * plan.energy_pct());
            EXPECT_GT(followed.added + followed.left_out + followed.swapped, 0U);
        }
    }
}

/// Boards that no published table has been fitted to, at no slowdown and at 2 %.
TEST(FollowBoards, KeepWhatTheirPlansPromise) {
    if (!soak()) GTEST_SKIP() << "in the soak test";
    for (const char* gpu : {"mi210", "mi250x", "mi300x", "h100"}) {
        const Job job{gpu};
        for (const double slowdown : {0.0, 0.02}) {
            const tune::Objective objective =
                slowdown == 0 ? tune::strict_waste() : tune::relaxed_waste(slowdown);
            const tune::Plans plans = tune::make_plans(job.table, objective);
            for (const Duration latency : {Duration{0us}, Duration{1ms}, Duration{6ms}}) {
                const tune::SegmentPlan plan = job.plan(latency, objective);
                const auto live =
                    gpt3::run_followed<Policies>(job.board.board, job.board.kernels, plan, latency);
                const double energy = tune::energy_percent(live.run.cost, plan.baseline);
                const double time = tune::time_percent(live.run.cost, plan.baseline);
                std::printf(
                    "simulated %s, slowdown %g %%, latency %g ms: %zu segments, promised time "
                    "%+.2f %% energy %+.2f %%, live time %+.2f %% energy %+.2f %%; one clock "
                    "%+.2f %%, one per pass %+.2f %%\n",
                    gpu, 100 * slowdown, Seconds{latency}.count() * 1e3, plan.segments.size(),
                    plan.time_pct(), plan.energy_pct(), time, energy,
                    plans[tune::Aggregate::single].energy_pct(),
                    plans[tune::Aggregate::per_group].energy_pct());
                EXPECT_NEAR(energy, plan.energy_pct(), 0.3) << gpu;
                EXPECT_LE(time, 100 * slowdown + 0.1) << gpu;
            }
        }
    }
}

}  // namespace
}  // namespace follow_test
