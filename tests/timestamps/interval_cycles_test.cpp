// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/kernel_interval.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace kdvfs::measure {
namespace {

std::vector<std::uint64_t> cycles_of(const std::vector<std::uint64_t>& counts) {
    IntervalBuilder builder;
    std::vector<std::uint64_t> cycles;
    bool leaving = false;
    TimePoint time;
    for (const std::uint64_t count : counts) {
        time += Duration{1000};
        builder.take({{.leaving = leaving}, time, count},
                     [&](const auto& stretch) { cycles.push_back(stretch.core_cycles); });
        leaving = !leaving;
    }
    return cycles;
}

std::uint64_t cycles_between(std::uint32_t first_unit, std::uint32_t second_unit) {
    IntervalBuilder builder;
    std::uint64_t cycles = 0;
    const auto sum = [&](const auto& stretch) { cycles += stretch.core_cycles; };
    builder.take({{.leaving = false}, TimePoint{Duration{1000}}, 5'000, first_unit}, sum);
    builder.take({{.leaving = true}, TimePoint{Duration{2000}}, 6'500, second_unit}, sum);
    return cycles;
}

TEST(IntervalCycles, CountsOfTwoUnitsAreNotSubtracted) {
    EXPECT_EQ(cycles_between(3, 3), 1'500u);
    EXPECT_EQ(cycles_between(3, 4), 0u);
}

TEST(IntervalCycles, ATimestampWithoutACountLeavesItsIntervalUncounted) {
    EXPECT_EQ(cycles_of({5'000, 6'500}), std::vector<std::uint64_t>{1'500});
    EXPECT_EQ(cycles_of({0, 6'500}), std::vector<std::uint64_t>{0});
    EXPECT_EQ(cycles_of({5'000, 0}), std::vector<std::uint64_t>{0});
}

}  // namespace
}  // namespace kdvfs::measure
