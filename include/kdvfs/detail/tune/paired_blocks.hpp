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
            held_.emplace_back(std::move(found), levels_.size());
            return {};
        }
        if (levels_.empty()) first_ = found.kernels;
        levels_.push_back(level_of(found));
        std::vector<MeasuredBlock> paired = take_rest();
        const std::size_t own = levels_.size() - 1;
        if (own == 0)
            paired.push_back(std::move(found));
        else
            held_.emplace_back(std::move(found), own);
        return paired;
    }

    /// The blocks that are held back: nothing is known of what comes behind them.
    std::vector<MeasuredBlock> take_rest() {
        std::vector<MeasuredBlock> paired;
        for (auto& [block, before] : std::exchange(held_, {})) {
            if (before > 0) correct(block, levels_[before - 1], levels_.back());
            paired.push_back(std::move(block));
        }
        return paired;
    }

private:
    /// By how much the kernels of the first stretch take longer and draw more, as logarithms.
    using Level = std::array<double, 2>;

    /// Of the kernels that both stretches have, launched as often as in the first one: iterations
    /// of another kind are no drift.
    [[nodiscard]] Level level_of(const MeasuredBlock& stretch) const {
        Cost now;
        Cost first;
        for (const BlockKernel& before : first_) {
            const auto again = std::find_if(
                stretch.kernels.begin(), stretch.kernels.end(),
                [&](const BlockKernel& kernel) { return kernel.kernel == before.kernel; });
            if (again == stretch.kernels.end()) continue;
            const auto launches = static_cast<double>(before.launches);
            now += Cost{again->launch.time, again->attributed} * launches;
            first += Cost{before.launch.time, before.attributed} * launches;
        }
        const auto log_of = [](double later, double earlier) {
            return later > 0 && earlier > 0 ? std::log(later / earlier) : 0;
        };
        return {log_of(now.time.count(), first.time.count()),
                log_of(now.energy.count, first.energy.count)};
    }

    void correct(MeasuredBlock& block, const Level& before, const Level& behind) const {
        Level factors{};
        for (std::size_t q = 0; q < factors.size(); ++q)
            factors[q] = std::exp(-drift_share(q) * 0.5 * (before[q] + behind[q]));
        for (BlockKernel& kernel : block.kernels) {
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
        double sum = 0;
        double squares = 0;
        double noise = 0;
        for (std::size_t i = 1; i < levels_.size(); ++i) {
            const double off = levels_[i][quantity];
            const double step = levels_[i][quantity] - levels_[i - 1][quantity];
            sum += off;
            squares += off * off;
            noise += step * step / (2 * (count - 1));
        }
        const double drift = (squares - sum * sum / count) / (count - 1) - noise;
        return drift > 0 ? drift / (drift + noise / 2) : 0;
    }

    std::vector<BlockKernel> first_;  ///< the first stretch's
    std::vector<Level> levels_;       ///< of the stretches, in order
    /// With the number of stretches before each.
    std::vector<std::pair<MeasuredBlock, std::size_t>> held_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
