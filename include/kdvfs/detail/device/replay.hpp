// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::replay {

/// What one launch was measured to cost.
struct Launch {
    Seconds time{0};
    Joules energy{};
};

/// Measurements as a GPU: it runs kernels that were measured, at the clock points where they were
/// measured, and costs what one of those measurements cost, drawn at random with replacement.
/// Deterministic by seed. Not thread-safe. Nothing on it is real, and it says so.
class Device {
public:
    explicit Device(std::string name, std::uint64_t seed = 1)
        : info_{std::move(name), "replayed", "replay", "recorded measurements", true},
          random_{seed} {}

    /// Teaches it a measurement.
    void add(const KernelKey& kernel, ClockPoint clock, const Launch& launch) {
        launches_[kernel][clock].push_back(launch);
        list(clocks_.core, clock.core);
        list(clocks_.memory, clock.memory);
    }

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return clocks_; }
    [[nodiscard]] ClockState read_clock_state() const { return state_; }

    /// @throws Error (not_supported) for a clock that was never measured at
    void apply(ClockPoint point) {
        if (!supports(clocks_, point))
            fail("set the clocks to " + to_string(point), "nothing was measured there");
        state_.cap = point;
    }
    void restore(const ClockState& state) { state_ = state; }

    /// One launch at the present clocks.
    /// @throws Error (not_supported) for a kernel that was not measured there
    Launch run(const KernelKey& kernel) {
        const auto known = launches_.find(kernel);
        if (known == launches_.end()) fail("run " + to_string(kernel), "it was never measured");
        const auto point = known->second.find(state_.cap);
        if (point == known->second.end()) {
            fail("run " + to_string(kernel), "it was not measured at " + to_string(state_.cap));
        }
        return point->second[random_() % point->second.size()];
    }

private:
    static void list(ClockDomain& domain, Megahertz clock) {
        if (clock == auto_clock) return;
        const auto at = std::lower_bound(domain.listed.begin(), domain.listed.end(), clock);
        if (at == domain.listed.end() || *at != clock) domain.listed.insert(at, clock);
    }

    [[noreturn]] void fail(const std::string& action, const std::string& why) const {
        throw Error{Errc::not_supported,
                    {action, to_string(info_), why, "replays know only what was measured"}};
    }

    DeviceInfo info_;
    SupportedClocks clocks_;
    ClockState state_;
    std::map<KernelKey, std::map<ClockPoint, std::vector<Launch>>> launches_;
    std::mt19937_64 random_;
};

static_assert(ClockControl<Device>);

}  // namespace kdvfs::inline v0_3::replay
