// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace kdvfs {

/// A string literal as a template argument: `Kernel<"gelu">`. Structural, hence the public array.
template <std::size_t Size>
struct FixedString {
    char characters[Size]{};

    // Implicit on purpose: a literal in a template argument list must convert.
    // NOLINTNEXTLINE(google-explicit-constructor)
    constexpr FixedString(const char (&literal)[Size]) { std::copy_n(literal, Size, characters); }

    [[nodiscard]] constexpr std::string_view view() const { return {characters, Size - 1}; }
};

}  // namespace kdvfs
