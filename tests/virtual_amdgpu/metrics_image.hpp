// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

namespace virtual_amdgpu {

/// What one gpu_metrics table tells of a moment.
struct MetricsSample {
    double watts = 0;
    double joules = 0;
    std::chrono::nanoseconds sampled_at{0};  ///< the firmware's clock
    std::chrono::nanoseconds read_at{0};     ///< the driver's clock
    unsigned core_mhz = 0;
};

/// The binary table of gpu_metrics 1.`content`, laid out as in the kernel's kgd_pp_interface.h.
/// What a version does not carry, and what is not modelled, is all ones, as the driver writes it.
inline std::string metrics_image(unsigned content, const MetricsSample& sample) {
    constexpr std::uint16_t sizes[] = {80, 96, 104, 120, 288, 360, 1664, 2208, 3360};
    const std::uint16_t size = sizes[std::min(content, 8u)];
    std::string image(size, '\xff');
    const auto put = [&](std::size_t offset, auto value) {
        std::memcpy(image.data() + offset, &value, sizeof value);
    };
    put(0, size);
    put(2, std::uint8_t{1});
    put(3, static_cast<std::uint8_t>(content));
    const auto watts = static_cast<std::uint16_t>(std::lround(sample.watts));
    const auto energy = static_cast<std::uint64_t>(sample.joules * 65536);
    const auto system_ns = static_cast<std::uint64_t>(sample.read_at.count());
    const auto firmware_ticks = static_cast<std::uint64_t>(sample.sampled_at.count() / 10);
    if (content == 0) {
        put(8, system_ns);
        put(34, watts);
        put(36, static_cast<std::uint32_t>(energy));
    } else if (content <= 3) {
        put(22, watts);
        put(24, energy);
        put(32, system_ns);
        put(54, static_cast<std::uint16_t>(sample.core_mhz));
        if (content >= 2) put(96, firmware_ticks);
    } else {
        constexpr std::size_t energy_at[] = {24, 88, 16, 24, 24};
        constexpr std::size_t time_at[] = {232, 304, 256, 288, 288};
        const std::size_t revision = std::min(content, 8u) - 4;
        put(10, watts);
        put(energy_at[revision], energy);
        put(time_at[revision], firmware_ticks);
    }
    return image;
}

}  // namespace virtual_amdgpu
