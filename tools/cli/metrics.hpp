// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cli {

/// What attached processes have reported, as Prometheus' text (exposition format 0.0.4):
/// - `hw_energy_joules_total`, by board: OpenTelemetry's hw.energy, as the board's counter has it
///   since the processes came;
/// - `kdvfs_kernel_energy_joules`, a gauge since estimates are mended, with
///   `kdvfs_kernel_energy_half_width_joules` (95 %), of kernels whose joules are told;
/// - `kdvfs_kernel_seconds_total`, `kdvfs_kernel_launches_total`;
/// - the same of ranges, `kdvfs_range_...`, with `kdvfs_range_runs_total`, the 64 with most time;
/// - `kdvfs_processes`: how many have reported.
/// Names are labels, of the 64 kernels with most time; the others are one, "(others)".
/// @param processes as `read_attached_reports` gives them
[[nodiscard]] std::string prometheus_text(const std::vector<nlohmann::json>& processes);

/// Answers GET /metrics with what the processes of a folder report, from a thread of its own, until
/// it ends.
class MetricsServer {
public:
    /// @param place "PORT" or "ADDRESS:PORT"; the address is 127.0.0.1 by default, a port of 0
    /// takes
    ///        one that is free
    /// @throws Error (invalid_input) for what is no place, (busy) where it is taken,
    ///         (not_supported) where this command was built without cpp-httplib
    MetricsServer(const std::string& place, std::filesystem::path folder);
    ~MetricsServer();
    MetricsServer(const MetricsServer&) = delete;
    MetricsServer& operator=(const MetricsServer&) = delete;

    /// "http://127.0.0.1:9400/metrics"
    [[nodiscard]] const std::string& url() const;

private:
    struct Inside;
    std::unique_ptr<Inside> inside_;
};

}  // namespace cli
