// SPDX-License-Identifier: MIT
#include <tests/simulated/board.hpp>

#include <kdvfs/device/power_limiter.hpp>
#include <kdvfs/device/simulated/presets.hpp>

#include <utility>

namespace {

using namespace simulated_device;

Device device_with(SwitchModel model) {
    return Device{mi210(), {.clock_switch = std::move(model)}};
}

TEST(Clocks, AreReadBackAtOnceAndHoldAfterTheLatency) {
    Device device = device_with(uniform_switch(2ms));
    device.apply(half);
    EXPECT_EQ(device.read_clock_state().cap, half);
    EXPECT_EQ(device.read_clock_state().mode, "manual");
    EXPECT_TRUE(device.effective_clocks().is_auto());
    device.advance(1999us);
    EXPECT_TRUE(device.effective_clocks().is_auto());
    device.advance(1us);
    EXPECT_EQ(device.effective_clocks(), half);
}

TEST(Clocks, LetTheGpuWorkOnAtTheOldClockThenPause) {
    Device device = device_with(uniform_switch(2ms, 500us));
    device.launch(nullptr, work(2.5));
    device.apply(half);
    device.synchronize();
    // 1.5 ms at full speed, 0.5 ms of pause, and the last 1 ms of work at half of it.
    EXPECT_EQ(device.now(), TimePoint{1500us + 500us + 2000us});
}

TEST(Clocks, DrawIdlePowerInThePause) {
    Device device = device_with(uniform_switch(1ms, 1ms));
    device.launch(nullptr, work(1));
    device.apply(half);
    device.advance(1ms);
    EXPECT_NEAR(device.true_energy().count, (idle_power(device.board(), {}) * Seconds{1e-3}).count,
                1e-9);
}

TEST(Clocks, ALaterCallOvertakesAnEarlierOne) {
    Device device = device_with(uniform_switch(2ms));
    device.apply(half);
    device.advance(1ms);
    device.apply({.core = {1000}});
    device.advance(1ms);
    EXPECT_TRUE(device.effective_clocks().is_auto()) << "the overtaken change arrived";
    device.advance(1ms);
    EXPECT_EQ(device.effective_clocks().core, Megahertz{1000});
}

TEST(Clocks, ALaterCallEndsThePauseOfAnEarlierOne) {
    Device device = device_with(uniform_switch(2ms, 1ms));
    device.launch(nullptr, work(10));
    device.apply(half);
    device.advance(1500us);  // half-way through the pause
    device.apply({});
    device.synchronize();
    // Back to auto: 1 ms worked, 0.5 ms paused, 1 ms worked, 1 ms paused, the rest.
    EXPECT_EQ(device.now(), TimePoint{10ms + 1500us});
}

TEST(Clocks, SlowDownWhatIsUnderWay) {
    Device device{mi210(), at_once()};
    device.launch(nullptr, work(2));
    device.advance(1ms);
    device.apply(half);
    device.synchronize();
    EXPECT_EQ(device.now(), TimePoint{3ms});
}

TEST(Clocks, DelaysMayDependOnThePair) {
    SwitchModel model;
    model.delays = [](ClockPoint, ClockPoint to) {
        return SwitchDelays{to.is_auto() ? Duration{1ms} : Duration{3ms}, {}};
    };
    Device device = device_with(model);
    device.apply(half);
    device.advance(3ms);
    EXPECT_EQ(device.effective_clocks(), half);
    device.apply({});
    device.advance(1ms);
    EXPECT_TRUE(device.effective_clocks().is_auto());
}

TEST(Clocks, CapsAreSoft) {
    Device device{mi210(), at_once()};
    // So many joules that the power cap holds the core below any of these caps.
    const KernelModel hungry{.core_time = Seconds{1e-3}, .core_energy = {0.5}};
    const auto time_at = [&](ClockPoint cap) {
        device.apply(cap);
        const TimePoint began = device.now();
        device.launch(nullptr, hungry);
        device.synchronize();
        return device.now() - began;
    };
    const Duration free = time_at({});
    EXPECT_GT(free, 1ms) << "not limited by power";
    EXPECT_EQ(time_at({.core = {1650}}), free);
    EXPECT_GT(time_at({.core = {500}}), free);
}

TEST(Clocks, MemoryAndCoreAreCappedApart) {
    Device device{rtx_3080_ti(), at_once()};
    device.apply({.core = {}, .memory = {5001}});
    EXPECT_EQ(device.effective_clocks(), ClockPoint{});
    device.advance(0ns);
    EXPECT_EQ(device.effective_clocks(), (ClockPoint{.core = {}, .memory = {5001}}));
}

TEST(Clocks, ThatAreNotListedAreAnErrorAndChangeNothing) {
    Device device{rtx_3080_ti(), at_once()};
    for (const ClockPoint point : {ClockPoint{.core = {1111}}, ClockPoint{.core = {30}},
                                   ClockPoint{.core = {}, .memory = {5002}}}) {
        EXPECT_THROW(device.apply(point), Error) << to_string(point);
    }
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

TEST(Clocks, RestoreBringsBackEveryPart) {
    Device device{mi210(), at_once()};
    const ClockState odd{.cap = half, .floor = {.core = {600}}, .mode = "perf_determinism"};
    device.change_clocks_as_other(odd);
    const ClockState found = device.read_clock_state();
    EXPECT_EQ(found, odd);
    device.apply({});
    EXPECT_EQ(device.read_clock_state().cap, ClockPoint{});
    device.restore(found);
    EXPECT_EQ(device.read_clock_state(), odd);
    device.reset_to_defaults();
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

/// A board whose limit is one of the mean, and a GEMM that draws more than that.
Board averaging_board() {
    Board board = h100();
    board.limiter_rate = kdvfs::device::PowerLimiter::measured_rate;
    return board;
}
KernelModel hungry() { return roofline(h100(), {1e12, 0, 1e9}); }

TEST(PowerLimit, OfTheMeanLetsAShortRunDrawMore) {
    Device device{averaging_board(), at_once()};
    const Watts limit = device.board().power_cap;
    const auto clipped = operate(device.board(), hungry(), {});
    ASSERT_TRUE(clipped.power_limited);
    const Seconds alone = operate_below(device.board(), hungry(), {}, 1980).time;
    while (since_start(device.now()) < Seconds{0.02}) {
        device.launch(nullptr, hungry());
        device.synchronize();
    }
    EXPECT_GT(device.true_energy() / since_start(device.now()), limit * 1.2);
    EXPECT_LT(alone, clipped.time * 0.9);
}

TEST(PowerLimit, OfTheMeanIsKeptInTheEnd) {
    Device device{averaging_board(), at_once()};
    const auto clipped = operate(device.board(), hungry(), {});
    const auto run = [&](int launches) {
        const TimePoint began = device.now();
        const Joules before = device.true_energy();
        for (int i = 0; i < launches; ++i) device.launch(nullptr, hungry());
        device.synchronize();
        const Seconds time = device.now() - began;
        EXPECT_NEAR(((device.true_energy() - before) / time).count, device.board().power_cap.count,
                    1)
            << launches;
        return time / launches;
    };
    for (int i = 0; i < 400; ++i) device.launch(nullptr, hungry());
    device.synchronize();
    EXPECT_NEAR(run(400) / clipped.time, 1, 1e-3);
}

TEST(PowerLimit, OfTheMeanLeavesToOneKernelWhatAnotherDoesNotDraw) {
    Device device{averaging_board(), at_once()};
    const Board clipping = h100();
    const KernelModel copy = roofline(clipping, {0, 0, 1e9});
    const auto mix = [&](int times) {
        const TimePoint began = device.now();
        const Joules before = device.true_energy();
        for (int i = 0; i < times; ++i) {
            device.launch(nullptr, hungry());
            device.launch(nullptr, copy);
        }
        device.synchronize();
        return std::pair{Seconds{device.now() - began} / times,
                         (device.true_energy() - before) * (1.0 / times)};
    };
    mix(600);
    const auto [time, energy] = mix(600);
    EXPECT_NEAR((energy / time).count, clipping.power_cap.count, 2);
    // Clipped, each kernel by itself: the copy leaves its watts to nobody.
    EXPECT_LT(time,
              0.99 * (operate(clipping, hungry(), {}).time + operate(clipping, copy, {}).time));
    // After a rest the ceiling is up again.
    device.advance(500ms);
    const TimePoint began = device.now();
    device.launch(nullptr, hungry());
    device.synchronize();
    EXPECT_NEAR(Seconds{device.now() - began} / operate_below(clipping, hungry(), {}, 1980).time, 1,
                0.02);
}

}  // namespace
