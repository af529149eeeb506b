// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
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

/// A table that describes itself, as it is put together: revision 1.9.
class AttributeTable {
public:
    enum Type : unsigned { u8, s8, u16, s16, u32, s32, u64, s64 };

    AttributeTable() : image_(8, '\0') {
        image_[2] = 1;
        image_[3] = 9;
    }

    /// An attribute and its values, which are put in the width of its type.
    template <class... Values>
    AttributeTable& add(unsigned unit, Type type, unsigned id, Values... values) {
        put(std::uint64_t{unit} << 24U | std::uint64_t{type} << 20U | std::uint64_t{id} << 10U |
                sizeof...(values),
            8);
        (put(static_cast<std::uint64_t>(values), std::size_t{1} << (type / 2)), ...);
        ++count_;
        return *this;
    }

    [[nodiscard]] std::string image() const {
        std::string image = image_;
        const auto size = static_cast<std::uint16_t>(image.size());
        std::memcpy(image.data(), &size, sizeof size);
        std::memcpy(image.data() + 4, &count_, sizeof count_);
        return image;
    }

private:
    void put(std::uint64_t value, std::size_t bytes) {
        const std::size_t known = std::min(bytes, sizeof value);  // a type of 16 bytes is made up
        image_.append(reinterpret_cast<const char*>(&value), known);
        image_.append(bytes - known, '\0');
    }

    std::string image_;
    std::uint32_t count_ = 0;
};

/// An MI300X's table of revision 1.9: the attributes that a capture of one shows, and one that
/// nobody has heard of.
inline std::string self_describing_image(const MetricsSample& sample, bool with_energy) {
    const auto mhz = static_cast<std::uint64_t>(sample.core_mhz);
    AttributeTable table;
    table.add(2, AttributeTable::u16, 0, 42).add(2, AttributeTable::u16, 1, 38);
    table.add(3, AttributeTable::u16, 3, std::lround(sample.watts));
    table.add(10, AttributeTable::u16, 4, 0).add(8, AttributeTable::u64, 6, 5300);
    if (with_energy) table.add(0, AttributeTable::u64, 7, sample.joules * 65536);
    table.add(4, AttributeTable::u64, 8, sample.read_at.count());
    table.add(0, AttributeTable::s32, 900, -7, -7, -7);
    table.add(0, AttributeTable::u64, 29, 1, 2, 3, 4, 5, 6, 7, 8);
    table.add(5, AttributeTable::u64, 32, sample.sampled_at.count() / 10);
    table.add(1, AttributeTable::u16, 33, mhz, mhz, mhz, mhz, mhz, mhz, mhz, mhz);
    table.add(1, AttributeTable::u16, 37, 1300);
    return table.image();
}

/// The binary table of gpu_metrics 1.`content`, 0 to 8, laid out as in the kernel's
/// kgd_pp_interface.h. What a version does not carry, and what is not modelled, is all ones, as the
/// driver writes it.
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
        put(54, static_cast<std::uint16_t>(sample.core_mhz));
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
        for (std::size_t die = 0; die < 8; ++die) {
            put(time_at[revision] + 8 + 2 * die, static_cast<std::uint16_t>(sample.core_mhz));
        }
    }
    return image;
}

}  // namespace virtual_amdgpu
