// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace cli {

/// Names and values of labels.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

/// Returns the reports of attached processes as Prometheus' text (exposition format 0.0.4):
/// - `hw_energy_joules_total`, by board: OpenTelemetry's hw.energy, the board's counter since the
///   processes began;
/// - `kdvfs_kernel_energy_joules`, a gauge because estimates are revised, with
///   `kdvfs_kernel_energy_half_width_joules` (95 %), of kernels whose energy is resolved;
/// - `kdvfs_kernel_seconds_total`, `kdvfs_kernel_launches_total`;
/// - the same of ranges, `kdvfs_range_...`, with `kdvfs_range_runs_total`, the 64 with most time;
/// - `kdvfs_saved_joules` with `kdvfs_saved_low_joules` and `kdvfs_saved_high_joules` (95 %), and
///   `kdvfs_lost_seconds`, by board, of programs that tune themselves;
/// - `kdvfs_processes`: how many have reported.
/// Names are labels, of the 64 kernels with most time; the others are one, "(others)".
/// @param processes as `read_attached_reports` gives them
/// @param constant  labels of every line, behind its own
[[nodiscard]] std::string prometheus_text(const std::vector<nlohmann::json>& processes,
                                          const MetricLabels& constant = {});

}  // namespace cli
