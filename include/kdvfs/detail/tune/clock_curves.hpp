// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/solve/gaussian_condition.hpp>

#include <Eigen/Core>
#include <Eigen/Eigenvalues>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

/// What measurements of kernels at some clock points say of all points: one Gaussian process over
/// the logs of a quantity, for plans (`shrunk_costs`) and for sweeps (`SweepDesign`).
namespace kdvfs::inline v0_3::tune {

/// A clock point as the process sees it: clocks as shares of the highest, auto counting as those.
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

/// Clock points as the process sees them, shares of the highest among them.
inline std::vector<ClockShare> clock_shares(const std::vector<ClockPoint>& clocks) {
    ClockPoint top;
    for (const ClockPoint clock : clocks) {
        top.core = std::max(top.core, clock.core);
        top.memory = std::max(top.memory, clock.memory);
    }
    std::vector<ClockShare> shares;
    for (const ClockPoint clock : clocks) shares.emplace_back(clock, top);
    return shares;
}

/// The log of one quantity of one kernel over all clock points.
struct ClockCurve {
    static constexpr double not_measured = std::numeric_limits<double>::infinity();

    Eigen::VectorXd value;
    Eigen::VectorXd noise;  ///< variance of each value; `not_measured` where there is none

    explicit ClockCurve(std::size_t points)
        : value{Eigen::VectorXd::Zero(static_cast<Eigen::Index>(points))},
          noise{Eigen::VectorXd::Constant(static_cast<Eigen::Index>(points), not_measured)} {}

    [[nodiscard]] bool is_whole() const { return noise.allFinite(); }
};

/// What a curve is, given a prior of such curves and what was measured of this one.
class CurvePosterior {
public:
    /// `prior` must outlive the posterior; it is the covariance of curves around their own level.
    CurvePosterior(const Eigen::MatrixXd& prior, const ClockCurve& curve) : prior_{&prior} {
        for (Eigen::Index i = 0; i < curve.noise.size(); ++i)
            if (std::isfinite(curve.noise(i))) seen_.push_back(i);
        condition_ = {prior(seen_, seen_), curve.noise(seen_)};
        take(curve);
    }

    /// Other values with the same noise: the work is done already.
    void take(const ClockCurve& curve) {
        const Eigen::VectorXd values = curve.value(seen_);
        level_ = values.mean();
        centred_ = values.array() - level_;
        weights_ = condition_.weights(centred_);
    }

    /// Of the values of many curves with this one's noise, but for a constant.
    [[nodiscard]] Eigen::VectorXd log_likelihoods(
        const std::vector<const ClockCurve*>& curves) const {
        const auto count = static_cast<Eigen::Index>(curves.size());
        if (!condition_.is_proper())
            return Eigen::VectorXd::Constant(count, -std::numeric_limits<double>::infinity());
        Eigen::MatrixXd centred(static_cast<Eigen::Index>(seen_.size()), count);
        for (Eigen::Index c = 0; c < count; ++c) {
            centred.col(c) = curves[static_cast<std::size_t>(c)]->value(seen_);
            centred.col(c).array() -= centred.col(c).mean();
        }
        return condition_.log_likelihoods(std::move(centred));
    }
    [[nodiscard]] Eigen::VectorXd mean() const {
        return ((*prior_)(Eigen::all, seen_) * weights_).array() + level_;
    }
    /// By how much each point's variance is less than the prior's: squared norms of the columns.
    /// The product of two columns is what their covariance is less.
    [[nodiscard]] Eigen::MatrixXd explained() const {
        return condition_.explained((*prior_)(seen_, Eigen::all));
    }

    /// By how much each point of the mean, less the level, follows each measured value, less it.
    [[nodiscard]] Eigen::MatrixXd gain() const {
        return condition_.gain((*prior_)(seen_, Eigen::all));
    }
    /// The points that were measured.
    [[nodiscard]] const std::vector<Eigen::Index>& seen() const { return seen_; }

private:
    const Eigen::MatrixXd* prior_;
    std::vector<Eigen::Index> seen_;
    solve::GaussianCondition condition_;
    Eigen::VectorXd centred_;
    Eigen::VectorXd weights_;
    double level_ = 0;
};

/// How likely every `stride`-th curve from `first` on is under a prior: `found(index, logarithm)`.
/// Curves with the same noise are worked out together.
template <class Found>
void log_likelihoods(const Eigen::MatrixXd& prior, const std::vector<ClockCurve>& curves,
                     std::size_t first, std::size_t stride, Found found) {
    constexpr std::size_t most = 256;
    for (std::size_t k = first; k < curves.size();) {
        std::vector<std::size_t> indices;
        std::vector<const ClockCurve*> alike;
        for (; k < curves.size() && alike.size() < most; k += stride) {
            if (!alike.empty() && curves[k].noise != alike.front()->noise) break;
            indices.push_back(k);
            alike.push_back(&curves[k]);
        }
        const Eigen::VectorXd all = CurvePosterior{prior, *alike.front()}.log_likelihoods(alike);
        for (std::size_t i = 0; i < indices.size(); ++i)
            found(indices[i], all(static_cast<Eigen::Index>(i)));
    }
}

/// How far what is seen at one clock tells of another: Matern's covariance of order 3/2, whose
/// kinks suit roofs and the power cap, and a part that a point has to itself. Times go with powers
/// of the core clock, so that its logarithm tells how far two clocks are apart.
struct CurveShape {
    double core_length = 0.3;
    double memory_length = 1;
    double amplitude = 0.1;
    double own = 0.003;

    [[nodiscard]] Eigen::MatrixXd covariance(const std::vector<ClockShare>& points) const {
        const auto n = static_cast<Eigen::Index>(points.size());
        Eigen::MatrixXd matrix(n, n);
        for (Eigen::Index i = 0; i < n; ++i) {
            for (Eigen::Index j = 0; j <= i; ++j) {
                const ClockShare& a = points[static_cast<std::size_t>(i)];
                const ClockShare& b = points[static_cast<std::size_t>(j)];
                const double distance =
                    std::sqrt(3.0) * std::hypot(std::log(a.core / b.core) / core_length,
                                                (a.memory - b.memory) / memory_length,
                                                0.2 * (a.is_auto - b.is_auto));
                matrix(i, j) = matrix(j, i) =
                    amplitude * amplitude * (1 + distance) * std::exp(-distance);
            }
            matrix(i, i) += own * own;
        }
        return matrix;
    }
};

/// What curves of a profile are like, learned from the profile itself. Kernels have few ways to
/// depend on clocks (compute, memory, the power cap): what whole curves have in common is taken
/// from their singular values as far as these stand out from noise (Gavish and Donoho, IEEE
/// Transactions on Information Theory 60, 2014). Where fewer than eight were measured at every
/// point, a power law in each clock stands for that. What is left is a `CurveShape`, as large as
/// makes the data most likely. No kernel's own noise gets into its prior: kernels are dealt into
/// folds, and each has the prior that those of the other folds teach.
class CurvePriors {
public:
    static constexpr std::size_t folds = 5;  ///< curve k is in fold k % folds

    CurvePriors(const std::vector<ClockShare>& points, const std::vector<ClockCurve>& curves) {
        for (std::size_t fold = 0; fold < folds; ++fold)
            priors_.push_back(common(points, curves, fold));
        rest_ = likeliest_rest(points, curves);
        for (Eigen::MatrixXd& prior : priors_) prior += rest_;
    }

    /// Takes what curves have in common from better ones.
    void learn_common(const std::vector<ClockShare>& points,
                      const std::vector<ClockCurve>& curves) {
        for (std::size_t fold = 0; fold < folds; ++fold)
            priors_[fold] = common(points, curves, fold) + rest_;
    }

    /// The covariance of a curve around its own level.
    [[nodiscard]] const Eigen::MatrixXd& of(std::size_t curve) const {
        return priors_[curve % folds];
    }

private:
    static constexpr std::size_t fewest = 8;  ///< whole curves that have something in common

    /// What makes the curves likeliest beside what they have in common, found one parameter after
    /// the other.
    [[nodiscard]] Eigen::MatrixXd likeliest_rest(const std::vector<ClockShare>& points,
                                                 const std::vector<ClockCurve>& curves) const {
        CurveShape shape;
        Eigen::MatrixXd best = shape.covariance(points);
        double likelihood = -std::numeric_limits<double>::infinity();
        const auto choose = [&](double& parameter, std::initializer_list<double> values) {
            double chosen = parameter;
            for (const double value : values) {
                parameter = value;
                Eigen::MatrixXd rest = shape.covariance(points);
                const double found = log_likelihood(rest, curves);
                if (!(found > likelihood)) continue;
                likelihood = found;
                best = std::move(rest);
                chosen = value;
            }
            parameter = chosen;
        };
        for (int round = 0; round < 2; ++round) {
            choose(shape.amplitude, {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1});
            choose(shape.own, {1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03});
            choose(shape.core_length, {0.1, 0.3, 1, 3});
            choose(shape.memory_length, {0.3, 1, 3});
        }
        return best;
    }

    [[nodiscard]] double log_likelihood(const Eigen::MatrixXd& rest,
                                        const std::vector<ClockCurve>& curves) const {
        constexpr std::size_t enough = 64;  // curves; more would hardly change the choice
        const std::size_t stride = folds * (1 + curves.size() / (folds * enough));
        double sum = 0;
        for (std::size_t fold = 0; fold < folds; ++fold)
            log_likelihoods(priors_[fold] + rest, curves, fold, stride,
                            [&](std::size_t, double found) { sum += found; });
        return sum;
    }

    /// But for those of a fold.
    static std::vector<const ClockCurve*> whole_curves(const std::vector<ClockCurve>& curves,
                                                       std::size_t fold) {
        std::vector<const ClockCurve*> whole;
        for (std::size_t k = 0; k < curves.size(); ++k)
            if (k % folds != fold && curves[k].is_whole()) whole.push_back(&curves[k]);
        return whole;
    }

    static Eigen::MatrixXd common(const std::vector<ClockShare>& points,
                                  const std::vector<ClockCurve>& curves, std::size_t fold) {
        const auto others = whole_curves(curves, fold);
        return others.size() < fewest ? power_law(points) : shared_directions(others);
    }

    static Eigen::MatrixXd power_law(const std::vector<ClockShare>& points) {
        const auto n = static_cast<Eigen::Index>(points.size());
        Eigen::MatrixXd matrix(n, n);
        for (Eigen::Index i = 0; i < n; ++i) {
            for (Eigen::Index j = 0; j < n; ++j) {
                const ClockShare& a = points[static_cast<std::size_t>(i)];
                const ClockShare& b = points[static_cast<std::size_t>(j)];
                matrix(i, j) = 1 + std::log(a.core) * std::log(b.core) +
                               std::log(a.memory) * std::log(b.memory);
            }
        }
        return matrix;
    }

    static Eigen::MatrixXd shared_directions(const std::vector<const ClockCurve*>& curves) {
        const Eigen::Index n = curves.front()->value.size();
        const auto rows = static_cast<Eigen::Index>(curves.size());
        Eigen::MatrixXd centred(n, rows);
        double noise = 0;
        for (Eigen::Index k = 0; k < rows; ++k) {
            const ClockCurve& curve = *curves[static_cast<std::size_t>(k)];
            centred.col(k) = curve.value.array() - curve.value.mean();
            noise += curve.noise.maxCoeff() / static_cast<double>(rows);
        }
        const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> directions{centred *
                                                                        centred.transpose()};
        const double wide = noise * static_cast<double>(rows);
        const double high = noise * static_cast<double>(n);
        // Squares of singular values of noise alone stay below this, but for chance.
        const double edge = 1.05 * std::pow(std::sqrt(wide) + std::sqrt(high), 2);
        constexpr double level = 0.01;  // variance of where a curve lies as a whole
        Eigen::MatrixXd prior = Eigen::MatrixXd::Constant(n, n, level);
        for (Eigen::Index i = 0; i < n; ++i) {
            const double seen = directions.eigenvalues()(i);
            if (seen <= edge) continue;
            const double excess = seen - wide - high;
            const double real =
                0.5 * (excess + std::sqrt(std::max(0.0, excess * excess - 4 * wide * high)));
            const Eigen::VectorXd direction = directions.eigenvectors().col(i);
            prior.noalias() += real / static_cast<double>(rows) * direction * direction.transpose();
            // The direction is learned from noisy curves itself: by first-order perturbation each
            // of its entries has that variance, times how far curves go along it.
            prior.diagonal().array() += noise / static_cast<double>(rows);
        }
        return prior;
    }

    std::vector<Eigen::MatrixXd> priors_;  ///< by fold
    Eigen::MatrixXd rest_;
};

}  // namespace kdvfs::inline v0_3::tune
