// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/validation.hpp>
#include <kdvfs/units.hpp>
#include <tools/cli/command_run.hpp>
#include <tools/cli/device_counter.hpp>
#include <tools/cli/energy_watch.hpp>
#include <tools/cli/temporary_folder.hpp>

#include <unistd.h>

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cli {

/// What one run of a program took.
struct ProgramRun {
    kdvfs::tune::Cost cost;  ///< on the GPU, which may be a simulated one
    kdvfs::Seconds wall{0};  ///< from its start to its end
};

/// Runs a program again and again, and says what each run took.
class ProgramRuns {
public:
    using Variables = std::vector<std::pair<std::string, std::string>>;

    /// @param counter whose joules count: as `open_counter`; `program`: what the program says by
    ///        `kdvfs::tune::report_cost`
    /// @throws Error (not_supported) where there is no such counter
    ProgramRuns(std::vector<std::string> command, const std::string& counter)
        : command_{std::move(command)} {
        if (counter != "program") counter_.emplace(open_counter(counter));
    }

    /// Where the program says what it took, that counts; else the only counter of this machine.
    static ProgramRuns by_what_is_there(std::vector<std::string> command) {
        ProgramRuns runs{std::move(command), "program"};
        try {
            runs.counter_.emplace(open_counter("auto"));
        } catch (const kdvfs::Error& error) {
            runs.no_counter_.emplace(error);
        }
        runs.report_first_ = true;
        return runs;
    }

    /// From here on each run has these variables, too: those that attach to it.
    void attach(Variables variables) { attached_ = std::move(variables); }

    /// No run may take longer.
    void limit(kdvfs::Seconds longest) { longest_ = longest; }

    /// @param variables added to the environment; an empty one is left out
    /// @param output where its standard output goes
    /// @throws Error as `run_command`, `read_cost` and `EnergyWatch`
    [[nodiscard]] ProgramRun operator()(Variables variables, int output = STDERR_FILENO) const {
        const TemporaryFolder folder;
        const std::filesystem::path report = folder.path / "cost.csv";
        variables.emplace_back("KDVFS_COST", reports() ? report.string() : "");
        variables.insert(variables.end(), attached_.begin(), attached_.end());
        std::optional<EnergyWatch> watch;
        if (counter_) watch.emplace(*counter_);
        const RunTimes times = run_command(command_, environment_with(variables), output, longest_);
        const kdvfs::Seconds wall = times.ended - times.began;
        if (reports() && (!report_first_ || std::filesystem::exists(report)))
            return {kdvfs::tune::read_cost(report), wall};
        if (!watch) throw kdvfs::Error{*no_counter_};
        return {{wall, watch->between(times.began, times.ended)}, wall};
    }

private:
    [[nodiscard]] bool reports() const { return report_first_ || !counter_; }

    std::vector<std::string> command_;
    Variables attached_;
    kdvfs::Seconds longest_{std::numeric_limits<double>::infinity()};
    std::optional<DeviceCounter> counter_;
    std::optional<kdvfs::Error> no_counter_;
    bool report_first_ = false;
};

}  // namespace cli
