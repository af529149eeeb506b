// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/sampler.hpp>

#include <tests/measure/time_at.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

EnergyReading reading(Duration time, ReadingStatus status = ReadingStatus::ok) {
    return {Watts{300} * Seconds{time}, at(time), status};
}

TEST(Sampler, ReadsEveryTenMilliseconds) {
    Sampler sampler{{}, at(5ms)};
    EXPECT_EQ(sampler.next_read(), at(5ms));
    sampler.complete(reading(5ms), at(5ms + 300us));
    EXPECT_EQ(sampler.next_read(), at(15ms));
}

TEST(Sampler, ASlowReadDelaysNoneAfterIt) {
    Sampler sampler{{}, at(0ms)};
    sampler.complete(reading(0ms), at(23ms));
    EXPECT_EQ(sampler.next_read(), at(30ms));
    EXPECT_EQ(sampler.gaps(), 1U);
}

TEST(Sampler, FollowsTheCountersOwnRate) {
    Sampler sampler{{.period = 0ms, .limits = {.period = 1ms}}, at(0ms)};
    sampler.complete(reading(0ms), at(0ms));
    EXPECT_EQ(sampler.next_read(), at(1ms));
}

TEST(Sampler, AsksAFailingCounterLessOften) {
    Sampler sampler{{}, at(0ms)};
    TimePoint now = at(0ms);
    std::vector<Duration> waits;
    for (int i = 0; i < 12; ++i) {
        sampler.complete(reading(0ms, ReadingStatus::failed), now);
        waits.push_back(sampler.next_read() - now);
        now = sampler.next_read();
    }
    EXPECT_EQ(waits[0], 20ms);
    EXPECT_EQ(waits[1], 40ms);
    EXPECT_EQ(waits.back(), 1s);
    sampler.complete(reading(now.time_since_epoch()), now);
    EXPECT_EQ(sampler.next_read() - now, 10ms);
}

TEST(Sampler, NeverAsksAnAbsentCounterAgain) {
    Sampler sampler{{}, at(0ms)};
    EXPECT_EQ(sampler.complete(reading(0ms, ReadingStatus::absent), at(0ms)),
              ReadingStatus::absent);
    EXPECT_EQ(sampler.next_read(), Sampler::never);
}

TEST(Sampler, RestsAndGoesOnAtOnce) {
    Sampler sampler{{}, at(0ms)};
    sampler.complete(reading(0ms), at(0ms));
    sampler.rest(at(5ms));
    EXPECT_EQ(sampler.next_read(), at(10'005ms));
    sampler.rest(at(6ms));
    EXPECT_EQ(sampler.next_read(), at(10'005ms)) << "it rests already";
    sampler.complete(reading(10'005ms), at(10'005ms));
    EXPECT_EQ(sampler.next_read(), at(20'005ms));
    sampler.resume(at(12s));
    EXPECT_EQ(sampler.next_read(), at(12s));
    sampler.complete(reading(12s), at(12s));
    sampler.resume(at(12'001ms));
    EXPECT_EQ(sampler.next_read(), at(12'010ms));
    EXPECT_EQ(sampler.gaps(), 0U);
    std::vector<EnergySample> samples;
    sampler.take_samples(samples);
    ASSERT_EQ(samples.size(), 3U);
    EXPECT_EQ(samples.back().segment, 0U);
}

TEST(Sampler, HandsSamplesOnInOrderAndForgetsTheOldestWhenNobodyTakesThem) {
    Sampler sampler{{.capacity = 3}, at(0ms)};
    for (Duration time = 0ms; time < 50ms; time += 10ms) sampler.complete(reading(time), at(time));
    std::vector<EnergySample> samples;
    sampler.take_samples(samples);
    ASSERT_EQ(samples.size(), 3U);
    EXPECT_EQ(samples[0].at, at(20ms));
    EXPECT_EQ(samples[2].at, at(40ms));
    EXPECT_EQ(sampler.dropped(), 2U);
    sampler.take_samples(samples);
    EXPECT_TRUE(samples.empty());
}

}  // namespace
}  // namespace kdvfs::measure
