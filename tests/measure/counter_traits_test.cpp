// SPDX-License-Identifier: MIT
#include <kdvfs/measure/counter_traits.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint at(Duration time) { return TimePoint{time}; }

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
