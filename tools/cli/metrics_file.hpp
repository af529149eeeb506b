// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/metrics.hpp>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

namespace cli {

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

}  // namespace cli
