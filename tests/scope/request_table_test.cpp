// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/votes.hpp>

#include <gtest/gtest.h>

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace kdvfs {
namespace {

TEST(RequestTable, NumbersEachPointOnce) {
    kdvfs::detail::RequestTable table;
    const RequestIndex capped = table.index_of({.core = 1100_MHz});
    const RequestIndex automatic = table.index_of({});
    EXPECT_NE(capped, no_request);
    EXPECT_NE(automatic, no_request) << "to ask for auto is to ask";
    EXPECT_NE(capped, automatic);
    EXPECT_EQ(table.index_of({.core = 1100_MHz}), capped);
    EXPECT_NE(table.index_of({1100_MHz, 5001_MHz}), capped);
    EXPECT_EQ(table.point(capped), (ClockPoint{.core = 1100_MHz}));
    EXPECT_EQ(table.point(automatic), ClockPoint{});
}

TEST(RequestTable, HoldsAsManyPointsAsALevelCanCarry) {
    kdvfs::detail::RequestTable table;
    const auto point = [](std::uint32_t n) { return ClockPoint{.core = {n}}; };
    for (std::uint32_t n = 1; n <= 4095; ++n) {
        const RequestIndex index = table.index_of(point(n));
        ASSERT_EQ((RequestWord{index, 5}.request()), index) << "survives the way through a cell";
        ASSERT_EQ(table.point(index), point(n));
    }
    for (int again = 0; again < 2; ++again) {
        try {
            table.index_of(point(4096));
            FAIL() << "the 4096th point has no number left";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::invalid_input);
            EXPECT_NE(std::string{error.what()}.find("4095"), std::string::npos) << error.what();
        }
    }
    EXPECT_EQ(table.point(table.index_of(point(4095))), point(4095)) << "known points still serve";
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
/// A process may open a GPU often, and each keeps its table.
TEST(RequestTable, IsSmallWhereFewPointsAreAskedFor) {
    const std::size_t before = ::mallinfo2().uordblks;
    const auto table = std::make_unique<kdvfs::detail::RequestTable>();
    table->index_of({.core = 1100_MHz});
    EXPECT_LT(::mallinfo2().uordblks, before + 8192);
}
#endif

TEST(RequestTable, IsReadWhileItGrows) {
    kdvfs::detail::RequestTable table;
    EXPECT_EQ(table.point(no_request), ClockPoint{});
    EXPECT_EQ(table.point({1}), ClockPoint{}) << "which was never given";
    std::atomic<std::uint32_t> given{0};
    std::thread reader{[&] {
        for (std::uint32_t seen = 0; seen < 4095;) {
            seen = given;
            for (std::uint32_t n = 1; n <= seen; n += 31)
                ASSERT_EQ(table.point({n}), (ClockPoint{.core = {n}}));
        }
    }};
    for (std::uint32_t n = 1; n <= 4095; ++n) {
        EXPECT_EQ(table.index_of({.core = {n}}), RequestIndex{n});
        given = n;
    }
    reader.join();
}

/// Where a plan's graph begins it puts a word without a ticket into the stream's cell.
TEST(TrackVotes, CountNoScopesWhereAGraphWithdrawsARequest) {
    kdvfs::detail::RequestTable requests;
    const RequestIndex slow = requests.index_of({{800}});
    kdvfs::detail::TrackVotes votes{requests};
    constexpr std::uint32_t many = 600'000;  // tickets, of 2^20
    static_cast<void>(votes.observe({}, RequestWord{slow, many}, TimePoint{}));
    EXPECT_EQ(votes.observe({}, RequestWord{}, TimePoint{}).missed, 0U);
    const auto next = votes.observe({}, RequestWord{slow, many + 1}, TimePoint{});
    EXPECT_TRUE(next.entered);
    EXPECT_EQ(next.missed, 0U);
}

}  // namespace
}  // namespace kdvfs
