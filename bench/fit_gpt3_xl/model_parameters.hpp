// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/published_table.hpp>
#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>

#include <Eigen/Core>

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

/// The fit's unknowns as unconstrained numbers: positive quantities are fitted as logarithms.
/// Each unknown has a wide prior (start, spread), which decides what the table leaves open.
namespace gpt3_fit {

using kdvfs::simulated::Board;
using kdvfs::simulated::KernelModel;

struct Unknown {
    const char* name;
    double start;   ///< in the fitted number
    double spread;  ///< one sigma of the prior
};

/// Six per kernel; times in units of the published auto time, energies of the published auto
/// energy.
inline constexpr std::array<Unknown, 6> kernel_unknowns{{
    {"log core_time", -0.7, 2.0},
    {"log memory_time", -0.7, 2.0},
    {"log fixed_time", -5.0, 2.0},
    {"overlap", 0.0, 1.5},
    {"log core_energy", -2.0, 2.0},
    {"log memory_energy", -2.0, 2.0},
}};
inline constexpr int kernel_size = static_cast<int>(kernel_unknowns.size());

/// Of the board, and the price of time (W) at which the published best points were chosen.
inline const std::vector<Unknown>& board_unknowns() {
    static const std::vector<Unknown> unknowns{
        {"log static_power", std::log(20.0), 0.3},
        {"log leakage", std::log(4.0), 0.7},
        {"leakage_exponent", 2.3, 0.5},
        {"log clock_tree", std::log(12.5), 0.5},
        {"log memory_power_810", std::log(2.0), 1.0},
        {"log memory_power_5001", std::log(32.0), 0.3},
        {"log memory_power_9251", std::log(58.0), 0.3},
        {"log memory_power_9501_over_9251", std::log(2.0), 1.0},
        {"log efficiency_405", std::log(0.74), 0.3},
        {"log efficiency_810", std::log(0.89), 0.1},
        {"log efficiency_5001", std::log(1.02), 0.03},
        {"log efficiency_9251", std::log(1.01), 0.03},
        {"log volts_1260", std::log(0.03), 1.0},
        {"log volts_1470", std::log(0.12), 0.5},
        {"log volts_1680", std::log(0.16), 0.5},
        {"log volts_1890", std::log(0.25), 0.5},
        {"log auto_rise", std::log(0.17), 0.7},
        {"log auto_exponent", std::log(2.9), 0.3},
        {"log power_cap", std::log(338.0), 0.02},
        {"log price_of_time", std::log(400.0), 1.0},
    };
    return unknowns;
}

inline KernelModel kernel_from(const Eigen::Ref<const Eigen::VectorXd>& x,
                               const gpt3::PublishedKernel& published) {
    const double time = 1e-3 * published.time_auto_ms;
    const double energy = published.energy_auto_j;
    KernelModel model;
    model.core_time = kdvfs::Seconds{time * std::exp(x[0])};
    model.memory_time = kdvfs::Seconds{time * std::exp(x[1])};
    model.fixed_time = kdvfs::Seconds{time * std::exp(x[2])};
    model.overlap = 1 + 11 / (1 + std::exp(-x[3]));
    model.core_energy = {energy * std::exp(x[4])};
    model.memory_energy = {energy * std::exp(x[5])};
    return model;
}

/// Writes the board's unknowns into a board that has the table's clocks and limits.
inline void fill_board(Board& board, const Eigen::Ref<const Eigen::VectorXd>& x) {
    const auto positive = [&x](int i) { return std::exp(x[i]); };
    board.static_power = {positive(0)};
    board.core_overhead = {{positive(1)}, x[2], positive(3)};
    board.memory_states[0].power = {0};
    board.memory_states[1].power = {positive(4)};
    board.memory_states[2].power = {positive(5)};
    board.memory_states[3].power = {positive(6)};
    board.memory_states[4].power = {positive(6) + positive(7)};
    for (int state = 0; state < 4; ++state) {
        board.memory_states[static_cast<std::size_t>(state)].efficiency = positive(8 + state);
    }
    double volts = 1;
    for (int knot = 0; knot < 4; ++knot) {
        volts += positive(12 + knot);
        board.voltage.knots[static_cast<std::size_t>(knot) + 1].relative_volts = volts;
    }
    board.auto_memory_voltage = {1260, 630, positive(16), positive(17)};
    board.power_cap = {positive(18)};
}

inline double price_of_time(const Eigen::Ref<const Eigen::VectorXd>& board_x) {
    return std::exp(board_x[19]);
}

/// What is not fitted: the clocks, and the knots of the voltage curve. NVIDIA lists memory at
/// 405 MHz with core clocks up to 420 MHz only.
inline Board unfitted_board(kdvfs::Megahertz core_max) {
    Board board;
    board.core_min = {210};
    board.core_max = core_max;
    board.reference_core = {1890};
    board.memory_states = {{{405}, 1, {0}, {420}}, {{810}}, {{5001}}, {{9251}}, {{9501}}};
    board.voltage.knots = {{1050, 1}, {1260, 1}, {1470, 1}, {1680, 1}, {1890, 1}};
    return board;
}

}  // namespace gpt3_fit
