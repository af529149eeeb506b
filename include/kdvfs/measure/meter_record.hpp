// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/kernel_interval.hpp>
#include <kdvfs/core/time.hpp>
#include <kdvfs/measure/energy_counter.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kdvfs::measure {

/// A metered interval, and the stretch of metered iterations (burst) in which it was enqueued.
struct MeteredRun {
    KernelInterval interval;
    std::uint32_t burst = 0;  ///< 0 for a scope in a captured graph
};

/// From `at` on the device held these caps.
struct ClockChange {
    TimePoint at;
    ClockPoint applied;
};

/// What was metered, as it came, for whoever attributes it in a way of his own. Bounded: what
/// does not fit is counted, not kept.
struct MeterRecord {
    static constexpr std::size_t capacity = std::size_t{1} << 18;  ///< of each list

    std::vector<MeteredRun> runs;
    std::vector<EnergySample> samples;
    std::vector<ClockChange> clocks;
    std::uint64_t dropped = 0;

    void add(const MeteredRun& run) { add(runs, run); }
    void add(const EnergySample& sample) { add(samples, sample); }
    void add(const ClockChange& change) { add(clocks, change); }

private:
    template <class Item>
    void add(std::vector<Item>& items, const Item& item) {
        if (items.size() < capacity) {
            items.push_back(item);
        } else {
            ++dropped;
        }
    }
};

}  // namespace kdvfs::measure
