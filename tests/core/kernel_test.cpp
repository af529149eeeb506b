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
    static constexpr std::string_view name = "by\"hand";
};
struct Nameless {};

static_assert(NamedKernel<Gelu> && NamedKernel<Template> && NamedKernel<ByHand>);
static_assert(!NamedKernel<BadByHand> && !NamedKernel<Nameless> && !NamedKernel<int>);
static_assert(std::is_empty_v<Gelu>, "a tag costs nothing");
static_assert(std::is_same_v<Kernel<"gelu">, Kernel<"gelu">>);
static_assert(!std::is_same_v<Kernel<"gelu">, Kernel<"gelv">>);

TEST(KernelName, HasOneTo1024Characters) {
    EXPECT_FALSE(is_kernel_name(""));
    EXPECT_TRUE(is_kernel_name("g"));
    EXPECT_TRUE(is_kernel_name(std::string(1024, 'g')));
    EXPECT_FALSE(is_kernel_name(std::string(1025, 'g')));
}

TEST(KernelName, AllowsExactlyTheDocumentedCharacters) {
    for (int c = 0; c < 256; ++c) {
        const std::string name(1, static_cast<char>(c));
        EXPECT_EQ(is_kernel_name(name), c >= 32 && c <= 126 && c != '"' && c != '\\')
            << "code " << c;
    }
}

TEST(KernelName, MayBeADemangledOne) {
    EXPECT_TRUE(is_kernel_name(
        "void ns::f<int, (ns::Kind)2>(float const*, int (&) [8])::{lambda(auto:1&&)#2}::"
        "operator()<char>(char) const [clone .kd] ~!=+|'"));
}

TEST(KernelName, RejectsWhatEndsAString) {
    for (const char* name : {"a\"b", "a\\b", "a\nb", "a\tb", "\xc3\xa9", "\x7f"})
        EXPECT_FALSE(is_kernel_name(name)) << name;
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
    EXPECT_EQ(to_string(KernelKey{"gemm#2", {}}), "gemm#2#0");
    EXPECT_EQ(to_string(KernelKey{"gemm#2", variant(3)}), "gemm#2#3");
    EXPECT_EQ(to_string(KernelKey{"{lambda()#1}", {}}), "{lambda()#1}");
    std::map<std::string, KernelKey> texts;
    for (const char* name : {"a", "a#", "a#0", "a#1", "a#1#0", "a#1#1", "#", "#1", "a#x"}) {
        for (const std::uint32_t index : {0U, 1U}) {
            const KernelKey key{name, variant(index)};
            EXPECT_TRUE(texts.try_emplace(to_string(key), key).second) << to_string(key);
        }
    }
}

}  // namespace
}  // namespace kdvfs
