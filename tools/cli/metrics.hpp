// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
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
///   `kdvfs_lost_seconds`, by board, of programs that tune themselves; while several are
///   on a board they compare the energy of the whole board, and one saving is counted;
/// - `kdvfs_processes`: how many have reported.
/// Names are labels, of the 64 kernels with most time; the others are one, "(others)".
/// @param processes as `read_attached_reports` gives them
/// @param constant  labels of every line, behind its own
[[nodiscard]] std::string prometheus_text(const std::vector<nlohmann::json>& processes,
                                          const MetricLabels& constant = {});

/// A file with the metrics of attached processes, for the textfile collector of Prometheus'
/// node_exporter: replaced as a whole every five seconds, from a thread of its own, until
/// destroyed. Then it is removed: its values would be scraped for ever.
class MetricsFile {
public:
    /// @param file   its name must end in .prom, or the collector does not read it
    /// @param folder where attached processes write their reports
    /// @param labels of every line
    /// @throws Error (invalid_input) for another ending, (io) if it cannot be written
    MetricsFile(std::filesystem::path file, std::filesystem::path folder, MetricLabels labels);
    ~MetricsFile();
    MetricsFile(const MetricsFile&) = delete;
    MetricsFile& operator=(const MetricsFile&) = delete;

private:
    void write() const;
    void keep_writing() noexcept;

    std::filesystem::path file_;
    std::filesystem::path folder_;
    MetricLabels labels_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ends_ = false;
    std::thread thread_;
};

/// Answers `GET /metrics` with the metrics of attached processes, from one thread, until destroyed.
/// A client can hold at most 4 KiB and two seconds: request bodies are never read, each connection
/// is closed after one answer, and with 64 connections open the oldest one makes room for the next.
/// The destructor waits for no client.
class MetricsServer {
public:
    /// @param place  "PORT" or "ADDRESS:PORT"; the address is 127.0.0.1 by default, and port 0
    /// takes
    ///               a free one
    /// @param folder where attached processes write their reports
    /// @param labels of every line
    /// @throws Error (invalid_input) if `place` is not an address and a port, (busy) if nothing can
    ///         listen there
    MetricsServer(const std::string& place, std::filesystem::path folder, MetricLabels labels = {});
    ~MetricsServer();
    MetricsServer(const MetricsServer&) = delete;
    MetricsServer& operator=(const MetricsServer&) = delete;

    /// @returns for example "http://127.0.0.1:9400/metrics"
    [[nodiscard]] const std::string& url() const;

private:
    class Loop;
    std::unique_ptr<Loop> loop_;
};

}  // namespace cli
