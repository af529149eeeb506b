// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/scope_sink.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <deque>
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
