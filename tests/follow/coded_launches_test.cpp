// SPDX-License-Identifier: MIT
#include <examples/gpt3_xl/iteration.hpp>
#include <kdvfs/detail/tune/coded_launches.hpp>
#include <kdvfs/error.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace kdvfs::tune {
namespace {

using Launches = std::vector<std::uint32_t>;

Launches decoded(const CodedLaunches& coded) { return decode_launches(coded.runs, coded.launches); }

TEST(CodedLaunches, LayersAreCodedOnce) {
    const auto sequence = gpt3::launch_sequence();
    const Launches launches{sequence.begin(), sequence.end()};
    const CodedLaunches coded = encode_launches(launches);
    EXPECT_EQ(coded.runs, (std::vector<LaunchRun>{{1, 2}, {24, 12}, {1, 5}, {24, 25}, {1, 2}}));
    EXPECT_EQ(coded.launches.size(), gpt3::kernel_count);
    EXPECT_EQ(decoded(coded), launches);
}

TEST(CodedLaunches, AnySequenceComesBackAsItWas) {
    std::mt19937_64 random{5};
    for (int round = 0; round < 2000; ++round) {
        Launches launches(random() % 200);
        const std::uint64_t kernels = 1 + random() % 6;
        for (std::uint32_t& launch : launches)
            launch = static_cast<std::uint32_t>(random() % kernels);
        const CodedLaunches coded = encode_launches(launches);
        ASSERT_EQ(decoded(coded), launches);
        ASSERT_LE(coded.launches.size(), launches.size());
    }
}

TEST(CodedLaunches, MillionsOfLaunchesAreCodedInTimeAndSpace) {
    Launches launches;
    for (std::uint32_t i = 0; i < 1'000'000; ++i) launches.push_back(i % 997 % 24);
    const CodedLaunches coded = encode_launches(launches);
    EXPECT_LE(coded.launches.size(), 2000U);
    EXPECT_EQ(decoded(coded), launches);
    std::mt19937_64 random{5};
    for (std::uint32_t& launch : launches) launch = static_cast<std::uint32_t>(random() % 3);
    EXPECT_EQ(decoded(encode_launches(launches)), launches);
}

TEST(CodedLaunches, CodesThatMakeNoSenseAreRefused) {
    const Launches launches{0, 1, 2};
    const auto refused = [&](const std::vector<LaunchRun>& runs) {
        EXPECT_THROW(decode_launches(runs, launches), Error);
    };
    refused({{1, 4}});
    refused({{1, 2}});
    refused({{0, 3}});
    refused({{1, 3}, {1, 0}});
    refused({{0xffffffff, 3}});
    refused({{8'000'000, 2}, {8'000'000, 1}});
    EXPECT_TRUE(decode_launches({}, {}).empty());
    EXPECT_TRUE(encode_launches({}).runs.empty());
}

}  // namespace
}  // namespace kdvfs::tune
