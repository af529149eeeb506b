// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/amd/card.hpp>
#include <kdvfs/device/amd/system_files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace kdvfs::device::amd {

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
        found_microwatts_ = std::to_string(microwatts(read_power_limit()));
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

    /// The script writes what was found when this object was made.
    [[nodiscard]] RestoreScript restore_script() const {
        return {"amdgpu-power", restore_functions, {folder_ + "power1_cap", found_microwatts_}};
    }

private:
    // Words: the file, the microwatts to put back. A limit is seen in whole watts.
    static constexpr const char* restore_functions = R"sh(
cap=$1 microwatts=$2

see() { # in $seen
    seen=
    IFS= read -r seen < "$cap" || [ -n "$seen" ] || return 1
    seen=${seen%??????}
    seen=${seen:-0}
}

holds() { [ "$seen" = "$held_core" ]; }

is_back() { [ "$seen" = "$found_core" ]; }

put_back() { printf '%s\n' "$microwatts" > "$cap"; }
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
    std::string found_microwatts_;
};
static_assert(RestorablePowerLimit<SysfsPowerLimit>);

}  // namespace kdvfs::device::amd
