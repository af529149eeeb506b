// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/sweep_block.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// Pairs measured blocks with the stretches at the baseline beside them: by how much these took
/// longer or drew more than the first is taken off. What drifts slowly cancels. Stretches that
/// scatter without drifting say nothing of their neighbours, and change nothing.
class PairedBlocks {
public:
    /// A block has been measured, after those before it.
    /// @returns blocks with a stretch at the baseline on both sides, in order
    std::vector<MeasuredBlock> add(MeasuredBlock found, bool at_baseline) {
        if (!at_baseline) {
            held_.push_back({std::move(found), levels_.size(), levels_.size()});
            return {};
        }
        levels_.push_back(level_of(found));
        std::vector<MeasuredBlock> paired = take_rest();
        const std::size_t own = levels_.size() - 1;
        if (own == 0)
            paired.push_back(std::move(found));
        else
            held_.push_back({std::move(found), own, own + 1});
        return paired;
    }

    /// The blocks that are held back: nothing is known of what comes behind them.
    std::vector<MeasuredBlock> take_rest() {
        std::vector<MeasuredBlock> paired;
        for (Held& held : std::exchange(held_, {})) {
            if (held.before > 0) correct(held);
            paired.push_back(std::move(held.block));
        }
        return paired;
    }

private:
    using Level =
        std::array<double, 2>;  // the logs of seconds and joules of an iteration's kernels

    struct Held {
        MeasuredBlock block;
        std::size_t before = 0;  ///< stretches before it
        std::size_t behind = 0;  ///< the first stretch behind it
    };

    static Level level_of(const MeasuredBlock& stretch) {
        Cost all;
        for (const BlockKernel& kernel : stretch.kernels)
            all += Cost{kernel.launch.time, kernel.attributed} *
                   (static_cast<double>(kernel.launches) / stretch.block.iterations);
        return {std::log(all.time.count()), std::log(std::max(all.energy.count, 1e-300))};
    }

    void correct(Held& held) const {
        const Level& before = levels_[held.before - 1];
        const Level& behind = levels_[std::min(held.behind, levels_.size() - 1)];
        Level factors{};
        for (std::size_t q = 0; q < factors.size(); ++q)
            factors[q] =
                std::exp(drift_share(q) * (levels_.front()[q] - 0.5 * (before[q] + behind[q])));
        for (BlockKernel& kernel : held.block.kernels) {
            kernel.launch = {kernel.launch.time * factors[0], kernel.launch.energy * factors[1]};
            kernel.energy_sd = kernel.energy_sd * factors[1];
            kernel.attributed = kernel.attributed * factors[1];
        }
    }

    /// How much of what two stretches beside a block are off is drift: white noise makes
    /// neighbours differ by twice its variance (von Neumann, Annals of Mathematical Statistics 12,
    /// 1941).
    [[nodiscard]] double drift_share(std::size_t quantity) const {
        constexpr std::size_t fewest = 4;
        if (levels_.size() < fewest) return 0;
        const auto count = static_cast<double>(levels_.size());
        double mean = 0;
        for (const Level& level : levels_) mean += level[quantity] / count;
        double variance = 0;
        double noise = 0;
        for (std::size_t i = 0; i < levels_.size(); ++i) {
            const double off = levels_[i][quantity] - mean;
            variance += off * off / (count - 1);
            if (i == 0) continue;
            const double step = levels_[i][quantity] - levels_[i - 1][quantity];
            noise += step * step / (2 * (count - 1));
        }
        const double drift = std::max(0.0, variance - noise);
        return drift > 0 ? drift / (drift + noise / 2) : 0;
    }

    std::vector<Level> levels_;  ///< of the stretches, in order
    std::vector<Held> held_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
