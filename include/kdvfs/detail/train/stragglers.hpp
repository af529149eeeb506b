// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace kdvfs::inline v0_3::train {

struct StragglerOptions {
    /// A pipeline is waited for when it is so much slower than one's own: 0.02 is 2 %.
    double notice = 0.02;
    /// An answer stays while what it answers changes by less than that.
    double margin = 0.005;
};

/// Says how much slower than planned a pipeline may be, because another one is slower still. All
/// data-parallel pipelines of a run wait for the slowest at the end of each iteration. Every rank
/// has one and hands it the same figures, and so all agree without asking. A pure state machine.
class StragglerWatch {
public:
    explicit StragglerWatch(std::size_t own, const StragglerOptions& options = {})
        : own_{own}, options_{options} {}

    /// @param slowness of each pipeline: what its iteration took over what the plan that it ran by
    ///                 says, so that who has slowed down for another counts as 1. 0: not known.
    /// @returns the factor, at least 1, by which the own pipeline may exceed its first plan
    double answer(std::span<const double> slowness) {
        const double mine = slowness[own_];
        const double slowest = *std::max_element(slowness.begin(), slowness.end());
        if (!(mine > 0) || !std::isfinite(slowest)) return factor_;
        const double wanted = slowest / mine;
        if (wanted < 1 + options_.notice)
            factor_ = 1;
        else if (std::abs(wanted / factor_ - 1) > options_.margin)
            factor_ = wanted;
        return factor_;
    }

private:
    std::size_t own_;
    StragglerOptions options_;
    double factor_ = 1;
};

}  // namespace kdvfs::inline v0_3::train
