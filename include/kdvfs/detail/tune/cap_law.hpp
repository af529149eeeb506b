// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/tune/curve_estimate.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

/// What caps of clocks can do to a kernel, and what they cannot: which clock points are the same to
/// it, and how its time goes with the core clock.
namespace kdvfs::inline v0_3::tune::detail {

/// Which clock points are one and the same to a kernel. A cap that the board does not reach, since
/// its power is limited before, changes nothing: from some core clock on, caps are as good as none.
/// And memory that is left alone mostly runs at its highest clock, but not on every board: an RTX
/// 3080 Ti draws more power then. Where points are the same, samples count together, and no luck
/// can be picked among them.
class SameClocks {
public:
    /// @param clocks ascending
    explicit SameClocks(const std::vector<ClockPoint>& clocks) : clocks_{clocks} {
        std::vector<Megahertz> cores;
        for (const ClockPoint clock : clocks)
            if (clock.core != auto_clock) cores.push_back(clock.core);
        std::sort(cores.begin(), cores.end());
        cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
        constexpr std::size_t most = 24;
        const std::size_t stride = 1 + cores.size() / most;
        add_level(std::nullopt);
        for (std::size_t c = cores.size(); c > 0; c -= std::min(c, stride)) add_level(cores[c - 1]);
    }

    [[nodiscard]] std::size_t levels() const { return levels_.size(); }
    /// Whether any points differ by nothing but memory that is left alone or at its highest clock.
    [[nodiscard]] bool has_memory_on_auto() const {
        return levels_.front().own_memory != levels_.front().auto_memory;
    }
    /// For each point the one that it is the same as; level 0 has no such points.
    /// @param auto_memory whether memory that is left alone is at its highest clock
    [[nodiscard]] const std::vector<Eigen::Index>& map(std::size_t level, bool auto_memory) const {
        return auto_memory ? levels_[level].auto_memory : levels_[level].own_memory;
    }

private:
    using Map = std::vector<Eigen::Index>;
    struct Level {
        Map own_memory;
        Map auto_memory;
    };

    /// From `core` on, all caps are as good as the highest.
    void add_level(std::optional<Megahertz> core) {
        Level level;
        for (const ClockPoint clock : clocks_) {
            level.own_memory.push_back(index_of(capped(clock, core)));
            level.auto_memory.push_back(index_of(capped(with_auto_memory(clock), core)));
        }
        if (levels_.empty() || level.own_memory != levels_.back().own_memory)
            levels_.push_back(std::move(level));
    }

    [[nodiscard]] ClockPoint capped(ClockPoint clock, std::optional<Megahertz> core) const {
        if (core && (clock.core == auto_clock || clock.core >= *core))
            clock.core = highest_core(clock.memory);
        return clock;
    }
    /// Where there is such a point.
    [[nodiscard]] ClockPoint with_auto_memory(ClockPoint clock) const {
        const ClockPoint left_alone{clock.core, auto_clock};
        Megahertz highest;
        for (const ClockPoint any : clocks_) highest = std::max(highest, any.memory);
        const bool is_there = std::binary_search(clocks_.begin(), clocks_.end(), left_alone);
        return clock.memory == highest && is_there ? left_alone : clock;
    }
    [[nodiscard]] Eigen::Index index_of(ClockPoint clock) const {
        return std::lower_bound(clocks_.begin(), clocks_.end(), clock) - clocks_.begin();
    }

    /// Auto where there is such a point.
    [[nodiscard]] Megahertz highest_core(Megahertz memory) const {
        Megahertz highest;
        for (const ClockPoint clock : clocks_) {
            if (clock.memory != memory) continue;
            if (clock.core == auto_clock) return auto_clock;
            highest = std::max(highest, clock.core);
        }
        return highest;
    }

    std::vector<ClockPoint> clocks_;
    std::vector<Level> levels_;
};

/// The highest level of which a kernel is surely, by Bayes' rule, at least: each takes points for
/// the same that those before do, and more. The likeliest one would often take one too many for the
/// same, and what is taken for the same has no margin.
inline std::size_t surest_level(const std::vector<std::vector<double>>& log_likelihoods,
                                std::size_t kernel) {
    double most = -std::numeric_limits<double>::infinity();
    for (const auto& level : log_likelihoods) most = std::max(most, level[kernel]);
    if (!std::isfinite(most)) return 0;
    double whole = 0;
    for (const auto& level : log_likelihoods) whole += std::exp(level[kernel] - most);
    constexpr double sure = 0.9;
    std::size_t level = log_likelihoods.size() - 1;
    for (double above = 0; level > 0; --level) {
        above += std::exp(log_likelihoods[level][kernel] - most);
        if (above >= sure * whole) break;
    }
    return level;
}

/// Which points are surely the same to each kernel: both quantities meet the same ones. What a
/// board does with memory that is left alone, it does to all kernels.
inline std::vector<const std::vector<Eigen::Index>*> surest_maps(const SameClocks& same,
                                                                 std::size_t kernels,
                                                                 const QuantityShrinkage& time,
                                                                 const QuantityShrinkage& energy) {
    const auto likelihoods = [&](std::size_t level, bool auto_memory) {
        std::vector<double> sum = time.log_likelihoods(same.map(level, auto_memory));
        const std::vector<double> more = energy.log_likelihoods(same.map(level, auto_memory));
        for (std::size_t k = 0; k < kernels; ++k) sum[k] += more[k];
        return sum;
    };
    const auto sum_of = [](const std::vector<double>& all) {
        return std::accumulate(all.begin(), all.end(), 0.0);
    };
    std::vector<double> likelihood = likelihoods(0, false);
    bool auto_memory = false;
    if (same.has_memory_on_auto()) {
        std::vector<double> found = likelihoods(0, true);
        // No kernel may speak against it by more than chance lets one of them do.
        const double chance = 5 + std::log(static_cast<double>(kernels));
        auto_memory = sum_of(found) > sum_of(likelihood);
        for (std::size_t k = 0; k < kernels; ++k)
            auto_memory = auto_memory && found[k] > likelihood[k] - chance;
        if (auto_memory) likelihood = std::move(found);
    }
    std::vector<std::vector<double>> by_level{std::move(likelihood)};
    for (std::size_t level = 1; level < same.levels(); ++level)
        by_level.push_back(likelihoods(level, auto_memory));
    std::vector<const std::vector<Eigen::Index>*> maps;
    for (std::size_t k = 0; k < kernels; ++k)
        maps.push_back(&same.map(surest_level(by_level, k), auto_memory));
    return maps;
}

/// How times go with the cap of the core clock, at one memory clock. A cap only takes away: no
/// kernel is faster at a lower cap, and an estimate that says so is luck, which a plan would pick.
/// And the lower the clock, the larger the part of a kernel that waits for the core: the log of the
/// time is convex in the log of the clock, as is that of every sum, maximum or norm of times that
/// each go with a power of it, and of every one whose clock stops rising where the board's power is
/// limited. So a kernel loses no more between two caps than the line between caps further apart
/// says, and what is measured far below bounds what is lost near the top.
class CapLaw {
public:
    explicit CapLaw(const std::vector<ClockPoint>& clocks) {
        std::map<Megahertz, std::vector<std::pair<double, Eigen::Index>>> by_memory;
        for (std::size_t p = 0; p < clocks.size(); ++p)
            by_memory[clocks[p].memory].emplace_back(clocks[p].core.count,
                                                     static_cast<Eigen::Index>(p));
        for (auto& [memory, caps] : by_memory) {
            std::sort(caps.begin(), caps.end());
            Row& row = rows_.emplace_back();
            for (auto cap = caps.rbegin(); cap != caps.rend() && cap->first > 0; ++cap)
                row.push_back({cap->second, std::log(cap->first)});
            if (caps.front().first > 0) continue;
            // Auto is as good as one step above the highest cap, if that is not so good already.
            const double step = row.size() > 1 ? row[0].log_clock - row[1].log_clock : 0;
            const double highest = row.empty() ? 0 : row.front().log_clock;
            row.insert(row.begin(), {caps.front().second, highest + step});
        }
    }

    /// The time of a kernel at each point, as the log of its ratio to that of the baseline.
    struct Slowdown {
        double mean = 0;
        double deviation = 0;
    };
    /// What bounds times best with `many` standard deviations: what is known of the points, or of
    /// caps around them.
    [[nodiscard]] std::vector<Slowdown> slowdowns(const CurveEstimate& times, Eigen::Index baseline,
                                                  double many) const {
        std::vector<Slowdown> found(static_cast<std::size_t>(times.mean.size()));
        const bool convex = is_convex(times);
        for (const Row& row : rows_) {
            double least = -std::numeric_limits<double>::infinity();
            for (std::size_t i = 0; i < row.size(); ++i) {
                Slowdown best = on_line(times, row, {0, i, i}, baseline);
                for (std::size_t low = i + 1; convex && i > 0 && low < row.size(); ++low) {
                    const Slowdown line = on_line(times, row, {0, i, low}, baseline);
                    if (line.mean + many * line.deviation < best.mean + many * best.deviation)
                        best = line;
                }
                best.mean = least = std::max(least, best.mean);
                found[static_cast<std::size_t>(row[i].point)] = best;
            }
        }
        return found;
    }

private:
    struct Cap {
        Eigen::Index point;
        double log_clock;
    };
    using Row = std::vector<Cap>;  ///< from the highest on

    /// Three caps of a row, `at` between the others.
    struct Line {
        std::size_t high;
        std::size_t at;
        std::size_t low;
        /// Of what is lost between the outer ones, the part that a line gives to `at`.
        [[nodiscard]] double part(const Row& row) const {
            if (at == low) return 1;
            return (row[high].log_clock - row[at].log_clock) /
                   (row[high].log_clock - row[low].log_clock);
        }
    };

    /// What the line says of the cap `at`, against another point.
    static Slowdown on_line(const CurveEstimate& times, const Row& row, const Line& line,
                            Eigen::Index other) {
        const double part = line.part(row);
        const Eigen::Index h = row[line.high].point;
        const Eigen::Index l = row[line.low].point;
        const Eigen::MatrixXd& known = *times.covariance;
        const double rest = 1 - part;
        const double variance =
            rest * rest * known(h, h) + part * part * known(l, l) + known(other, other) +
            2 * (rest * part * known(h, l) - rest * known(h, other) - part * known(l, other));
        return {rest * times.mean(h) + part * times.mean(l) - times.mean(other),
                std::sqrt(std::max(variance, 0.0))};
    }

    /// Unless a cap lies further above a line than chance lets one of so many do.
    [[nodiscard]] bool is_convex(const CurveEstimate& times) const {
        constexpr double chance = 4;  // standard deviations
        for (const Row& row : rows_)
            for (std::size_t i = 1; i < row.size(); ++i)
                for (std::size_t low = i + 1; low < row.size(); ++low) {
                    const Slowdown line = on_line(times, row, {0, i, low}, row[i].point);
                    if (-line.mean > chance * line.deviation + 1e-9) return false;
                }
        return true;
    }

    std::vector<Row> rows_;
};

}  // namespace kdvfs::inline v0_3::tune::detail
