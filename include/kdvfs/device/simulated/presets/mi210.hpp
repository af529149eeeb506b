// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/device/simulated/presets/mi250x.hpp>

namespace kdvfs::simulated {

/// AMD Instinct MI210, a prediction: one die of the MI250X's two, with its own limits.
inline Board mi210() {
    Board board = mi250x();
    board.name = "AMD Instinct MI210";
    // Assumption: one die draws half.
    board.memory_states = {{{1600}, 1, {12}}};
    board.core_overhead = {{10}, 2, 10};
    board.static_power = {20};
    board.power_cap = {300};  // MI210 data sheet

    // MI210 data sheet: 104 CUs, 1.64 TB/s; per CU and channel as the MI250X.
    board.throughput.matrix_flops_per_cycle = 104 * 1024;
    board.throughput.vector_flops_per_cycle = 104 * 128;
    board.throughput.cache_bytes_per_cycle = 32 * 128;
    board.throughput.memory_bytes_per_second = 1.64e12;
    return board;
}

}  // namespace kdvfs::simulated
