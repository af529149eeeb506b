// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/shrunk_costs.hpp>
#include <kdvfs/detail/tune/sweep_schedule.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

namespace kdvfs::tune {

/// What a block's measurement of a kernel is off by, as factors.
struct BlockNoise {
    double time = 1;
    double energy = 1;
};
using Noise = std::function<BlockNoise(std::size_t kernel)>;

/// A program that is swept by `SweepSchedule`, as `Sweeping` does it: blocks of iterations at one
/// clock in which all kernels are measured, whatever the order of launches.
class ScheduledSweep {
public:
    /// @param truth what launches cost; each kernel has all points
    ScheduledSweep(const CostTable& truth, const SweepOptions& options, Noise noise)
        : truth_{&truth}, options_{options}, noise_{std::move(noise)} {
        options_.points.clear();
        for (const PointCost& point : truth.kernels.front().points)
            options_.points.push_back(point.clock);
        options_.baseline = truth.baseline;
    }

    /// @param after called with the profile whenever another point has been measured
    /// @returns what was measured when the sweep ended by itself
    template <class After>
    Profile run(After&& after) {
        SweepSchedule schedule{SweepDesign{options_.points, options_.baseline}, options_};
        Profile profile{truth_->gpu};
        SweepBlock block;
        SweepStep step;
        std::size_t points = 0;
        while (!step.done) {
            const SweepStep next = schedule.next(profile, std::chrono::milliseconds{10});
            if (step.metered && (!next.metered || next.stage != step.stage)) {
                block.clock = step.clock;
                block.stage = step.stage;
                measure(schedule, profile, block);
                const std::size_t now = schedule.progress(profile).points_measured;
                if (now != points) after(profile, points = now);
                block = {};
            }
            if (next.metered) ++block.iterations;
            step = next;
        }
        return profile;
    }

private:
    void measure(SweepSchedule& schedule, Profile& profile, const SweepBlock& block) {
        std::vector<ProfileRow> rows;
        Cost iteration;
        for (std::size_t k = 0; k < truth_->kernels.size(); ++k) {
            const KernelCosts& kernel = truth_->kernels[k];
            const auto point = std::find_if(kernel.points.begin(), kernel.points.end(),
                                            [&](const auto& p) { return p.clock == block.clock; });
            const BlockNoise off = noise_(k);
            const Cost cost{point->cost.time * off.time, point->cost.energy * off.energy};
            iteration += cost * kernel.count;
            ProfileRow row{kernel.key, block.clock, cost, kernel.group, kernel.count};
            row.is_baseline = block.clock == truth_->baseline;
            if (k < profile.kernels().size())
                if (const ProfilePoint* known = profile.kernels()[k].find(block.clock))
                    row.sample = known->samples.back().index + 1;
            rows.push_back(row);
        }
        if (!schedule.measured({block, iteration.time, iteration.energy / iteration.time, {}}))
            return;
        for (const ProfileRow& row : rows) profile.add(row);
    }

    const CostTable* truth_;
    SweepOptions options_;
    Noise noise_;
};

}  // namespace kdvfs::tune
