// SPDX-License-Identifier: MIT
#include <kdvfs/measure/self_check.hpp>

#include <gtest/gtest.h>

#include <functional>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

/// Half a second and more of a board at 300 W; `joules` is what its counter makes of the time.
SelfCheck check(const std::function<double(Seconds)>& joules, bool with_power = true) {
    SelfCheckRun run{{.period = 10ms}};
    for (Duration time{0}; time <= 600ms; time += 10ms) {
        const TimePoint now{time};
        run.take(EnergyReading{{joules(time)}, now, ReadingStatus::ok}, now);
        if (with_power) run.take(Watts{300}, now);
    }
    return run.result();
}

TEST(SelfCheck, PassesACounterThatAgrees) {
    const SelfCheck result = check([](Seconds time) { return 300 * time.count(); });
    EXPECT_TRUE(result.passed) << result.reason;
    EXPECT_NEAR(result.counted.count, 300, 0.1);
    EXPECT_NEAR(result.drawn->count, 300, 0.1);
}

TEST(SelfCheck, RefusesACounterThatIsOffByAFactor) {
    for (const double factor : {0.5, 1.5, 1000.0 / 15.3}) {
        const SelfCheck result = check([&](Seconds time) { return factor * 30 * time.count(); });
        EXPECT_FALSE(result.passed);
        EXPECT_NE(result.reason.find("factor"), std::string::npos) << result.reason;
    }
}

TEST(SelfCheck, RefusesOneThatStandsStill) {
    EXPECT_EQ(check([](Seconds) { return 1234.0; }).reason, "the counter stands still");
    EXPECT_EQ(check([](Seconds time) { return 300 * std::min(time.count(), 0.1); }).reason,
              "the counter stands still");
}

TEST(SelfCheck, RefusesOneThatGoesBack) {
    EXPECT_EQ(check([](Seconds time) { return 900 - 300 * time.count(); }).reason,
              "the counter went backwards");
}

TEST(SelfCheck, SaysWhenThereIsNothingToCompareWith) {
    const SelfCheck result = check([](Seconds time) { return 300 * time.count(); }, false);
    EXPECT_TRUE(result.passed);
    EXPECT_FALSE(result.reason.empty());
    EXPECT_FALSE(result.drawn);
}

TEST(SelfCheck, JudgesNothingInAMoment) {
    SelfCheckRun run;
    run.take(EnergyReading{{1}, TimePoint{}, ReadingStatus::ok}, TimePoint{});
    EXPECT_FALSE(run.result().passed);
    EXPECT_FALSE(SelfCheckRun{}.result().passed);
}

TEST(SelfCheck, RefusesAnAbsentCounter) {
    SelfCheckRun run;
    for (const Duration time : {Duration{0}, Duration{600ms}}) {
        run.take(EnergyReading{{}, TimePoint{time}, ReadingStatus::absent}, TimePoint{time});
    }
    EXPECT_EQ(run.result().reason, "the device has no energy counter");
}

}  // namespace
}  // namespace kdvfs::measure
