// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/device/amdgpu/card.hpp>
#include <kdvfs/device/amdgpu/clock_text.hpp>
#include <kdvfs/device/amdgpu/system_file.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::device::amdgpu {

/// What the clock files of a board say, or an error that names the file. Reads only.
class ClockFiles {
public:
    explicit ClockFiles(const Card& card) : folder_{card.folder}, object_{to_string(card)} {}

    /// Whether the driver has a performance level of this name.
    static bool knows_level(std::string_view level) {
        static constexpr std::array<std::string_view, 10> levels{"auto",
                                                                 "low",
                                                                 "high",
                                                                 "manual",
                                                                 "profile_exit",
                                                                 "profile_standard",
                                                                 "profile_peak",
                                                                 "profile_min_sclk",
                                                                 "profile_min_mclk",
                                                                 "perf_determinism"};
        return std::find(levels.begin(), levels.end(), level) != levels.end();
    }

    /// @throws Error
    [[nodiscard]] std::string level() const {
        const std::string text = text_of("power_dpm_force_performance_level");
        std::string level{detail::trimmed(text)};
        if (!knows_level(level)) throw not_understood("power_dpm_force_performance_level", text);
        return level;
    }

    /// The limits that hold, as pp_od_clk_voltage tells them. @throws Error
    [[nodiscard]] OverdriveTable table() const {
        const std::string text = text_of("pp_od_clk_voltage");
        auto table = parse_overdrive_table(text);
        if (!table) throw not_understood("pp_od_clk_voltage", text);
        return std::move(*table);
    }

    /// The levels of pp_dpm_sclk or pp_dpm_mclk. @throws Error
    [[nodiscard]] ClockList levels_of(std::string_view file) const {
        const std::string text = text_of(file);
        auto list = parse_clock_list(text);
        if (!list) throw not_understood(file, text);
        return std::move(*list);
    }

private:
    [[nodiscard]] std::string path(std::string_view file) const {
        return folder_ + "/" + std::string{file};
    }

    [[nodiscard]] std::string text_of(std::string_view file) const {
        FileText answer = read_file(path(file));
        if (answer.error != 0) {
            throw file_error("read the clock settings", object_, path(file), answer.error);
        }
        return std::move(answer.text);
    }

    [[nodiscard]] Error not_understood(std::string_view file, const std::string& text) const {
        return Error{
            Errc::io,
            {"read the clock settings", object_, path(file) + " says '" + text.substr(0, 60) + "'",
             "the GPU may be in reset or halted by a memory error; see the kernel log"}};
    }

    std::string folder_;
    std::string object_;
};

}  // namespace kdvfs::device::amdgpu
