// SPDX-License-Identifier: MIT
#include <tests/simulated/board.hpp>

#include <cmath>
#include <vector>

namespace {

using namespace simulated_device;

class Counter : public testing::Test {
protected:
    void draw(EnergyMeter& meter, Duration time, double watts = 100) {
        meter.draw({watts}, now, now + time);
        now += time;
    }
    TimePoint now{};
};

TEST_F(Counter, ShowsTheSampleOfTheLastPeriod) {
    EnergyMeter meter{{.period = 10ms}, 1};
    draw(meter, 9ms);
    EXPECT_EQ(meter.read(now).joules, Joules{});
    draw(meter, 4ms);
    const EnergyReading reading = meter.read(now);
    EXPECT_EQ(reading.status, ReadingStatus::ok);
    EXPECT_EQ(reading.sampled_at, TimePoint{10ms}) << "the sample's time, not the read's";
    EXPECT_NEAR(reading.joules.count, 1, 1e-12);
    draw(meter, 100ms, 50);
    EXPECT_EQ(meter.read(now).sampled_at, TimePoint{110ms});
    EXPECT_NEAR(meter.read(now).joules.count, 1.3 + 0.05 * 97, 1e-9);
    EXPECT_NEAR(meter.truth().count, 1.3 + 5, 1e-12);
}

TEST_F(Counter, WithoutAPeriodFollows) {
    EnergyMeter meter{{}, 1};
    draw(meter, 3ms);
    EXPECT_NEAR(meter.read(now).joules.count, 0.3, 1e-12);
    EXPECT_EQ(meter.read(now).sampled_at, now);
    meter.freeze(true);
    draw(meter, 3ms);
    EXPECT_NEAR(meter.read(now).joules.count, 0.3, 1e-12);
    EXPECT_EQ(meter.read(now).sampled_at, TimePoint{3ms});
    meter.freeze(false);
    draw(meter, 3ms);
    EXPECT_NEAR(meter.read(now).joules.count, 0.9, 1e-12);
}

TEST_F(Counter, CountsInWholeQuanta) {
    EnergyMeter meter{{.period = 1ms, .quantum = {0.25}}, 1};
    for (int i = 0; i < 50; ++i) {
        draw(meter, 1ms);
        const double quanta = meter.read(now).joules.count / 0.25;
        EXPECT_EQ(quanta, std::floor(quanta));
        EXPECT_LE(meter.read(now).joules, meter.truth());
        EXPECT_LT(meter.truth().count - meter.read(now).joules.count, 0.25);
    }
}

TEST_F(Counter, IsNoisyAsToldAndNeverCountsDown) {
    EnergyMeter meter{{.period = 1ms, .noise = {0.02}}, 7};
    double last = 0;
    double squares = 0;
    constexpr int samples = 4000;
    for (int i = 0; i < samples; ++i) {
        draw(meter, 1ms);  // 0.1 J, five deviations: the monotone rule seldom bites
        const double shown = meter.read(now).joules.count;
        EXPECT_GE(shown, last);
        last = shown;
        squares += (shown - meter.truth().count) * (shown - meter.truth().count);
    }
    EXPECT_NEAR(std::sqrt(squares / samples), 0.02, 0.002);
}

TEST_F(Counter, NeverCountsDownEvenWhereNoiseIsGreaterThanAStep) {
    EnergyMeter meter{{.period = 1ms, .noise = {0.5}}, 7};
    double last = 0;
    for (int i = 0; i < 1000; ++i) {
        draw(meter, 1ms, 1);
        EXPECT_GE(meter.read(now).joules.count, last);
        last = meter.read(now).joules.count;
    }
}

TEST_F(Counter, FreezesJumpsAndWraps) {
    EnergyMeter meter{{.period = 1ms}, 1};
    draw(meter, 10ms);
    meter.freeze(true);
    draw(meter, 10ms);
    EXPECT_NEAR(meter.read(now).joules.count, 1, 1e-12);
    EXPECT_EQ(meter.read(now).sampled_at, TimePoint{10ms});
    meter.freeze(false);
    draw(meter, 10ms);
    EXPECT_NEAR(meter.read(now).joules.count, 3, 1e-12);
    meter.transition({-2});
    EXPECT_NEAR(meter.read(now).joules.count, 1, 1e-12);
    meter.transition({2});
    meter.wrap_at({3.5});
    draw(meter, 10ms);
    EXPECT_NEAR(meter.read(now).joules.count, 0.5, 1e-12);
    EXPECT_NEAR(meter.truth().count, 4, 1e-12) << "the truth does not follow the counter's faults";
}

std::vector<double> readings(std::uint64_t seed) {
    DeviceOptions options = at_once();
    options.seed = seed;
    options.energy_counter = EnergyCounterTraits{.period = 1ms, .quantum = {}, .noise = {0.01}};
    Device device{mi210(), options};
    std::vector<double> shown;
    for (int i = 0; i < 30; ++i) {
        device.launch(nullptr, work(0.1 * (i % 9)));
        device.advance(1ms);
        shown.push_back(device.read_energy().joules.count);
    }
    return shown;
}

TEST(Determinism, IsBySeed) {
    EXPECT_EQ(readings(1), readings(1));
    EXPECT_NE(readings(1), readings(2));
}

}  // namespace
