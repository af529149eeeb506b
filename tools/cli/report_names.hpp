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
    std::string step{};  ///< of Slurm; else empty

    static JobPlace of_this_process();

    /// What is known of it as labels of metrics: `Hostname` as DCGM's exporter has it, `jobid` as
    /// Omnistat's, `jobstep`, `rank`.
    [[nodiscard]] MetricLabels labels() const;
};

/// The name of a report of one process of a job: `%h` is the host, `%r` the rank, `%j` the job,
/// `%p` the process, `%%` a percent sign. A name without any of them gets the rank before its
/// ending where there is one: each rank writes a report of its own.
/// @throws Error (invalid_input) for `%` before another letter
std::string report_name(std::string_view name, const JobPlace& place);

}  // namespace cli
