// SPDX-License-Identifier: MIT
#include <kdvfs/kernel.hpp>

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace kdvfs {
namespace {

struct Gelu : Kernel<"gelu"> {};
struct Template : Kernel<"ns::gemm<128,64>"> {};
struct ByHand {
    static constexpr std::string_view name = "by_hand";
};
struct BadByHand {
    static constexpr std::string_view name = "by hand";
};
struct Nameless {};

static_assert(NamedKernel<Gelu> && NamedKernel<Template> && NamedKernel<ByHand>);
static_assert(!NamedKernel<BadByHand> && !NamedKernel<Nameless> && !NamedKernel<int>);
static_assert(std::is_empty_v<Gelu>, "a tag costs nothing");
static_assert(std::is_same_v<Kernel<"gelu">, Kernel<"gelu">>);
static_assert(!std::is_same_v<Kernel<"gelu">, Kernel<"gelv">>);

TEST(KernelName, HasOneToSixtyFourCharacters) {
    EXPECT_FALSE(is_kernel_name(""));
    EXPECT_TRUE(is_kernel_name("g"));
    EXPECT_TRUE(is_kernel_name(std::string(64, 'g')));
    EXPECT_FALSE(is_kernel_name(std::string(65, 'g')));
}

TEST(KernelName, AllowsExactlyTheDocumentedCharacters) {
    const std::string allowed =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:<>,-";
    for (int c = 0; c < 256; ++c) {
        const std::string name(1, static_cast<char>(c));
        EXPECT_EQ(is_kernel_name(name), allowed.find(name) != std::string::npos) << "code " << c;
    }
}

TEST(KernelName, RejectsWhatWouldBecomeCode) {
    for (const char* name :
         {"a b", "a\"b", "a\\b", "a\nb", "../a", "a&b", "a'b", "a;b", "\xc3\xa9"}) {
        EXPECT_FALSE(is_kernel_name(name)) << name;
    }
    EXPECT_FALSE(is_kernel_name(std::string_view{"a\0b", 3}));
}

TEST(KernelName, IsKnownAtRunTime) {
    EXPECT_EQ(Gelu::name, "gelu");
    EXPECT_EQ(Template::name, "ns::gemm<128,64>");
}

TEST(KernelKey, OrdersByNameThenVariant) {
    std::map<KernelKey, int> times{
        {{"gemm", variant(1)}, 2}, {{"gemm", variant(0)}, 1}, {{"add", variant(7)}, 0}};
    int expected = 0;
    for (const auto& [key, value] : times) EXPECT_EQ(value, expected++) << to_string(key);
}

TEST(KernelKey, ReadsAsText) {
    EXPECT_EQ(to_string(KernelKey{"gemm", {}}), "gemm");
    EXPECT_EQ(to_string(KernelKey{"gemm", variant(2)}), "gemm#2");
}

TEST(KernelKey, TextOfTwoKeysNeverCollides) {
    EXPECT_FALSE(is_kernel_name("gemm#2")) << "'#' separates the variant, so no name may have it";
}

}  // namespace
}  // namespace kdvfs
