// SPDX-License-Identifier: MIT
// A clock for the time without work, on the simulated H100 and by itself.
#include <kdvfs/detail/control/rest_watch.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::idle_clock_test {
namespace {

using namespace std::chrono_literals;

struct Work : Kernel<"work"> {};
struct Kept : Kernel<"kept"> {};
struct Short : Kernel<"short"> {};
using Registry = PolicyRegistry<Bind<"work", AutoClock>, Bind<"kept", KeepClock>,
                                Bind<"short", CapClock<Megahertz{900}>>>;
constexpr ClockPoint low{{345}, auto_clock};

simulated::KernelModel kernel_of(Seconds time) {
    simulated::KernelModel kernel;
    kernel.core_time = time;
    kernel.core_energy = Watts{250} * time;
    return kernel;
}

simulated::Device device_with(Duration latency) {
    return simulated::Device{simulated::h100(),
                             {.clock_switch = simulated::uniform_switch(latency),
                              .energy_counter = simulated::EnergyCounterTraits{.period = 1ms}}};
}

GpuOptions idle_at(ClockPoint clock, Duration latency) {
    GpuOptions options;
    options.switch_latency = latency;
    options.idle_clock.clock = clock;
    return options;
}

class IdleClockTest : public ::testing::Test {
protected:
    void run(const auto& gpu, Seconds time) {
        FrequencyScope<Work> scope{gpu, stream_};
        device_.launch(stream_, kernel_of(time));
    }
    [[nodiscard]] bool is_low() const { return device_.effective_clocks() == low; }

    simulated::Device device_ = device_with(1ms);
    simulated::Stream* stream_ = device_.create_stream();
};

TEST_F(IdleClockTest, IsOffByDefault) {
    const auto gpu = simulated::open(device_, {}).with<Registry>();
    run(gpu, Seconds{1e-3});
    device_.advance(20s);
    EXPECT_EQ(gpu.report().scopes.writes, 0U);
    EXPECT_FALSE(gpu.report().idle_clock);
}

TEST_F(IdleClockTest, HoldsWithoutWorkAndGoesWithTheFirstScope) {
    const auto gpu = simulated::open(device_, idle_at(low, 1ms)).with<Registry>();
    device_.advance(1s);
    EXPECT_FALSE(is_low()) << "before any work was seen";
    run(gpu, Seconds{1e-3});
    device_.synchronize();
    device_.advance(15ms);
    EXPECT_FALSE(is_low()) << "before 20 ms without work";
    device_.advance(10ms);
    EXPECT_TRUE(is_low());
    run(gpu, Seconds{5e-3});
    device_.advance(2ms);
    EXPECT_FALSE(is_low());
    device_.synchronize();
    const auto share = gpu.report().idle_clock;
    ASSERT_TRUE(share);
    EXPECT_EQ(share->clock, low);
    EXPECT_EQ(share->times, 1U);
    EXPECT_NEAR(share->time.count(), 5e-3, 1.5e-3);
    EXPECT_NEAR(share->waking.count(), 1e-3, 0.2e-3);
}

TEST_F(IdleClockTest, WaitsForWorkThatTheHostHasLeftBehind) {
    const auto gpu = simulated::open(device_, idle_at(low, 1ms)).with<Registry>();
    device_.advance(1s);
    run(gpu, Seconds{0.5});
    device_.advance(400ms);  // the scope is over on the host, not on the stream
    EXPECT_FALSE(is_low());
    device_.advance(150ms);
    EXPECT_TRUE(is_low());
}

TEST_F(IdleClockTest, GoesWithTheNextIteration) {
    const auto gpu = simulated::open(device_, idle_at(low, 1ms)).with<Registry>();
    device_.advance(1s);
    run(gpu, Seconds{1e-3});
    device_.synchronize();
    device_.advance(100ms);
    EXPECT_TRUE(is_low());
    gpu.next_iteration();
    device_.advance(2ms);
    EXPECT_FALSE(is_low());
}

TEST_F(IdleClockTest, IsNotForScopesThatKeepTheirClockOrDoNotPay) {
    GpuOptions options = idle_at(low, 1ms);
    options.gate.least_latencies = 1e9;
    const auto gpu = simulated::open(device_, options).with<Registry>();
    device_.advance(1s);
    {
        FrequencyScope<Kept> scope{gpu, stream_};
        device_.launch(stream_, kernel_of(Seconds{0.3}));
    }
    device_.advance(250ms);
    EXPECT_FALSE(is_low());
    device_.synchronize();
    {
        FrequencyScope<Short> scope{gpu, stream_};
        device_.launch(stream_, kernel_of(Seconds{0.3}));
    }
    device_.advance(250ms);
    EXPECT_FALSE(is_low());
    device_.advance(100ms);
    EXPECT_TRUE(is_low());
    EXPECT_EQ(gpu.report().scopes.kept, 1U);
    EXPECT_EQ(gpu.report().scopes.not_worth_it, 1U);
}

TEST_F(IdleClockTest, StaysUpWhereThereMayBeWorkThatNobodySees) {
    const auto gpu = simulated::open(device_, idle_at(low, 1ms)).with<Registry>();
    simulated::Stream* other = device_.create_stream();
    gpu.protect(other);
    device_.advance(1s);
    run(gpu, Seconds{1e-3});
    device_.advance(5s);
    EXPECT_FALSE(is_low());
}

TEST_F(IdleClockTest, StaysUpOnceThereIsAGraph) {
    const auto gpu = simulated::open(device_, idle_at(low, 1ms)).with<Registry>();
    device_.begin_capture(stream_);
    run(gpu, Seconds{1e-3});
    static_cast<void>(device_.end_capture(stream_));
    device_.advance(1s);
    run(gpu, Seconds{1e-3});
    device_.advance(5s);
    EXPECT_FALSE(is_low());
}

TEST_F(IdleClockTest, EndsWithTheGpu) {
    {
        const auto gpu = simulated::open(device_, idle_at(low, 1ms)).with<Registry>();
        device_.advance(1s);
        run(gpu, Seconds{1e-3});
        device_.advance(1s);
        EXPECT_TRUE(is_low());
        gpu.close();
    }
    device_.advance(1s);
    EXPECT_TRUE(device_.effective_clocks().is_auto());
}

TEST_F(IdleClockTest, IsAClockOfTheBoard) {
    EXPECT_THROW(simulated::open(device_, idle_at({{346}, auto_clock}, 1ms)), Error);
    GpuOptions options = idle_at(low, 1ms);
    options.idle_clock.tolerated_loss = 0;
    EXPECT_THROW(simulated::open(device_, options), Error);
}

TEST(RestWatchTest, LetsWakesCostNoMoreThanTheirShare) {
    IdleClock options;
    options.clock = low;
    options.tolerated_loss = 0.01;
    const TimePoint began{};
    detail::RestWatch watch{options, 10ms, began};
    std::mt19937_64 random{1};
    std::uniform_int_distribution<int> milliseconds{1, 400};
    TimePoint now = began;
    std::uint64_t wakes = 0;
    for (int i = 0; i < 20000; ++i) {
        watch.look(true, now);
        const TimePoint work = now + std::chrono::milliseconds{milliseconds(random)};
        while (watch.due() && *watch.due() < work) {
            now = *watch.due();
            watch.look(true, now);
        }
        wakes += watch.low() ? 1 : 0;
        ASSERT_LE(Seconds{10ms} * static_cast<double>(wakes),
                  0.01 * Seconds{work - began} + Seconds{1e-9});
        now = work;
        watch.look(false, now);
        EXPECT_FALSE(watch.low());
    }
    EXPECT_GT(wakes, 1000U);
    EXPECT_EQ(watch.share(now).times, wakes);
}

TEST(RestWatchTest, TakesTheWorstLatencyWhereNoneIsKnown) {
    IdleClock options;
    options.clock = low;
    detail::RestWatch watch{options, {}, TimePoint{}};
    watch.look(true, TimePoint{});
    EXPECT_EQ(watch.due(), TimePoint{} + 15s);
}

TEST_F(IdleClockTest, RestsAreReportedByClock) {
    GpuOptions options = idle_at(low, 1ms);
    options.meter_every = 1;
    options.sampler.period = 1ms;
    const auto gpu = simulated::open(device_, options).with<Registry>();
    device_.advance(1s);
    for (int i = 0; i < 40; ++i) {
        gpu.next_iteration();
        run(gpu, Seconds{5e-3});
        device_.synchronize();
        device_.advance(100ms);
    }
    const auto totals = gpu.report().totals;
    Seconds sum{0};
    for (const auto& rest : totals.rests) {
        sum += rest.time;
        // The driver is written 1 ms before the clock changes.
        const double watts = simulated::idle_power(device_.board(), rest.clock).count;
        ASSERT_TRUE(rest.energy.resolved) << to_string(rest.clock);
        EXPECT_NEAR((rest.energy.joules / rest.time).count, watts, 0.07 * watts)
            << to_string(rest.clock);
    }
    EXPECT_NEAR(sum / totals.idle_time, 1, 1e-9);
    ASSERT_EQ(totals.rests.size(), 2U);
    EXPECT_EQ(totals.rests.front().clock, low);
    EXPECT_NEAR(totals.rests.front().time.count(), 40 * 0.08, 0.1);
    std::ostringstream text;
    text << gpu.report();
    EXPECT_NE(text.str().find("idle at core 345 MHz, memory auto: "), std::string::npos)
        << text.str();
}

/// Boards whose idle power by clock is drawn, against what they drew in truth while a kernel ran
/// and while none did: rests are long and short, so that some end before the clock goes down.
TEST(IdleClockOnDrawnBoards, LeavesNothingUnexplained) {
    constexpr int boards = 6;
    int covered = 0;
    double worst = 0;
    for (int seed = 0; seed < boards; ++seed) {
        std::mt19937_64 random(static_cast<unsigned>(seed) + 11);
        const auto draw = [&](double least, double most) {
            return std::uniform_real_distribution<double>{least, most}(random);
        };
        simulated::Board board = simulated::h100();
        board.static_power = {draw(15, 60)};
        board.core_overhead.leakage = {draw(10, 30)};
        board.core_overhead.clock_tree_watts_per_ghz = draw(3, 16);
        simulated::Device device{
            board,
            {.clock_switch = simulated::uniform_switch(1ms),
             .energy_counter = simulated::EnergyCounterTraits{
                 .period = 1ms, .quantum = {1e-3}, .noise = {draw(5e-3, 20e-3)}}}};
        GpuOptions options = idle_at(low, 1ms);
        options.meter_every = 1;
        options.sampler.period = 1ms;
        const auto gpu = simulated::open(device, options).with<Registry>();
        simulated::Stream* stream = device.create_stream();
        Joules work{};
        const Joules before = device.true_energy();
        device.advance(1s);
        const double length = draw(6e-3, 30e-3);
        for (int i = 0; i < 60; ++i) {
            gpu.next_iteration();
            const Joules began = device.true_energy();
            {
                FrequencyScope<Work> scope{gpu, stream};
                device.launch(stream, kernel_of(Seconds{length}));
            }
            device.synchronize(stream);
            work += device.true_energy() - began;
            device.advance(std::chrono::microseconds{static_cast<int>(draw(5e3, 160e3))});
        }
        const double idle = (device.true_energy() - before - work).count;
        const auto totals = gpu.report().totals;
        worst = std::max(worst, std::abs(totals.unexplained / totals.counter));
        ASSERT_TRUE(totals.kernels.resolved && totals.idle.resolved) << "seed " << seed;
        EXPECT_NEAR(totals.kernels.joules / work, 1, 0.03);
        EXPECT_LT(totals.idle.half_width.count, 0.015 * idle);
        covered += std::abs(totals.idle.joules.count - idle) <= totals.idle.half_width.count;
        for (const auto& rest : totals.rests) {
            const double watts = simulated::idle_power(board, rest.clock).count;
            EXPECT_TRUE(rest.energy.resolved) << to_string(rest.clock);
            EXPECT_NEAR((rest.energy.joules / rest.time).count, watts, 0.03 * watts)
                << to_string(rest.clock) << ", seed " << seed;
        }
    }
    std::printf("simulated, idle clock, drawn idle powers: at most %.2f %% unexplained\n",
                100 * worst);
    EXPECT_LT(worst, 0.015);
    EXPECT_GE(covered, boards - 1);
}

/// The time at the low clock in all gaps that the best rule without foresight has, whose wakes cost
/// at most `tolerated`: it knows how long gaps are, but not which one comes, lowers the clock t
/// after a gap's begin and raises it u after it, or mixes two such pairs.
Seconds best_causal_time(const std::vector<Duration>& gaps, Duration latency, Seconds tolerated) {
    const double late = 1e3 * Seconds{latency}.count();
    std::vector<std::pair<double, double>> rules{{0, 0}};  // ms at the low clock, ms lost
    for (int t = 0; t < 200; t += 2)
        for (int u = t + 2; u <= 202; u += 2) {
            auto& [lowered, lost] = rules.emplace_back();
            for (const Duration gap : gaps) {
                const double length = 1e3 * Seconds{gap}.count();
                if (length <= t + late) continue;
                const double behind = std::clamp(length - u, 0.0, late);  // its raise
                lowered += std::min<double>(length, u) - t - late + behind;
                lost += late - behind;
            }
        }
    // A mix lies on the line between two rules: the least, over prices, of what the best one has.
    double best = std::numeric_limits<double>::infinity();
    for (double price = 0; price < 50; price += 0.1) {
        double most = 0;
        for (const auto& [lowered, lost] : rules) most = std::max(most, lowered - price * lost);
        best = std::min(best, most + price * 1e3 * tolerated.count());
    }
    return Seconds{1e-3 * best};
}

/// Ten kernels of 1 ms, then a gap of a length that nobody knows.
TEST(IdleClockOnRandomGaps, KeepsItsBound) {
    for (const Duration latency : {Duration{1ms}, Duration{10ms}, Duration{50ms}}) {
        Joules oracle{};
        Joules causal{};
        const auto cost = [&](std::optional<ClockPoint> clock) {
            simulated::Device device = device_with(latency);
            GpuOptions options = idle_at(low, latency);
            options.meter_every = 1'000'000;
            options.idle_clock.clock = clock;
            const auto gpu = simulated::open(device, options).with<Registry>();
            simulated::Stream* stream = device.create_stream();
            std::mt19937_64 random{7};
            std::uniform_int_distribution<int> milliseconds{5, 200};
            std::vector<Duration> gaps;
            Seconds low_time{0};  // of who knows each gap, and asks for one clock at a time
            for (int i = 0; i < 120; ++i) {
                for (int launch = 0; launch < 10; ++launch) {
                    FrequencyScope<Work> scope{gpu, stream};
                    device.launch(stream, kernel_of(Seconds{1e-3}));
                }
                device.synchronize(stream);
                const Duration gap = std::chrono::milliseconds{milliseconds(random)};
                gaps.push_back(gap);
                const Duration late = std::max<Duration>(latency - 10ms, 0ns);
                if (gap - latency >= late) low_time += Seconds{gap - late};
                device.advance(gap);
            }
            const auto board = device.board();
            oracle =
                (simulated::idle_power(board, {}) - simulated::idle_power(board, low)) * low_time;
            causal =
                (simulated::idle_power(board, {}) - simulated::idle_power(board, low)) *
                best_causal_time(gaps, latency, 0.01 * Seconds{device.now().time_since_epoch()});
            const std::pair result{Seconds{device.now().time_since_epoch()}, device.true_energy()};
            gpu.close();
            return result;
        };
        const auto as_found = cost(std::nullopt);
        const auto lowered = cost(low);
        const double slower = 100 * (lowered.first / as_found.first - 1);
        const double saved = 100 * (1 - lowered.second / as_found.second);
        std::printf(
            "simulated, random gaps of 5 to 200 ms, latency %g ms: idle clock saves %.2f "
            "%% energy at %+.2f %% time; who knows each gap %.2f %%, who only knows how long "
            "they are at most %.2f %%\n",
            Seconds{latency}.count() * 1e3, saved, slower, 100 * (oracle / as_found.second),
            100 * (causal / as_found.second));
        EXPECT_LT(saved, 100 * (causal / as_found.second));
        EXPECT_LE(slower, 1);
        EXPECT_GT(saved, latency < 50ms ? 0.0 : -0.01);
    }
}

}  // namespace
}  // namespace kdvfs::idle_clock_test
