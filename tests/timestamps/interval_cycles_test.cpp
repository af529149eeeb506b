// SPDX-License-Identifier: MIT
#include <kdvfs/measure/kernel_interval.hpp>

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

TEST(IntervalCycles, ATimestampWithoutACountLeavesItsIntervalUncounted) {
    EXPECT_EQ(cycles_of({5'000, 6'500}), std::vector<std::uint64_t>{1'500});
    EXPECT_EQ(cycles_of({0, 6'500}), std::vector<std::uint64_t>{0});
    EXPECT_EQ(cycles_of({5'000, 0}), std::vector<std::uint64_t>{0});
}

}  // namespace
}  // namespace kdvfs::measure
