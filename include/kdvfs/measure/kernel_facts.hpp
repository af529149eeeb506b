// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/kernel_interval.hpp>
#include <kdvfs/measure/report.hpp>
#include <kdvfs/measure/time_shares.hpp>

#include <gsl/assert>

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace kdvfs::measure {

/// What is known of a kernel without any energy.
struct KernelFacts {
    std::uint64_t calls = 0;
    std::uint64_t metered_calls = 0;
    Duration time{0};
    TimeShares<ClockPoint> asked;
    TimeShares<ClockPoint> applied;
    TimeShares<Megahertz> held;  ///< in steps of 5 MHz, so that noise needs no more memory

    void add(const KernelInterval& interval) {
        const Duration length = interval.end - interval.start;
        if (interval.ends_scope) {
            ++calls;
            ++metered_calls;
        }
        time += length;
        asked.add(interval.asked, length);
        const Megahertz clock = held_clock(interval);
        if (clock != auto_clock) held.add({(clock.count + 2) / 5 * 5}, length);
    }

    void fill(ReportRow& row) const {
        row.calls = calls;
        row.metered_calls = metered_calls;
        row.time = time;
        row.asked = asked.longest();
        row.applied = applied.longest();
        row.held = held.median();
        row.held_share = held.share([&](Megahertz clock) {
            const auto distance =
                std::abs(std::int64_t{clock.count} - std::int64_t{row.held.count});
            return distance * 50 <= row.held.count;
        });
    }
};

/// Facts by kernel number; grows with the numbers, never per call.
class FactsByKernel {
public:
    KernelFacts& of(KernelId kernel) {
        if (facts_.size() <= kernel.value) facts_.resize(kernel.value + std::size_t{1});
        return facts_[kernel.value];
    }
    [[nodiscard]] const KernelFacts& at(KernelId kernel) const {
        Expects(kernel.value < facts_.size());
        return facts_[kernel.value];
    }
    /// Kernels with at least one call.
    [[nodiscard]] std::vector<KernelId> seen() const {
        std::vector<KernelId> kernels;
        for (std::uint32_t i = 0; i < facts_.size(); ++i) {
            if (facts_[i].calls > 0) kernels.push_back({i});
        }
        return kernels;
    }

private:
    std::vector<KernelFacts> facts_;
};

}  // namespace kdvfs::measure
