// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/profile.hpp>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <vector>

/// Estimates that do not promise the winner's luck. Whoever picks the best of many noisy means
/// picks lucky ones, and is disappointed later; posterior means under a fair prior have no such
/// bias. The prior of a kernel's log time and log energy over clock points is a Gaussian process:
/// neighbours in clock are alike, as far as the kernel's own data say so.
namespace kdvfs::tune {
namespace detail {

/// Where a clock point lies: its core clock against the highest, with auto a little above it, and
/// the log of the same for memory, whose clocks are few and far between.
struct ClockPlace {
    double core = 0;
    double memory = 0;
};

inline std::vector<ClockPlace> clock_places(const KernelProfile& kernel) {
    Megahertz top_core{1};
    Megahertz top_memory{1};
    for (const ProfilePoint& point : kernel.points) {
        top_core = std::max(top_core, point.clock.core);
        top_memory = std::max(top_memory, point.clock.memory);
    }
    const auto share = [](Megahertz clock, Megahertz top) {
        return clock == auto_clock ? 1.05 : double(clock.count) / double(top.count);
    };
    std::vector<ClockPlace> places;
    for (const ProfilePoint& point : kernel.points)
        places.push_back(
            {share(point.clock.core, top_core), std::log(share(point.clock.memory, top_memory))});
    return places;
}

/// What a Gaussian process takes two points to have in common: Matern's covariance of order 3/2,
/// because the power cap puts kinks into both quantities.
struct Smoothness {
    double core_length = 0.6;
    double memory_length = 1.5;
    double own = 1e-2;  ///< standard deviation that a point has to itself, as a share of the whole
};

/// One quantity of one kernel at all its points: log means, and the variance of each mean.
struct LogMeans {
    Eigen::VectorXd value;
    Eigen::VectorXd noise;
};

class GaussianProcess {
public:
    /// The noise is taken as known.
    GaussianProcess(const std::vector<ClockPlace>& places, const LogMeans& means,
                    const Smoothness& smoothness, double variance) {
        const auto n = means.value.size();
        mean_ = means.value.mean();
        Eigen::MatrixXd prior(n, n);
        for (Eigen::Index i = 0; i < n; ++i) {
            for (Eigen::Index j = 0; j < n; ++j) {
                const ClockPlace& a = places[static_cast<std::size_t>(i)];
                const ClockPlace& b = places[static_cast<std::size_t>(j)];
                const double distance =
                    std::sqrt(3.0) * std::hypot((a.core - b.core) / smoothness.core_length,
                                                (a.memory - b.memory) / smoothness.memory_length);
                prior(i, j) = variance * (1 + distance) * std::exp(-distance);
            }
            prior(i, i) += variance * smoothness.own * smoothness.own;
        }
        Eigen::MatrixXd total = prior;
        total.diagonal() += means.noise;
        total.diagonal().array() += 1e-12 * variance;
        const Eigen::LLT<Eigen::MatrixXd> factor{total};
        const Eigen::VectorXd centred = means.value.array() - mean_;
        const Eigen::VectorXd weights = factor.solve(centred);
        posterior_ = (prior * weights).array() + mean_;
        const double log_det = 2 * Eigen::MatrixXd{factor.matrixL()}.diagonal().array().log().sum();
        log_likelihood_ = factor.info() == Eigen::Success
                              ? -0.5 * (centred.dot(weights) + log_det)
                              : -std::numeric_limits<double>::infinity();
    }

    [[nodiscard]] double log_likelihood() const { return log_likelihood_; }
    [[nodiscard]] const Eigen::VectorXd& posterior() const { return posterior_; }

private:
    double mean_ = 0;
    Eigen::VectorXd posterior_;
    double log_likelihood_ = 0;
};

/// The posterior means under the smoothness that makes the data most likely, found one parameter
/// after the other, twice.
inline Eigen::VectorXd smooth(const std::vector<ClockPlace>& places, const LogMeans& means) {
    const double spread =
        (means.value.array() - means.value.mean()).square().mean() + means.noise.mean();
    Smoothness smoothness;
    double variance = 3;
    Eigen::VectorXd best = means.value;
    double likelihood = -std::numeric_limits<double>::infinity();
    const auto choose = [&](double& parameter, std::initializer_list<double> values) {
        double chosen = parameter;
        for (const double value : values) {
            parameter = value;
            const GaussianProcess process{places, means, smoothness, variance * spread};
            if (process.log_likelihood() <= likelihood) continue;
            likelihood = process.log_likelihood();
            best = process.posterior();
            chosen = value;
        }
        parameter = chosen;
    };
    for (int sweep = 0; sweep < 2; ++sweep) {
        choose(smoothness.core_length, {0.2, 0.6, 2, 6});
        choose(smoothness.memory_length, {0.1, 0.4, 1.5, 5});
        choose(smoothness.own, {0, 1e-3, 3e-3, 1e-2, 3e-2, 1});
        choose(variance, {0.3, 1, 3, 10, 30});
    }
    return best;
}

/// The variance of one sample's log: within points, so that real differences between them do not
/// count.
class SampleVariance {
public:
    template <class Quantity>
    void add(const KernelProfile& kernel, Quantity quantity) {
        for (const ProfilePoint& point : kernel.points) {
            double mean = 0;
            for (const auto& sample : point.samples) mean += std::log(quantity(sample.cost));
            mean /= static_cast<double>(point.samples.size());
            for (const auto& sample : point.samples) {
                const double off = std::log(quantity(sample.cost)) - mean;
                squares_ += off * off;
            }
            freedom_ += point.samples.size() - 1;
        }
    }
    /// How many differences it is told from.
    [[nodiscard]] std::size_t freedom() const { return freedom_; }
    /// @pre freedom above 0
    [[nodiscard]] double value() const { return squares_ / static_cast<double>(freedom_); }

private:
    double squares_ = 0;
    std::size_t freedom_ = 0;
};

/// The noise of a kernel's samples: its own where it has been measured often enough to tell, since
/// attributed energies of long kernels are far better known than those of short ones; else that of
/// all kernels.
template <class Quantity>
double noise_of(const KernelProfile& kernel, const SampleVariance& all, Quantity quantity) {
    constexpr std::size_t enough = 8;  // a standard deviation known to a quarter
    SampleVariance own;
    own.add(kernel, quantity);
    return own.freedom() >= enough ? own.value() : all.value();
}

template <class Quantity>
std::vector<double> shrunk(const KernelProfile& kernel, double variance, Quantity quantity) {
    const auto n = static_cast<Eigen::Index>(kernel.points.size());
    LogMeans means{Eigen::VectorXd(n), Eigen::VectorXd(n)};
    for (Eigen::Index i = 0; i < n; ++i) {
        const ProfilePoint& point = kernel.points[static_cast<std::size_t>(i)];
        means.value(i) = std::log(quantity(point.mean()));
        means.noise(i) = variance / static_cast<double>(point.samples.size());
    }
    const Eigen::VectorXd posterior =
        n < 3 || variance <= 0 ? means.value : smooth(clock_places(kernel), means);
    std::vector<double> values;
    for (Eigen::Index i = 0; i < n; ++i) values.push_back(std::exp(posterior(i)));
    return values;
}

}  // namespace detail

/// A table of shrunk estimates. Noise is estimated from repeated samples of the same point; where
/// there are none, or an energy of zero, nothing can be told apart and the plain means come back.
/// @throws Error as `make_cost_table`
inline CostTable shrunk_costs(const Profile& profile) {
    const auto time = [](const Cost& cost) { return cost.time.count(); };
    const auto energy = [](const Cost& cost) { return cost.energy.count; };
    for (const KernelProfile& kernel : profile.kernels())
        for (const ProfilePoint& point : kernel.points)
            for (const auto& sample : point.samples)
                if (energy(sample.cost) <= 0) return mean_costs(profile);
    detail::SampleVariance time_noise;
    detail::SampleVariance energy_noise;
    for (const KernelProfile& kernel : profile.kernels()) {
        time_noise.add(kernel, time);
        energy_noise.add(kernel, energy);
    }
    if (time_noise.freedom() == 0) return mean_costs(profile);

    const KernelProfile* current = nullptr;
    std::vector<double> times;
    std::vector<double> energies;
    return make_cost_table(profile, [&](const KernelProfile& kernel, const ProfilePoint& point) {
        if (current != &kernel) {
            current = &kernel;
            times = detail::shrunk(kernel, detail::noise_of(kernel, time_noise, time), time);
            energies =
                detail::shrunk(kernel, detail::noise_of(kernel, energy_noise, energy), energy);
        }
        const auto index = static_cast<std::size_t>(&point - kernel.points.data());
        return Cost{Seconds{times[index]}, Joules{energies[index]}};
    });
}

}  // namespace kdvfs::tune
