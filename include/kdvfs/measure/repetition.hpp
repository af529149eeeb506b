// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/attribution.hpp>
#include <kdvfs/measure/energy_counter.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace kdvfs::measure {

/// One kernel, repeated in place: what the counter says of it. Not thread-safe.
class Repetition {
public:
    Repetition(KernelId kernel, TimePoint began) : kernel_{kernel}, began_{began} {}

    [[nodiscard]] KernelId kernel() const { return kernel_; }
    [[nodiscard]] TimePoint began() const { return began_; }

    void take(const EnergySample& sample) {
        if (sample.at <= began_) return;
        if (!samples_.empty() && samples_.back().segment != sample.segment) samples_.clear();
        samples_.push_back(sample);
    }
    /// Stretches of other scopes are the gaps around the repetition.
    void take(KernelId kernel, const IntervalBuilder::Stretch& stretch) {
        if (kernel != kernel_ || stretch.core_cycles == 0) return;
        cycles_ += stretch.core_cycles;
        counted_ += stretch.end - stretch.start;
    }

    /// Power and clock so far, without the first row, in which the board settles. Without enough
    /// rows the power is 0.
    [[nodiscard]] RepeatedFigure figure() const {
        constexpr std::size_t fewest = 5;  // rows
        RepeatedFigure found;
        if (counted_ > Duration::zero()) {
            found.held = held_clock(
                {.start = TimePoint{}, .end = TimePoint{counted_}, .core_cycles = cycles_});
        }
        if (samples_.size() < fewest + 2) return found;
        const EnergySample& first = samples_[1];
        const EnergySample& last = samples_.back();
        found.power = (last.total - first.total) / Seconds{last.at - first.at};
        double squares = 0;
        for (std::size_t i = 2; i < samples_.size(); ++i) {
            const Watts row = (samples_[i].total - samples_[i - 1].total) /
                              Seconds{samples_[i].at - samples_[i - 1].at};
            squares += std::pow((row - found.power).count, 2);
        }
        const auto rows = static_cast<double>(samples_.size() - 2);
        found.half_width = {student_95(rows - 1) * std::sqrt(squares / (rows - 1) / rows)};
        return found;
    }

private:
    KernelId kernel_;
    TimePoint began_;
    std::vector<EnergySample> samples_;
    std::uint64_t cycles_ = 0;
    Duration counted_{0};
};

}  // namespace kdvfs::measure
