// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// The sizes of work that launches of one kernel have, by their times at the baseline. Blocks at
/// other clocks meet other sizes, so their means do not compare; where the same sizes come again
/// and again, the shift of all their logarithms does.
class WorkMix {
public:
    /// Launches at the baseline, in seconds.
    void add(std::span<const double> times) {
        for (const double time : times)
            if (time > 0) logs_.push_back(std::log(time));
        if (logs_.size() > 2 * most_launches)  // the latter half says as much
            logs_.erase(logs_.begin(), logs_.begin() + most_launches);
        sizes_.clear();
    }

    /// Whether launches differ, by sizes that come again and again.
    [[nodiscard]] bool has_sizes() {
        if (logs_.size() < fewest_launches) return false;
        if (sizes_.empty()) sizes_ = sizes_of(logs_);
        return sizes_.size() > 1 && 3 * sizes_.size() <= logs_.size() &&
               sizes_.back().log - sizes_.front().log > least_spread;
    }

    /// By how much launches take longer than at the baseline, as a logarithm: where most of them
    /// are the known sizes, shifted. @pre `has_sizes`
    /// @param most the longest that clocks can make them
    [[nodiscard]] std::optional<double> shift(std::span<const double> times, double most) const {
        std::vector<double> logs;
        for (const double time : times)
            if (time > 0) logs.push_back(std::log(time));
        if (logs.empty()) return std::nullopt;
        const std::vector<Size> met = sizes_of(logs);
        double best = -std::numeric_limits<double>::infinity();
        std::optional<double> found;
        for (const Size& a : met)
            for (const Size& b : sizes_) {
                const double shift = a.log - b.log;
                if (shift < -slack || shift > most + slack) continue;
                const double likelihood = likelihood_of(met, shift);
                if (likelihood <= best) continue;
                best = likelihood;
                found = shift;
            }
        return found ? std::optional{refined(met, *found)} : std::nullopt;
    }

private:
    static constexpr std::ptrdiff_t most_launches = 4096;
    static constexpr std::size_t fewest_launches = 12;
    static constexpr double same_size = 0.004;  ///< logs that are nearer are one size
    static constexpr double width = 0.008;      ///< of a size, as a deviation of logs
    static constexpr double least_spread = 0.03;
    static constexpr double slack = 0.03;
    static constexpr double unknown_size = 1e-4;  ///< likelihood of one that was never met

    struct Size {
        double log = 0;    ///< mean
        double count = 0;  ///< launches
    };

    /// Logs in groups without a gap, ascending.
    static std::vector<Size> sizes_of(std::vector<double> logs) {
        std::sort(logs.begin(), logs.end());
        std::vector<Size> sizes;
        double last = -std::numeric_limits<double>::infinity();
        for (const double log : logs) {
            if (log - last > same_size) sizes.emplace_back();
            sizes.back().log += log;
            ++sizes.back().count;
            last = log;
        }
        for (Size& size : sizes) size.log /= size.count;
        return sizes;
    }

    [[nodiscard]] const Size& nearest(double log) const {
        const auto above =
            std::lower_bound(sizes_.begin(), sizes_.end(), log,
                             [](const Size& size, double value) { return size.log < value; });
        if (above == sizes_.end()) return sizes_.back();
        if (above == sizes_.begin()) return *above;
        return above->log - log < log - above[-1].log ? *above : above[-1];
    }

    [[nodiscard]] double likelihood_of(const std::vector<Size>& met, double shift) const {
        const auto all = static_cast<double>(logs_.size());
        double sum = 0;
        for (const Size& size : met) {
            const Size& known = nearest(size.log - shift);
            const double off = (size.log - shift - known.log) / width;
            sum += size.count *
                   std::log(unknown_size + known.count / all * std::exp(-0.5 * off * off));
        }
        return sum;
    }

    [[nodiscard]] double refined(const std::vector<Size>& met, double shift) const {
        double sum = 0;
        double count = 0;
        for (const Size& size : met) {
            const double off = size.log - nearest(size.log - shift).log;
            if (std::abs(off - shift) > 3 * width) continue;
            sum += size.count * off;
            count += size.count;
        }
        return count > 0 ? sum / count : shift;
    }

    std::vector<double> logs_;
    std::vector<Size> sizes_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
