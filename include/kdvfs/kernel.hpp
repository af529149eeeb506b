// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
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

/// Whether a text may name a kernel: 1 to 64 letters, digits, underscores, dots, colons, commas,
/// hyphens and angle brackets. Names become C++, JSON, SVG and file contents, so they are rejected
/// rather than repaired.
constexpr bool is_kernel_name(std::string_view text) {
    constexpr auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view{"_.:<>,-"}.find(c) != std::string_view::npos;
    };
    return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), allowed);
}

/// The base of a kernel's tag type: `struct Gelu : kdvfs::Kernel<"gelu"> {};`
/// The name is what policies, profiles, plans and reports know the kernel by.
template <FixedString Name>
struct Kernel {
    static_assert(is_kernel_name(Name.view()),
                  "a kernel name has 1 to 64 characters out of A-Z a-z 0-9 _ . : < > , -");
    static constexpr std::string_view name = Name.view();
};

/// A type that names a kernel, usually by deriving from `Kernel<"name">`.
template <class T>
concept NamedKernel = requires {
    { T::name } -> std::convertible_to<std::string_view>;
    requires is_kernel_name(T::name);
};

/// Which of a kernel's shapes a scope runs; 0 where the kernel has one shape only.
struct Variant {
    std::uint32_t index = 0;

    friend constexpr bool operator==(Variant, Variant) = default;
    friend constexpr auto operator<=>(Variant, Variant) = default;
};

/// Names a shape: `FrequencyScope<Gemm> scope{gpu, stream, kdvfs::variant(2)};`
constexpr Variant variant(std::uint32_t index) { return {index}; }

/// What profiles, plans and reports are keyed by.
struct KernelKey {
    std::string name{};
    Variant variant{};

    friend bool operator==(const KernelKey&, const KernelKey&) = default;
    friend auto operator<=>(const KernelKey&, const KernelKey&) = default;
};

/// "gelu", or "gelu#2" for a shape.
inline std::string to_string(const KernelKey& key) {
    return key.variant.index == 0 ? key.name : key.name + '#' + std::to_string(key.variant.index);
}

}  // namespace kdvfs
