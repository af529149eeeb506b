// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/units.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace kdvfs::inline v0_3 {

/// What a policy is asked.
struct PolicyQuestion {
    std::string_view kernel{};
    Variant variant{};
    std::string_view architecture{};  ///< as `DeviceInfo::architecture` spells it
    const PlanTable* plan = nullptr;  ///< a plan loaded at run time, if there is one
};

/// A policy is an empty type that answers what a kernel asks for. Its one function is
/// `static constexpr ClockRequest request(const PolicyQuestion&)`; `always_keeps` is true where
/// the answer is `KeepClock` whatever the question, so that the scope can compile to nothing.
template <class P>
concept ClockPolicy = requires(const PolicyQuestion& question) {
    { P::request(question) } -> std::same_as<ClockRequest>;
    { P::always_keeps } -> std::convertible_to<bool>;
};

/// The board's own choice: the highest request of all in arbitration.
struct AutoClock {
    static constexpr bool always_keeps = false;
    static constexpr ClockRequest request(const PolicyQuestion&) { return {.asks = true}; }
};

/// At most these clocks; `auto_clock` leaves a domain to the board.
template <Megahertz Core, Megahertz Memory = auto_clock>
struct CapClock {
    static_assert(!ClockPoint{Core, Memory}.is_auto(),
                  "CapClock caps neither clock: say AutoClock for the board's own choice");
    static constexpr bool always_keeps = false;
    static constexpr ClockRequest request(const PolicyQuestion&) {
        return {.asks = true, .point = {Core, Memory}};
    }
};

/// No opinion: the kernel runs at whatever the enclosing scope or the board has chosen.
struct KeepClock {
    static constexpr bool always_keeps = true;
    static constexpr ClockRequest request(const PolicyQuestion&) { return {}; }
};

/// `Policy`, plus the plan's figure of how long the kernel lasts, in nanoseconds: what the
/// `not_worth_it` gate goes by until it has seen the kernel run. A plan loaded at run time
/// (`FromPlan`) knows better.
template <std::int64_t Nanoseconds, ClockPolicy Policy>
struct Lasting {
    static_assert(Nanoseconds > 0, "a kernel lasts longer than 0 ns");
    static constexpr bool always_keeps = Policy::always_keeps;
    static constexpr ClockRequest request(const PolicyQuestion& question) {
        ClockRequest answer = Policy::request(question);
        if (answer.lasts == Duration::zero()) answer.lasts = Duration{Nanoseconds};
        return answer;
    }
};

/// One case of `ByArch`: the architecture as `DeviceInfo::architecture` spells it, "gfx90a".
template <FixedString Name, ClockPolicy Policy>
struct OnArch {
    using policy = Policy;
    static constexpr std::string_view of = Name.view();
    static constexpr bool matches(const PolicyQuestion& question) {
        return question.architecture == Name.view();
    }
};

/// One case of `ByVariant`: a shape of the kernel.
template <std::uint32_t Index, ClockPolicy Policy>
struct OnVariant {
    using policy = Policy;
    static constexpr std::uint32_t of = Index;
    static constexpr bool matches(const PolicyQuestion& question) {
        return question.variant.index == Index;
    }
};

/// The last case: an architecture or shape that no other case names.
template <ClockPolicy Policy>
struct Otherwise {
    using policy = Policy;
    static constexpr std::nullptr_t of{};
    static constexpr bool matches(const PolicyQuestion&) { return true; }
};

namespace detail {

template <class T>
inline constexpr bool is_otherwise = false;
template <class Policy>
inline constexpr bool is_otherwise<Otherwise<Policy>> = true;

// Arrays and loops, not fold expressions: clang nests those to a depth of 256, and generated
// policies have more rows and cases.

constexpr std::size_t count_true(std::initializer_list<bool> values) {
    std::size_t count = 0;
    for (const bool value : values) count += value ? 1 : 0;
    return count;
}

/// Whether the last case, and no other, is an `Otherwise`: behind it no case would ever be asked.
template <class... Cases>
constexpr bool ends_with_otherwise() {
    std::size_t left = sizeof...(Cases);
    for (const bool otherwise : std::initializer_list<bool>{is_otherwise<Cases>...}) {
        if (otherwise != (--left == 0)) return false;
    }
    return sizeof...(Cases) > 0;
}

/// What tells a case from others. Names are compared by a hash first: compilers count the steps of
/// what they evaluate.
struct CaseKey {
    static constexpr std::uint64_t none = 0;
    std::uint64_t number = none;
    std::string_view name{};

    friend constexpr bool operator<(const CaseKey& a, const CaseKey& b) {
        return a.number == b.number ? a.name < b.name : a.number < b.number;
    }
};
constexpr CaseKey case_key(std::nullptr_t) { return {}; }
constexpr CaseKey case_key(std::uint32_t variant) { return {std::uint64_t{1} + variant}; }
constexpr CaseKey case_key(std::string_view name) {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return {hash | std::uint64_t{1} << 63U, name};
}

/// A key that is there twice, but for `none`; `none` where there is no such key.
template <std::size_t Size>
constexpr CaseKey find_twice(std::array<CaseKey, Size> keys) {
    for (std::size_t gap = Size / 2; gap > 0; gap /= 2) {  // Shell sort
        for (std::size_t i = gap; i < Size; ++i) {
            const CaseKey key = keys[i];
            std::size_t at = i;
            for (; at >= gap && key < keys[at - gap]; at -= gap) keys[at] = keys[at - gap];
            keys[at] = key;
        }
    }
    for (std::size_t i = 1; i < Size; ++i) {
        if (keys[i].number != CaseKey::none && !(keys[i - 1] < keys[i])) return keys[i];
    }
    return {};
}

/// Whether every case but `Otherwise` is there once: a second one would never be asked.
template <class... Cases>
constexpr bool has_no_case_twice() {
    return find_twice<sizeof...(Cases)>({case_key(Cases::of)...}).number == CaseKey::none;
}

/// The first case that matches answers. The unknown case is real, so the last must be `Otherwise`.
template <class... Cases>
struct FirstMatch {
    static_assert(ends_with_otherwise<Cases...>(),
                  "end the cases with one kdvfs::Otherwise<Policy>: what shall an unknown "
                  "architecture or shape run at?");
    static_assert(has_no_case_twice<Cases...>(),
                  "an architecture or shape has two cases here: keep one kdvfs::OnArch or "
                  "kdvfs::OnVariant of each");
    static constexpr bool always_keeps =
        count_true({static_cast<bool>(Cases::policy::always_keeps)...}) == sizeof...(Cases);
    static constexpr ClockRequest request(const PolicyQuestion& question) {
        ClockRequest answer;
        bool found = false;
        static_cast<void>(std::initializer_list<bool>{
            (found = found || (Cases::matches(question) &&
                               (answer = Cases::policy::request(question), true)))...});
        return answer;
    }
};

}  // namespace detail

/// A policy per GPU architecture: `ByArch<OnArch<"gfx90a", CapClock<1100_MHz>>, Otherwise<...>>`.
template <class... Cases>
struct ByArch : detail::FirstMatch<Cases...> {};

/// A policy per shape: `ByVariant<OnVariant<0, CapClock<1100_MHz>>, Otherwise<AutoClock>>`.
template <class... Cases>
struct ByVariant : detail::FirstMatch<Cases...> {};

/// What the plan loaded at run time says; `Fallback` where there is no plan, or the plan does not
/// name the kernel.
template <ClockPolicy Fallback>
struct FromPlan {
    static constexpr bool always_keeps = false;
    static ClockRequest request(const PolicyQuestion& question) {
        if (question.plan != nullptr) {
            if (const auto planned = question.plan->find(question.kernel, question.variant)) {
                return *planned;
            }
        }
        return Fallback::request(question);
    }
};

namespace detail {

/// Calls `check(request)` for each answer that a policy may give on the question's architecture:
/// those of all shapes.
template <ClockPolicy Policy>
struct EachRequest {
    template <class Check>
    static void visit(const PolicyQuestion& question, Check& check) {
        check(Policy::request(question));
    }
};
template <std::int64_t Nanoseconds, class Policy>
struct EachRequest<Lasting<Nanoseconds, Policy>> : EachRequest<Policy> {};
template <class Fallback>
struct EachRequest<FromPlan<Fallback>> : EachRequest<Fallback> {};
template <class... Cases>
struct EachRequest<ByVariant<Cases...>> {
    template <class Check>
    static void visit(const PolicyQuestion& question, Check& check) {
        static_cast<void>(std::initializer_list<int>{
            (EachRequest<typename Cases::policy>::visit(question, check), 0)...});
    }
};
template <class... Cases>
struct EachRequest<ByArch<Cases...>> {
    template <class Check>
    static void visit(const PolicyQuestion& question, Check& check) {
        bool found = false;
        static_cast<void>(std::initializer_list<bool>{
            (found = found ||
                     (Cases::matches(question) &&
                      (EachRequest<typename Cases::policy>::visit(question, check), true)))...});
    }
};

}  // namespace detail

/// Whether a policy obeys a plan that is loaded at run time.
template <class Policy>
inline constexpr bool obeys_plan = false;
template <class Fallback>
inline constexpr bool obeys_plan<FromPlan<Fallback>> = true;
template <std::int64_t Nanoseconds, class Policy>
inline constexpr bool obeys_plan<Lasting<Nanoseconds, Policy>> = obeys_plan<Policy>;
/// Whether one of the cases has a policy that does.
template <class... Cases>
constexpr bool any_obeys_plan() {
    return detail::count_true({obeys_plan<typename Cases::policy>...}) > 0;
}
template <class... Cases>
inline constexpr bool obeys_plan<ByArch<Cases...>> = any_obeys_plan<Cases...>();
template <class... Cases>
inline constexpr bool obeys_plan<ByVariant<Cases...>> = any_obeys_plan<Cases...>();

}  // namespace kdvfs::inline v0_3
