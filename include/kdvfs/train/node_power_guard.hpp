// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/node_power.hpp>
#include <kdvfs/train/power_limit.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>
#include <iterator>
#include <list>
#include <optional>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// Sets the limits that a `NodePower` asks for, and leaves those behind that it found, lowering
/// before it raises.
///
///     using Limit = train::OwnedPowerLimit<device::NvmlPowerLimit>;
///     train::NodePowerGuard<Limit> guard{limits};  // pointers, one for each GPU of the node
///     for (each step) guard.add_iteration(train());  // what each rank has measured
///
/// For boards that outlive the process the devices are `OwnedPowerLimit`s: each limit is then
/// restored after a kill, too, each by a watchdog of its own, so that the sum may be above the cap
/// for the moment between two of them. Not thread-safe.
template <PowerLimitControl Device>
class [[nodiscard]] NodePowerGuard {
public:
    /// @param devices must outlive the guard
    /// @throws Error as the devices and `NodePower`
    [[nodiscard]] explicit NodePowerGuard(std::span<Device* const> devices,
                                          const NodePowerOptions& options = {})
        : devices_{devices.begin(), devices.end()}, power_{found(devices), options} {
        for (Device* device : devices_) guards_.emplace_back(*device);
        write();
    }
    NodePowerGuard(const NodePowerGuard&) = delete;
    NodePowerGuard& operator=(const NodePowerGuard&) = delete;
    ~NodePowerGuard() {
        try {
            close();
        } catch (...) {  // the throwing twin is close()
        }
    }

    /// As `NodePower::add_iteration`; then sets limits. A limit that does not take is counted.
    void add_iteration(std::span<const std::optional<GpuIteration>> iterations) {
        const std::size_t decisions = power_.decisions();
        power_.add_iteration(iterations);
        if (power_.decisions() == decisions) return;
        for (std::size_t i = 0; i < devices_.size(); ++i)
            if (const auto held = read(i)) power_.observe(i, *held);
        write();
    }

    [[nodiscard]] const NodePower& power() const { return power_; }

    /// Restores the limits that were found: the higher ones first.
    /// @throws Error as `PowerLimitGuard::close`, the first of them, when all were tried
    void close() {
        std::optional<Error> failure;
        for (const bool lowers : {true, false}) {
            std::size_t i = 0;
            for (auto& guard : guards_) {
                const bool is_above = power_.limit(i++).count > guard.found().count;
                if (is_above != lowers) continue;
                try {
                    guard.close();
                } catch (const Error& error) {
                    if (!failure) failure = error;
                }
            }
        }
        if (failure) throw Error{*failure};
    }

private:
    static std::vector<NodeGpu> found(std::span<Device* const> devices) {
        std::vector<NodeGpu> gpus;
        for (Device* device : devices)
            gpus.push_back({device->power_limit_range(), device->read_power_limit()});
        return gpus;
    }

    std::optional<Watts> read(std::size_t gpu) {
        try {
            return devices_[gpu]->read_power_limit();
        } catch (const Error&) {
            return std::nullopt;
        }
    }

    void write() {
        while (const auto next = power_.next_write()) {
            try {
                std::next(guards_.begin(), static_cast<std::ptrdiff_t>(next->gpu))
                    ->set(next->limit);
            } catch (const Error&) {  // what holds is read back
            }
            power_.written(read(next->gpu));
        }
    }

    std::vector<Device*> devices_;
    NodePower power_;
    std::list<PowerLimitGuard<Device>> guards_;
};

}  // namespace kdvfs::inline v0_3::train
