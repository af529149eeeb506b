// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace kdvfs::inline v0_3::measure {

/// Sums up the counter's joules over all iterations between metered ones, metered or not. Within a
/// row the counter is taken to grow evenly. Not thread-safe.
class CountedLoop {
public:
    struct Sums {
        std::uint64_t iterations = 0;
        Seconds time{0};
        double joules = 0;
    };

    /// A metered iteration begins. @param number of it, from 1 on; 0: not known
    void begins(TimePoint at, std::uint64_t number) {
        if (number != 0) begun_ = Begin{at, number, 0};
    }
    /// A row of the counter ended at `end`.
    void end_row(TimePoint end, Seconds time, double joules) {
        longest_ = std::max(longest_, joules);
        if (begun_) {
            const double behind = std::clamp(Seconds{end - begun_->at} / time, 0.0, 1.0);
            begun_->joules = joules_ + (1 - behind) * joules;
            (from_ ? to_ : from_) = begun_;
            begun_.reset();
        }
        joules_ += joules;
    }
    /// What the counter counts from here on does not follow what it has counted.
    void forget() {
        counted_ = sums();
        from_.reset();
        to_.reset();
        begun_.reset();
    }

    [[nodiscard]] Sums sums() const {
        if (!to_) return counted_;
        return {counted_.iterations + (to_->number - from_->number),
                counted_.time + Seconds{to_->at - from_->at},
                counted_.joules + (to_->joules - from_->joules)};
    }
    /// J of the row that had most.
    [[nodiscard]] double longest_row() const { return longest_; }

private:
    struct Begin {
        TimePoint at;
        std::uint64_t number;
        double joules;
    };

    Sums counted_;
    std::optional<Begin> from_;
    std::optional<Begin> to_;
    std::optional<Begin> begun_;  ///< in the row under way
    double joules_ = 0;
    double longest_ = 0;
};

}  // namespace kdvfs::inline v0_3::measure
