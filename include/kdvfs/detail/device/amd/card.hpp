// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/device/amd/system_files.hpp>
#include <kdvfs/detail/io/pci_address.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <dirent.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::device::amd {

/// An AMD GPU as sysfs and KFD describe it. Reading it changes nothing and needs no privilege.
struct Card {
    std::string folder;  ///< "/sys/class/drm/card0/device", without a slash at the end
    io::PciAddress address;
    std::string name;                 ///< "AMD Instinct MI210", else "AMD GPU 0x740f"
    std::string architecture;         ///< "gfx90a"; empty where KFD does not know the GPU
    Megahertz core_max = auto_clock;  ///< the board's highest core clock, where KFD tells it
    std::string partition;       ///< "SPX", "CPX" ...; empty where the driver knows no partitions
    bool secondary_die = false;  ///< the die of an MI250X that reports no power and no energy
    std::string kfd_node;        ///< its folder in KFD's topology; empty where KFD has none
    /// Of the die whose counter counts for this one, too: its own, for a second die that of its
    /// package's first; empty where that was not found.
    std::string energy_folder;
    bool shares_counter = false;  ///< the counter counts another die, too
};

/// "AMD Instinct MI210 (0000:c1:00.0)".
inline std::string to_string(const Card& card) {
    return card.name + " (" + to_string(card.address) + ")";
}

namespace detail {

inline std::string first_line(const std::string& path) {
    const FileText file = read_file(path);
    return std::string{trimmed(file.text)};
}

inline std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR*)> open{::opendir(folder.c_str()), &::closedir};
    if (!open) return names;
    while (const dirent* entry = ::readdir(open.get())) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

/// The value behind a key in a KFD properties file; nothing where the key is missing.
inline std::optional<std::uint64_t> kfd_property(std::string_view text, std::string_view key) {
    while (!text.empty()) {
        auto line = take_line(text);
        if (!line.starts_with(key) || !line.substr(key.size()).starts_with(' ')) continue;
        line = trimmed(line.substr(key.size()));
        std::uint64_t value = 0;
        const auto [next, error] = std::from_chars(line.data(), line.data() + line.size(), value);
        if (error == std::errc{} && next == line.data() + line.size()) return value;
    }
    return std::nullopt;
}

/// 90010 is gfx90a, 90402 is gfx942: major, minor and stepping, the last two as hexadecimal digits
/// (hsa-runtime and LLVM use this rule).
inline std::string architecture_of(std::uint64_t gfx_target_version) {
    if (gfx_target_version == 0) return {};
    return io::format_text("gfx%u%x%x", static_cast<unsigned>(gfx_target_version / 10000),
                           static_cast<unsigned>(gfx_target_version / 100 % 100),
                           static_cast<unsigned>(gfx_target_version % 100));
}

/// Adds what KFD, the compute half of the driver, knows about a card.
inline void describe_by_kfd(Card& card) {
    const std::string nodes = "/sys/class/kfd/kfd/topology/nodes/";
    for (const std::string& node : names_in(nodes)) {
        const FileText file = read_file(nodes + node + "/properties");
        const std::uint64_t location =
            card.address.bus << 8 | card.address.device << 3 | card.address.function;
        if (kfd_property(file.text, "location_id") != location) continue;
        if (kfd_property(file.text, "domain").value_or(0) != card.address.domain) continue;
        card.kfd_node = nodes + node;
        card.architecture =
            architecture_of(kfd_property(file.text, "gfx_target_version").value_or(0));
        card.core_max = Megahertz{static_cast<std::uint32_t>(
            kfd_property(file.text, "max_engine_clk_fcompute").value_or(0))};
        return;
    }
}

/// An MI250X's second die has a power limit of zero: the first one keeps the package's.
inline bool is_secondary_die(const std::string& folder) {
    for (const std::string& monitor : names_in(folder + "/hwmon")) {
        const FileText limit = read_file(folder + "/hwmon/" + monitor + "/power1_cap_max");
        if (limit.error == 0 && trimmed(limit.text) == "0") return true;
    }
    return false;
}

inline std::optional<io::PciAddress> address_of_link(const std::string& link) {
    std::array<char, PATH_MAX> target{};
    const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
    if (length <= 0) return std::nullopt;
    const std::string_view path{target.data(), static_cast<std::size_t>(length)};
    const auto end = path.rfind("/drm/");
    if (end == std::string_view::npos) return std::nullopt;
    const auto begin = path.rfind('/', end - 1);
    return io::parse_pci_address(path.substr(begin + 1, end - begin - 1));
}

inline std::optional<Card> describe(const std::string& drm_name) {
    Card card;
    card.folder = "/sys/class/drm/" + drm_name + "/device";
    if (first_line(card.folder + "/vendor") != "0x1002") return std::nullopt;
    const auto address = address_of_link("/sys/class/drm/" + drm_name);
    if (!address) return std::nullopt;
    card.address = *address;
    card.name = first_line(card.folder + "/product_name");
    if (card.name.empty()) card.name = "AMD GPU " + first_line(card.folder + "/device");
    card.partition = first_line(card.folder + "/current_compute_partition");
    card.secondary_die = is_secondary_die(card.folder);
    describe_by_kfd(card);
    return card;
}

/// The KFD node at the other end of a card's widest XGMI link, where one is wider than all others:
/// the two dies of a package share more links than any two packages (four, 200 GB/s, on MI250X).
/// Drivers before Linux 5.15 tell no widths.
inline std::string widest_neighbour(const Card& card) {
    constexpr std::uint64_t xgmi = 11;  // CRAT_IOLINK_TYPE_XGMI
    std::uint64_t widest = 0;
    std::string neighbour;
    for (const std::string& link : names_in(card.kfd_node + "/io_links")) {
        const FileText file = read_file(card.kfd_node + "/io_links/" + link + "/properties");
        if (kfd_property(file.text, "type") != xgmi) continue;
        const std::uint64_t width = kfd_property(file.text, "max_bandwidth").value_or(0);
        if (width < widest || width == 0) continue;
        const auto node = kfd_property(file.text, "node_to");
        neighbour = width == widest || !node ? "" : std::to_string(*node);
        widest = width;
    }
    return neighbour;
}

/// Finds the counter of each second die: that of the first die of its package.
inline void find_counters(std::vector<Card>& cards) {
    for (Card& card : cards) {
        if (!card.secondary_die) card.energy_folder = card.folder;
    }
    for (Card& second : cards) {
        const std::string neighbour =
            second.secondary_die ? widest_neighbour(second) : std::string{};
        if (neighbour.empty()) continue;
        for (Card& first : cards) {
            if (first.secondary_die || !first.kfd_node.ends_with("/" + neighbour)) continue;
            second.energy_folder = first.folder;
            first.shares_counter = second.shares_counter = true;
        }
    }
}

}  // namespace detail

/// Every AMD GPU that the amdgpu driver shows, by PCI address.
inline std::vector<Card> find_cards() {
    std::vector<Card> cards;
    for (const std::string& name : detail::names_in("/sys/class/drm")) {
        const bool is_card = name.starts_with("card") && name.find('-') == std::string::npos;
        if (!is_card) continue;
        if (auto card = detail::describe(name)) cards.push_back(std::move(*card));
    }
    std::sort(cards.begin(), cards.end(),
              [](const Card& a, const Card& b) { return a.address < b.address; });
    detail::find_counters(cards);
    return cards;
}

/// Whether `address` is that of a partition of the card: HIP numbers those of a GPU in another mode
/// than SPX as functions .1 to .7, of which PCI and sysfs know nothing.
inline bool has_partition_at(const Card& card, io::PciAddress address) {
    const bool is_partitioned = !card.partition.empty() && card.partition != "SPX";
    address.function = 0;
    return is_partitioned && address == card.address;
}

/// The card at a PCI address; for a partition the GPU that it is of, under the partition's address.
/// @throws Error (not_supported) naming the AMD GPUs that are there.
inline Card find_card(io::PciAddress address) {
    std::string present;
    for (Card& card : find_cards()) {
        if (card.address == address) return std::move(card);
        if (has_partition_at(card, address)) {
            card.address = address;
            return std::move(card);
        }
        present += (present.empty() ? "" : ", ") + to_string(card.address);
    }
    throw Error{Errc::not_supported,
                {"find an AMD GPU", to_string(address),
                 present.empty() ? "no GPU of the amdgpu driver in /sys/class/drm"
                                 : "the amdgpu driver shows " + present,
                 "check that the driver is loaded and /sys is visible in this container"}};
}

/// The power limit of an AMD board in the files of its driver: hwmon's power1_cap, in microwatts.
/// Setting it needs root, or files that this user may write.
class SysfsPowerLimit {
public:
    /// @throws Error (not_supported) for a board without a limit, such as the second die of an
    ///         MI250X
    explicit SysfsPowerLimit(const Card& card) : object_{to_string(card)} {
        info_.name = card.name;
        info_.address = to_string(card.address);
        info_.architecture = card.architecture;
        info_.mechanism = "hwmon power1_cap";
        for (const std::string& monitor : detail::names_in(card.folder + "/hwmon")) {
            const std::string folder = card.folder + "/hwmon/" + monitor + "/";
            if (read_file(folder + "power1_cap").error == 0) folder_ = folder;
        }
        if (folder_.empty() || read("power1_cap_max").count <= 0)
            throw Error{Errc::not_supported,
                        {"find the power limit", object_, "its driver shows none",
                         "use the board's first die, or another GPU"}};
    }

    [[nodiscard]] const DeviceInfo& info() const { return info_; }

    /// @throws Error with the driver's answer
    [[nodiscard]] Watts read_power_limit() const { return read("power1_cap"); }
    void set_power_limit(Watts limit) {
        const std::string path = folder_ + "power1_cap";
        if (const int error = write_file(path, std::to_string(microwatts(limit)) + "\n"))
            throw file_error("set a power limit of " + std::to_string(limit.count) + " W", object_,
                             path, error);
    }
    /// Where the driver has no lower bound it says 0: a third of the highest is taken then, below
    /// which no board of this kind runs well (an assumption).
    [[nodiscard]] PowerRange power_limit_range() const {
        PowerRange range{read("power1_cap_min"), read("power1_cap_max")};
        if (range.low.count < range.high.count / 3) range.low = range.high * (1.0 / 3);
        return range;
    }

    [[nodiscard]] RestoreScript restore_script() const {
        return {"amdgpu-power", restore_functions, {settings_file()}};
    }
    /// Whoever may write to it may set the limit.
    [[nodiscard]] std::string settings_file() const { return folder_ + "power1_cap"; }

private:
    // Words: the file.
    static constexpr const char* restore_functions = R"sh(
cap=$1

see() { # in $seen
    seen=
    IFS= read -r seen < "$cap" || [ -n "$seen" ] || return 1
    [ -n "$seen" ]
}

holds() { [ "$seen" = $((held_core * 1000000 + held_memory * 1000 + held_floor)) ]; }

is_back() { [ "$seen" = $((found_core * 1000000 + found_memory * 1000 + found_floor)) ]; }

put_back() {
    printf '%s\n' $((found_core * 1000000 + found_memory * 1000 + found_floor)) > "$cap"
}
)sh";

    static std::int64_t microwatts(Watts limit) { return std::llround(limit.count * 1e6); }

    [[nodiscard]] Watts read(const char* name) const {
        const FileText file = read_file(folder_ + name);
        if (file.error != 0)
            throw file_error("read the power limit", object_, folder_ + name, file.error);
        const std::string_view text = detail::trimmed(file.text);
        std::int64_t number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error != std::errc{} || end != text.data() + text.size())
            throw Error{Errc::io,
                        {"read the power limit", object_,
                         folder_ + name + " says \"" + std::string{text} + '"',
                         "see whether the driver is well"}};
        return {static_cast<double>(number) * 1e-6};
    }

    std::string object_;
    DeviceInfo info_{};
    std::string folder_;
};
static_assert(RestorablePowerLimit<SysfsPowerLimit>);

}  // namespace kdvfs::inline v0_3::device::amd

namespace kdvfs::inline v0_3::device::amd {
using detail::names_in;
}  // namespace kdvfs::inline v0_3::device::amd
