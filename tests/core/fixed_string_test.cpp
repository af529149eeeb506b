// SPDX-License-Identifier: MIT
#include <kdvfs/kernel.hpp>

#include <gtest/gtest.h>

#include <type_traits>

namespace kdvfs {
namespace {

template <FixedString Text>
struct Named {
    static constexpr std::string_view text = Text.view();
};
static_assert(Named<"gelu">::text == "gelu");
static_assert(Named<"">::text.empty());
static_assert(!std::is_same_v<Named<"a">, Named<"b">>);
static_assert(!std::is_same_v<Named<"a">, Named<"aa">>);

TEST(FixedString, ViewHasTheTextWithoutItsEnd) {
    constexpr FixedString text{"gemm"};
    EXPECT_EQ(text.view(), "gemm");
    EXPECT_EQ(text.view().size(), 4U);
}

}  // namespace
}  // namespace kdvfs
