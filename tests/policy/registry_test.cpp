// SPDX-License-Identifier: MIT
#include <kdvfs/registry.hpp>

#include <gtest/gtest.h>

#include <concepts>
#include <string>

namespace kdvfs {
namespace {

struct Gelu : Kernel<"gelu"> {};
struct Softmax : Kernel<"softmax"> {};
struct Gemm : Kernel<"gemm<128,64>"> {};

/// Any type with a name names a kernel; deriving is only the short way.
struct Foreign {
    static constexpr std::string_view name = "softmax";
};

using GeluPolicy = CapClock<1100_MHz>;

using Strict = PolicyRegistry<Bind<"gelu", GeluPolicy>, Bind<"gemm<128,64>", KeepClock>>;
static_assert(std::same_as<Strict::policy_of<Gelu>, GeluPolicy>);
static_assert(std::same_as<Strict::policy_of<Gemm>, KeepClock>);
static_assert(Strict::size == 2);
static_assert(Strict::metered, "metering is on unless the registry says otherwise");
static_assert(Strict::names("gelu") && !Strict::names("softmax") && !Strict::names("gel"));
static_assert(Strict::row_of("gemm<128,64>") == 1);
static_assert(Strict::row_of("softmax") == Strict::size, "nobody governs it");

// A default governs what is not bound, wherever it stands, and nothing else.
using DefaultFirst = PolicyRegistry<Default<AutoClock>, Bind<"gelu", GeluPolicy>>;
using DefaultLast = PolicyRegistry<Bind<"gelu", GeluPolicy>, Default<AutoClock>>;
static_assert(std::same_as<DefaultFirst::policy_of<Gelu>, GeluPolicy>);
static_assert(std::same_as<DefaultLast::policy_of<Gelu>, GeluPolicy>);
static_assert(std::same_as<DefaultFirst::policy_of<Softmax>, AutoClock>);
static_assert(std::same_as<DefaultLast::policy_of<Softmax>, AutoClock>);
static_assert(DefaultFirst::names("gelu") && !DefaultFirst::names("softmax"));

using OnlyDefault = PolicyRegistry<Default<AutoClock>>;
static_assert(std::same_as<OnlyDefault::policy_of<Gelu>, AutoClock>, "the start");

using Quiet = PolicyRegistry<Unmetered, Bind<"gelu", KeepClock>, Default<AutoClock>>;
static_assert(!Quiet::metered);
static_assert(std::same_as<Quiet::policy_of<Gelu>, KeepClock>);
static_assert(std::same_as<Quiet::policy_of<Softmax>, AutoClock>, "not Unmetered's");
static_assert(!PolicyRegistry<Bind<"gelu", KeepClock>, Unmetered>::metered);

using ByName = PolicyRegistry<Bind<"softmax", GeluPolicy>>;
static_assert(std::same_as<ByName::policy_of<Softmax>, GeluPolicy>);
static_assert(std::same_as<ByName::policy_of<Foreign>, GeluPolicy>, "the name is the key");

TEST(PolicyRegistry, FindsEachOfManyRows) {
    using Many = PolicyRegistry<Bind<"k0", CapClock<100_MHz>>, Bind<"k1", CapClock<200_MHz>>,
                                Bind<"k2", CapClock<300_MHz>>, Bind<"k3", CapClock<400_MHz>>,
                                Bind<"k10", CapClock<500_MHz>>>;
    for (std::size_t row = 0; row < 4; ++row) {
        EXPECT_EQ(Many::row_of("k" + std::to_string(row)), row);
    }
    EXPECT_EQ(Many::row_of("k10"), 4U) << "a name is not found by its beginning";
    EXPECT_EQ(Many::row_of("k"), Many::size);
}

using Planned = PolicyRegistry<Bind<"gelu", FromPlan<AutoClock>>, Bind<"softmax", KeepClock>>;
static_assert(Planned::obeys_plan_for("gelu"));
static_assert(!Planned::obeys_plan_for("softmax"));
static_assert(!Planned::obeys_plan_for("unbound"));
static_assert(PolicyRegistry<Default<FromPlan<AutoClock>>>::obeys_plan_for("any"));

}  // namespace
}  // namespace kdvfs
