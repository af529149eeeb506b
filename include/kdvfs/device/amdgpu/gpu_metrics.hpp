// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/units.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace kdvfs::device::amdgpu {

/// Which clock a gpu_metrics table tells the time of its energy by.
enum class MetricsTime {
    firmware,  ///< when the firmware took the sample, in 10 ns ticks of its own clock
    driver,    ///< when the driver built the table, in nanoseconds: later than the sample
};

/// What kdvfs takes from one gpu_metrics table. A field the board leaves at all ones is absent.
struct GpuMetrics {
    std::optional<Joules> energy;  ///< since the driver was loaded, in steps of 2^-16 J
    std::optional<Watts> power;
    std::uint64_t time_ns = 0;  ///< on the clock that `time` names
    MetricsTime time = MetricsTime::driver;
};

/// The format and content revision of a table, "1.3".
struct MetricsVersion {
    std::uint8_t format = 0;
    std::uint8_t content = 0;

    friend bool operator==(MetricsVersion, MetricsVersion) = default;
};

/// As many bytes of the file as `parse_gpu_metrics` looks at.
inline constexpr std::size_t metrics_bytes = 320;

/// Joules per step of the energy accumulator (kgd_pp_interface.h: "15.259uJ (2^-16) units").
/// ROCm SMI 5.2 multiplies by 15.3 uJ instead and so reads 0.27 % too much.
inline constexpr double joules_per_energy_step = 1.0 / 65536;

namespace detail {

/// Where a content revision of format 1 keeps its fields (struct gpu_metrics_v1_x in the kernel's
/// kgd_pp_interface.h). The revisions do not extend one another: each has offsets of its own.
struct MetricsLayout {
    std::uint16_t power;
    std::uint16_t energy;
    std::uint16_t time;
    MetricsTime clock;
    bool wide_energy = true;  ///< u64; revision 1.0 has u32
};

inline constexpr std::array<MetricsLayout, 9> metrics_layouts{{
    {34, 36, 8, MetricsTime::driver, false},
    {22, 24, 32, MetricsTime::driver},
    {22, 24, 96, MetricsTime::firmware},
    {22, 24, 96, MetricsTime::firmware},
    {10, 24, 232, MetricsTime::firmware},
    {10, 88, 304, MetricsTime::firmware},
    {10, 16, 256, MetricsTime::firmware},
    {10, 24, 288, MetricsTime::firmware},
    {10, 24, 288, MetricsTime::firmware},
}};

/// A little-endian field, as amdgpu writes it; nothing where it is all ones.
template <class Unsigned>
std::optional<Unsigned> field(std::span<const std::byte> table, std::size_t offset) {
    Unsigned value = 0;
    std::memcpy(&value, table.data() + offset, sizeof value);
    if (value == static_cast<Unsigned>(~Unsigned{0})) return std::nullopt;
    return value;
}

}  // namespace detail

/// The revision a table says it has, or nothing where there is no header.
inline std::optional<MetricsVersion> metrics_version(std::span<const std::byte> table) {
    if (table.size() < 4) return std::nullopt;
    return MetricsVersion{std::to_integer<std::uint8_t>(table[2]),
                          std::to_integer<std::uint8_t>(table[3])};
}

/// Reads a gpu_metrics table of revision 1.0 to 1.8 (MI100 to MI350). Nothing is returned for other
/// revisions and for tables shorter than they should be.
inline std::optional<GpuMetrics> parse_gpu_metrics(std::span<const std::byte> table) {
    const auto version = metrics_version(table);
    if (!version || version->format != 1 || version->content >= detail::metrics_layouts.size()) {
        return std::nullopt;
    }
    const detail::MetricsLayout& layout = detail::metrics_layouts[version->content];
    const std::size_t energy_end = layout.energy + (layout.wide_energy ? 8u : 4u);
    if (table.size() < std::max<std::size_t>(layout.time + 8u, energy_end)) return std::nullopt;

    GpuMetrics metrics;
    const auto joules = [](auto steps) {
        return Joules{static_cast<double>(steps) * joules_per_energy_step};
    };
    if (!layout.wide_energy) {
        if (const auto steps = detail::field<std::uint32_t>(table, layout.energy)) {
            metrics.energy = joules(*steps);
        }
    } else if (const auto steps = detail::field<std::uint64_t>(table, layout.energy)) {
        metrics.energy = joules(*steps);
    }
    if (const auto watts = detail::field<std::uint16_t>(table, layout.power)) {
        metrics.power = Watts{static_cast<double>(*watts)};
    }
    const auto time = detail::field<std::uint64_t>(table, layout.time);
    if (!time) return std::nullopt;
    metrics.time = layout.clock;
    metrics.time_ns = layout.clock == MetricsTime::firmware ? *time * 10 : *time;
    return metrics;
}

}  // namespace kdvfs::device::amdgpu
