// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/policy/planned_sequence.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/segment_planner.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace kdvfs::tune {

/// What a plan of segments asks of those who follow it. `launches` are the indices into the
/// table's kernels that the plan was made for.
inline PlannedSequence to_planned_sequence(const SegmentPlan& plan, const CostTable& table,
                                           const std::vector<std::size_t>& launches) {
    constexpr std::uint32_t not_launched = std::numeric_limits<std::uint32_t>::max();
    PlannedSequence sequence;
    std::vector<std::uint32_t> numbers(table.kernels.size(), not_launched);
    for (const std::size_t index : launches) {
        std::uint32_t& number = numbers[index];
        if (number == not_launched) {
            number = static_cast<std::uint32_t>(sequence.kernels.size());
            const KernelCosts& kernel = table.kernels[index];
            sequence.kernels.push_back(
                {kernel.key, std::chrono::round<Duration>(kernel.points[kernel.baseline].cost.time)});
        }
        sequence.launches.push_back(number);
    }
    for (const Segment& segment : plan.segments)
        sequence.boundaries.push_back({segment.first, segment.clock});
    return sequence;
}

}  // namespace kdvfs::tune
