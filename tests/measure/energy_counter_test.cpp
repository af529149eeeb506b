// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/energy_counter.hpp>

#include <tests/measure/time_at.hpp>

#include <gtest/gtest.h>

#include <limits>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

/// A counter read at its sample's time.
CounterStep take(EnergyCounter& counter, double joules, Duration time,
                 ReadingStatus status = ReadingStatus::ok) {
    return counter.take({{joules}, at(time), status}, at(time));
}

TEST(EnergyCounter, CountsFromItsFirstReading) {
    EnergyCounter counter;
    EXPECT_EQ(take(counter, 1000, 0ms).sample->total.count, 0);
    EXPECT_DOUBLE_EQ(take(counter, 1030, 100ms).sample->total.count, 30);
    const CounterStep step = take(counter, 1100, 300ms);
    EXPECT_EQ(step.status, ReadingStatus::ok);
    EXPECT_DOUBLE_EQ(step.sample->total.count, 100);
    EXPECT_EQ(step.sample->at, at(300ms));
    EXPECT_EQ(counter.faults().sum(), 0U);
}

TEST(EnergyCounter, KeepsTheTimeOfTheSampleNotOfTheRead) {
    EnergyCounter counter;
    counter.take({{5}, at(1ms), ReadingStatus::ok}, at(9ms));
    EXPECT_EQ(counter.take({{6}, at(11ms), ReadingStatus::ok}, at(19ms)).sample->at, at(11ms));
}

TEST(EnergyCounter, AnOldSampleIsNoNews) {
    EnergyCounter counter;
    take(counter, 10, 0ms);
    const CounterStep step = counter.take({{10}, at(0ms), ReadingStatus::ok}, at(10ms));
    EXPECT_EQ(step.status, ReadingStatus::unchanged);
    EXPECT_FALSE(step.sample);
}

TEST(EnergyCounter, StandingStillBecomesFrozenAndLosesTheGap) {
    EnergyCounter counter{{.patience = 200ms}};
    take(counter, 10, 0ms);
    EXPECT_EQ(take(counter, 10, 200ms).status, ReadingStatus::unchanged);
    EXPECT_EQ(take(counter, 10, 201ms).status, ReadingStatus::frozen);
    EXPECT_TRUE(counter.frozen());
    const CounterStep thawed = take(counter, 80, 300ms);
    EXPECT_EQ(thawed.status, ReadingStatus::ok);
    EXPECT_EQ(thawed.sample->segment, 1U);
    EXPECT_EQ(thawed.sample->total.count, 0);
    EXPECT_FALSE(counter.frozen());
    EXPECT_DOUBLE_EQ(take(counter, 90, 400ms).sample->total.count, 10);
}

TEST(EnergyCounter, WaitsTenPeriodsOfASlowCounter) {
    EnergyCounter counter{{.period = 100ms, .patience = 200ms}};
    take(counter, 10, 0ms);
    EXPECT_EQ(take(counter, 10, 1000ms).status, ReadingStatus::unchanged);
    EXPECT_EQ(take(counter, 10, 1001ms).status, ReadingStatus::frozen);
}

TEST(EnergyCounter, AWrapIsAStatusAndStartsANewSegment) {
    EnergyCounter counter{{.wraps_at = {65536}}};
    take(counter, 65500, 0ms);
    EXPECT_EQ(take(counter, 2, 100ms).status, ReadingStatus::wrapped);
    const CounterStep next = take(counter, 42, 200ms);
    EXPECT_EQ(next.status, ReadingStatus::ok);
    EXPECT_EQ(next.sample->segment, 1U);
    EXPECT_EQ(next.sample->total.count, 0);
    EXPECT_EQ(counter.faults().wrapped, 1U);
}

TEST(EnergyCounter, AGlitchBackwardsIsSkipped) {
    EnergyCounter counter;
    take(counter, 1000, 0ms);
    EXPECT_EQ(take(counter, 3, 100ms).status, ReadingStatus::backwards);
    const CounterStep next = take(counter, 1060, 200ms);
    EXPECT_EQ(next.sample->segment, 0U);
    EXPECT_DOUBLE_EQ(next.sample->total.count, 60);
}

TEST(EnergyCounter, AResetIsBelievedWhenTheNextReadingConfirmsIt) {
    EnergyCounter counter;
    take(counter, 1000, 0ms);
    take(counter, 1030, 100ms);
    EXPECT_EQ(take(counter, 3, 200ms).status, ReadingStatus::backwards);
    const CounterStep next = take(counter, 33, 300ms);
    EXPECT_EQ(next.sample->segment, 1U);
    EXPECT_DOUBLE_EQ(next.sample->total.count, 30);
}

TEST(EnergyCounter, MoreThanTheBoardCanDrawIsImplausible) {
    EnergyCounter counter{{.highest_power = {1000}}};
    take(counter, 0, 0ms);
    EXPECT_EQ(take(counter, 101, 100ms).status, ReadingStatus::implausible);
    EXPECT_DOUBLE_EQ(take(counter, 60, 200ms).sample->total.count, 60);
    EXPECT_EQ(counter.faults().implausible, 1U);
}

TEST(EnergyCounter, WhatIsNotANumberNeverBecomesOne) {
    EnergyCounter counter;
    take(counter, 1, 0ms);
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(), -1.0}) {
        const CounterStep step = take(counter, bad, 100ms);
        EXPECT_EQ(step.status, ReadingStatus::implausible);
        EXPECT_FALSE(step.sample);
    }
    EXPECT_DOUBLE_EQ(take(counter, 2, 200ms).sample->total.count, 1);
}

TEST(EnergyCounter, SamplesOutOfOrderAreNotUsed) {
    EnergyCounter counter;
    take(counter, 10, 100ms);
    EXPECT_EQ(counter.take({{12}, at(50ms), ReadingStatus::ok}, at(110ms)).status,
              ReadingStatus::backwards);
    EXPECT_EQ(counter.take({{12}, at(100ms), ReadingStatus::ok}, at(120ms)).status,
              ReadingStatus::implausible);
}

TEST(EnergyCounter, PassesOnAbsentAndFailed) {
    EnergyCounter counter;
    EXPECT_EQ(take(counter, 7, 0ms, ReadingStatus::absent).status, ReadingStatus::absent);
    EXPECT_EQ(take(counter, 7, 1ms, ReadingStatus::failed).status, ReadingStatus::failed);
    EXPECT_EQ(counter.faults().absent, 1U);
    EXPECT_EQ(counter.faults().failed, 1U);
}

}  // namespace
}  // namespace kdvfs::measure
