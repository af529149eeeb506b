// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>
#include <kdvfs/core/units.hpp>
#include <kdvfs/device/energy_source.hpp>
#include <kdvfs/measure/energy_counter.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

namespace kdvfs::measure {

/// One reading of a logger that gives watts: the mean over the window that ends at `at`.
struct PowerSample {
    TimePoint at;
    Watts mean;
    Duration window{0};
};

/// Turns the windows of a power logger into pairs of energy samples, so that attribution takes
/// both kinds of logger. Windows that overlap carry the same noise twice, so of those only every
/// n-th that does not overlap is used: intervals stay honest. Time between windows is in no row.
class PowerWindows {
public:
    explicit PowerWindows(Watts highest_power = CounterLimits{}.highest_power)
        : highest_power_{highest_power} {}

    /// The two ends of the window as energy samples of a segment of their own; nothing where the
    /// window overlaps one used before or came out of order, or its watts cannot be right.
    std::optional<std::array<EnergySample, 2>> take(const PowerSample& sample) {
        if (!std::isfinite(sample.mean.count) || sample.mean.count < 0 ||
            sample.mean > highest_power_ || sample.window <= Duration::zero()) {
            ++implausible_;
            return {};
        }
        const TimePoint from = sample.at - sample.window;
        if (from < used_to_) {
            ++skipped_;
            return {};
        }
        used_to_ = sample.at;
        ++segment_;
        const EnergySample begin{from, total_, segment_};
        total_ += sample.mean * Seconds{sample.window};
        return std::array{begin, EnergySample{sample.at, total_, segment_}};
    }

    [[nodiscard]] std::uint64_t implausible() const { return implausible_; }
    [[nodiscard]] std::uint64_t skipped() const { return skipped_; }

private:
    Watts highest_power_;
    TimePoint used_to_ = TimePoint::min();
    Joules total_;
    std::uint32_t segment_ = 0;
    std::uint64_t implausible_ = 0;
    std::uint64_t skipped_ = 0;
};

}  // namespace kdvfs::measure
