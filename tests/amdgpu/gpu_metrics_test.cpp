// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>

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
    sample.core_mhz = 1290;
    for (unsigned content = 0; content <= 9; ++content) {
        const auto metrics = parse_gpu_metrics(
            bytes(content == 9 ? virtual_amdgpu::self_describing_image(sample, true)
                               : virtual_amdgpu::metrics_image(content, sample)));
        ASSERT_TRUE(metrics) << content;
        EXPECT_EQ(metrics->power, Watts{217}) << content;
        EXPECT_DOUBLE_EQ(metrics->energy->count, 1234.5) << content;
        EXPECT_EQ(metrics->core_clock, Megahertz{1290}) << content;
        const bool firmware = content >= 2;
        EXPECT_EQ(metrics->time, firmware ? MetricsTime::firmware : MetricsTime::driver) << content;
        EXPECT_EQ(metrics->time_ns, firmware ? 77'000'000u : 78'000'000u) << content;
    }
}

TEST(GpuMetrics, AllOnesMeanAbsent) {
    std::string table(120, '\xff');
    table[0] = 120;
    table[1] = 0;
    table[2] = 1;
    table[3] = 3;
    table[96] = 0;  // a time there is
    const auto metrics = parse_gpu_metrics(bytes(table));
    ASSERT_TRUE(metrics);
    EXPECT_FALSE(metrics->energy);
    EXPECT_FALSE(metrics->power);
}

TEST(GpuMetrics, RefusesUnknownRevisionsAndTablesOfWrongSize) {
    std::string table = virtual_amdgpu::metrics_image(3, {});
    for (std::size_t size = 0; size < 104; ++size) {
        EXPECT_FALSE(parse_gpu_metrics(bytes(table.substr(0, size)))) << size;
    }
    std::string says_less = table;
    says_less[0] = 100;
    EXPECT_FALSE(parse_gpu_metrics(bytes(says_less)));
    table[3] = 10;
    EXPECT_FALSE(parse_gpu_metrics(bytes(table)));
    table[2] = 2;
    table[3] = 3;
    EXPECT_FALSE(parse_gpu_metrics(bytes(table)));
    const std::string described = virtual_amdgpu::self_describing_image({}, true);
    for (std::size_t size = 0; size < described.size(); ++size) {
        EXPECT_FALSE(parse_gpu_metrics(bytes(described.substr(0, size)))) << size;
    }
}

using virtual_amdgpu::AttributeTable;

/// A table with a time and these attributes.
template <class... Attributes>
std::optional<GpuMetrics> parse_with(Attributes... attributes) {
    AttributeTable table;
    (table.add(attributes.unit, attributes.type, attributes.id, attributes.value), ...);
    table.add(5, AttributeTable::u64, 32, 100);
    return parse_gpu_metrics(bytes(table.image()));
}

struct One {
    unsigned unit;
    AttributeTable::Type type;
    unsigned id;
    std::int64_t value;
};

TEST(SelfDescribingMetrics, TellWhatTheirUnitsAndTypesSay) {
    for (const auto type : {AttributeTable::u16, AttributeTable::s16, AttributeTable::u32,
                            AttributeTable::s32, AttributeTable::u64, AttributeTable::s64}) {
        EXPECT_EQ(parse_with(One{3, type, 3, 705})->power, Watts{705}) << type;
        EXPECT_FALSE(parse_with(One{3, type, 3, -1})->power) << type;
    }
    EXPECT_FALSE(parse_with(One{3, AttributeTable::s16, 3, -5})->power) << "a negative power";
    EXPECT_FALSE(parse_with(One{7, AttributeTable::u16, 3, 705})->power) << "of another unit";
    EXPECT_FALSE(parse_with(One{9, AttributeTable::u64, 7, 705})->energy) << "of another unit";
    EXPECT_EQ(parse_with(One{4, AttributeTable::u64, 8, 77})->time, MetricsTime::firmware);

    AttributeTable driver_only;
    driver_only.add(4, AttributeTable::u64, 8, 77);
    const auto by_driver = parse_gpu_metrics(bytes(driver_only.image()));
    ASSERT_TRUE(by_driver);
    EXPECT_EQ(by_driver->time, MetricsTime::driver);
    EXPECT_EQ(by_driver->time_ns, 77u);
}

TEST(SelfDescribingMetrics, CountInstancesAndSkipWhatIsUnknown) {
    AttributeTable table;
    table.add(1, AttributeTable::u16, 33, 1000, 0xffff, 1300);  // the second die does not tell
    table.add(77, AttributeTable::u8, 1023, 1, 2, 3);
    table.add(3, AttributeTable::u16, 3, 100, 200);  // whose power is it?
    table.add(5, AttributeTable::u64, 32, 100);
    const auto metrics = parse_gpu_metrics(bytes(table.image()));
    ASSERT_TRUE(metrics);
    EXPECT_EQ(metrics->core_clock, Megahertz{1150});
    EXPECT_FALSE(metrics->power);
    EXPECT_EQ(metrics->time_ns, 1000u);
}

TEST(SelfDescribingMetrics, AreRefusedWhereTheyCannotBeSkipped) {
    EXPECT_FALSE(parse_with(One{0, static_cast<AttributeTable::Type>(8), 900, 1}))
        << "nobody knows how long a value of type 8 is";
    AttributeTable table;
    table.add(5, AttributeTable::u64, 32, 100);
    std::string image = table.image();
    image[4] = 2;
    EXPECT_FALSE(parse_gpu_metrics(bytes(image))) << "fewer attributes than it says";
    image[4] = 1;
    image[8] = 2;
    EXPECT_FALSE(parse_gpu_metrics(bytes(image))) << "fewer values than it says";
    EXPECT_FALSE(parse_gpu_metrics(bytes(AttributeTable{}.image()))) << "it tells no time";
}

TEST(PowerIntegral, IsTheMeanOfTwoPowersTimesTheTimeBetween) {
    PowerIntegral integral;
    EXPECT_EQ(integral.add(Watts{100}, TimePoint{1s}).count, 0);
    EXPECT_DOUBLE_EQ(integral.add(Watts{300}, TimePoint{2s}).count, 200);
    EXPECT_DOUBLE_EQ(integral.add(Watts{300}, TimePoint{2s}).count, 200) << "the same sample";
    EXPECT_DOUBLE_EQ(integral.add(Watts{300}, TimePoint{3s}).count, 500);
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
