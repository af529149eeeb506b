// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/clock_points.hpp>
#include <examples/gpt3_xl/fitted_kernels.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <examples/gpt3_xl/kernel_work.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/tune/sweep_options.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
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

inline Case predicted(const kdvfs::simulated::Board& board) {
    Case result{board, {}, kdvfs::tune::clock_grid(board.clocks), false};
    for (std::size_t entry = 0; entry < kernel_count; ++entry) {
        result.kernels[entry] = kdvfs::simulated::roofline(board, kernel_work[entry]);
    }
    return result;
}

/// The names that `find_case` knows.
inline constexpr std::array case_names{"rtx_3080_ti", "mi210", "mi250x",   "mi300x", "mi325x",
                                       "mi355x",      "a100",  "a100_sxm", "h100"};

/// "rtx_3080_ti, mi210, ... or h100", for messages.
inline std::string list_of_cases() {
    std::string list;
    for (const std::string_view name : case_names)
        list.append(list.empty() ? "" : name == case_names.back() ? " or " : ", ").append(name);
    return list;
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
    if (gpu == "mi325x") return predicted(simulated::mi325x());
    if (gpu == "mi355x") return predicted(simulated::mi355x());
    if (gpu == "a100") return predicted(simulated::a100_pcie40());
    if (gpu == "a100_sxm") return predicted(simulated::a100_sxm80());
    if (gpu == "h100") return predicted(simulated::h100());
    return std::nullopt;
}

}  // namespace gpt3
