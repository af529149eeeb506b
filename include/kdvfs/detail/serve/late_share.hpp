// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/paired_comparison.hpp>

#include <cmath>
#include <cstdint>

namespace kdvfs::inline v0_3::serve::detail {

/// The share of events that are late, with bounds that hold at every moment with 95 %, however
/// often they are looked at: the confidence sequence of a binomial share by a mixture with a
/// uniform prior (Robbins, Annals of Mathematical Statistics 41, 1970). Pure.
class LateShare {
public:
    void add(bool late) {
        ++seen_;
        late_ += late ? 1 : 0;
    }
    [[nodiscard]] tune::PercentInterval percent() const {
        return {100 * mean(), 100 * low(), 100 * high()};
    }
    [[nodiscard]] double mean() const {
        return seen_ > 0 ? static_cast<double>(late_) / static_cast<double>(seen_) : 0;
    }
    [[nodiscard]] double low() const { return late_ > 0 ? bound(0) : 0; }
    [[nodiscard]] double high() const { return late_ < seen_ ? bound(1) : 1; }

private:
    /// Between a share that the events exclude and their mean: the mixture is 20 times as likely
    /// as a share that is excluded.
    [[nodiscard]] double bound(double excluded) const {
        const auto late = static_cast<double>(late_);
        const auto others = static_cast<double>(seen_ - late_);
        const double most = std::lgamma(late + 1) + std::lgamma(others + 1) -
                            std::lgamma(late + others + 2) - std::log(20.0);
        double possible = mean();
        for (int i = 0; i < 40; ++i) {
            const double share = (excluded + possible) / 2;
            const double fixed = (late > 0 ? late * std::log(share) : 0) +
                                 (others > 0 ? others * std::log1p(-share) : 0);
            (fixed < most ? excluded : possible) = share;
        }
        return excluded;
    }

    std::uint64_t seen_ = 0;
    std::uint64_t late_ = 0;
};

}  // namespace kdvfs::inline v0_3::serve::detail
