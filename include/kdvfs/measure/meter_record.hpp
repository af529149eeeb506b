// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/measure/sample_join.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <gsl/assert>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// Numbers kernels: a key gets the next number when it is first seen and keeps it for the table's
/// life. Thread-safe. Finding a known key neither allocates nor excludes other readers.
class KernelTable {
public:
    /// The number of a kernel, given out now if it has none yet.
    /// `name` must satisfy `is_kernel_name`.
    KernelId id(std::string_view name, Variant variant = {}) {
        Expects(is_kernel_name(name));
        if (const auto known = find(name, variant)) return *known;
        const std::unique_lock lock{mutex_};
        if (const auto it = ids_.find(Name{name, variant}); it != ids_.end()) return it->second;
        Expects(keys_.size() < std::numeric_limits<std::uint32_t>::max());
        const KernelId id{static_cast<std::uint32_t>(keys_.size())};
        const KernelKey& key = keys_.emplace_back(KernelKey{std::string{name}, variant});
        ids_.emplace(Name{key.name, variant}, id);
        return id;
    }

    KernelId id(const KernelKey& key) { return id(key.name, key.variant); }

    /// The number of a kernel, if it has one.
    [[nodiscard]] std::optional<KernelId> find(std::string_view name, Variant variant = {}) const {
        const std::shared_lock lock{mutex_};
        const auto it = ids_.find(Name{name, variant});
        return it == ids_.end() ? std::nullopt : std::optional{it->second};
    }

    /// The kernel behind a number that this table gave out. The reference stays valid.
    [[nodiscard]] const KernelKey& key(KernelId id) const {
        const std::shared_lock lock{mutex_};
        Expects(id.value < keys_.size());
        return keys_[id.value];
    }

    /// How many kernels there are; their numbers are 0 to size() - 1.
    [[nodiscard]] std::size_t size() const {
        const std::shared_lock lock{mutex_};
        return keys_.size();
    }

private:
    using Name = std::pair<std::string_view, Variant>;

    mutable std::shared_mutex mutex_;
    std::deque<KernelKey> keys_;  // a deque: its elements, which `ids_` points into, never move
    std::map<Name, KernelId> ids_;
};

/// A metered interval, and the stretch of metered iterations (window) in which it was enqueued.
struct MeteredRun {
    KernelInterval interval;
    std::uint32_t window = 0;  ///< 0 for a scope in a captured graph
};

/// From `at` on the device held these caps.
struct ClockChange {
    TimePoint at;
    ClockPoint applied;
};

/// What a kernel drew while it was repeated under a clock.
struct RepeatedPower {
    KernelId kernel;
    ClockPoint applied;
    RepeatedFigure figure;
};

/// All that an `EnergyAccumulator` was told, as it came: for whoever attributes it in a way of his
/// own, or again. Bounded: what does not fit is counted, not kept.
struct MeterRecord {
    static constexpr std::size_t capacity = std::size_t{1} << 18;  ///< of each list

    std::vector<KernelKey> kernels;  ///< by number, as of the last `take_record`
    std::vector<MeteredRun> runs;
    std::vector<KernelInterval> ends;  ///< of scopes that only enclose others
    std::vector<EnergySample> samples;
    std::vector<PowerReading> power;  ///< of the power log
    std::vector<ClockChange> clocks;
    std::vector<std::pair<TimePoint, bool>> metering;
    std::vector<std::pair<TimePoint, IterationMark>> iterations;
    std::vector<std::pair<std::uint32_t, KernelId>> places;  ///< from 1 on: parent, enclosing scope
    std::vector<RepeatedPower> repeated;
    std::uint64_t dropped = 0;
    Watts power_limit{};  ///< the highest that held; 0: unknown

    void add(const MeteredRun& run) { add(runs, run); }
    void add(const KernelInterval& end) { add(ends, end); }
    void add(const EnergySample& sample) { add(samples, sample); }
    void add(const PowerReading& reading) { add(power, reading); }
    void add(const ClockChange& change) { add(clocks, change); }

    template <class Item>
    void add(std::vector<Item>& items, const Item& item) {
        if (items.size() < capacity) {
            items.push_back(item);
        } else {
            ++dropped;
        }
    }
};

}  // namespace kdvfs::inline v0_3::measure
