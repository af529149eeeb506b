// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace attach {

/// Chooses which iterations are metered, so that metering slows the program by at most 1 %.
///
/// The first 5 s are metered, so that short programs are. Then stretches of iterations with
/// metering and without are compared, in pairs of random order. What it costs is the trimmed mean
/// of the logarithms of their times' ratios, with Yuen's standard error. A stretch lasts 0.2 s or
/// longer and has at least 8 iterations; those in which times still come of the stretch before are
/// not timed: the first quarter and the last one. Then all iterations are metered, or one stretch
/// of 0.5 s in as many as the cost asks for. Where 24 pairs do not tell, the mean decides. Not
/// thread-safe.
class MeterShare {
public:
    static constexpr double budget = 0.01;
    static constexpr unsigned most = 64;  ///< at least one stretch in so many is metered

    /// What was found.
    struct Cost {
        double share = 0;       ///< of an iteration's time
        double half_width = 0;  ///< of its 95 % interval
        unsigned every = 1;     ///< one stretch in so many is metered
    };
    /// @returns nothing before it is known
    [[nodiscard]] const std::optional<Cost>& cost() const { return cost_; }

    /// An iteration begins. @returns whether it is metered
    bool begin(kdvfs::TimePoint now) {
        if (!first_) first_ = now;
        if (now - *first_ < std::chrono::seconds{5} && !compares_) return true;
        if (at_ == skipped()) timed_from_ = now;
        const bool metered = is_metered();
        if (++at_ == length_) end_stretch(kdvfs::Seconds{now - timed_from_}.count());
        return metered;
    }

private:
    static constexpr std::size_t fewest_pairs = 8;
    static constexpr std::size_t most_pairs = 24;

    [[nodiscard]] std::size_t skipped() const { return std::max<std::size_t>(2, length_ / 4); }
    [[nodiscard]] bool is_metered() const {
        if (cost_) return stretch_ % cost_->every == 0;
        return (stretch_ % 2 == 0) == begins_metered_;
    }
    [[nodiscard]] static std::size_t iterations_in(double seconds, double iteration) {
        constexpr double fewest = 8;
        return static_cast<std::size_t>(std::clamp(std::ceil(seconds / iteration), fewest, 1e6));
    }

    /// @param seconds from the first timed iteration's begin to the last iteration's
    void end_stretch(double seconds) {
        const bool metered = is_metered();
        const double iteration =
            std::max(seconds, 1e-9) / static_cast<double>(length_ - 1 - skipped());
        at_ = 0;
        ++stretch_;
        if (cost_) return;
        if (const std::size_t needed = iterations_in(0.2, iteration); !compares_) {
            compares_ = needed <= length_;
            length_ = needed;
            stretch_ = 0;
            return;
        }
        times_[metered ? 1 : 0] = iteration;
        if (stretch_ % 2 != 0) return;
        ratios_.push_back(std::log(times_[1] / times_[0]));
        begins_metered_ = random_() % 2 == 0;
        if (ratios_.size() >= fewest_pairs) decide(iteration);
    }

    void decide(double iteration) {
        std::vector<double> sorted = ratios_;
        std::sort(sorted.begin(), sorted.end());
        const std::size_t trimmed = sorted.size() / fewest_pairs;
        const std::size_t kept = sorted.size() - 2 * trimmed;
        const auto mean_of = [](std::span<const double> values) {
            return std::accumulate(values.begin(), values.end(), 0.0) /
                   static_cast<double>(values.size());
        };
        const double mean = mean_of(std::span{sorted}.subspan(trimmed, kept));
        for (std::size_t i = 0; i < trimmed; ++i) {
            sorted[i] = sorted[trimmed];
            sorted[sorted.size() - 1 - i] = sorted[sorted.size() - 1 - trimmed];
        }
        const double center = mean_of(sorted);
        double squares = 0;
        for (const double ratio : sorted) squares += (ratio - center) * (ratio - center);
        constexpr double quantile = 2.6;  // Student's t for 95 %, 5 degrees of freedom: 2.57
        const auto freedom = static_cast<double>(kept - 1);
        const double half_width =
            quantile * std::sqrt(squares / (static_cast<double>(kept) * freedom));
        const bool known = mean - half_width > budget || mean + half_width < budget;
        if (!known && ratios_.size() < most_pairs) return;
        const double share = std::expm1(mean);
        const double every = std::clamp<double>(std::ceil(share / budget), 1, most);
        cost_ = Cost{share, half_width, static_cast<unsigned>(every)};
        length_ = iterations_in(0.5, iteration);
        stretch_ = 0;
    }

    std::optional<Cost> cost_;
    std::optional<kdvfs::TimePoint> first_;
    std::size_t length_ = 8;  // of a stretch, in iterations
    std::size_t at_ = 0;      // in the stretch
    std::uint64_t stretch_ = 0;
    bool compares_ = false;  // it is known how many iterations a stretch needs
    bool begins_metered_ = true;
    kdvfs::TimePoint timed_from_{};
    std::array<double, 2> times_{};  // of an iteration without and with metering
    std::vector<double> ratios_;
    std::minstd_rand random_{1};
};

}  // namespace attach
