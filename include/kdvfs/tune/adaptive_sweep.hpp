// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/tune/cost_model.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/isolated_sweep.hpp>
#include <kdvfs/tune/knapsack.hpp>
#include <kdvfs/tune/objective.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/sweep_file.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::tune {

struct AdaptiveOptions {
    std::uint32_t samples = 1;  ///< of each point that is measured
    double share = 0.25;        ///< of the full grid's measurements, at most
    double first_share = 0.1;   ///< of the grid, spread out, before the models decide
    double regret_pct =
        0.05;  ///< stop when so much of the baseline's energy is expected to be left
};

/// How an adaptive sweep ended.
struct AdaptiveOutcome {
    std::size_t measurements = 0;  ///< in the file, those of earlier runs included
    std::size_t grid = 0;          ///< what the full grid would have taken
    double expected_regret_pct = 0;
};

namespace detail {

/// What the objective would pay in joules for a second less, at a cost: the slope of its level
/// line, or the time limit's shadow price if that is higher.
inline double time_price(const MultipleChoice& problem, const Objective& objective,
                         const Cost& baseline) {
    const auto minimum = minimise(problem, objective, baseline);
    const Cost cost = minimum ? to_cost(minimum->selection.total) : baseline;
    constexpr double step = 1e-4;
    const double here = objective.score(cost, baseline);
    const double by_time = objective.score({cost.time * (1 + step), cost.energy}, baseline) - here;
    const double by_energy =
        objective.score({cost.time, cost.energy * (1 + step)}, baseline) - here;
    double price = by_energy > 0 ? by_time / by_energy * (cost.energy / cost.time).count : 0;
    const double limit = time_limit(objective, baseline).count();
    if (std::isfinite(limit)) {
        const HullWalk walk{problem};
        price = std::max(price, cross(walk, limit).price);
    }
    return price;
}

/// How much lower than `best` a normal variable is expected to be, counting higher as nothing.
inline double expected_improvement(double best, double mean, double deviation) {
    if (deviation <= 0) return std::max(0.0, best - mean);
    const double z = (best - mean) / deviation;
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
    return (best - mean) * 0.5 * std::erfc(-z / std::numbers::sqrt2) + deviation * density;
}

/// The state of an adaptive sweep: which points each kernel has, and which would help the plan.
class AdaptiveDesign {
public:
    AdaptiveDesign(std::span<const SweepKernel> kernels, std::span<const ClockPoint> points,
                   std::optional<ClockPoint> baseline)
        : kernels_{kernels}, points_{points.begin(), points.end()} {
        ClockPoint highest;
        std::optional<ClockPoint> all;
        for (const ClockPoint clock : points_) {
            highest.core = std::max(highest.core, clock.core);
            highest.memory = std::max(highest.memory, clock.memory);
            all = all ? higher_cap(*all, clock) : clock;
        }
        top_ = highest;
        const auto at = std::find(points_.begin(), points_.end(), baseline ? baseline : all);
        if (at == points_.end())
            throw Error{Errc::invalid_input,
                        {"sweep adaptively", "the clock points", "the baseline is not among them",
                         "add it: the clocks that the plan is to be compared with"}};
        baseline_ = static_cast<std::size_t>(at - points_.begin());
    }

    /// Points far apart from each other, the baseline first.
    [[nodiscard]] std::vector<std::size_t> spread_out(std::size_t count) const {
        std::vector<std::size_t> chosen{baseline_};
        while (chosen.size() < std::min(count, points_.size())) {
            std::size_t farthest = 0;
            double most = -1;
            for (std::size_t p = 0; p < points_.size(); ++p) {
                double nearest = std::numeric_limits<double>::infinity();
                for (const std::size_t c : chosen) nearest = std::min(nearest, distance(p, c));
                if (nearest <= most) continue;
                most = nearest;
                farthest = p;
            }
            chosen.push_back(farthest);
        }
        return chosen;
    }

    struct Candidate {
        std::size_t kernel = 0;
        std::size_t point = 0;
        double gain = 0;  ///< joules that measuring it is expected to save an iteration
    };

    /// The best unmeasured point of each kernel, by what it is expected to gain.
    [[nodiscard]] std::vector<Candidate> candidates(const Profile& profile,
                                                    const Objective& objective) const {
        const CostTable table = mean_costs(profile);
        const double price = estimate_price(table, objective);
        const auto times =
            fit_cost_models(profile, top_, [](const Cost& cost) { return cost.time.count(); });
        const auto powers = fit_cost_models(profile, top_, [](const Cost& cost) {
            return std::max((cost.energy / cost.time).count, 1e-9);
        });
        std::vector<Candidate> best;
        for (std::size_t k = 0; k < table.kernels.size(); ++k) {
            const KernelCosts& known = table.kernels[k];
            double least = std::numeric_limits<double>::infinity();
            for (const PointCost& point : known.points)
                least = std::min(least, point.cost.energy.count + price * point.cost.time.count());
            Candidate candidate{kernel_index(known.key), 0, 0};
            for (std::size_t p = 0; p < points_.size(); ++p) {
                if (profile.kernels()[k].find(points_[p]) != nullptr) continue;
                const ClockShare share{points_[p], top_};
                const double gain = known.count * gain_of(times[k].predict(share),
                                                          powers[k].predict(share), price, least);
                if (gain > candidate.gain) candidate = {candidate.kernel, p, gain};
            }
            if (candidate.gain > 0) best.push_back(candidate);
        }
        std::sort(best.begin(), best.end(),
                  [](const Candidate& a, const Candidate& b) { return a.gain > b.gain; });
        return best;
    }

    [[nodiscard]] ClockPoint point(std::size_t index) const { return points_[index]; }

private:
    [[nodiscard]] double distance(std::size_t a, std::size_t b) const {
        const ClockShare x{points_[a], top_};
        const ClockShare y{points_[b], top_};
        return std::hypot(x.core - y.core, x.memory - y.memory) +
               0.02 * std::abs(x.is_auto - y.is_auto);
    }
    [[nodiscard]] std::size_t kernel_index(const KernelKey& key) const {
        std::size_t index = 0;
        while (kernels_[index].key != key) ++index;
        return index;
    }
    static double estimate_price(const CostTable& table, const Objective& objective) {
        MultipleChoice problem;
        for (const Unit& unit : make_units(table, Aggregate::global))
            problem.add_class(unit.choices);
        return time_price(problem, objective, table.baseline_cost());
    }
    /// Energy is power times time, so their logs add; the priced sum is taken as normal.
    static double gain_of(const LogPrediction& time, const LogPrediction& power, double price,
                          double least) {
        const double seconds = std::exp(time.mean);
        const double joules = seconds * std::exp(power.mean);
        const double deviation =
            std::hypot((joules + price * seconds) * time.deviation, joules * power.deviation);
        return expected_improvement(least, joules + price * seconds, deviation);
    }

    std::span<const SweepKernel> kernels_;
    std::vector<ClockPoint> points_;
    ClockPoint top_;
    std::size_t baseline_ = 0;
};

}  // namespace detail

/// Measures where it matters for the plan: a few points spread out, then, round by round, those
/// that a model of each kernel's time and power expects to lower the objective most, until the
/// regret left is small or the share of the grid is used up. Plans from such a file choose among
/// measured points alone. `measure` and `progress` as for `sweep_grid`; what the file holds
/// already is not measured again.
/// @throws Error (invalid_input) if the baseline is not among the points; as `sweep_grid`
template <class Measure, class Progress>
AdaptiveOutcome sweep_adaptively(SweepFile& file, std::span<const SweepKernel> kernels,
                                 std::span<const ClockPoint> points, const Objective& objective,
                                 const AdaptiveOptions& options, Measure&& measure,
                                 Progress&& progress) {
    const detail::AdaptiveDesign design{kernels, points, file.baseline()};
    const std::size_t grid = kernels.size() * points.size() * options.samples;
    const auto most = static_cast<std::size_t>(options.share * static_cast<double>(grid));
    std::size_t done = 0;
    const auto take = [&](std::size_t k, std::size_t p) {
        for (std::uint32_t sample = 0; sample < options.samples; ++sample) {
            const ClockPoint clock = design.point(p);
            if (!has_sample(file.profile(), kernels[k].key, clock, sample)) {
                file.append({kernels[k].key, clock, measure(k, clock), kernels[k].group,
                             kernels[k].count, sample});
            }
            progress(++done, most);
        }
    };
    const auto first = static_cast<std::size_t>(
        std::max(4.0, options.first_share * static_cast<double>(points.size())));
    for (const std::size_t p : design.spread_out(first))
        for (std::size_t k = 0; k < kernels.size(); ++k) take(k, p);

    AdaptiveOutcome outcome{done, grid, 0};
    for (;;) {
        const auto candidates = design.candidates(file.profile(), objective);
        double regret = 0;
        for (const auto& candidate : candidates) regret += candidate.gain;
        const Cost baseline = mean_costs(file.profile()).baseline_cost();
        outcome.measurements = done;
        outcome.expected_regret_pct = 100 * regret / baseline.energy.count;
        if (candidates.empty() || outcome.expected_regret_pct < options.regret_pct) return outcome;
        // The half that promises most: the models learn from it before the rest is decided.
        for (std::size_t c = 0; c < std::max<std::size_t>(1, candidates.size() / 2); ++c) {
            if (done + options.samples > most) return outcome;
            take(candidates[c].kernel, candidates[c].point);
            outcome.measurements = done;
        }
    }
}

}  // namespace kdvfs::tune
