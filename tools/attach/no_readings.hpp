// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

#include <string>
#include <utility>

namespace attach {

/// A board that cannot be read: launches are timed, joules are absent.
class NoReadings {
public:
    NoReadings(std::string name, std::string address, const std::string& why)
        : info_{.name = std::move(name),
                .address = std::move(address),
                .mechanism = "times only: " + why} {}
    [[nodiscard]] const kdvfs::DeviceInfo& info() const { return info_; }
    [[nodiscard]] const kdvfs::SupportedClocks& supported_clocks() const { return clocks_; }
    [[nodiscard]] kdvfs::EnergyReading read_energy() noexcept { return {}; }
    [[nodiscard]] kdvfs::Duration counter_period() const { return {}; }

private:
    kdvfs::DeviceInfo info_;
    kdvfs::SupportedClocks clocks_;
};

}  // namespace attach
