// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/tune/profile.hpp>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
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

}  // namespace kdvfs::tune
