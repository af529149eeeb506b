// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/device/amdgpu/capabilities.hpp>
#include <kdvfs/device/amdgpu/card.hpp>
#include <kdvfs/device/amdgpu/clock_files.hpp>
#include <kdvfs/device/amdgpu/restore_script.hpp>
#include <kdvfs/device/device_info.hpp>

#include <algorithm>
#include <string>

namespace kdvfs::device::amdgpu {

/// Which clocks a board can be capped at, and how, as far as its files tell.
struct SettableClocks {
    SupportedClocks supported;
    ClockBounds bounds;
    ClockWay way = ClockWay::range;
    bool has_table = false;  ///< pp_od_clk_voltage is there
    std::string why_not;     ///< why the clocks cannot be set; empty where they can

    /// Reads only, and never throws: what cannot be read is a reason why not.
    static SettableClocks of(const Card& card, const ClockFiles& files) {
        SettableClocks clocks;
        if (!card.partition.empty() && card.partition != "SPX") {
            clocks.why_not = "the GPU is partitioned (" + card.partition +
                             "), and the driver sets clocks in SPX mode only";
            return clocks;
        }
        try {
            clocks.learn_range(card, files, files.table());
        } catch (const Error& error) {
            clocks = without_table(files, error.text().vendor_words);
        }
        return clocks;
    }

    /// Of a board whose only way is its list of levels.
    static SettableClocks by_levels(const ClockList& list) {
        SettableClocks clocks;
        clocks.way = ClockWay::level_mask;
        clocks.supported.core = {list.clocks, false};
        clocks.bounds = {list.clocks.front(), list.clocks.back(), auto_clock,
                         static_cast<unsigned>(list.clocks.size())};
        return clocks;
    }

private:
    static SettableClocks without_table(const ClockFiles& files, const std::string& why_no_table) {
        try {
            const ClockList list = files.levels_of("pp_dpm_sclk");
            if (list.clocks.size() > 1) return by_levels(list);
        } catch (const Error&) {  // what the table's file said, says more
        }
        SettableClocks none;
        none.why_not = why_no_table;
        return none;
    }

    void learn_range(const Card& card, const ClockFiles& files, const OverdriveTable& table) {
        has_table = true;
        bounds.core_min = lowest_core_clock(card, files, table);
        bounds.core_max = card.core_max != auto_clock ? card.core_max : table.core.clocks.back();
        if (bounds.core_min >= bounds.core_max) {
            why_not = "its clock range does not show in performance level " + files.level();
            return;
        }
        supported.core = {{Megahertz{bounds.core_min.count + 1}, bounds.core_max}, true};
        if (table.memory_is_settable) learn_memory(files);
    }

    void learn_memory(const ClockFiles& files) {
        supported.memory.listed = files.levels_of("pp_dpm_mclk").clocks;
        std::sort(supported.memory.listed.begin(), supported.memory.listed.end());
        bounds.memory_max = supported.memory.listed.back();
    }

    /// The bottom of the board's own range. The table tells it in level `auto` or in a section of
    /// its own; else it shows somebody's limit, and only MI200's 500 MHz is known beforehand. The
    /// limit then bounds what kdvfs asks for.
    static Megahertz lowest_core_clock(const Card& card, const ClockFiles& files,
                                       const OverdriveTable& table) {
        if (table.core_min) return *table.core_min;
        if (card.architecture == "gfx90a" && files.level() != "auto") return Megahertz{500};
        return table.core.clocks.front();
    }
};

}  // namespace kdvfs::device::amdgpu
