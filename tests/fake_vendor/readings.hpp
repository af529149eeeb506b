// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <tests/fake_vendor/driver.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

namespace acme {

/// What can be read of an Acme board without the right to set anything.
class Readings {
public:
    explicit Readings(std::string board) : board_{std::move(board)} {
        info_.address = address_of(board_);
    }

    [[nodiscard]] const kdvfs::DeviceInfo& info() const { return info_; }
    [[nodiscard]] const kdvfs::SupportedClocks& supported_clocks() const { return clocks_; }
    [[nodiscard]] const std::string& board() const { return board_; }

    [[nodiscard]] kdvfs::EnergyReading read_energy() noexcept {
        std::uint64_t millijoules = 0;
        std::int64_t sampled_at = 0;
        if (acme_driver::get_energy(&millijoules, &sampled_at) != acme_driver::success) {
            return {.status = kdvfs::ReadingStatus::failed};
        }
        return {.joules = {static_cast<double>(millijoules) * 1e-3},
                .sampled_at = kdvfs::TimePoint{std::chrono::nanoseconds{sampled_at}},
                .status = kdvfs::ReadingStatus::ok};
    }
    [[nodiscard]] kdvfs::Duration counter_period() const { return std::chrono::milliseconds{1}; }

    /// "ac3e:12:34.5": what tells boards apart on this machine, written as PCI addresses are.
    static std::string address_of(const std::string& board) {
        const auto serial = static_cast<unsigned>(acme_driver::serial_of(board));
        std::array<char, 16> text{};
        std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", (serial >> 16U) & 0xffffU,
                      (serial >> 8U) & 0xffU, (serial >> 3U) & 0x1fU, serial & 7U);
        return text.data();
    }

private:
    std::string board_;
    kdvfs::DeviceInfo info_{
        .name = "Acme A1", .architecture = "acme_a1", .mechanism = "Acme's core cap"};
    kdvfs::SupportedClocks clocks_{.core = {.listed = {{500}, {1100}, {1700}}, .continuous = true}};
};

static_assert(kdvfs::EnergySource<Readings>);

}  // namespace acme
