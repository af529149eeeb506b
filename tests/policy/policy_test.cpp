// SPDX-License-Identifier: MIT
#include <kdvfs/policy.hpp>

#include <gtest/gtest.h>

#include <type_traits>

namespace kdvfs {
namespace {

using Capped = CapClock<1100_MHz>;
using CappedBoth = CapClock<1100_MHz, 5001_MHz>;
using MemoryOnly = CapClock<auto_clock, 5001_MHz>;

constexpr ClockRequest asks_for(ClockPoint point) { return {.asks = true, .point = point}; }

// Policies are answers, not objects: whatever they say is known while compiling.
static_assert(AutoClock::request({}) == asks_for({}));
static_assert(Capped::request({}) == asks_for({.core = 1100_MHz}));
static_assert(CappedBoth::request({}) == asks_for({1100_MHz, 5001_MHz}));
static_assert(MemoryOnly::request({}) == asks_for({.memory = 5001_MHz}));
static_assert(KeepClock::request({}) == ClockRequest{});
static_assert(!KeepClock::request({}).asks, "no opinion is not the same as auto");

static_assert(std::is_empty_v<AutoClock> && std::is_empty_v<CappedBoth>);
static_assert(ClockPolicy<AutoClock> && ClockPolicy<CappedBoth> && ClockPolicy<KeepClock>);
static_assert(ClockPolicy<Lasting<1, Capped>> && ClockPolicy<FromPlan<KeepClock>>);
static_assert(!ClockPolicy<int> && !ClockPolicy<ClockRequest>);

static_assert(KeepClock::always_keeps, "only this may compile to nothing");
static_assert(!AutoClock::always_keeps && !Capped::always_keeps);
static_assert(!FromPlan<KeepClock>::always_keeps, "a plan may say otherwise");

// Lasting adds one figure and changes nothing else.
static_assert(Lasting<5'000, Capped>::request({}) ==
              ClockRequest{true, {.core = 1100_MHz}, Duration{5'000}});
static_assert(!Lasting<5'000, KeepClock>::request({}).asks);
static_assert(Lasting<5'000, KeepClock>::always_keeps);

using PerArch = ByArch<OnArch<"gfx90a", Capped>, OnArch<"gfx942", KeepClock>, Otherwise<AutoClock>>;

constexpr ClockRequest on(std::string_view architecture) {
    return PerArch::request({.architecture = architecture});
}

static_assert(on("gfx90a") == asks_for({.core = 1100_MHz}));
static_assert(on("gfx942") == ClockRequest{});
static_assert(on("sm_90") == asks_for({}), "an unknown architecture is a real case");
static_assert(on("gfx90") == asks_for({}), "names match whole");
static_assert(on("gfx90a:sramecc+") == asks_for({}), "names match whole");
static_assert(on("") == asks_for({}));

using PerShape = ByVariant<OnVariant<0, Capped>, OnVariant<7, CappedBoth>, Otherwise<KeepClock>>;

static_assert(PerShape::request({}) == asks_for({.core = 1100_MHz}), "variant 0 is the only shape");
static_assert(PerShape::request({.variant = variant(7)}) == asks_for({1100_MHz, 5001_MHz}));
static_assert(PerShape::request({.variant = variant(1)}) == ClockRequest{});

// Cases nest: a shape's policy may depend on the architecture.
using Nested = ByVariant<OnVariant<1, PerArch>, Otherwise<Lasting<9, MemoryOnly>>>;
static_assert(Nested::request({.variant = variant(1), .architecture = "gfx90a"}) ==
              asks_for({.core = 1100_MHz}));
static_assert(Nested::request({.variant = variant(2), .architecture = "gfx90a"}) ==
              ClockRequest{true, {.memory = 5001_MHz}, Duration{9}});

// Cases keep only if each of them does.
static_assert(!PerShape::always_keeps);
static_assert(ByVariant<OnVariant<1, KeepClock>, Otherwise<KeepClock>>::always_keeps);
static_assert(!ByVariant<OnVariant<1, AutoClock>, Otherwise<KeepClock>>::always_keeps);
static_assert(!ByVariant<OnVariant<1, KeepClock>, Otherwise<AutoClock>>::always_keeps);

TEST(FromPlan, FallsBackWithoutAPlan) {
    EXPECT_EQ(FromPlan<Capped>::request({.kernel = "gelu"}), Capped::request({}));
    EXPECT_EQ(FromPlan<KeepClock>::request({.kernel = "gelu"}), ClockRequest{});
}

TEST(FromPlan, FallsBackForAKernelOrShapeThatThePlanDoesNotName) {
    PlanTable plan;
    plan.set({"gelu", variant(1)}, asks_for({.core = 800_MHz}));
    EXPECT_EQ(FromPlan<Capped>::request({.kernel = "softmax", .plan = &plan}), Capped::request({}));
    EXPECT_EQ(FromPlan<Capped>::request({.kernel = "gelu", .plan = &plan}), Capped::request({}));
}

TEST(FromPlan, ObeysThePlanWhole) {
    PlanTable plan;
    const ClockRequest planned{true, {800_MHz, 5001_MHz}, Duration{77}};
    plan.set({"gelu", variant(1)}, planned);
    plan.set({"softmax", {}}, {});
    EXPECT_EQ(FromPlan<Capped>::request({.kernel = "gelu", .variant = variant(1), .plan = &plan}),
              planned);
    EXPECT_EQ(FromPlan<Capped>::request({.kernel = "softmax", .plan = &plan}), ClockRequest{})
        << "a plan may say: keep";
}

TEST(FromPlan, KnowsBetterThanTheSourceHowLongAKernelLasts) {
    PlanTable plan;
    plan.set({"gelu", {}}, {true, {800_MHz, auto_clock}, Duration{77}});
    plan.set({"softmax", {}}, asks_for({.core = 900_MHz}));
    using Policy = Lasting<5000, FromPlan<Capped>>;
    EXPECT_EQ(Policy::request({.kernel = "gelu", .plan = &plan}).lasts, Duration{77});
    EXPECT_EQ(Policy::request({.kernel = "softmax", .plan = &plan}).lasts, Duration{5000})
        << "the plan does not say";
    EXPECT_EQ(Policy::request({.kernel = "gelu"}).lasts, Duration{5000});
}

static_assert(obeys_plan<FromPlan<AutoClock>>);
static_assert(
    obeys_plan<Lasting<5, ByArch<OnArch<"gfx90a", FromPlan<AutoClock>>, Otherwise<KeepClock>>>>);
static_assert(!obeys_plan<ByVariant<OnVariant<1, Capped>, Otherwise<AutoClock>>>);

TEST(PlanTable, KeepsTheLastWordForEachKernelAndShape) {
    PlanTable plan;
    EXPECT_EQ(plan.find("gelu", {}), std::nullopt);
    plan.set({"gelu", {}}, asks_for({.core = 800_MHz}));
    plan.set({"gelu", {}}, asks_for({.core = 900_MHz}));
    EXPECT_EQ(plan.find("gelu", {}), asks_for({.core = 900_MHz}));
    EXPECT_EQ(plan.find("gelu", variant(1)), std::nullopt);
    EXPECT_EQ(plan.requests().size(), 1U);
}

}  // namespace
}  // namespace kdvfs
