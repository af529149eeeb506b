// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// Who works on the board beside this program: whoever votes for its clocks, and whom the driver
/// shows. The counter's energy is that of all of them, and no kernel's. Thread-safe.
class BoardSharing {
public:
    /// Between two looks at the driver's list, which remembers what was at work in between.
    static constexpr Duration often = std::chrono::seconds{2};

    /// Another process votes for the clocks. @returns whether it is the first
    bool add_voter() { return !voted_.exchange(true); }
    /// A look at the driver's list.
    void take(const OtherProcesses& seen) {
        const std::lock_guard lock{mutex_};
        ++looks_;
        complete_ += seen.complete ? 1 : 0;
        working_ += seen.working.empty() ? 0 : 1;
        for (const std::string& name : seen.working) {
            const bool known = std::find(names_.begin(), names_.end(), name) != names_.end();
            if (!known && names_.size() < most_names) names_.push_back(name);
        }
    }

    /// Whether too much of the counter's energy may be another's.
    [[nodiscard]] bool shared() const {
        const std::lock_guard lock{mutex_};
        return is_shared();
    }
    /// Whether nobody would show another process.
    [[nodiscard]] bool is_unknown() const {
        const std::lock_guard lock{mutex_};
        return does_not_show();
    }
    /// Takes the energies of kernels out of a report where the board was shared, and says so.
    void judge(measure::Report& report) const {
        const std::lock_guard lock{mutex_};
        if (voted_) {
            report.notes.emplace_back(
                "other processes worked on this GPU: the counter's energy is that of all of them, "
                "and no kernel's is known; the highest clock that any of them asks for holds");
        } else if (working_ > 0) {
            std::string names;
            for (const std::string& name : names_) names += (names.empty() ? "" : ", ") + name;
            report.notes.push_back(names + " worked on this GPU in " + std::to_string(working_) +
                                   " of " + std::to_string(looks_) +
                                   " looks: the counter's energy is that of all of them" +
                                   (is_shared() ? ", and no kernel's is known" : ""));
        } else if (does_not_show()) {
            report.notes.emplace_back(
                "the driver does not show who works on this GPU beside this program, as in a "
                "container: a load that never rests would pass for idle power, and be in the "
                "energy of each kernel");
        }
        if (is_shared()) leave_out_kernels(report);
    }

private:
    static constexpr std::size_t most_names = 8;

    /// A program that has not begun to work on the board yet is in no list.
    [[nodiscard]] bool does_not_show() const { return 2 * complete_ < looks_; }
    /// A load of a third of the board's power in 1 % of the time is 0.3 % of the energy.
    [[nodiscard]] bool is_shared() const { return voted_ || 100 * working_ > looks_; }

    static void leave_out_kernels(measure::Report& report) {
        for (measure::ReportRow& row : report.rows) {
            row.energy = {};
            row.direct_power.reset();
            row.direct_disagrees = false;
        }
        report.groups.clear();
        for (measure::EnergyLevel& level : report.levels) level.energy = {};
        report.fit.covariance.clear();
        report.totals.kernels = report.totals.idle = report.totals.together = {};
        report.totals.unexplained = report.totals.counter;
        report.totals.unexplained_half_width = {};
    }

    mutable std::mutex mutex_;
    std::atomic<bool> voted_{false};
    std::uint64_t looks_ = 0;
    std::uint64_t complete_ = 0;  ///< of them, those that show this program
    std::uint64_t working_ = 0;   ///< of them, those that showed others at work
    std::vector<std::string> names_;
};

}  // namespace kdvfs::inline v0_3::detail
