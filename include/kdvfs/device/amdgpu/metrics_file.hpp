// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/amdgpu/capabilities.hpp>
#include <kdvfs/device/amdgpu/card.hpp>
#include <kdvfs/device/amdgpu/gpu_metrics.hpp>
#include <kdvfs/device/amdgpu/sample_clock.hpp>
#include <kdvfs/device/amdgpu/system_file.hpp>
#include <kdvfs/device/energy_source.hpp>
#include <kdvfs/device/power_reading.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

namespace kdvfs::device::amdgpu {

/// The energy counter of an amdgpu board: one `pread` of a gpu_metrics file that is kept open.
/// Needs no privilege and no library. Made for one thread (the sampler); another thread may set
/// clocks meanwhile, though the driver lets each wait for the other.
/// On a board of two dies the first die counts for the whole package, whichever die is asked.
class MetricsFile {
public:
    explicit MetricsFile(const Card& card)
        : file_{card.energy_folder.empty()
                    ? Descriptor{}
                    : open_file(card.energy_folder + "/gpu_metrics", O_RDONLY)} {}

    [[nodiscard]] EnergyReading read_energy() noexcept {
        const Look look = read_table();
        if (look.status != ReadingStatus::ok) return {{}, {}, look.status};
        if (!look.metrics.energy) return {};
        return {*look.metrics.energy, clock_.on_timeline(look.metrics.time_ns, look.at),
                ReadingStatus::ok};
    }

    /// The board's average power, which the firmware keeps in the same table.
    [[nodiscard]] PowerReading read_power() noexcept {
        const Look look = read_table();
        if (look.status != ReadingStatus::ok) return {{}, look.at, look.status};
        if (!look.metrics.power) return {};
        return {*look.metrics.power, look.at, ReadingStatus::ok};
    }

    /// Whether there is a counter, by one look.
    [[nodiscard]] Capability energy_capability() noexcept {
        switch (read_energy().status) {
            case ReadingStatus::ok: return Capability::supported;
            case ReadingStatus::absent: return Capability::absent;
            default: return Capability::refused;
        }
    }

    /// The firmware refreshes its table every millisecond on MI200.
    [[nodiscard]] Duration counter_period() const noexcept { return std::chrono::milliseconds{1}; }

private:
    struct Look {
        GpuMetrics metrics{};
        TimePoint at{};
        ReadingStatus status = ReadingStatus::absent;
    };

    [[nodiscard]] Look read_table() const noexcept {
        if (!file_.is_open()) return {};
        std::array<std::byte, metrics_bytes> table;
        const ssize_t count = ::pread(file_.get(), table.data(), table.size(), 0);
        if (count < 0) return {{}, {}, ReadingStatus::failed};
        const TimePoint now{std::chrono::steady_clock::now().time_since_epoch()};
        const auto metrics =
            parse_gpu_metrics(std::span{table}.first(static_cast<std::size_t>(count)));
        if (!metrics) return {};
        return {*metrics, now, ReadingStatus::ok};
    }

    Descriptor file_;
    SampleClock clock_;
};

}  // namespace kdvfs::device::amdgpu
