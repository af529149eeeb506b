// SPDX-License-Identifier: MIT
#include <kdvfs/detail/device/device_clock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>

namespace kdvfs::device {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// A device whose clock started elsewhere and drifts against the host's.
struct Drifting {
    double ppm = 0;

    [[nodiscard]] std::uint64_t ticks(Duration host) const {
        const auto ns = static_cast<double>(host.count());
        return 1'700'000'000'000'000'000U + static_cast<std::uint64_t>(ns * (1 + ppm * 1e-6));
    }
};

/// Where ticks lie on the Timeline, as `kernel_markers.hpp` puts them there.
Duration on_timeline(const DeviceClock& clock, std::uint64_t ticks) {
    return Duration{clock.nanoseconds(ticks)} + clock.offset();
}

Duration error_at(const DeviceClock& clock, const Drifting& device, Duration host) {
    return on_timeline(clock, device.ticks(host)) - host;
}

TEST(DeviceClock, AnIdleStreamPlacesTheClockInTheMiddleOfItsWay) {
    DeviceClock clock;
    const Drifting device;
    for (int i = 1; i <= 32; ++i) {
        const Duration start = milliseconds{i};
        clock.observe(device.ticks(start + microseconds{4}), start, start + microseconds{8});
    }
    clock.center();
    EXPECT_EQ(error_at(clock, device, seconds{1}), Duration{0});
    EXPECT_EQ(clock.uncertainty(), microseconds{4});
}

TEST(DeviceClock, DriftIsFollowedInBothDirections) {
    for (const double ppm : {-20.0, 20.0}) {
        DeviceClock clock;
        const Drifting device{ppm};
        std::mt19937 random{1};
        clock.observe(device.ticks(microseconds{4}), microseconds{1}, microseconds{8});
        Duration worst{0};
        for (int i = 1; i < 100'000; ++i) {  // 100 s, drained every 10 ms
            const Duration start = milliseconds{i};
            const Duration queued = microseconds{5 + random() % 200};
            const Duration seen = start + queued + microseconds{5} + milliseconds{10 - i % 10};
            clock.observe(device.ticks(start + queued), start, seen);
            worst = std::max(worst, Duration{std::abs(error_at(clock, device, start).count())});
        }
        // Bounded by the shortest way to the device, or from it to the drain, never by the time
        // that has passed: without following, 100 s at 20 ppm are 2 ms.
        EXPECT_LT(worst, ppm < 0 ? microseconds{20} : microseconds{1030}) << ppm;
        EXPECT_GT(worst, microseconds{2}) << "there was nothing to follow";
    }
}

TEST(DeviceClock, AReplayedGraphWithoutItsEnqueueTimeStillBoundsFromAbove) {
    DeviceClock clock;
    const Drifting device;
    clock.observe(device.ticks(seconds{1}), {}, seconds{1} + milliseconds{3});
    EXPECT_EQ(error_at(clock, device, seconds{1}), milliseconds{3});
    clock.observe(device.ticks(seconds{2}), {}, seconds{2} + microseconds{10});
    EXPECT_EQ(error_at(clock, device, seconds{1}), microseconds{10});
}

TEST(DeviceClock, TicksMayBeLongerThanANanosecond) {
    DeviceClock clock{10};  // 100 MHz
    clock.observe(500, microseconds{7}, microseconds{7});
    EXPECT_EQ(on_timeline(clock, 600), microseconds{8});
}

}  // namespace
}  // namespace kdvfs::device
