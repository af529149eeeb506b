// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace virtual_amdgpu {

/// What tells one virtual board from another. The figures are those the real boards show; the rules
/// are those of the amdgpu driver's power code (aldebaran_ppt.c for MI200, smu_v13_0_6_ppt.c for
/// MI300).
struct Board {
    std::string product;
    std::string codename;  ///< KFD's name of the chip
    std::uint16_t device_id = 0;
    std::uint32_t gfx_target = 0;  ///< KFD's gfx_target_version: 90010 is gfx90a
    unsigned core_min = 0;         ///< MHz
    unsigned core_max = 0;
    std::vector<unsigned> memory;  ///< MHz, ascending
    std::vector<unsigned> levels;  ///< of the core; empty: the present limits are the levels
    double idle_watts = 0;
    double power_cap_watts = 0;
    unsigned metrics_content = 3;  ///< gpu_metrics 1.x
    bool counts_energy = true;     ///< 1.9: whether the energy accumulator is among its attributes
    bool determinism = true;
    bool level_mask = true;
    bool core_range = true;                    ///< pp_od_clk_voltage is there
    bool memory_cap = false;                   ///< `m 1 CLOCK` is accepted
    bool memory_resets_core = false;           ///< a memory limit takes the core's away
    bool overdrive_headings = false;           ///< OD_SCLK/OD_MCLK instead of GFXCLK/MCLK
    bool range_checked_at_each_write = false;  ///< a max below the present min is refused at once
    bool table_stays = false;      ///< level `auto` leaves the OverDrive table as it was written
    bool secondary_die = false;    ///< zero power, zero energy, no power cap
    bool deep_sleep_line = false;  ///< an idle GPU lists "S: 19Mhz *"
    std::string partition = "SPX";
    /// AMPP: the power limits of the prepared operating points 0, 1, ..., watts; empty: there are
    /// none. Behind the last is a slot that has never been configured.
    std::vector<unsigned> points;
};

inline Board mi210() {
    Board board;
    board.product = "AMD Instinct MI210";
    board.codename = "aldebaran";
    board.device_id = 0x740f;
    board.gfx_target = 90010;
    board.core_min = 500;
    board.core_max = 1700;
    board.memory = {400, 700, 1200, 1600};
    board.idle_watts = 45;
    board.power_cap_watts = 300;
    return board;
}

/// A board of the generation before ranges: nothing but a list of levels (arcturus_ppt.c). The
/// clocks are those that rocm-smi shows on MI100 boards in public reports.
inline Board mi100() {
    Board board;
    board.product = "AMD Instinct MI100";
    board.codename = "arcturus";
    board.device_id = 0x738c;
    board.gfx_target = 90008;
    board.levels = {300,  495,  731,  962,  1029, 1087, 1147, 1189,
                    1235, 1283, 1319, 1363, 1404, 1430, 1472, 1502};
    board.core_min = board.levels.front();
    board.core_max = board.levels.back();
    board.memory = {1200};
    board.idle_watts = 40;
    board.power_cap_watts = 290;
    board.metrics_content = 1;
    board.determinism = false;
    board.core_range = false;
    return board;
}

/// The die that answers for the package.
inline Board mi250x() {
    Board board = mi210();
    board.product = "AMD Instinct MI250X";
    board.device_id = 0x7408;
    board.idle_watts = 45;  // a die's half
    board.power_cap_watts = 280;
    return board;
}

/// Comes after its first die in a machine's list.
inline Board mi250x_secondary() {
    Board board = mi250x();
    board.secondary_die = true;
    return board;
}

inline Board mi300x() {
    Board board;
    board.product = "AMD Instinct MI300X";
    board.codename = "aqua_vanjaram";
    board.device_id = 0x74a1;
    board.gfx_target = 90402;
    board.core_min = 132;
    board.core_max = 2100;
    board.memory = {900, 1100, 1200, 1300};
    board.idle_watts = 130;
    board.power_cap_watts = 750;
    board.metrics_content = 4;
    board.determinism = false;
    board.level_mask = false;
    board.memory_cap = true;
    board.overdrive_headings = true;
    board.deep_sleep_line = true;
    return board;
}

/// An MI300X under a driver whose gpu_metrics have another revision.
inline Board mi300x(unsigned metrics_content, bool counts_energy = true) {
    Board board = mi300x();
    board.metrics_content = metrics_content;
    board.counts_energy = counts_energy;
    return board;
}

/// As the driver's patches for MI400 have it: performance level `auto` or `manual`, a core range, a
/// memory maximum, metrics that describe themselves. Clocks and power are made up.
inline Board mi400() {
    Board board = mi300x(9);
    board.product = "AMD Instinct MI400";
    board.device_id = 0x75c0;
    board.gfx_target = 120500;
    board.core_min = 200;
    board.core_max = 2400;
    board.memory = {1000, 1600, 2000};
    board.idle_watts = 200;
    board.power_cap_watts = 1400;
    board.deep_sleep_line = false;
    return board;
}

/// A consumer board, whose table stays as it was written until it is reset (sienna_cichlid_ppt.c).
/// Clocks are those of an RX 6800 XT in public reports.
inline Board rx6800(std::uint32_t gfx_target = 100300) {
    Board board = mi300x();
    board.product = "AMD Radeon RX";
    board.codename = "sienna_cichlid";
    board.device_id = 0x73bf;
    board.gfx_target = gfx_target;
    board.core_min = 500;
    board.core_max = 2475;
    board.memory = {97, 457, 674, 1000};
    board.idle_watts = 30;
    board.power_cap_watts = 272;
    board.metrics_content = 3;
    board.deep_sleep_line = false;
    board.table_stays = true;
    return board;
}

/// The same with prepared operating points.
inline Board mi400_with_points() {
    Board board = mi400();
    board.points = {1400, 1100, 800};
    return board;
}

}  // namespace virtual_amdgpu
