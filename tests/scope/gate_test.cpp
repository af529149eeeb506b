// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/gate.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace kdvfs {
namespace {

using std::chrono::microseconds;

constexpr ClockPoint top{2000_MHz, 8000_MHz};

static_assert(kdvfs::detail::speed_lost({}, top) == 0.0);
static_assert(kdvfs::detail::speed_lost({.core = 2000_MHz}, top) == 0.0);
static_assert(kdvfs::detail::speed_lost({.core = 2100_MHz}, top) == 0.0,
              "a cap above the highest is none");
static_assert(kdvfs::detail::speed_lost({.core = 1500_MHz}, top) == 0.25);
static_assert(kdvfs::detail::speed_lost({.memory = 2000_MHz}, top) == 0.75);
static_assert(kdvfs::detail::speed_lost({1000_MHz, 6000_MHz}, top) == 0.5,
              "the domain capped harder decides");
static_assert(kdvfs::detail::speed_lost({1500_MHz, 2000_MHz}, top) == 0.75);
static_assert(kdvfs::detail::speed_lost({.memory = 2000_MHz}, {.core = 2000_MHz}) == 0.0,
              "a domain that lists no clocks cannot be capped");

constexpr std::optional<bool> worth(ClockPoint asked, std::optional<Duration> dwell,
                                    std::optional<Duration> latency, GateOptions options = {}) {
    if (!dwell || !latency) return std::nullopt;  // the gate is off: it refuses nothing
    return !kdvfs::detail::gate_refusal(asked, {dwell, latency, top}, options);
}

constexpr ClockPoint half{.core = 1000_MHz};

static_assert(!detail::gate_refusal(half, {std::nullopt, microseconds{10}, top}, {}),
              "off: no dwell");
static_assert(!detail::gate_refusal(half, {microseconds{10}, std::nullopt, top}, {}),
              "off: no latency");
static_assert(detail::gate_refusal(half, {microseconds{19}, microseconds{10}, top}, {})->too_short);
static_assert(!detail::gate_refusal(half, {microseconds{20}, microseconds{10}, top}, {})->too_short,
              "long enough, but the late raise costs 25 %");
static_assert(detail::gate_refusal(half, {microseconds{20}, microseconds{10}, top}, {})->loss ==
              0.25);

// At half speed, 10 us of latency lose 5 us, 0.3 % of 1667 us.
static_assert(worth(half, microseconds{1666}, microseconds{10}) == false);
static_assert(worth(half, microseconds{1667}, microseconds{10}) == true);

// The highest clocks slow nothing down, however short the scope is.
static_assert(worth({}, microseconds{1}, microseconds{150'000}) == true);
static_assert(worth({.core = 2000_MHz}, microseconds{1}, microseconds{150'000}) == true);

// A mild cap passes the first bound early; the second still wants two latencies.
constexpr ClockPoint mild{.core = 1999_MHz};
static_assert(worth(mild, microseconds{19}, microseconds{10}) == false);
static_assert(worth(mild, microseconds{20}, microseconds{10}) == true);

static_assert(worth(half, microseconds{1}, microseconds{0}) == true, "a switch for nothing");
static_assert(worth(half, microseconds{0}, microseconds{10}) == false);

static_assert(worth(half, microseconds{100}, microseconds{10}, {0.05, 10.0}) == true);
static_assert(worth(half, microseconds{100}, microseconds{10}, {0.05, 10.1}) == false);
static_assert(worth(half, microseconds{100}, microseconds{10}, {0.049, 10.0}) == false);

// Longer scopes and harder caps move the answer one way only.
TEST(Gate, IsMonotonic) {
    for (std::uint32_t core = 100; core <= 2000; core += 100) {
        bool passed = false;
        for (int dwell = 0; dwell <= 10'000; dwell += 50) {
            const bool now = *worth({.core = {core}}, microseconds{dwell}, microseconds{10});
            EXPECT_TRUE(now || !passed) << core << " MHz, " << dwell << " us";
            passed = now;
        }
        EXPECT_TRUE(passed) << core;
    }
    for (int dwell = 0; dwell <= 5'000; dwell += 100) {
        bool passed = false;
        for (std::uint32_t core = 100; core <= 2000; core += 50) {
            const bool now = *worth({.core = {core}}, microseconds{dwell}, microseconds{10});
            EXPECT_TRUE(now || !passed) << core << " MHz, " << dwell << " us";
            passed = now;
        }
    }
}

}  // namespace
}  // namespace kdvfs
