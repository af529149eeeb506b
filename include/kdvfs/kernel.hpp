// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kdvfs::inline v0_3 {

/// A string literal as a template argument: `Kernel<"gelu">`. Structural, hence the public array.
template <std::size_t Size>
struct FixedString {
    char characters[Size]{};

    // Implicit on purpose: a literal in a template argument list must convert.
    // NOLINTNEXTLINE(google-explicit-constructor)
    constexpr FixedString(const char (&literal)[Size]) { std::copy_n(literal, Size, characters); }

    [[nodiscard]] constexpr std::string_view view() const { return {characters, Size - 1}; }
};

/// Whether a text may name a kernel: 1 to 1024 printable ASCII characters except '"' and '\', as
/// demangled names have them. Whoever writes a name elsewhere escapes it; none is repaired.
constexpr bool is_kernel_name(std::string_view text) {
    constexpr auto allowed = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
    return !text.empty() && text.size() <= 1024 && std::all_of(text.begin(), text.end(), allowed);
}

/// The base of a kernel's tag type: `struct Gelu : kdvfs::Kernel<"gelu"> {};`
/// The name is what policies, profiles, plans and reports know the kernel by.
template <FixedString Name>
struct Kernel {
    static_assert(
        is_kernel_name(Name.view()),
        "a kernel name has 1 to 1024 printable ASCII characters except quotes and backslashes");
    static constexpr std::string_view name = Name.view();
};

/// A type that names a kernel, usually by deriving from `Kernel<"name">`.
template <class T>
concept NamedKernel = requires {
    { T::name } -> std::convertible_to<std::string_view>;
    requires is_kernel_name(T::name);
};

/// A kernel whose type says `static constexpr bool runs_once = true;`: work that counts on what it
/// left behind (atomic counters, look-back scans) must not be repeated in place.
template <class T>
concept RunsOnce = requires {
    requires T::runs_once;
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

/// Whether a text ends as `to_string(KernelKey)` writes a shape: in '#' and digits.
constexpr bool ends_in_variant(std::string_view text) {
    const std::size_t hash = text.rfind('#');
    return hash != std::string_view::npos && hash > 0 && hash + 1 < text.size() &&
           std::all_of(text.begin() + static_cast<std::ptrdiff_t>(hash) + 1, text.end(),
                       [](char c) { return c >= '0' && c <= '9'; });
}

/// "gelu", or "gelu#2" for a shape; "f()::{lambda()#1" is "f()::{lambda()#1#0", so that no two keys
/// are written the same.
inline std::string to_string(const KernelKey& key) {
    if (key.variant.index == 0 && !ends_in_variant(key.name)) return key.name;
    return key.name + '#' + std::to_string(key.variant.index);
}

}  // namespace kdvfs::inline v0_3
