// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/solve/knapsack.hpp>
#include <kdvfs/detail/tune/clock_curves.hpp>
#include <kdvfs/detail/tune/planner.hpp>
#include <kdvfs/detail/tune/predicted_costs.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

/// What a few measurements of a kernel say about the clock points where it was not measured.
namespace kdvfs::inline v0_3::tune {

namespace detail {

/// What the objective would pay in joules for a second less at its best: the slope of its level
/// line, or the time limit's shadow price if that is higher.
inline double time_price(const kdvfs::detail::MultipleChoice& problem, const Objective& objective,
                         const Cost& baseline) {
    const auto minimum = kdvfs::detail::minimise(problem, objective, baseline);
    const Cost cost = minimum ? kdvfs::detail::to_cost(minimum->selection.total) : baseline;
    const double price = kdvfs::detail::level_slope(objective, cost, baseline);
    const double limit = time_limit(objective, baseline).count();
    if (!std::isfinite(limit)) return price;
    const kdvfs::detail::HullWalk walk{problem};
    return std::max(price, cross(walk, limit).price);
}

/// How much lower than `best` a normal variable is expected to be, counting higher as nothing.
inline double expected_improvement(double best, double mean, double deviation) {
    if (deviation <= 0) return std::max(0.0, best - mean);
    const double z = (best - mean) / deviation;
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
    return (best - mean) * 0.5 * std::erfc(-z / std::numbers::sqrt2) + deviation * density;
}

}  // namespace detail

/// What measuring a kernel at a clock point is expected to bring.
struct SweepForecast {
    double gain = 0;     ///< joules that it is expected to save an iteration; 0 where measured
    Seconds longest{0};  ///< of the kernel's launches in an iteration: mean, or a high guess
    /// Of these launches; infinite where nothing is known.
    Cost expected{Seconds{std::numeric_limits<double>::infinity()}, {}};
};

/// Where a sweep should measure next: models of each kernel's time and power say what is known of
/// the points that were not measured, and the objective what that is worth.
class SweepDesign {
public:
    /// Without `baseline` it is the highest of the points, or (auto, auto) among them.
    /// @throws Error (invalid_input) if the baseline is not among the points
    SweepDesign(std::vector<ClockPoint> points, std::optional<ClockPoint> baseline)
        : points_{std::move(points)} {
        std::optional<ClockPoint> all;
        for (const ClockPoint clock : points_) {
            top_.core = std::max(top_.core, clock.core);
            top_.memory = std::max(top_.memory, clock.memory);
            all = all ? higher_cap(*all, clock) : clock;
        }
        const auto at = std::find(points_.begin(), points_.end(), baseline ? baseline : all);
        if (at == points_.end())
            throw Error{Errc::invalid_input,
                        {"sweep adaptively", "the clock points", "the baseline is not among them",
                         "add it: the clocks that the plan is to be compared with"}};
        baseline_ = static_cast<std::size_t>(at - points_.begin());
    }

    [[nodiscard]] const std::vector<ClockPoint>& points() const { return points_; }
    [[nodiscard]] ClockPoint baseline() const { return points_[baseline_]; }

    /// Points far apart from each other, the baseline and the highest clocks first; none that could
    /// take more than `longest` times as long as the highest clocks, as far as clocks alone can
    /// tell.
    [[nodiscard]] std::vector<ClockPoint> spread_out(
        std::size_t count, double longest = std::numeric_limits<double>::infinity()) const {
        std::vector<std::size_t> chosen{baseline_};
        // Forecasts are of what the highest clocks take.
        for (std::size_t p = 0; p < points_.size(); ++p)
            if (chosen.size() == 1 && longest_factor(points_[baseline_]) > 1 &&
                longest_factor(points_[p]) == 1)
                chosen.push_back(p);
        while (chosen.size() < std::min(count, points_.size())) {
            std::optional<std::size_t> farthest;
            double most = 0;
            for (std::size_t p = 0; p < points_.size(); ++p) {
                if (longest_factor(points_[p]) > longest) continue;
                double nearest = std::numeric_limits<double>::infinity();
                for (const std::size_t c : chosen) nearest = std::min(nearest, distance(p, c));
                if (nearest <= most) continue;
                most = nearest;
                farthest = p;
            }
            if (!farthest) break;
            chosen.push_back(*farthest);
        }
        std::vector<ClockPoint> spread;
        for (const std::size_t c : chosen) spread.push_back(points_[c]);
        return spread;
    }

    /// The highest core clock at each memory clock; none that could take more than `longest` times
    /// as long as the highest clocks.
    [[nodiscard]] std::vector<ClockPoint> highest_of_each_memory(double longest) const {
        std::vector<ClockPoint> highest;
        for (const ClockPoint clock : points_) {
            if (longest_factor(clock) > longest) continue;
            const auto known = std::find_if(highest.begin(), highest.end(), [&](ClockPoint each) {
                return each.memory == clock.memory;
            });
            if (known == highest.end())
                highest.push_back(clock);
            else
                *known = higher_cap(*known, clock);
        }
        return highest;
    }

    /// How much longer than at the highest clocks work can take: no kernel slows down by more than
    /// both clocks together do.
    [[nodiscard]] double longest_factor(ClockPoint clock) const {
        const ClockShare share{clock, top_};
        return 1 / (share.core * share.memory);
    }

    /// The longest that a launch can take at a clock, as far as what was measured of it tells: no
    /// kernel slows down by more than both clocks together do. Infinite where nothing was.
    [[nodiscard]] Seconds longest_possible(const KernelProfile& kernel, ClockPoint clock) const {
        const ClockShare to{clock, top_};
        Seconds longest{std::numeric_limits<double>::infinity()};
        for (const ProfilePoint& point : kernel.points) {
            const ClockShare from{point.clock, top_};
            const double slowdown =
                std::max(1.0, from.core / to.core) * std::max(1.0, from.memory / to.memory);
            longest = std::min(longest, point.mean().time * slowdown);
        }
        return longest;
    }
    /// Whether a kernel surely keeps the objective's bound at a clock; null: never met. The
    /// baseline is what runs without a sweep.
    [[nodiscard]] bool keeps_bound(const KernelProfile* measured, ClockPoint clock,
                                   const Objective& objective) const {
        if (clock == baseline() || !std::isfinite(objective.launch_limit.count())) return true;
        return measured && tune::keeps_bound(objective, longest_possible(*measured, clock));
    }
    /// Whether every kernel of the profile does.
    [[nodiscard]] bool keeps_bounds(const Profile& profile, ClockPoint clock,
                                    const Objective& objective) const {
        return std::all_of(profile.kernels().begin(), profile.kernels().end(),
                           [&](const auto& each) { return keeps_bound(&each, clock, objective); });
    }

    /// Energy of an iteration that the points measured so far save.
    [[nodiscard]] Joules known_saving(const Profile& profile, const Objective& objective) const {
        const CostTable table = mean_costs(profile);
        const auto units = detail::make_units(table, Aggregate::global, objective);
        const Cost baseline = table.baseline_cost();
        const detail::Decision decision = detail::decide(units, objective, baseline);
        Joules saving = baseline.energy;
        for (std::size_t u = 0; u < units.size(); ++u)
            saving = saving - kdvfs::detail::to_cost(units[u].choices[decision.chosen[u]]).energy;
        return saving;
    }

    /// For each kernel of the profile (in its order) and each point (in order).
    /// @throws Error (invalid_input) as `make_cost_table`
    [[nodiscard]] std::vector<std::vector<SweepForecast>> forecast(
        const Profile& profile, const Objective& objective) const {
        CostTable table = mean_costs(profile);
        const double price = estimate_price(table, objective);
        refer_to_highest(table);
        constexpr double a_step = 0.75;  // down: what a step shows is what the next one promises
        const detail::CostPrediction prediction{table, {points_}, a_step};
        std::vector<std::vector<SweepForecast>> forecasts;
        for (std::size_t k = 0; k < table.kernels.size(); ++k) {
            const KernelCosts& known = table.kernels[k];
            double least = std::numeric_limits<double>::infinity();
            for (const PointCost& point : known.points)
                least = std::min(least, point.cost.energy.count + price * point.cost.time.count());
            const KernelCosts predicted = prediction.predict(known);
            auto& of_kernel = forecasts.emplace_back();
            for (const ClockPoint clock : points_)
                of_kernel.push_back(forecast_of(profile.kernels()[k], known, predicted, clock,
                                                objective, price, least));
        }
        return forecasts;
    }

    /// What one clock for all kernels is expected to save beyond the best that was measured, in
    /// joules an iteration, for each point: what is left where switches are dear. 0 where the
    /// objective has no bound on the time.
    [[nodiscard]] std::vector<double> one_clock_gains(
        const Profile& profile, const std::vector<std::vector<SweepForecast>>& forecasts,
        const Objective& objective) const {
        const Seconds limit = time_limit(objective, mean_costs(profile).baseline_cost());
        std::vector<double> gains(points_.size());
        if (!std::isfinite(limit.count())) return gains;
        double least = std::numeric_limits<double>::infinity();
        std::vector<double> joules(points_.size(), least);
        for (std::size_t p = 0; p < points_.size(); ++p) {
            Cost all;
            bool measured = true;
            for (std::size_t k = 0; k < forecasts.size(); ++k) {
                all += forecasts[k][p].expected;
                measured = measured && profile.kernels()[k].find(points_[p]) != nullptr;
            }
            if (all.time > limit && p != baseline_) continue;
            joules[p] = all.energy.count;
            if (measured) least = std::min(least, joules[p]);
        }
        for (std::size_t p = 0; p < points_.size(); ++p)
            gains[p] = std::max(0.0, least - joules[p]);
        return gains;
    }

private:
    /// Laws of time are of the highest clocks: those that were measured.
    void refer_to_highest(CostTable& table) const {
        const auto factor = [&](const PointCost& point) { return longest_factor(point.clock); };
        for (KernelCosts& kernel : table.kernels) {
            std::size_t highest = kernel.baseline;
            for (std::size_t p = 0; p < kernel.points.size(); ++p)
                if (factor(kernel.points[p]) < factor(kernel.points[highest])) highest = p;
            kernel.baseline = highest;
            table.baseline = kernel.points[highest].clock;
        }
    }

    [[nodiscard]] SweepForecast forecast_of(const KernelProfile& measured, const KernelCosts& known,
                                            const KernelCosts& predicted, ClockPoint clock,
                                            const Objective& objective, double price,
                                            double least) const {
        if (const ProfilePoint* point = measured.find(clock))
            return {0, point->mean().time * known.count, point->mean() * known.count};
        // What might break the bound is not worth a measurement.
        const Seconds longest = longest_possible(measured, clock);
        const bool safe =
            !std::isfinite(objective.launch_limit.count()) || tune::keeps_bound(objective, longest);
        const auto point = std::find_if(predicted.points.begin(), predicted.points.end(),
                                        [&](const PointCost& each) { return each.clock == clock; });
        if (!safe || point == predicted.points.end()) return {0, longest * known.count};
        const auto p = static_cast<std::size_t>(point - predicted.points.begin());
        const double joules = point->cost.energy.count;
        const double paid = price * point->cost.time.count();
        // What predictions of neighbours are off they are off alike: at most one of them is as
        // much better. A third leaves few sweeps short (bench/adaptive/few_points).
        constexpr double own = 0.3;
        const double deviation =
            own * std::hypot(joules * predicted.energy_errors[p], paid * predicted.time_errors[p]);
        const double high = 1 + 2 * predicted.time_errors[p];
        return {known.count * detail::expected_improvement(least, joules + paid, deviation),
                std::min(longest, point->cost.time * high) * known.count,
                point->cost * known.count};
    }

    [[nodiscard]] double distance(std::size_t a, std::size_t b) const {
        const ClockShare x{points_[a], top_};
        const ClockShare y{points_[b], top_};
        return std::hypot(x.core - y.core, x.memory - y.memory) +
               0.02 * std::abs(x.is_auto - y.is_auto);
    }
    static double estimate_price(const CostTable& table, const Objective& objective) {
        kdvfs::detail::MultipleChoice problem;
        for (const detail::Unit& unit : detail::make_units(table, Aggregate::global, objective))
            problem.add_class(unit.choices);
        return detail::time_price(problem, objective, table.baseline_cost());
    }
    std::vector<ClockPoint> points_;
    ClockPoint top_;
    std::size_t baseline_ = 0;
};

}  // namespace kdvfs::inline v0_3::tune
