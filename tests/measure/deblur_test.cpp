// SPDX-License-Identifier: MIT
#include <bench/power_profile/deblur.hpp>
#include <tests/measure/known_waveform.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

PowerProfile profile_of(std::uint64_t seed, Duration window, double jitter) {
    const ProfileSettings settings{.components = {"total", "xcd"},
                                   .read_delay = Duration{3150},
                                   .logger_window = window,
                                   .most_executions = 64};
    const KnownWaveform::Traits traits{.jitter = jitter, .window = window.count()};
    return PowerProfiler{KnownWaveform{seed, traits}, settings}.profile_power();
}

TEST(Deblur, UndoesTheMeanOverAWindow) {
    for (const Duration window : {Duration{100us}, Duration{330us}}) {
        double worst = 0;
        double worst_blurred = 0;
        std::size_t inside = 0;
        std::size_t points = 0;
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            const PowerProfile profile = profile_of(seed, window, 0.01);
            const SmoothCurve curve = deblur(profile);
            ASSERT_FALSE(curve.points.empty());
            worst = std::max(worst, error_of(curve));
            worst_blurred = std::max(worst_blurred, error_of(profile.curves[0]));
            for (const auto& point : curve.points) {
                ++points;
                const double truth = KnownWaveform::watts(point.x / KnownWaveform::seconds);
                inside += std::abs(point.y - truth) <= point.half_width ? 1 : 0;
            }
            EXPECT_EQ(profile.blur, window);
        }
        RecordProperty(std::to_string(window / 1us) + "_us_percent", std::to_string(100 * worst));
        EXPECT_LT(worst, 0.06) << window / 1us;
        EXPECT_GT(worst_blurred, 2 * worst) << window / 1us;
        EXPECT_GT(static_cast<double>(inside), 0.85 * static_cast<double>(points)) << window / 1us;
    }
}

TEST(Deblur, MakesNothingUpWhereWindowsHideEverything) {
    // A window of exactly two executions always shows the same mean.
    EXPECT_TRUE(deblur(profile_of(1, 400us, 0)).points.empty());
}

TEST(Deblur, WantsALoggerThatAverages) {
    EXPECT_TRUE(deblur(profile_of(1, 0us, 0.01)).points.empty());
    EXPECT_TRUE(deblur({}).points.empty());
}

TEST(Deblur, KnowsItsComponents) {
    const PowerProfile profile = profile_of(1, 100us, 0.01);
    const SmoothCurve total = deblur(profile, 0);
    const SmoothCurve xcd = deblur(profile, 1);
    EXPECT_NEAR(xcd.points[15].y, total.points[15].y / 2, 10);
    EXPECT_TRUE(deblur(profile, 2).points.empty());
}

}  // namespace
}  // namespace kdvfs::measure
