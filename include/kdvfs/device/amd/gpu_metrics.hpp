// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/amd/card.hpp>
#include <kdvfs/device/amd/settable_clocks.hpp>
#include <kdvfs/device/amd/system_files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace kdvfs::device::amd {

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

/// Puts times of a GPU's own clock on the process's time axis. Nobody tells how far apart the two
/// are, but a sample is never newer than the moment it was read: the smallest distance seen between
/// the two is the best estimate of it, and is too large by the freshest sample's age (well under
/// one counter period, once a few have been read). Two windows slide over the minimum, so that the
/// clocks may drift: crystals are good to 50 ppm, which makes 0.1 ms in a window of two seconds.
class SampleClock {
public:
    static constexpr Duration window = std::chrono::seconds{2};

    /// The time of a sample that says `device_ns` and was read at `read_at`.
    TimePoint on_timeline(std::uint64_t device_ns, TimePoint read_at) {
        const Duration sample{static_cast<Duration::rep>(device_ns)};
        const Duration distance = read_at.time_since_epoch() - sample;
        const bool was_reset = sample < latest_;
        if (!opened_ || was_reset || read_at - *opened_ >= window) {
            before_ = was_reset ? Duration::max() : current_;
            current_ = Duration::max();
            opened_ = read_at;
        }
        latest_ = sample;
        current_ = std::min(current_, distance);
        return TimePoint{sample + std::min(current_, before_)};
    }

private:
    std::optional<TimePoint> opened_;
    Duration latest_ = Duration::min();  // a clock that runs back has been reset with its GPU
    Duration current_ = Duration::max();
    Duration before_ = Duration::max();
};

/// The energy counter of an amdgpu board: one `pread` of a gpu_metrics file that is kept open.
/// Needs no privilege and no library. Made for one thread (the sampler); another thread may set
/// clocks meanwhile, though the driver lets each wait for the other.
/// On a board of two dies the first die counts for the whole package, whichever die is asked.
class MetricsFile {
public:
    explicit MetricsFile(const Card& card)
        : file_{card.energy_folder.empty()
                    ? kdvfs::detail::Descriptor{}
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

    kdvfs::detail::Descriptor file_;
    SampleClock clock_;
};

}  // namespace kdvfs::device::amd
