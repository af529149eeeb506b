// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/kernel.hpp>
#include <kdvfs/policy.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace kdvfs::inline v0_3 {

/// One row of a registry: the kernel of that name follows `Policy`.
template <FixedString Name, ClockPolicy Policy>
struct Bind {
    static_assert(
        is_kernel_name(Name.view()),
        "a kernel name has 1 to 1024 printable ASCII characters except quotes and backslashes");
    using policy = Policy;
    static constexpr std::string_view name = Name.view();
};

/// The policy of every kernel that no `Bind` names. Without it such a kernel does not compile.
template <ClockPolicy Policy>
struct Default {
    using policy = Policy;
    static constexpr std::string_view name{};
};

/// Switches metering off for all scopes of a registry: no interval and no joule is recorded, and
/// a `KeepClock` scope compiles to nothing.
struct Unmetered {
    using policy = KeepClock;
    static constexpr std::string_view name{};
};

namespace detail {

template <class T>
inline constexpr bool is_default = false;
template <class Policy>
inline constexpr bool is_default<Default<Policy>> = true;

template <class T>
inline constexpr bool is_unmetered = false;
template <>
inline constexpr bool is_unmetered<Unmetered> = true;

/// Spells the kernel's name in the compiler's message (clang 14 shows strings as numbers).
template <bool Once, char... Name>
struct BoundOnce {
    static_assert(Once,
                  "a kernel is bound twice in this registry: keep one kdvfs::Bind of each "
                  "name");
    static constexpr bool value = Once;
};

constexpr CaseKey row_key(std::string_view name) {
    return name.empty() ? CaseKey{} : case_key(name);
}

template <class... Rows>
struct NoNameTwice {
    static constexpr CaseKey twice = find_twice<sizeof...(Rows)>({row_key(Rows::name)...});

    template <std::size_t... At>
    static constexpr bool check(std::index_sequence<At...>) {
        return BoundOnce<twice.number == CaseKey::none, twice.name[At]...>::value;
    }
    static constexpr bool value = check(std::make_index_sequence<twice.name.size()>{});
};

/// @cond what doxygen does not follow
template <std::size_t Index, class Type>
struct IndexedType {
    using type = Type;
};
template <class Indices, class... Types>
struct IndexedTypes;
template <std::size_t... Index, class... Types>
struct IndexedTypes<std::index_sequence<Index...>, Types...> : IndexedType<Index, Types>... {};
template <std::size_t Index, class Type>
IndexedType<Index, Type> select_type(const IndexedType<Index, Type>*);

/// The type at a position of a list, without std::tuple's weight.
template <std::size_t Index, class... Types>
using TypeAt = decltype(select_type<Index>(
    static_cast<IndexedTypes<std::index_sequence_for<Types...>, Types...>*>(nullptr)));
/// @endcond

/// Names the unbound kernel in the compiler's message.
template <class KernelWithoutABinding>
inline constexpr bool has_a_binding_or_the_registry_a_default = false;

}  // namespace detail

/// Which policy each kernel follows, decided at compile time and keyed by kernel *name*, so that
/// it can be generated from a profile:
/// `PolicyRegistry<Bind<"gelu", CapClock<1100_MHz>>, Default<AutoClock>>`.
template <class... Rows>
struct PolicyRegistry {
    static_assert(sizeof...(Rows) > 0,
                  "an empty registry binds no kernel: start with kdvfs::Default<kdvfs::AutoClock>");
    static_assert(detail::count_true({detail::is_default<Rows>...}) <= 1,
                  "a registry has one kdvfs::Default at most");
    static_assert(detail::NoNameTwice<Rows...>::value);

    static constexpr std::size_t size = sizeof...(Rows);

    /// Whether scopes of this registry record intervals and energy.
    static constexpr bool metered = detail::count_true({detail::is_unmetered<Rows>...}) == 0;

    /// The row that governs a kernel: its `Bind`, else the `Default`; `size` where there is none.
    static constexpr std::size_t row_of(std::string_view kernel) {
        constexpr std::array<bool, size> defaults{detail::is_default<Rows>...};
        for (std::size_t i = 0; i < size; ++i) {
            if (row_names[i] == kernel) return i;
        }
        for (std::size_t i = 0; i < size; ++i) {
            if (defaults[i]) return i;
        }
        return size;
    }

    /// Whether the kernel is bound by its own name, not by the default.
    static constexpr bool names(std::string_view kernel) {
        const std::size_t row = row_of(kernel);
        return row < size && row_names[row] == kernel;
    }

    /// Whether a plan loaded at run time has a say in what this kernel runs at.
    static constexpr bool obeys_plan_for(std::string_view kernel) {
        constexpr std::array<bool, size> obeying{obeys_plan<typename Rows::policy>...};
        const std::size_t row = row_of(kernel);
        return row < size && obeying[row];
    }

    template <NamedKernel K>
    struct PolicyOf {
        static constexpr std::size_t row = row_of(K::name);
        static_assert(row < size || detail::has_a_binding_or_the_registry_a_default<K>,
                      "this kernel has no policy: add kdvfs::Bind<\"its name\", ...> or "
                      "kdvfs::Default<kdvfs::AutoClock> to the registry");
        using type = typename detail::TypeAt<(row < size ? row : 0), Rows...>::type::policy;
    };

    /// The policy that a kernel follows; does not compile for a kernel without one.
    template <NamedKernel K>
    using policy_of = typename PolicyOf<K>::type;

private:
    static constexpr std::array<std::string_view, size> row_names{Rows::name...};
};

}  // namespace kdvfs::inline v0_3
