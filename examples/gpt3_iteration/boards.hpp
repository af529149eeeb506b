// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_iteration/clock_points.hpp>
#include <examples/gpt3_iteration/fitted_kernels.hpp>
#include <examples/gpt3_iteration/iteration.hpp>
#include <examples/gpt3_iteration/kernel_work.hpp>
#include <kdvfs/device/simulated/presets.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace gpt3 {

/// A board to run the iteration on, the kernels as they are on it, and where to measure them.
struct Case {
    kdvfs::simulated::Board board;
    std::array<kdvfs::simulated::KernelModel, kernel_count> kernels;
    std::vector<kdvfs::ClockPoint> points;
    bool fitted;  ///< to the published table; otherwise a prediction from FLOPs and bytes
};

/// 16 core clocks over the board's range, or as many as it has, at each memory clock; and auto.
inline std::vector<kdvfs::ClockPoint> grid(const kdvfs::SupportedClocks& clocks) {
    std::vector<kdvfs::Megahertz> core{kdvfs::auto_clock};
    const auto& listed = clocks.core.listed;
    if (clocks.core.continuous) {
        const std::uint32_t first = listed.front().count;
        const std::uint32_t last = listed.back().count;
        for (std::uint32_t i = 0; i < 16; ++i) core.push_back({first + i * (last - first) / 15});
    } else {
        const std::size_t stride = (listed.size() + 15) / 16;
        for (std::size_t i = 0; i < listed.size(); i += stride) core.push_back(listed[i]);
    }
    std::vector<kdvfs::Megahertz> memory = clocks.memory.listed;
    memory.push_back(kdvfs::auto_clock);
    std::vector<kdvfs::ClockPoint> points;
    for (const kdvfs::Megahertz m : memory) {
        for (const kdvfs::Megahertz c : core) points.push_back({c, m});
    }
    return points;
}

inline Case predicted(const kdvfs::simulated::Board& board) {
    Case result{board, {}, grid(board.clocks), false};
    for (std::size_t entry = 0; entry < kernel_count; ++entry) {
        result.kernels[entry] = kdvfs::simulated::roofline(board, kernel_work[entry]);
    }
    return result;
}

/// The case of a `--gpu` name; nothing where there is no such preset.
inline std::optional<Case> find_case(std::string_view gpu) {
    namespace simulated = kdvfs::simulated;
    if (gpu == "rtx_3080_ti") {
        constexpr auto points = paper_clock_points();
        return Case{simulated::rtx_3080_ti(), fitted_kernels, {points.begin(), points.end()}, true};
    }
    if (gpu == "mi210") return predicted(simulated::mi210());
    if (gpu == "mi250x") return predicted(simulated::mi250x());
    if (gpu == "mi300x") return predicted(simulated::mi300x());
    if (gpu == "h100") return predicted(simulated::h100());
    return std::nullopt;
}

}  // namespace gpt3
