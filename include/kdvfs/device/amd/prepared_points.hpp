// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/device/amd/card.hpp>
#include <kdvfs/device/amd/system_files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::device::amd {

/// The prepared operating points of an AMD board (AMPP), in the files of its driver, app_modes:
/// `active_profile` tells the number of the one that holds and takes the number of another; a
/// folder `profile_N` with files in it is one that can be asked for. This is what AMD SMI 27.2
/// reads and writes (rocm_smi_ampp.cc, `rsmi_dev_ampp_profile_activate`); no library is needed.
/// Switching needs root, or a file that this user may write. What is in a point is never changed.
class PreparedPoints {
public:
    explicit PreparedPoints(const Card& card)
        : folder_{card.folder + "/app_modes/"}, object_{to_string(card)} {
        info_.name = card.name;
        info_.address = to_string(card.address) + "-point";
        info_.architecture = card.architecture;
        info_.mechanism = "amdgpu app_modes";
    }

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return none_; }

    /// The slots that are filled: one whose folder is empty has never been configured. None where
    /// the driver shows no points.
    [[nodiscard]] std::vector<PreparedPoint> prepared_points() const {
        constexpr std::string_view prefix = "profile_";
        std::vector<PreparedPoint> points;
        for (const std::string& name : detail::names_in(folder_)) {
            if (!name.starts_with(prefix)) continue;
            const auto point = number(std::string_view{name}.substr(prefix.size()));
            if (point && !detail::names_in(folder_ + name).empty()) points.push_back(*point);
        }
        std::sort(points.begin(), points.end(),
                  [](PreparedPoint a, PreparedPoint b) { return a.number < b.number; });
        return points;
    }

    /// The point that holds, and what is in it: "profile 2 (ppt0_limit 600)"; empty where it cannot
    /// be read.
    [[nodiscard]] std::string read_operating_point() const {
        const std::string held = detail::first_line(active());
        if (held.empty()) return {};
        const std::string profile = folder_ + "profile_" + held;
        std::string fields;
        for (const std::string& field : detail::names_in(profile)) {
            const std::string value = detail::first_line(profile + "/" + field);
            if (!value.empty()) fields += (fields.empty() ? "" : ", ") + field + " " + value;
        }
        return "profile " + held + (fields.empty() ? "" : " (" + fields + ")");
    }

    [[nodiscard]] static ClockState state_of(PreparedPoint point) {
        ClockState state;
        state.mode = "operating point";
        state.cap.core = {point.number};
        return state;
    }

    /// @throws Error where the file cannot be read, or says no number
    [[nodiscard]] ClockState read_clock_state() const {
        const FileText file = read_file(active());
        if (file.error != 0) {
            throw file_error("read the operating point", object_, active(), file.error);
        }
        const auto held = number(detail::trimmed(file.text));
        if (!held) {
            throw Error{Errc::io,
                        {"read the operating point", object_,
                         active() + " says '" + file.text.substr(0, 60) + "'",
                         "the GPU may be in reset; see the kernel log"}};
        }
        return state_of(*held);
    }

    void apply(ClockPoint wanted) { switch_to({wanted.core.count}); }
    void restore(const ClockState& state) { switch_to({state.cap.core.count}); }

    [[nodiscard]] RestoreScript restore_script() const {
        return {"amdgpu-point", restore_functions, {active()}};
    }

private:
    // Words: the file. A point is seen as its number.
    static constexpr const char* restore_functions = R"sh(
active=$1

see() {
    seen=
    read -r seen < "$active" || [ -n "$seen" ]
}

holds() { [ "$seen" = "$held_core" ]; }

is_back() { [ "$seen" = "$found_core" ]; }

put_back() { printf %s "$found_core" > "$active"; }
)sh";

    [[nodiscard]] std::string active() const { return folder_ + "active_profile"; }

    static std::optional<PreparedPoint> number(std::string_view text) {
        constexpr std::uint32_t most = 9999;  // no board has so many; restore records take it
        PreparedPoint point;
        const auto [end, error] =
            std::from_chars(text.data(), text.data() + text.size(), point.number);
        const bool whole = error == std::errc{} && end == text.data() + text.size();
        return whole && point.number <= most ? std::optional{point} : std::nullopt;
    }

    void switch_to(PreparedPoint point) {
        const auto points = prepared_points();
        if (std::find(points.begin(), points.end(), point) == points.end()) {
            throw Error{Errc::invalid_input,
                        {"switch to " + to_string(point), object_, "the board has no such point",
                         "ask for one of info().prepared_points"}};
        }
        if (const int error = write_file(active(), std::to_string(point.number))) {
            throw file_error("switch to " + to_string(point), object_, active(), error);
        }
    }

    std::string folder_;
    std::string object_;
    DeviceInfo info_{};
    SupportedClocks none_{};
};

static_assert(PreparedPointControl<PreparedPoints> && Restorable<PreparedPoints>);

}  // namespace kdvfs::device::amd
