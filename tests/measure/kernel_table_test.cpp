// SPDX-License-Identifier: MIT
#include <kdvfs/measure/meter_record.hpp>

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace kdvfs::measure {
namespace {

TEST(KernelTable, NumbersKernelsInOrderOfFirstUse) {
    KernelTable table;
    EXPECT_EQ(table.id("gelu"), KernelId{0});
    EXPECT_EQ(table.id("gemm", variant(2)), KernelId{1});
    EXPECT_EQ(table.id("gelu"), KernelId{0});
    EXPECT_EQ(table.size(), 2U);
    EXPECT_EQ(to_string(table.key(KernelId{1})), "gemm#2");
}

TEST(KernelTable, TellsVariantsOfOneNameApart) {
    KernelTable table;
    EXPECT_NE(table.id("gemm", variant(0)), table.id("gemm", variant(1)));
}

TEST(KernelTable, FindsWithoutRegistering) {
    KernelTable table;
    EXPECT_FALSE(table.find("gelu"));
    EXPECT_EQ(table.size(), 0U);
}

TEST(KernelTable, ReferencesStayValidWhileItGrows) {
    KernelTable table;
    const KernelKey& first = table.key(table.id("first"));
    for (std::uint32_t i = 0; i < 10'000; ++i) table.id("other", variant(i));
    EXPECT_EQ(first.name, "first");
    EXPECT_EQ(&first, &table.key(KernelId{0}));
}

TEST(KernelTable, GivesEveryThreadTheSameNumber) {
    KernelTable table;
    constexpr std::uint32_t kernels = 500;
    std::vector<std::vector<KernelId>> seen(4);
    {
        std::vector<std::jthread> threads;
        for (auto& ids : seen) {
            threads.emplace_back([&] {
                for (std::uint32_t i = 0; i < kernels; ++i) {
                    ids.push_back(table.id("kernel", variant(i)));
                    EXPECT_EQ(table.key(ids.back()).variant.index, i);
                }
            });
        }
    }
    EXPECT_EQ(table.size(), kernels);
    for (const auto& ids : seen) EXPECT_EQ(ids, seen.front());
}

TEST(KernelTableDeathTest, RefusesAForbiddenName) {
    EXPECT_DEATH(
        {
            KernelTable table;
            table.id("no \"quotes\"");
        },
        "");
}

}  // namespace
}  // namespace kdvfs::measure
