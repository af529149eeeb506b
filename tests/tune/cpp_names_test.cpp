// SPDX-License-Identifier: MIT
#include <kdvfs/detail/tune/policy_header.hpp>
#include <kdvfs/tune/policy_header.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace kdvfs::tune::detail {
namespace {

TEST(CppNames, AreWordsOfLettersAndDigits) {
    EXPECT_EQ(pascal_case("qkv_gemm"), "QkvGemm");
    EXPECT_EQ(pascal_case("void ns::f<int, 2>(float*)"), "VoidNsFInt2Float");
    EXPECT_EQ(pascal_case("2d_copy"), "Kernel2dCopy");
    EXPECT_EQ(pascal_case("class"), "Class");
    EXPECT_EQ(pascal_case("~!"), "Kernel");
    EXPECT_EQ(pascal_case("NULL"), "Null") << "a macro";
    EXPECT_EQ(pascal_case("e.o.f"), "Eof");
    EXPECT_EQ(pascal_case("GEMM"), "GEMM");
    EXPECT_EQ(pascal_case(std::string(1024, 'x')).size(), 64U);
}

TEST(CppNames, ThatCollideAreNumbered) {
    const std::set<std::string> names{"a<b>", "a[b]", "a b", "a_2", "~", "#", "A B"};
    const auto found = cpp_identifiers(names);
    std::set<std::string> distinct;
    for (const auto& [name, identifier] : found) distinct.insert(identifier);
    EXPECT_EQ(distinct,
              (std::set<std::string>{"AB", "AB_2", "AB_3", "AB_4", "A2", "Kernel", "Kernel_2"}));
    EXPECT_EQ(cpp_identifiers(names), found) << "the same every time";
}

// The names of this test as a preprocessor with trigraphs would read them.
TEST(CppNames, InLiteralsMeanThemselves) {
    EXPECT_EQ(cpp_literal("f<int>(char const*)"), "f<int>(char const*)");
    EXPECT_EQ(cpp_literal(std::string{"a?"} + "?/b"), std::string{"a?"} + "\\?/b");
    EXPECT_EQ(cpp_literal("\"\\"), "\\\"\\\\");
}

}  // namespace
}  // namespace kdvfs::tune::detail
