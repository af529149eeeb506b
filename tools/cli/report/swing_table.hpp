// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/power_swing.hpp>
#include <tools/cli/report/chart_parts.hpp>

#include <string>
#include <vector>

namespace cli::report {

/// The window of the power swings that pages show. An assumption: what supplies smooth is shorter.
inline constexpr kdvfs::Seconds swing_window{0.010};

/// What a lower range of power costs in time, a cap a row; the first has none.
inline Table lower_range_table(const std::vector<kdvfs::tune::CappedIteration>& rows) {
    Table table{{"no part above", "range, W", "steepest, W/ms", "time"}};
    for (const kdvfs::tune::CappedIteration& row : rows)
        table.push_back({fixed_text(row.cap.count) + " W", fixed_text(row.swing.range().count),
                         fixed_text(row.swing.steepest_w_per_ms, 2),
                         percent_text(100 * (row.time / rows.front().time - 1))});
    return table;
}

/// "range 120.0 W (80.0 to 200.0), steepest 3.10 W/ms"
inline std::string swing_text(const kdvfs::tune::PowerSwing& swing) {
    return "range " + fixed_text(swing.range().count) + " W (" + fixed_text(swing.lowest.count) +
           " to " + fixed_text(swing.highest.count) + "), steepest " +
           fixed_text(swing.steepest_w_per_ms, 2) + " W/ms";
}

/// What the figures are of.
inline const char* swing_note() {
    return "Ranges and slopes are of the mean over 10 ms, of iterations that repeat without a "
           "pause (arXiv 2508.14318). Copies that synchronize swing together: they multiply "
           "both. The table says what a lower range costs in time by clocks alone.";
}

}  // namespace cli::report
