// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>

/// Names of any kind in C++ source.
namespace kdvfs::tune::detail {

/// A name between the quotes of a C++ string literal. Of "??" the second is escaped: three
/// characters that begin so were once one of another meaning (trigraphs).
inline std::string cpp_literal(std::string_view name) {
    std::string text;
    for (const char c : name) {
        if (c == '"' || c == '\\' || (c == '?' && text.ends_with('?'))) text += '\\';
        text += c;
    }
    return text;
}

/// The letters and digits of a name as one word in PascalCase, so that it is an identifier and no
/// keyword: "qkv_gemm" is QkvGemm, "void f<int, 2>(float*)" is VoidFInt2Float.
inline std::string pascal_case(std::string_view name) {
    constexpr std::size_t longest = 64;
    std::string word;
    bool begins = true;
    for (const char c : name) {
        const bool is_lower = c >= 'a' && c <= 'z';
        const bool is_letter = is_lower || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9')) {
            begins = true;
            continue;
        }
        if (word.empty() && !is_letter) word = "Kernel";
        word += begins && is_lower ? static_cast<char>(c - 'a' + 'A') : c;
        begins = false;
        if (word.size() == longest) break;
    }
    return word.empty() ? "Kernel" : word;
}

/// An identifier for each name. Those that fall on the same word are numbered in the order of the
/// names: Gemm, Gemm_2. No word has an underscore of its own, so numbers meet nothing.
inline std::map<std::string, std::string> cpp_identifiers(const std::set<std::string>& names) {
    std::map<std::string, std::string> identifiers;
    std::map<std::string, std::size_t> uses;
    for (const std::string& name : names) {
        const std::string word = pascal_case(name);
        const std::size_t use = ++uses[word];
        identifiers[name] = use == 1 ? word : word + '_' + std::to_string(use);
    }
    return identifiers;
}

}  // namespace kdvfs::tune::detail
