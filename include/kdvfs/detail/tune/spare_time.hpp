// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/segments.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// The time of work that a host launches, by core clock f: T = (h^p + (c/f)^p)^(1/p), where h is
/// what the host takes, c the GPU's cycles, and p how sharply one follows the other.
class SpareTime {
public:
    /// @param points two or more at different core clocks, none of them auto; ascending. Those that
    ///               take less time than a higher clock by over 5 % are of another mode of the
    ///               program and left out.
    /// @throws Error (invalid_input) if fewer than two are left
    explicit SpareTime(std::span<const PointCost> points) {
        for (const PointCost& point : points)
            if (point.clock.core != auto_clock &&
                point.cost.time >= points.back().cost.time * (1 - other_mode))
                known_.push_back(point);
        if (known_.size() < 2)
            throw Error{
                Errc::invalid_input,
                {"find spare time", "the points of one kernel", "under two of them are of one mode",
                 "measure it at its highest and at a low core clock"}};
        fit();
    }

    /// Those that it was fitted to.
    [[nodiscard]] const std::vector<PointCost>& known() const { return known_; }

    [[nodiscard]] Seconds at(Megahertz core) const {
        return known_.back().cost.time * seconds(exponent_, core.count);
    }

private:
    static constexpr double other_mode = 0.05;
    /// Where two points are all: the middle of the 2.5 to 4.3 found for ten LLM passes on an A100
    /// (EnergAIzer, arXiv 2604.20105).
    static constexpr double usual_exponent = 4;

    /// Host and GPU as shares of the highest clock's time, to the power of p.
    struct Shares {
        double host;
        double gpu;
    };
    [[nodiscard]] Shares shares(double p) const {
        const PointCost& low = known_.front();
        const PointCost& high = known_.back();
        const double longer = std::pow(low.cost.time / high.cost.time, p) - 1;
        const double slower =
            std::pow(static_cast<double>(high.clock.core.count) / low.clock.core.count, p) - 1;
        const double gpu = std::clamp(longer / slower, 0.0, 1.0);
        return {1 - gpu, gpu};
    }
    [[nodiscard]] double seconds(double p, double mhz) const {
        const Shares part = shares(p);
        const double ratio = known_.back().clock.core.count / mhz;
        return std::pow(part.host + part.gpu * std::pow(ratio, p), 1 / p);
    }

    /// Through the highest and the lowest clock; the exponent is that of those between.
    void fit() {
        if (known_.size() == 2) return;
        double least = std::numeric_limits<double>::infinity();
        for (double p = 1; p <= 12; p += 0.05) {
            double error = 0;
            for (const PointCost& point : known_) {
                const double model = seconds(p, point.clock.core.count);
                error += std::pow(model * (known_.back().cost.time / point.cost.time) - 1, 2);
            }
            if (error < least) least = error, exponent_ = p;
        }
    }

    std::vector<PointCost> known_;
    double exponent_ = usual_exponent;
};

#if KDVFS_DEFINES_ENGINE
KDVFS_INLINE KernelCosts predict_clocks(const KernelKey& key, std::span<const PointCost> points,
                                        std::span<const Megahertz> clocks,
                                        const std::function<Watts(ClockPoint)>& idle_power) {
    const SpareTime time{points};
    const std::vector<PointCost>& known = time.known();
    const auto beyond_idle = [&](const PointCost& point) {
        return point.cost.energy.count - (idle_power(point.clock) * point.cost.time).count;
    };
    KernelCosts costs;
    costs.key = key;
    for (const Megahertz core : clocks) {
        const ClockPoint clock{core, known.back().clock.memory};
        const auto above =
            std::find_if(known.begin() + 1, known.end() - 1,
                         [&](const PointCost& point) { return point.clock.core >= core; });
        const PointCost& low = *(above - 1);
        const double share =
            std::clamp((static_cast<double>(core.count) - low.clock.core.count) /
                           (static_cast<double>(above->clock.core.count) - low.clock.core.count),
                       0.0, 1.0);
        const double work = beyond_idle(low) * (1 - share) + beyond_idle(*above) * share;
        const Seconds lasts = time.at(core);
        costs.points.push_back({clock, {lasts, Joules{work} + idle_power(clock) * lasts}});
    }
    costs.baseline = costs.points.size() - 1;
    return costs;
}

#endif

}  // namespace kdvfs::inline v0_3::tune
