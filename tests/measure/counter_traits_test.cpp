// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/energy_counter.hpp>

#include <tests/measure/time_at.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

TEST(UpdatePeriod, IsFoundByReadingFaster) {
    for (const Duration period : {Duration{1ms}, Duration{20ms}, Duration{100ms}}) {
        std::vector<TimedReading> readings;
        for (Duration time{0}; time < 40 * period; time += period / 13) {
            readings.push_back({at(time), static_cast<double>(time / period)});
        }
        const auto found = find_update_period(readings);
        ASSERT_TRUE(found);
        EXPECT_NEAR(Seconds{*found} / Seconds{period}, 1, 0.1);
    }
}

TEST(UpdatePeriod, IsNotGuessed) {
    std::vector<TimedReading> frozen;
    std::vector<TimedReading> faster;
    for (int i = 0; i < 100; ++i) {
        frozen.push_back({at(i * 1ms), 7});
        faster.push_back({at(i * 1ms), static_cast<double>(i)});
    }
    EXPECT_FALSE(find_update_period(frozen));
    EXPECT_FALSE(find_update_period(faster));
    EXPECT_FALSE(find_update_period({}));
}

TEST(AveragingWindow, IsFoundBesideACounter) {
    // A square wave of 90 and 500 W; the counter is exact every millisecond.
    std::vector<TimedReading> energy;
    double joules = 0;
    for (int i = 0; i <= 1000; ++i) {
        energy.push_back({at(i * 1ms), joules});
        joules += 1e-3 * (i / 83 % 2 == 0 ? 90 : 500);
    }
    for (const int window : {5, 40, 120}) {
        std::vector<TimedReading> power;
        for (std::size_t i = static_cast<std::size_t>(window); i < energy.size(); i += 7) {
            const double grown =
                energy[i].value - energy[i - static_cast<std::size_t>(window)].value;
            power.push_back({energy[i].read_at, grown / (1e-3 * window)});
        }
        const auto found = find_averaging_window(power, energy);
        ASSERT_TRUE(found) << window;
        EXPECT_NEAR(Seconds{*found}.count(), 1e-3 * window, 0.1e-3 * window);
    }
    // A meter that has nothing to do with the counter, and one that never changes.
    std::vector<TimedReading> unrelated;
    std::vector<TimedReading> steady;
    for (int i = 400; i < 1000; i += 7) {
        unrelated.push_back({at(i * 1ms), i / 7 % 2 == 0 ? 90.0 : 500.0});
        steady.push_back({at(i * 1ms), 300});
    }
    EXPECT_FALSE(find_averaging_window(unrelated, energy));
    EXPECT_FALSE(find_averaging_window(steady, energy));
    EXPECT_FALSE(find_averaging_window(steady, {}));
}

/// A logger that takes a mean over `window` every 10 ms, with noise, at steps between two powers.
std::vector<PowerStep> steps(Duration window, double from, double to) {
    std::mt19937_64 random{1};
    std::vector<PowerStep> result;
    for (int i = 0; i < 9; ++i) {
        PowerStep step{at(1s), {}};
        const Duration phase = 1ms * i;
        for (Duration time = 500ms + phase; time < 1800ms; time += 10ms) {
            const double part = window == 0ms
                                    ? (time > 1s ? 1 : 0)
                                    : std::clamp(Seconds{time - 1s} / Seconds{window}, 0.0, 1.0);
            const double noise = std::normal_distribution<double>{1, 0.005}(random);
            step.samples.push_back({at(time), (from + part * (to - from)) * noise});
        }
        result.push_back(std::move(step));
    }
    return result;
}

TEST(AveragingWindow, IsFoundFromSteps) {
    for (const Duration window : {Duration{25ms}, Duration{100ms}, Duration{300ms}}) {
        for (const auto& [from, to] : {std::pair{100.0, 600.0}, {600.0, 100.0}}) {
            const auto found = find_averaging_window(steps(window, from, to), 500ms);
            ASSERT_TRUE(found);
            EXPECT_NEAR(Seconds{*found}.count(), Seconds{window}.count(), 0.012);
        }
    }
    EXPECT_LT(find_averaging_window(steps(0ms, 100, 600), 500ms).value(), 12ms);
}

TEST(AveragingWindow, IsNotGuessed) {
    EXPECT_FALSE(find_averaging_window(steps(100ms, 300, 305), 500ms));
    EXPECT_FALSE(find_averaging_window({}, 500ms));
}

}  // namespace
}  // namespace kdvfs::measure
