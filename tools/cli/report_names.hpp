// SPDX-License-Identifier: MIT
#pragma once

#include <tools/cli/metrics.hpp>

#include <string>
#include <string_view>

namespace cli {

/// This process as its launcher sees it.
struct JobPlace {
    std::string host;
    std::string rank;  ///< empty outside of srun, mpirun and torchrun
    std::string job;   ///< of Slurm, PBS, LSF or Flux; else empty
    int process = 0;
    std::string step{};     ///< of Slurm; else empty
    std::string restart{};  ///< "restart1" where Slurm has requeued the job once; else empty

    static JobPlace of_this_process();

    /// What is known of it as labels of metrics: `Hostname` as DCGM's exporter has it, `jobid` as
    /// Omnistat's, `jobstep`, `rank`.
    [[nodiscard]] MetricLabels labels() const;
};

/// The name of a report of one process of a job: `%h` is the host, `%r` the rank, `%j` the job,
/// `%p` the process, `%%` a percent sign. A name without any of them gets the rank before its
/// ending where there is one: each rank writes a report of its own. Of a requeued job `%j` is
/// "812.restart1"; a name without `%j` gets that before its ending, so the first run's report
/// stays.
/// @throws Error (invalid_input) for `%` before another letter
std::string report_name(std::string_view name, const JobPlace& place);

}  // namespace cli
