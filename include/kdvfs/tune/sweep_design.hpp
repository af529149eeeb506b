// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/solve/knapsack.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/objective.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <utility>
#include <vector>

/// What a few measurements of a kernel say about the clock points where it was not measured.
namespace kdvfs::tune {

/// A prediction of a logarithm: its mean and standard deviation.
struct LogPrediction {
    double mean = 0;
    double deviation = 0;
};

namespace detail {

/// A clock point as the model sees it: clocks as shares of the highest, auto counting as those.
struct ClockShare {
    double core = 1;
    double memory = 1;
    double is_auto = 0;  ///< of the two domains, how many are auto

    ClockShare(ClockPoint clock, ClockPoint top)
        : core{share(clock.core, top.core)},
          memory{share(clock.memory, top.memory)},
          is_auto{0.5 * (clock.core == auto_clock) + 0.5 * (clock.memory == auto_clock)} {}

private:
    static double share(Megahertz clock, Megahertz top) {
        if (clock == auto_clock || top == auto_clock) return 1;
        return static_cast<double>(clock.count) / static_cast<double>(top.count);
    }
};

/// What all kernels of a profile share: how far what is seen at one clock tells of another.
struct ModelShape {
    double core_length = 0.8;
    double memory_length = 0.8;
    double amplitude = 0.3;
    double own = 0.01;  ///< noise, and what a point has to itself
};

/// The covariance of two points' logarithms: a power law in each clock, and Matern's covariance of
/// order 3/2 for what bends away from it (roofs, voltage, the power cap).
inline double covariance(const ClockShare& a, const ClockShare& b, const ModelShape& shape) {
    const double distance = std::sqrt(3.0) * std::hypot((a.core - b.core) / shape.core_length,
                                                        (a.memory - b.memory) / shape.memory_length,
                                                        0.2 * (a.is_auto - b.is_auto));
    return std::log(a.core) * std::log(b.core) + std::log(a.memory) * std::log(b.memory) +
           shape.amplitude * shape.amplitude * (1 + distance) * std::exp(-distance);
}

}  // namespace detail

/// A Gaussian process over the clock points of one kernel, for the log of one quantity.
class CostModel {
public:
    CostModel(std::vector<detail::ClockShare> points, const Eigen::VectorXd& logs,
              const detail::ModelShape& shape)
        : points_{std::move(points)}, shape_{shape}, mean_{logs.mean()} {
        const auto n = logs.size();
        Eigen::MatrixXd matrix(n, n);
        for (Eigen::Index i = 0; i < n; ++i)
            for (Eigen::Index j = 0; j < n; ++j)
                matrix(i, j) = detail::covariance(at(i), at(j), shape);
        matrix.diagonal().array() += shape.own * shape.own;
        factor_.compute(matrix);
        const Eigen::VectorXd centred = logs.array() - mean_;
        weights_ = factor_.solve(centred);
        log_likelihood_ = -0.5 * centred.dot(weights_) -
                          Eigen::MatrixXd{factor_.matrixL()}.diagonal().array().log().sum();
    }

    [[nodiscard]] double log_likelihood() const { return log_likelihood_; }

    [[nodiscard]] LogPrediction predict(const detail::ClockShare& point) const {
        Eigen::VectorXd common(weights_.size());
        for (Eigen::Index i = 0; i < common.size(); ++i)
            common(i) = detail::covariance(at(i), point, shape_);
        const double known = common.dot(factor_.solve(common));
        const double variance = detail::covariance(point, point, shape_) - known;
        return {mean_ + common.dot(weights_),
                std::sqrt(std::max(variance, 0.0) + shape_.own * shape_.own)};
    }

private:
    [[nodiscard]] const detail::ClockShare& at(Eigen::Index index) const {
        return points_[static_cast<std::size_t>(index)];
    }

    std::vector<detail::ClockShare> points_;
    detail::ModelShape shape_;
    double mean_;
    Eigen::LLT<Eigen::MatrixXd> factor_;
    Eigen::VectorXd weights_;
    double log_likelihood_ = 0;
};

/// Models of one quantity for all kernels of a profile, with the shape under which all of them
/// together are most likely.
template <class Quantity>
std::vector<CostModel> fit_cost_models(const Profile& profile, ClockPoint top, Quantity quantity) {
    std::vector<std::vector<detail::ClockShare>> points;
    std::vector<Eigen::VectorXd> logs;
    for (const KernelProfile& kernel : profile.kernels()) {
        auto& shares = points.emplace_back();
        Eigen::VectorXd values(static_cast<Eigen::Index>(kernel.points.size()));
        for (Eigen::Index i = 0; i < values.size(); ++i) {
            const ProfilePoint& point = kernel.points[static_cast<std::size_t>(i)];
            shares.emplace_back(point.clock, top);
            values(i) = std::log(quantity(point.mean()));
        }
        logs.push_back(std::move(values));
    }
    std::vector<CostModel> best;
    double likelihood = -std::numeric_limits<double>::infinity();
    const auto attempt = [&](const detail::ModelShape& shape) {
        std::vector<CostModel> models;
        double sum = 0;
        for (std::size_t k = 0; k < points.size(); ++k) {
            models.emplace_back(points[k], logs[k], shape);
            sum += models.back().log_likelihood();
        }
        if (!(sum > likelihood)) return;
        likelihood = sum;
        best = std::move(models);
    };
    for (const double core : {0.3, 0.8, 2.0})
        for (const double memory : {0.3, 1.0, 3.0})
            for (const double amplitude : {0.03, 0.1, 0.3, 1.0})
                for (const double own : {0.003, 0.01, 0.03})
                    attempt({core, memory, amplitude, own});
    return best;
}
namespace detail {

/// What the objective would pay in joules for a second less, at a cost: the slope of its level
/// line, or the time limit's shadow price if that is higher.
inline double time_price(const kdvfs::detail::MultipleChoice& problem, const Objective& objective,
                         const Cost& baseline) {
    const auto minimum = kdvfs::detail::minimise(problem, objective, baseline);
    const Cost cost = minimum ? kdvfs::detail::to_cost(minimum->selection.total) : baseline;
    constexpr double step = 1e-4;
    const double here = objective.score(cost, baseline);
    const double by_time = objective.score({cost.time * (1 + step), cost.energy}, baseline) - here;
    const double by_energy =
        objective.score({cost.time, cost.energy * (1 + step)}, baseline) - here;
    double price = by_energy > 0 ? by_time / by_energy * (cost.energy / cost.time).count : 0;
    const double limit = time_limit(objective, baseline).count();
    if (std::isfinite(limit)) {
        const kdvfs::detail::HullWalk walk{problem};
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

}  // namespace detail

/// What measuring a kernel at a clock point is expected to bring.
struct SweepForecast {
    double gain = 0;     ///< joules that it is expected to save an iteration; 0 where measured
    Seconds longest{0};  ///< of the kernel's launches in an iteration: mean, or a high guess
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

    /// Points far apart from each other, the baseline first; none that could take more than
    /// `longest` times as long as the highest clocks, as far as clocks alone can tell.
    [[nodiscard]] std::vector<ClockPoint> spread_out(
        std::size_t count, double longest = std::numeric_limits<double>::infinity()) const {
        std::vector<std::size_t> chosen{baseline_};
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

    /// How much longer than at the highest clocks work can take: no kernel slows down by more than
    /// both clocks together do.
    [[nodiscard]] double longest_factor(ClockPoint clock) const {
        const detail::ClockShare share{clock, top_};
        return 1 / (share.core * share.memory);
    }

    /// The longest that a launch can take at a clock, as far as what was measured of it tells: no
    /// kernel slows down by more than both clocks together do. Infinite where nothing was.
    [[nodiscard]] Seconds longest_possible(const KernelProfile& kernel, ClockPoint clock) const {
        const detail::ClockShare to{clock, top_};
        Seconds longest{std::numeric_limits<double>::infinity()};
        for (const ProfilePoint& point : kernel.points) {
            const detail::ClockShare from{point.clock, top_};
            const double slowdown =
                std::max(1.0, from.core / to.core) * std::max(1.0, from.memory / to.memory);
            longest = std::min(longest, point.mean().time * slowdown);
        }
        return longest;
    }
    /// Whether every kernel of the profile surely keeps the objective's bound at a clock. The
    /// baseline is what runs without a sweep.
    [[nodiscard]] bool keeps_bounds(const Profile& profile, ClockPoint clock,
                                    const Objective& objective) const {
        if (clock == baseline() || !std::isfinite(objective.launch_limit.count())) return true;
        return std::all_of(profile.kernels().begin(), profile.kernels().end(),
                           [&](const KernelProfile& kernel) {
                               return keeps_bound(objective, longest_possible(kernel, clock));
                           });
    }

    /// For each kernel of the profile (in its order) and each point (in order).
    /// @throws Error (invalid_input) as `make_cost_table`
    [[nodiscard]] std::vector<std::vector<SweepForecast>> forecast(
        const Profile& profile, const Objective& objective) const {
        const CostTable table = mean_costs(profile);
        const double price = estimate_price(table, objective);
        const auto times =
            fit_cost_models(profile, top_, [](const Cost& cost) { return cost.time.count(); });
        const auto powers = fit_cost_models(profile, top_, [](const Cost& cost) {
            return std::max((cost.energy / cost.time).count, 1e-9);
        });
        std::vector<std::vector<SweepForecast>> forecasts;
        for (std::size_t k = 0; k < table.kernels.size(); ++k) {
            const KernelCosts& known = table.kernels[k];
            double least = std::numeric_limits<double>::infinity();
            for (const PointCost& point : known.points)
                least = std::min(least, point.cost.energy.count + price * point.cost.time.count());
            auto& of_kernel = forecasts.emplace_back();
            for (const ClockPoint clock : points_) {
                const ProfilePoint* point = profile.kernels()[k].find(clock);
                if (point != nullptr) {
                    of_kernel.push_back({0, point->mean().time * known.count});
                    continue;
                }
                // What might break the bound is not worth a measurement.
                if (const Seconds longest = longest_possible(profile.kernels()[k], clock);
                    std::isfinite(objective.launch_limit.count()) &&
                    !keeps_bound(objective, longest)) {
                    of_kernel.push_back({0, longest * known.count});
                    continue;
                }
                const detail::ClockShare share{clock, top_};
                const LogPrediction time = times[k].predict(share);
                const double gain = gain_of(time, powers[k].predict(share), price, least);
                of_kernel.push_back(
                    {known.count * gain,
                     Seconds{known.count * std::exp(time.mean + 2 * time.deviation)}});
            }
        }
        return forecasts;
    }

private:
    [[nodiscard]] double distance(std::size_t a, std::size_t b) const {
        const detail::ClockShare x{points_[a], top_};
        const detail::ClockShare y{points_[b], top_};
        return std::hypot(x.core - y.core, x.memory - y.memory) +
               0.02 * std::abs(x.is_auto - y.is_auto);
    }
    static double estimate_price(const CostTable& table, const Objective& objective) {
        kdvfs::detail::MultipleChoice problem;
        for (const detail::Unit& unit : detail::make_units(table, Aggregate::global, objective))
            problem.add_class(unit.choices);
        return detail::time_price(problem, objective, table.baseline_cost());
    }
    /// Energy is power times time, so their logs add; the priced sum is taken as normal.
    static double gain_of(const LogPrediction& time, const LogPrediction& power, double price,
                          double least) {
        const double seconds = std::exp(time.mean);
        const double joules = seconds * std::exp(power.mean);
        const double deviation =
            std::hypot((joules + price * seconds) * time.deviation, joules * power.deviation);
        return detail::expected_improvement(least, joules + price * seconds, deviation);
    }

    std::vector<ClockPoint> points_;
    ClockPoint top_;
    std::size_t baseline_ = 0;
};

}  // namespace kdvfs::tune
