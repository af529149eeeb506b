// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/scope_sink.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <string_view>
#include <thread>
#include <vector>

namespace kdvfs::detail {
namespace {

TEST(KindMemo, FindsWhatItKeptAndNothingElse) {
    const char* const gelu = "gelu";
    const char* const gemm = "gemm";
    const ScopeKind kind;
    KindMemo memo;
    EXPECT_EQ(memo.find(gelu, {}), nullptr);
    memo.keep(gelu, {}, kind);
    EXPECT_EQ(memo.find(gelu, {}), &kind);
    EXPECT_EQ(memo.find(gelu, {1}), nullptr);
    EXPECT_EQ(memo.find(gemm, {}), nullptr);
}

/// A program may keep all of its names in one buffer.
TEST(KindMemo, TellsNamesApartThatBeginAtTheSamePlace) {
    constexpr std::string_view both = "gemm_gelu";
    const ScopeKind kind;
    const ScopeKind longer;
    KindMemo memo;
    memo.keep(both.substr(0, 4), {}, kind);
    EXPECT_EQ(memo.find(both, {}), nullptr);
    memo.keep(both, {}, longer);
    EXPECT_EQ(memo.find(both.substr(0, 4), {}), &kind);
    EXPECT_EQ(memo.find(both, {}), &longer);
    std::deque<ScopeKind> others(200);  // the table grows
    for (std::uint32_t i = 0; i < others.size(); ++i) memo.keep("other", {i}, others[i]);
    EXPECT_EQ(memo.find(both.substr(0, 4), {}), &kind);
    EXPECT_EQ(memo.find(both, {}), &longer);
}

TEST(KindMemo, GrowsWithoutForgetting) {
    const char* const gemm = "gemm";
    std::deque<ScopeKind> kinds(20'000);
    KindMemo memo;
    for (std::uint32_t i = 0; i < kinds.size(); ++i) memo.keep(gemm, {i}, kinds[i]);
    for (std::uint32_t i = 0; i < kinds.size(); ++i) ASSERT_EQ(memo.find(gemm, {i}), &kinds[i]);
}

TEST(KindMemo, IsReadWhileItGrows) {
    const char* const gemm = "gemm";
    std::deque<ScopeKind> kinds(5'000);
    KindMemo memo;
    std::atomic<std::uint32_t> kept{0};
    std::thread reader{[&] {
        while (kept < kinds.size()) {
            const std::uint32_t seen = kept;
            for (std::uint32_t i = 0; i < seen; i += 97) {
                ASSERT_EQ(memo.find(gemm, {i}), &kinds[i]);
            }
        }
    }};
    for (std::uint32_t i = 0; i < kinds.size(); ++i) {
        memo.keep(gemm, {i}, kinds[i]);
        kept = i + 1;
    }
    reader.join();
}

}  // namespace
}  // namespace kdvfs::detail
