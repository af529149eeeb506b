// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/units.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

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

/// Whether the last case, and no other, is an `Otherwise`: behind it no case would ever be asked.
template <class... Cases>
constexpr bool ends_with_otherwise() {
    bool last = false;
    ((last = is_otherwise<Cases>), ...);
    return last && (0 + ... + int{is_otherwise<Cases>}) == 1;
}

template <class Case, class Other>
constexpr bool is_same_case() {
    if constexpr (is_otherwise<Case> || !std::is_same_v<decltype(Case::of), decltype(Other::of)>) {
        return false;
    } else {
        return Case::of == Other::of;
    }
}

/// Whether every case but `Otherwise` is there once: a second one would never be asked.
template <class... Cases>
constexpr bool has_no_case_twice() {
    const auto times = []<class Case>(std::type_identity<Case>) {
        return (0 + ... + int{is_same_case<Case, Cases>()});
    };
    return ((times(std::type_identity<Cases>{}) <= 1) && ...);
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
    static constexpr bool always_keeps = (Cases::policy::always_keeps && ...);
    static constexpr ClockRequest request(const PolicyQuestion& question) {
        ClockRequest answer;
        const bool found =
            ((Cases::matches(question) && (answer = Cases::policy::request(question), true)) ||
             ...);
        static_cast<void>(found);
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
        (EachRequest<typename Cases::policy>::visit(question, check), ...);
    }
};
template <class... Cases>
struct EachRequest<ByArch<Cases...>> {
    template <class Check>
    static void visit(const PolicyQuestion& question, Check& check) {
        static_cast<void>(((Cases::matches(question) &&
                            (EachRequest<typename Cases::policy>::visit(question, check), true)) ||
                           ...));
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
template <class... Cases>
inline constexpr bool obeys_plan<ByArch<Cases...>> = (obeys_plan<typename Cases::policy> || ...);
template <class... Cases>
inline constexpr bool obeys_plan<ByVariant<Cases...>> = (obeys_plan<typename Cases::policy> || ...);

}  // namespace kdvfs::inline v0_3
