// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/metrics.hpp>

#include <filesystem>
#include <memory>
#include <string>

namespace cli {

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
