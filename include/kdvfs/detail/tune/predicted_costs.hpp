// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/predicted_costs.hpp>

#include <kdvfs/detail/tune/time_laws.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <set>

namespace kdvfs::inline v0_3::tune {

namespace detail {

/// Predicts the kernels of one board.
class CostPrediction {
public:
    /// @param below also clocks down to this share of the lowest measured one
    CostPrediction(const CostTable& known, const PredictedBoard& board, double below = 1)
        : baseline_{known.baseline}, limit_{board.power_limit} {
        std::set<Megahertz> memories;
        std::set<ClockPoint> clocks;
        // No clock below the lowest that was measured: laws do not say where a kernel's time
        // begins to follow the core clock.
        Megahertz lowest = auto_clock;
        for (const KernelCosts& kernel : known.kernels)
            for (const PointCost& point : kernel.points) {
                clocks.insert(point.clock);
                memories.insert(point.clock.memory);
                if (point.clock.core != baseline_.core && point.clock.core != auto_clock &&
                    (lowest == auto_clock || point.clock.core < lowest))
                    lowest = point.clock.core;
            }
        for (const ClockPoint clock : board.clocks)
            if (memories.contains(clock.memory) && higher_cap(clock, baseline_) == baseline_ &&
                (clock.core == auto_clock || clock.core.count >= below * lowest.count))
                clocks.insert(clock);
        clocks_.assign(clocks.begin(), clocks.end());
        ClockPoint top{board.highest_core};
        for (const ClockPoint clock : clocks_) {
            top.core = std::max(top.core, clock.core);
            top.memory = std::max(top.memory, clock.memory);
        }
        const auto period = [](Megahertz clock, Megahertz highest) {
            return clock == auto_clock
                       ? 1.0
                       : static_cast<double>(highest.count) / static_cast<double>(clock.count);
        };
        for (const ClockPoint clock : clocks_)
            periods_.push_back({period(clock.core, top.core), period(clock.memory, top.memory)});
        laws_ = TimeLaws{periods_};
    }

    /// Of a kernel with 0 J, for which there is no power to go by, the baseline alone.
    [[nodiscard]] KernelCosts predict(const KernelCosts& known) const {
        if (!has_energies(known))
            return {known.key, known.group, known.count, {known.points[known.baseline]},
                    0,         {0},         {0}};
        const Cost found = known.points[known.baseline].cost;
        const TimePosterior times = laws_.posterior(log_slowdowns(known), power_share(found));
        const std::vector<double> powers = log_powers(known, times.held_period);
        std::map<Megahertz, Curve> times_off;
        std::map<Megahertz, Curve> powers_off;
        for (const PointCost& point : known.points) {
            const std::size_t c = index_of(point.clock);
            times_off[point.clock.memory].add(
                log_core(c), std::log(point.cost.time / found.time / times.mean[c]));
            powers_off[point.clock.memory].add(log_core(c),
                                               log_power(point.cost, found) - powers[c]);
        }
        KernelCosts predicted{known.key, known.group, known.count, {}, 0, {}, {}};
        for (std::size_t c = 0; c < clocks_.size(); ++c) {
            const auto off = times_off.find(clocks_[c].memory);
            if (off == times_off.end()) continue;
            const double x = log_core(c);
            const double slowdown = times.mean[c] * std::exp(off->second.at(x));
            const double power = std::exp(powers[c] + powers_off.at(clocks_[c].memory).at(x));
            if (clocks_[c] == baseline_) predicted.baseline = predicted.points.size();
            predicted.points.push_back(
                {clocks_[c], {found.time * slowdown, found.energy * (power * slowdown)}});
            const double distance = off->second.distance(x);
            const double high = (times.high[c] / times.mean[c] - 1) / deviations(Objective{});
            const double misfit = clocks_[c].memory == baseline_.memory
                                      ? misfit_by_distance
                                      : misfit_by_distance_elsewhere;
            const double time_error = std::hypot(high, misfit * distance, measured_error);
            const double by_distance =
                off->second.size() > 1 ? power_between_points : power_beyond_points;
            predicted.time_errors.push_back(time_error);
            predicted.energy_errors.push_back(
                clocks_[c] == baseline_ ? 0 : std::hypot(time_error, by_distance * distance));
        }
        return predicted;
    }

    static bool has_energies(const KernelCosts& kernel) {
        return std::all_of(kernel.points.begin(), kernel.points.end(),
                           [](const PointCost& point) { return point.cost.energy.count > 0; });
    }

private:
    /// What times of one measurement are off, as a fraction.
    static constexpr double measured_error = 0.002;
    /// What laws miss, by the distance to the nearest measured clock, as a logarithm.
    static constexpr double misfit_by_distance = 0.03;
    static constexpr double misfit_by_distance_elsewhere = 0.1;  ///< at other memory clocks
    /// What powers are off by that distance, as a fraction: half the difference of exponents 1 and
    /// 2 of the core clock between measured clocks, and of 0 and 2.5 beyond the only one.
    static constexpr double power_between_points = 0.25;
    static constexpr double power_beyond_points = 1.25 / 1.28;

    [[nodiscard]] std::size_t index_of(ClockPoint clock) const {
        return static_cast<std::size_t>(std::lower_bound(clocks_.begin(), clocks_.end(), clock) -
                                        clocks_.begin());
    }
    [[nodiscard]] double log_core(std::size_t clock) const {
        return std::log(periods_[clock].core);
    }
    static double log_power(const Cost& cost, const Cost& found) {
        return std::log(cost.energy / found.energy) - std::log(cost.time / found.time);
    }
    [[nodiscard]] std::optional<double> power_share(const Cost& found) const {
        if (!limit_) return std::nullopt;
        return (found.energy / found.time).count / limit_->count;
    }

    [[nodiscard]] std::vector<KnownSlowdown> log_slowdowns(const KernelCosts& known) const {
        std::vector<KnownSlowdown> slowdowns;
        const Seconds found = known.points[known.baseline].cost.time;
        for (const PointCost& point : known.points) {
            if (point.clock == baseline_) continue;
            const bool other_memory = point.clock.memory != baseline_.memory;
            slowdowns.push_back({index_of(point.clock), std::log(point.cost.time / found),
                                 other_memory ? 0.05 : 0.01});
        }
        return slowdowns;
    }

    /// Logarithms of power against that as found, by clock: with the memory as found, and so at
    /// other memory clocks, too. Where the power limit holds the core clock, power is the same.
    [[nodiscard]] std::vector<double> log_powers(const KernelCosts& known,
                                                 double held_period) const {
        const auto held = [&](std::size_t c) {
            return std::max(0.0, log_core(c) - std::log(held_period));
        };
        Curve measured;
        const Cost found = known.points[known.baseline].cost;
        for (const PointCost& point : known.points)
            if (point.clock.memory == baseline_.memory)
                measured.add(held(index_of(point.clock)), log_power(point.cost, found));
        std::vector<double> powers;
        for (std::size_t c = 0; c < clocks_.size(); ++c) {
            // A third does not follow the core clock, the rest with voltage: an assumption, where
            // nothing was measured.
            const double assumed = std::log(0.35 + 0.65 * std::exp(-1.5 * held(c)));
            powers.push_back(measured.size() > 1 ? measured.at(held(c), 0.5) : assumed);
        }
        return powers;
    }

    ClockPoint baseline_;
    std::optional<Watts> limit_;
    std::vector<ClockPoint> clocks_;
    std::vector<ClockPeriods> periods_;
    TimeLaws laws_;
};

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::vector<ClockPoint> points_to_measure(const PredictedBoard& board,
                                                       ClockPoint baseline) {
    auto highest = static_cast<double>(board.highest_core.count);
    std::set<Megahertz> memories;
    for (const ClockPoint clock : board.clocks) {
        highest = std::max(highest, static_cast<double>(clock.core.count));
        if (clock.memory != auto_clock) memories.insert(clock.memory);
    }
    std::optional<ClockPoint> other_memory;
    if (memories.size() > 1) {
        memories.erase(baseline.memory);
        other_memory = ClockPoint{baseline.core, *memories.rbegin()};
    }
    std::vector<ClockPoint> chosen;
    for (const double share :
         other_memory ? std::vector{0.85, 0.55} : std::vector{0.9, 0.75, 0.5}) {
        std::optional<ClockPoint> nearest;
        double least = std::numeric_limits<double>::infinity();
        for (const ClockPoint clock : board.clocks) {
            const double off = std::abs(static_cast<double>(clock.core.count) - share * highest);
            if (clock.memory != baseline.memory || clock.core == auto_clock || clock == baseline ||
                off >= least || std::find(chosen.begin(), chosen.end(), clock) != chosen.end())
                continue;
            least = off;
            nearest = clock;
        }
        if (nearest) chosen.push_back(*nearest);
    }
    if (other_memory) chosen.push_back(*other_memory);
    return chosen;
}

KDVFS_INLINE CostTable predicted_costs(const Profile& profile, const PredictedBoard& board) {
    const CostTable known = mean_costs(profile);
    const detail::CostPrediction prediction{known, board};
    CostTable table{known.gpu, known.baseline, {}, {}};
    for (const KernelCosts& kernel : known.kernels)
        table.kernels.push_back(prediction.predict(kernel));
    table.caveat = "costs are predicted from few clocks: validate the plan";
    for (const KernelCosts& kernel : known.kernels)
        if (!detail::CostPrediction::has_energies(kernel))
            table.caveat +=
                "; " + to_string(kernel.key) + " has an energy of 0 J, so it stays at the baseline";
    return table;
}

#endif

}  // namespace kdvfs::inline v0_3::tune
