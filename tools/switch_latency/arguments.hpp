// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/presets.hpp>

#include <array>
#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

/// What the programs of this folder read on their command lines.
namespace arguments {

/// @throws std::invalid_argument
inline std::uint32_t number(std::string_view text) {
    std::int32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < 0) {
        throw std::invalid_argument{"not a number: '" + std::string{text} + "'"};
    }
    return static_cast<std::uint32_t>(value);
}

/// A simulated board by the name of its preset. @throws std::invalid_argument
inline kdvfs::simulated::Board simulated_board(std::string_view name) {
    namespace simulated = kdvfs::simulated;
    using Preset = simulated::Board (*)();
    constexpr std::array<std::pair<std::string_view, Preset>, 5> presets{
        {{"rtx_3080_ti", &simulated::rtx_3080_ti},
         {"mi210", &simulated::mi210},
         {"mi250x", &simulated::mi250x},
         {"mi300x", &simulated::mi300x},
         {"h100", &simulated::h100}}};
    for (const auto& [known, preset] : presets) {
        if (known == name) return preset();
    }
    throw std::invalid_argument{"there is no simulated board " + std::string{name}};
}

}  // namespace arguments
