// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/settable_clocks.hpp>
#include <kdvfs/detail/device/amd/system_files.hpp>
#include <kdvfs/detail/device/device_clock.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

namespace kdvfs::inline v0_3::device::amd {

/// Which clock a gpu_metrics table tells the time of its energy by.
enum class MetricsTime {
    firmware,  ///< when the firmware took the sample, in 10 ns ticks of its own clock
    driver,    ///< when the driver built the table, in nanoseconds: later than the sample
};

/// What kdvfs takes from one gpu_metrics table. A field the board leaves at all ones is absent.
struct GpuMetrics {
    std::optional<Joules> energy;  ///< since the driver was loaded, in steps of 2^-16 J
    std::optional<Watts> power;
    std::optional<Megahertz> core_clock;  ///< the mean of the dies that tell theirs
    std::uint64_t time_ns = 0;            ///< on the clock that `time` names
    MetricsTime time = MetricsTime::driver;
};

/// The format and content revision of a table, "1.3".
struct MetricsVersion {
    std::uint8_t format = 0;
    std::uint8_t content = 0;

    friend bool operator==(MetricsVersion, MetricsVersion) = default;
};

/// As many bytes of the file as `parse_gpu_metrics` looks at, where the revision lays out its
/// fields (1.0 to 1.8).
inline constexpr std::size_t metrics_bytes = 336;

/// The whole file: sysfs answers one page at most. Revision 1.9 may have its fields anywhere.
inline constexpr std::size_t most_metrics_bytes = 4096;

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
    std::uint16_t core_clocks;
    std::uint16_t dies = 8;   ///< how many core clocks there are
    bool wide_energy = true;  ///< u64; revision 1.0 has u32

    /// How long a table must be at least.
    [[nodiscard]] constexpr std::size_t bytes() const {
        return std::max<std::size_t>(
            {energy + (wide_energy ? 8u : 4u), time + 8u, core_clocks + std::size_t{dies} * 2});
    }
};

inline constexpr std::array<MetricsLayout, 9> metrics_layouts{{
    {34, 36, 8, MetricsTime::driver, 54, 1, false},
    {22, 24, 32, MetricsTime::driver, 54, 1},
    {22, 24, 96, MetricsTime::firmware, 54, 1},
    {22, 24, 96, MetricsTime::firmware, 54, 1},
    {10, 24, 232, MetricsTime::firmware, 240},
    {10, 88, 304, MetricsTime::firmware, 312},
    {10, 16, 256, MetricsTime::firmware, 264},
    {10, 24, 288, MetricsTime::firmware, 296},
    {10, 24, 288, MetricsTime::firmware, 296},
}};

/// The content revision from which on a table describes itself.
inline constexpr std::uint8_t self_describing = 9;

/// A little-endian value, as amdgpu writes it; nothing where it is all ones.
template <class Unsigned>
std::optional<Unsigned> read_field(const std::byte* at) {
    Unsigned value = 0;
    std::memcpy(&value, at, sizeof value);
    if (value == static_cast<Unsigned>(~Unsigned{0})) return std::nullopt;
    return value;
}
template <class Unsigned>
std::optional<Unsigned> field(std::span<const std::byte> table, std::size_t offset) {
    return read_field<Unsigned>(table.data() + offset);
}

inline Joules joules_of(std::uint64_t steps) {
    return Joules{static_cast<double>(steps) * joules_per_energy_step};
}

/// The mean of clocks in MHz; nothing where there are none.
class MeanClock {
public:
    void add(std::optional<std::uint64_t> megahertz) {
        if (!megahertz || *megahertz > most) return;
        sum_ += *megahertz;
        ++count_;
    }
    [[nodiscard]] std::optional<Megahertz> mean() const {
        if (count_ == 0) return std::nullopt;
        return Megahertz{static_cast<std::uint32_t>(sum_ / count_)};
    }

private:
    static constexpr std::uint64_t most = 100'000;  // no clock of anything

    std::uint64_t sum_ = 0;
    std::uint64_t count_ = 0;
};

inline std::optional<GpuMetrics> parse_laid_out(std::span<const std::byte> table,
                                                const MetricsLayout& layout) {
    if (table.size() < layout.bytes()) return std::nullopt;
    GpuMetrics metrics;
    if (!layout.wide_energy) {
        if (const auto steps = field<std::uint32_t>(table, layout.energy))
            metrics.energy = joules_of(*steps);
    } else if (const auto steps = field<std::uint64_t>(table, layout.energy)) {
        metrics.energy = joules_of(*steps);
    }
    if (const auto watts = field<std::uint16_t>(table, layout.power)) {
        metrics.power = Watts{static_cast<double>(*watts)};
    }
    MeanClock clocks;
    for (std::size_t die = 0; die < layout.dies; ++die) {
        clocks.add(field<std::uint16_t>(table, layout.core_clocks + 2 * die));
    }
    metrics.core_clock = clocks.mean();
    const auto time = field<std::uint64_t>(table, layout.time);
    if (!time) return std::nullopt;
    metrics.time = layout.clock;
    metrics.time_ns = layout.clock == MetricsTime::firmware ? *time * 10 : *time;
    return metrics;
}

/// An attribute of a table that describes itself, and its values. The numbers are those of
/// `amdgpu_metrics_attr_id`, `_type` and `_unit` in kgd_pp_interface.h.
class MetricsAttribute {
public:
    enum Id : unsigned { power = 3, energy = 7, system_clock = 8, firmware_time = 32, gfxclk = 33 };
    enum Unit : unsigned { no_unit = 0, megahertz = 1, watts = 3, nanoseconds = 4, ten_ns = 5 };

    static constexpr std::size_t header_bytes = 8;

    /// @param values what is behind the encoding
    MetricsAttribute(std::uint64_t encoding, const std::byte* values)
        : encoding_{encoding}, values_{values} {}

    [[nodiscard]] unsigned id() const { return bits(10, 10); }
    [[nodiscard]] bool is_known() const {
        constexpr std::uint64_t known = 1ULL << power | 1ULL << energy | 1ULL << system_clock |
                                        1ULL << firmware_time | 1ULL << gfxclk;
        return id() < 64 && (known >> id() & 1U) != 0;
    }
    [[nodiscard]] unsigned unit() const { return bits(24, 8); }
    [[nodiscard]] unsigned instances() const { return bits(0, 10); }
    /// Whether the type, and so the length of its values, is known, and they lie in what is left
    /// of the table.
    [[nodiscard]] bool is_sound(std::size_t left) const {
        return encoding_ >> 32U == 0 && bits(20, 4) < 8 && bytes() <= left;
    }
    [[nodiscard]] std::size_t bytes() const {
        return std::size_t{instances()} << (bits(20, 4) / 2 % 4);
    }

    /// The mean of its values, which are clocks in MHz.
    [[nodiscard]] std::optional<Megahertz> mean_clock() const {
        MeanClock clocks;
        const auto add = [&]<class Unsigned>(Unsigned) {
            for (unsigned die = 0; die < instances(); ++die) clocks.add(value<Unsigned>(die));
        };
        by_width(add);
        return clocks.mean();
    }
    /// The value of an attribute that has one; nothing where it is all ones, or negative.
    [[nodiscard]] std::optional<std::uint64_t> only_value() const {
        std::optional<std::uint64_t> only;
        if (instances() == 1)
            by_width([&]<class Unsigned>(Unsigned) { only = value<Unsigned>(0); });
        return only;
    }

private:
    [[nodiscard]] unsigned bits(unsigned first, unsigned count) const {
        return static_cast<unsigned>(encoding_ >> first & ((std::uint64_t{1} << count) - 1));
    }
    /// u8 s8 u16 s16 u32 s32 u64 s64.
    template <class Act>
    void by_width(Act act) const {
        switch (bits(20, 4) / 2 % 4) {
            case 0: return act(std::uint8_t{});
            case 1: return act(std::uint16_t{});
            case 2: return act(std::uint32_t{});
            default: return act(std::uint64_t{});
        }
    }
    template <class Unsigned>
    [[nodiscard]] std::optional<std::uint64_t> value(std::size_t instance) const {
        const auto found = read_field<Unsigned>(values_ + instance * sizeof(Unsigned));
        const bool is_signed = bits(20, 1) != 0;
        const bool negative = is_signed && found && *found >> (sizeof(Unsigned) * 8 - 1) != 0;
        if (!found || negative) return std::nullopt;
        return *found;
    }

    std::uint64_t encoding_;
    const std::byte* values_;
};

/// Takes what kdvfs knows out of one attribute; one of another unit than the driver's is left out.
/// @param time in nanoseconds: of the driver, of the firmware
inline void take_attribute(const MetricsAttribute& attribute, GpuMetrics& metrics,
                           std::array<std::optional<std::uint64_t>, 2>& time) {
    using Attribute = MetricsAttribute;
    const unsigned unit = attribute.unit();
    if (attribute.id() == Attribute::gfxclk) {
        if (unit == Attribute::megahertz) metrics.core_clock = attribute.mean_clock();
        return;
    }
    const auto value = attribute.only_value();
    const auto nanoseconds = [&]() -> std::optional<std::uint64_t> {
        if (!value || unit == Attribute::nanoseconds) return value;
        if (unit != Attribute::ten_ns) return std::nullopt;
        return *value * 10;
    };
    switch (attribute.id()) {
        case Attribute::power:
            if (value && unit == Attribute::watts)
                metrics.power = Watts{static_cast<double>(*value)};
            break;
        case Attribute::energy:
            if (value && unit == Attribute::no_unit) metrics.energy = joules_of(*value);
            break;
        case Attribute::system_clock: time[0] = nanoseconds(); break;
        case Attribute::firmware_time: time[1] = nanoseconds(); break;
        default: break;
    }
}

/// A table that describes itself: a header, the number of attributes, and each with its values
/// behind it, packed. An attribute of an unknown id is skipped; one that cannot be skipped, because
/// its type is unknown or its values do not fit, makes the table one that is not understood.
inline std::optional<GpuMetrics> parse_self_describing(std::span<const std::byte> table) {
    constexpr std::size_t first = 8;
    const auto size = field<std::uint16_t>(table, 0);
    if (!size || *size > table.size() || *size < first) return std::nullopt;
    const auto count = field<std::uint32_t>(table, 4);
    if (!count) return std::nullopt;
    std::optional<GpuMetrics> metrics{std::in_place};
    std::array<std::optional<std::uint64_t>, 2> time;
    const std::byte* at = table.data() + first;
    std::size_t left = *size - first;
    for (std::uint32_t i = 0; i < *count; ++i) {
        if (left < MetricsAttribute::header_bytes) return std::nullopt;
        std::uint64_t encoding = 0;
        std::memcpy(&encoding, at, sizeof encoding);
        at += MetricsAttribute::header_bytes;
        left -= MetricsAttribute::header_bytes;
        const MetricsAttribute attribute{encoding, at};
        if (!attribute.is_sound(left)) return std::nullopt;
        if (attribute.is_known()) take_attribute(attribute, *metrics, time);
        at += attribute.bytes();
        left -= attribute.bytes();
    }
    if (!time[0] && !time[1]) return std::nullopt;
    metrics->time = time[1] ? MetricsTime::firmware : MetricsTime::driver;
    metrics->time_ns = time[1] ? *time[1] : *time[0];
    return metrics;
}

}  // namespace detail

/// The revision a table says it has, or nothing where there is no header.
inline std::optional<MetricsVersion> metrics_version(std::span<const std::byte> table) {
    if (table.size() < 4) return std::nullopt;
    return MetricsVersion{std::to_integer<std::uint8_t>(table[2]),
                          std::to_integer<std::uint8_t>(table[3])};
}

/// Reads a gpu_metrics table of revision 1.0 to 1.9 (MI100 to MI400). Nothing is returned for other
/// revisions, for tables shorter than they should be or than they say themselves, and for those
/// that tell no time.
inline std::optional<GpuMetrics> parse_gpu_metrics(std::span<const std::byte> table) {
    const auto version = metrics_version(table);
    if (!version || version->format != 1) return std::nullopt;
    if (version->content < detail::metrics_layouts.size()) {
        const detail::MetricsLayout& layout = detail::metrics_layouts[version->content];
        const auto size = detail::field<std::uint16_t>(table, 0);
        if (!size || *size < layout.bytes()) return std::nullopt;
        return detail::parse_laid_out(table, layout);
    }
    if (version->content != detail::self_describing || table.size() < 8) return std::nullopt;
    return detail::parse_self_describing(table);
}

/// The energy of a board that tells its power and no energy: the power's means between looks, times
/// the time between them. What the power does between two looks is not seen.
class PowerIntegral {
public:
    /// @param at on any one clock; one that runs back has been reset
    Joules add(Watts power, TimePoint at) {
        if (last_at_ && at > *last_at_) {
            joules_ += Watts{(power.count + last_.count) / 2} * Seconds{at - *last_at_};
        }
        last_at_ = at;
        last_ = power;
        return joules_;
    }

private:
    Joules joules_{};
    Watts last_{};
    std::optional<TimePoint> last_at_;
};

/// The energy counter of an amdgpu board: one `pread` of a gpu_metrics file that is kept open.
/// Needs no privilege and no library. Made for one thread (the sampler); another thread may set
/// clocks meanwhile, though the driver lets each wait for the other.
/// On a board of two dies the first die counts for the whole package, whichever die is asked.
/// Where the table has no energy, it is power times time (see `counts_by`).
class MetricsFile {
public:
    explicit MetricsFile(const Card& card)
        : file_{card.energy_folder.empty()
                    ? kdvfs::detail::Descriptor{}
                    : open_file(card.energy_folder + "/gpu_metrics", O_RDONLY)} {
        for (const std::string& monitor : detail::names_in(card.energy_folder + "/hwmon")) {
            limit_ = open_file(card.energy_folder + "/hwmon/" + monitor + "/power1_cap", O_RDONLY);
            if (limit_.is_open()) break;
        }
        const Look first = read_table();
        integrates_ = first.status == ReadingStatus::ok && !first.metrics.energy &&
                      first.metrics.power.has_value();
    }

    [[nodiscard]] EnergyReading read_energy() noexcept {
        const Look look = read_table();
        if (look.status != ReadingStatus::ok) return {{}, {}, look.status};
        const GpuMetrics& metrics = look.metrics;
        if (!integrates_ && !metrics.energy) return {};
        const TimePoint at = clock_.on_timeline(metrics.time_ns, look.at);
        if (!integrates_) return {*metrics.energy, at, ReadingStatus::ok};
        if (!metrics.power) return {};
        const TimePoint own{Duration{static_cast<Duration::rep>(metrics.time_ns)}};
        return {integral_.add(*metrics.power, own), at, ReadingStatus::ok};
    }

    /// The board's average power, which the firmware keeps in the same table.
    [[nodiscard]] PowerReading read_power() noexcept {
        const Look look = read_table();
        if (look.status != ReadingStatus::ok) return {{}, look.at, look.status};
        if (!look.metrics.power) return {};
        return {*look.metrics.power, look.at, ReadingStatus::ok};
    }

    /// The power limit in hwmon's power1_cap, that of the package where there are two dies; 0 where
    /// the driver shows none.
    [[nodiscard]] Watts read_power_limit() const noexcept {
        std::array<char, 32> text{};
        if (!limit_.is_open()) return {};
        const ssize_t count = ::pread(limit_.get(), text.data(), text.size(), 0);
        std::uint64_t microwatts = 0;
        if (count > 0) std::from_chars(text.data(), text.data() + count, microwatts);
        return {static_cast<double>(microwatts) * 1e-6};
    }

    /// All that kdvfs takes from the table, by one look; empty where it cannot be read.
    [[nodiscard]] GpuMetrics read_metrics() noexcept { return read_table().metrics; }

    /// Whether energy can be told, by one look.
    [[nodiscard]] Capability energy_capability() noexcept {
        switch (read_energy().status) {
            case ReadingStatus::ok: return Capability::supported;
            case ReadingStatus::absent: return Capability::absent;
            default: return Capability::refused;
        }
    }

    /// What joules are taken from where that is no energy counter, for `DeviceInfo::energy`.
    [[nodiscard]] std::string counts_by() const {
        if (!integrates_) return {};
        return "power x time: this board's gpu_metrics has no energy, so what its power did "
               "between two readings is not seen";
    }

    /// The firmware refreshes its table every millisecond on MI200.
    [[nodiscard]] Duration counter_period() const noexcept { return std::chrono::milliseconds{1}; }

private:
    struct Look {
        GpuMetrics metrics{};
        TimePoint at{};
        ReadingStatus status = ReadingStatus::absent;
    };

    [[nodiscard]] Look read_table() noexcept {
        if (!file_.is_open()) return {};
        std::array<std::byte, most_metrics_bytes> page;
        const auto read = [&] {
            const ssize_t count = ::pread(file_.get(), page.data(), bytes_, 0);
            return std::span{page}.first(count < 0 ? 0 : static_cast<std::size_t>(count));
        };
        auto table = read();
        const auto version = metrics_version(table);
        if (version && version->content >= detail::self_describing && bytes_ < page.size()) {
            bytes_ = page.size();
            table = read();
        }
        if (table.empty()) return {{}, {}, ReadingStatus::failed};
        const TimePoint now{std::chrono::steady_clock::now().time_since_epoch()};
        const auto metrics = parse_gpu_metrics(table);
        if (!metrics) return {};
        return {*metrics, now, ReadingStatus::ok};
    }

    kdvfs::detail::Descriptor file_;
    kdvfs::detail::Descriptor limit_;
    std::size_t bytes_ = metrics_bytes;
    bool integrates_ = false;
    SampleClock clock_;
    PowerIntegral integral_;
};

}  // namespace kdvfs::inline v0_3::device::amd
