// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/switch_latency.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <random>
#include <sstream>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

/// A GPU whose switching latencies are known: 1 to 150 ms, mostly by target; iterations of 50 us of
/// work at 1000 MHz with 1 % noise; 2 % of iterations and 2 % of switches are outliers.
class KnownSwitches {
public:
    explicit KnownSwitches(std::uint64_t seed) : random_{seed} {}

    double true_seconds(ClockPoint from, ClockPoint to) const {
        const double by_target = std::pow(150.0, (to.core.count % 700) / 700.0);
        return 1e-3 * std::min(150.0, by_target * (1 + 0.1 * (from.core.count % 5)));
    }
    static constexpr double pause = 300e-6;

    std::vector<ClockedIteration> steady(ClockPoint clock) {
        std::vector<ClockedIteration> iterations;
        for (int i = 0; i < 200; ++i) iterations.push_back(iterate(clock, clock, 1e18, 0));
        return iterations;
    }

    SwitchTrace change(ClockPoint from, ClockPoint to) {
        SwitchTrace trace;
        for (int i = 0; i < 20; ++i) trace.iterations.push_back(iterate(from, from, 1e18, 0));
        trace.called = TimePoint{Duration{std::llround(now_ * 1e9)}};
        double latency = true_seconds(from, to);
        if (chance(0.02)) latency *= 4;
        const double effect = now_ + latency;
        while (now_ < effect + 0.02) {
            trace.iterations.push_back(iterate(from, to, effect, pause));
        }
        return trace;
    }

    [[nodiscard]] static double iteration(ClockPoint clock) { return 0.05 / clock.core.count; }

private:
    bool chance(double share) {
        return std::uniform_real_distribution<double>{0, 1}(random_) < share;
    }

    ClockedIteration iterate(ClockPoint from, ClockPoint to, double effect, double pause_then) {
        const double start = now_;
        const double noise = std::normal_distribution<double>{1, 0.01}(random_);
        const double slow = chance(0.02) ? 2 : 1;
        const double old_time = iteration(from) * noise * slow;
        if (start >= effect) {
            now_ += iteration(to) * noise * slow;
        } else if (start + old_time <= effect - pause_then) {
            now_ += old_time;
        } else {
            const double done = (effect - pause_then - start) / old_time;
            now_ = effect + (1 - done) * iteration(to) * noise * slow;
        }
        return {TimePoint{Duration{std::llround(start * 1e9)}},
                TimePoint{Duration{std::llround(now_ * 1e9)}}};
    }

    std::mt19937_64 random_;
    double now_ = 1;
};

std::vector<ClockPoint> clocks() {
    std::vector<ClockPoint> result;
    for (const std::uint32_t core : {701U, 903U, 1104U, 1352U, 1699U}) {
        result.push_back({{core}, auto_clock});
    }
    return result;
}

std::vector<SwitchLatency> measured(KnownSwitches& gpu, std::size_t repetitions) {
    return measure_switch_latencies(
        clocks(),
        {[&](ClockPoint clock) { return gpu.steady(clock); },
         [&](ClockPoint from, ClockPoint to) { return gpu.change(from, to); },
         {}},
        repetitions);
}

TEST(SwitchLatencies, EveryEntryIsWithinFivePercentOrOneIteration) {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        KnownSwitches gpu{seed};
        const auto latencies = measured(gpu, 5);
        ASSERT_EQ(latencies.size(), 20U);
        for (const SwitchLatency& entry : latencies) {
            ASSERT_EQ(entry.status, SwitchStatus::measured);
            const double truth = gpu.true_seconds(entry.from, entry.to);
            const double allowed = std::max(0.05 * truth, Seconds{entry.iteration}.count());
            EXPECT_NEAR(Seconds{entry.switching}.count(), truth, allowed) << seed;
            EXPECT_NEAR(Seconds{entry.transition}.count(), KnownSwitches::pause, 60e-6) << seed;
        }
    }
}

TEST(SwitchLatencies, CountsItsOutliers) {
    KnownSwitches gpu{7};
    std::size_t outliers = 0;
    for (const SwitchLatency& entry : measured(gpu, 25)) {
        outliers += entry.outliers;
        EXPECT_LE(entry.switching_low, entry.switching);
        EXPECT_GE(entry.switching_high, entry.switching);
    }
    EXPECT_GT(outliers, 2U);
    EXPECT_LT(outliers, 30U);  // 500 switches, of which 2 %
}

TEST(SwitchLatencies, SaysWhenNothingChanges) {
    KnownSwitches gpu{1};
    const ClockPoint low{{800}, auto_clock};
    const ClockPoint high{{1600}, auto_clock};
    const auto before = steady_iterations(gpu.steady(low));
    const auto after = steady_iterations(gpu.steady(high));
    std::vector<SwitchTrace> traces(5);
    for (SwitchTrace& trace : traces) trace.iterations = gpu.steady(low);
    EXPECT_EQ(switch_latency(low, high, before, after, traces).status, SwitchStatus::no_effect);
    EXPECT_EQ(switch_latency(low, high, before, before, traces).status,
              SwitchStatus::indistinguishable);
}

TEST(SwitchLatencies, BecomeJson) {
    KnownSwitches gpu{1};
    auto latencies = measured(gpu, 3);
    latencies[0].status = SwitchStatus::no_effect;
    const DeviceInfo device{"A <GPU>", "simulated", "gfx90a", "virtual time", true};
    std::ostringstream text;
    write_switch_json(text, device, latencies);
    const auto json = nlohmann::json::parse(text.str());
    EXPECT_TRUE(json["simulated"].get<bool>());
    ASSERT_EQ(json["pairs"].size(), 20U);
    EXPECT_TRUE(json["pairs"][0]["switching_s"].is_null());
    EXPECT_GT(json["pairs"][1]["switching_s"].get<double>(), 0);
}

}  // namespace
}  // namespace kdvfs::measure
