// SPDX-License-Identifier: MIT
#include <kdvfs/units.hpp>

#include <gtest/gtest.h>

#include <concepts>
#include <type_traits>

namespace kdvfs {
namespace {

using namespace kdvfs::literals;

// Structural: what makes `CapClock<1100_MHz>` possible.
template <Megahertz Clock>
struct Capped {
    static constexpr Megahertz clock = Clock;
};
static_assert(Capped<1100_MHz>::clock == Megahertz{1100});
static_assert(std::same_as<Capped<1100_MHz>, Capped<Megahertz{1100}>>);
static_assert(!std::same_as<Capped<1100_MHz>, Capped<1101_MHz>>);

// A clock is no bare number, has no sign and cannot be added to energy.
template <class T>
concept Negatable = requires(T value) {
    -value;
};
template <class A, class B>
concept Addable = requires(A a, B b) {
    a + b;
};
static_assert(!std::convertible_to<int, Megahertz> && !std::convertible_to<Megahertz, int>);
static_assert(!Negatable<Megahertz>);
static_assert(!Addable<Joules, Watts> && !Addable<Joules, Megahertz> && Addable<Joules, Joules>);
static_assert(std::is_trivially_copyable_v<Megahertz> && sizeof(Megahertz) == 4);

TEST(Units, PowerTimesTimeIsEnergyAndBack) {
    constexpr Joules energy = Watts{300} * Seconds{2};
    static_assert(energy == Joules{600});
    static_assert(energy / Seconds{2} == Watts{300});
    EXPECT_DOUBLE_EQ((Watts{300} * std::chrono::milliseconds{250}).count, 75.0);
}

TEST(Units, EnergiesAddUpAndDivideToANumber) {
    Joules sum{1};
    sum += Joules{2} + Joules{3} - Joules{1};
    EXPECT_DOUBLE_EQ(sum.count, 5.0);
    EXPECT_DOUBLE_EQ((sum * 2).count, 10.0);
    EXPECT_DOUBLE_EQ(sum / Joules{10}, 0.5);
}

TEST(Units, PowersAddUp) {
    EXPECT_DOUBLE_EQ((Watts{20} + Watts{32} - Watts{2}).count, 50.0);
    EXPECT_DOUBLE_EQ((Watts{20} * 0.5).count, 10.0);
}

TEST(Units, QuantitiesOfOneUnitCompare) {
    EXPECT_LT(500_MHz, 1100_MHz);
    EXPECT_GT(Joules{2}, Joules{1});
    EXPECT_LE(Watts{2}, Watts{2});
}

TEST(Units, LiteralsReachFromTheSlowestToTheFastestClock) {
    EXPECT_EQ((1_MHz).count, 1U);
    EXPECT_EQ((100000_MHz).count, 100'000U);
}

}  // namespace
}  // namespace kdvfs
