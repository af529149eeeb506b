// SPDX-License-Identifier: MIT
#include <kdvfs/device/amd/gpu_metrics.hpp>

#include <tests/virtual_amdgpu/metrics_image.hpp>

#include <gtest/gtest.h>

namespace kdvfs::device::amd {
namespace {

using namespace std::chrono_literals;

std::span<const std::byte> bytes(const std::string& text) {
    return std::as_bytes(std::span{text.data(), text.size()});
}

TEST(GpuMetrics, ReadsEveryRevisionOfFormatOne) {
    virtual_amdgpu::MetricsSample sample;
    sample.watts = 217;
    sample.joules = 1234.5;
    sample.sampled_at = 77ms;
    sample.read_at = 78ms;
    for (unsigned content = 0; content <= 8; ++content) {
        const auto metrics =
            parse_gpu_metrics(bytes(virtual_amdgpu::metrics_image(content, sample)));
        ASSERT_TRUE(metrics) << content;
        EXPECT_EQ(metrics->power, Watts{217}) << content;
        EXPECT_DOUBLE_EQ(metrics->energy->count, 1234.5) << content;
        const bool firmware = content >= 2;
        EXPECT_EQ(metrics->time, firmware ? MetricsTime::firmware : MetricsTime::driver) << content;
        EXPECT_EQ(metrics->time_ns, firmware ? 77'000'000u : 78'000'000u) << content;
    }
}

TEST(GpuMetrics, AllOnesMeanAbsent) {
    std::string table(120, '\xff');
    table[2] = 1;
    table[3] = 3;
    table[96] = 0;  // a time there is
    const auto metrics = parse_gpu_metrics(bytes(table));
    ASSERT_TRUE(metrics);
    EXPECT_FALSE(metrics->energy);
    EXPECT_FALSE(metrics->power);
}

TEST(GpuMetrics, RefusesUnknownRevisionsAndEveryShorterTable) {
    std::string table = virtual_amdgpu::metrics_image(3, {});
    for (std::size_t size = 0; size < 104; ++size) {
        EXPECT_FALSE(parse_gpu_metrics(bytes(table.substr(0, size)))) << size;
    }
    table[3] = 9;
    EXPECT_FALSE(parse_gpu_metrics(bytes(table)));
    table[2] = 2;
    table[3] = 3;
    EXPECT_FALSE(parse_gpu_metrics(bytes(table)));
}

TEST(SampleClock, FindsTheDistanceOfTwoClocksFromReadingsThatComeLate) {
    SampleClock clock;
    const auto distance = 5s;
    TimePoint last;
    for (int i = 0; i < 1000; ++i) {
        const auto sampled = std::chrono::milliseconds{i};
        const auto lateness = std::chrono::microseconds{20 + (i * 37) % 980};
        const TimePoint read_at{sampled + distance + lateness};
        last = clock.on_timeline(static_cast<std::uint64_t>(Duration{sampled}.count()), read_at);
        EXPECT_LE(last, read_at);
    }
    EXPECT_LE(last - TimePoint{999ms + distance}, 40us);
}

TEST(SampleClock, FollowsADriftingClock) {
    SampleClock clock;
    for (int i = 0; i < 100'000; ++i) {  // 100 s at +50 ppm
        const auto true_time = std::chrono::microseconds{i * 1000};
        const auto shown = static_cast<std::uint64_t>(static_cast<double>(i) * 1e6 * (1 + 50e-6));
        const TimePoint found = clock.on_timeline(shown, TimePoint{true_time + 20us});
        EXPECT_LE(found, TimePoint{true_time + 20us});
        EXPECT_LE(std::chrono::abs(found - TimePoint{true_time}), 250us);
    }
}

TEST(SampleClock, StartsAgainAfterAReset) {
    SampleClock clock;
    clock.on_timeline(10'000'000'000, TimePoint{20s});
    EXPECT_EQ(clock.on_timeline(1'000, TimePoint{21s}), TimePoint{21s});
}

}  // namespace
}  // namespace kdvfs::device::amd
