// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>
#include <kdvfs/measure/counter_traits.hpp>

#include <cstddef>
#include <optional>
#include <vector>

namespace kdvfs::measure {

/// Finds out how often a counter is updated while it is being sampled. Looks at its readings again
/// and again, with ever more of them up to a thousand, then anew: memory is bounded.
class PeriodFinder {
public:
    void take(TimePoint read_at, double joules) {
        if (readings_.empty()) readings_.reserve(most);
        readings_.push_back({read_at, joules});
        if (readings_.size() < look_at_) return;
        const auto found = find_update_period(readings_);
        if (found) period_ = found;
        look_at_ *= 2;
        if (!found && readings_.size() < most) return;
        readings_.clear();
        look_at_ = first_look;
    }

    /// The time between two updates, where they are slower than the reads.
    [[nodiscard]] std::optional<Duration> period() const { return period_; }

private:
    static constexpr std::size_t first_look = 128;
    static constexpr std::size_t most = 1024;

    std::vector<TimedReading> readings_;
    std::size_t look_at_ = first_look;
    std::optional<Duration> period_;
};

}  // namespace kdvfs::measure
