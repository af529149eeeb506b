// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/batch_size.hpp>

#include <kdvfs/detail/train/gaussian_process.hpp>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// What runs of a recurring job are expected to cost, by their batch size.
class BatchCosts {
public:
    /// Both must outlive it.
    BatchCosts(const BatchSizeOptions& options, const BatchSizeState& state)
        : options_{options}, state_{state} {}

private:
    /// What the logarithm of a quantity that follows a law of batch size has beside that law: an
    /// unknown level, and smooth deviations over octaves.
    struct Deviations {
        double size;

        static constexpr double level = 3;   // wide: nothing is known
        static constexpr double length = 2;  // octaves
        static constexpr double own = 0.02;  // what a size has to itself

        double operator()(double a, double b) const {
            const double distance = std::sqrt(3.0) * std::abs(a - b) / length;
            return level * level + size * size * (1 + distance) * std::exp(-distance) +
                   (a == b ? own * own : 0);
        }
    };
    /// 1 - share + share * 2^(growth * octaves): one part is constant, the other grows or shrinks
    /// in proportion to the batch size. How large the shares are is not known.
    struct Law {
        double growth;
        double deviations;

        [[nodiscard]] double log(double share, double octaves) const {
            return std::log(1 - share + share * std::exp2(growth * octaves));
        }
    };
    /// Epochs grow as 1 + b / b_noise (McCandlish et al., An Empirical Model of Large-Batch
    /// Training, 2018), apart from very small batches.
    static constexpr Law epochs_law{+1, 0.2};
    /// An epoch costs as much for each sample, and as much for each step.
    static constexpr Law epoch_cost_law{-1, 0.1};
    static constexpr double usual_weight = 4;  ///< runs' evidence that `usual_deviation` is worth
    static constexpr std::size_t window = 10;  ///< runs of a size that count
    /// How far draws go, of the deviations that are known: recurrences are few, and each of them
    /// costs (Thompson sampling with a tempered posterior; 1 is the plain one).
    static constexpr double boldness = 0.4;

    struct Normal {
        double weight;
        Eigen::VectorXd mean;
        Eigen::MatrixXd covariance;
    };
    using Mixture = std::vector<Normal>;  ///< weights sum to 1

public:
    /// Runs of the same size differ in their epochs by about a tenth.
    static constexpr double usual_deviation = 0.1;

    [[nodiscard]] const BatchSizeRecord& record(std::uint32_t size) const {
        return state_.sizes.at(size);
    }
    [[nodiscard]] std::optional<std::uint32_t> best_known() const {
        return best_of([](const BatchSizeRecord&) { return true; });
    }
    template <class Allowed>
    [[nodiscard]] std::optional<std::uint32_t> best_of(const Allowed& allowed) const {
        std::vector<std::uint32_t> tried;
        for (const auto& [size, record] : state_.sizes)
            if (!record.reached.empty() && !is_failing(record) && allowed(record))
                tried.push_back(size);
        if (tried.empty()) return std::nullopt;
        return tried[argmin(mean(log_epochs(tried)) + mean(log_epoch_costs(tried)))];
    }

    /// The runs of a size that count.
    static std::span<const double> recent(const std::vector<double>& values) {
        return std::span{values}.last(std::min(window, values.size()));
    }

    [[nodiscard]] double octaves(std::uint32_t size) const {
        return std::log2(static_cast<double>(size) / options_.usual);
    }
    [[nodiscard]] std::vector<double> octaves(const std::vector<std::uint32_t>& sizes) const {
        std::vector<double> places;
        for (const std::uint32_t size : sizes) places.push_back(octaves(size));
        return places;
    }

    static bool is_failing(const BatchSizeRecord& record) {
        return record.failures > 2 * record.reached.size();
    }

    /// The logarithm of what runs cost, less that of the usual size.
    struct LogCost {
        double mean;
        double deviation;

        [[nodiscard]] double at_most(double deviations) const {
            return mean + deviations * deviation;
        }
        /// What a run may cost beyond one of the usual size, as a share.
        [[nodiscard]] double risk() const { return std::max(0.0, std::exp(at_most(1)) - 1); }
    };
    [[nodiscard]] std::vector<LogCost> beside_usual(std::vector<std::uint32_t> sizes) const {
        sizes.push_back(options_.usual);
        std::vector<LogCost> costs(sizes.size() - 1, LogCost{0, 0});
        for (const Mixture& mixture : {log_epochs(sizes), log_epoch_costs(sizes)}) {
            for (std::size_t k = 0; k < costs.size(); ++k) {
                const auto i = static_cast<Eigen::Index>(k);
                const auto usual = static_cast<Eigen::Index>(costs.size());
                double mean = 0;
                double square = 0;
                for (const Normal& part : mixture) {
                    const double less = part.mean(i) - part.mean(usual);
                    mean += part.weight * less;
                    square += part.weight *
                              (less * less + part.covariance(i, i) + part.covariance(usual, usual) -
                               2 * part.covariance(i, usual));
                }
                costs[k].mean += mean;
                costs[k].deviation =
                    std::hypot(costs[k].deviation, std::sqrt(std::max(0.0, square - mean * mean)));
            }
        }
        return costs;
    }

    /// Logarithms of what runs cost, drawn from what is known. Of a size whose epochs have not been
    /// profiled, the best of three draws: to know better takes no more than an epoch there.
    Eigen::VectorXd sampled_costs(const std::vector<std::uint32_t>& sizes,
                                  std::uint64_t draw) const {
        constexpr int looks = 3;
        std::seed_seq seed{options_.seed, draw};
        std::mt19937_64 random{seed};
        const Mixture epochs = log_epochs(sizes);
        const Mixture epoch_costs = log_epoch_costs(sizes);
        Eigen::VectorXd least;
        for (int look = 0; look < looks; ++look) {
            const Eigen::VectorXd costs = sample(epochs, random) + sample(epoch_costs, random);
            if (look == 0) least = costs;
            for (std::size_t i = 0; i < sizes.size(); ++i) {
                const auto k = static_cast<Eigen::Index>(i);
                if (!record(sizes[i]).profile) least(k) = std::min(least(k), costs(k));
            }
        }
        return least;
    }

    static Eigen::VectorXd sample(const Mixture& mixture, std::mt19937_64& random) {
        double left = std::uniform_real_distribution<double>{}(random);
        const Normal* chosen = &mixture.back();
        for (const Normal& part : mixture) {
            left -= part.weight;
            if (left >= 0) continue;
            chosen = &part;
            break;
        }
        Eigen::MatrixXd covariance = chosen->covariance;
        covariance.diagonal().array() += 1e-9;  // rounding
        std::normal_distribution<double> standard;
        Eigen::VectorXd numbers(chosen->mean.size());
        for (double& number : numbers) number = boldness * standard(random);
        return chosen->mean + Eigen::LLT<Eigen::MatrixXd>{covariance}.matrixL() * numbers;
    }

    static Eigen::VectorXd mean(const Mixture& mixture) {
        Eigen::VectorXd sum = Eigen::VectorXd::Zero(mixture.front().mean.size());
        for (const Normal& part : mixture) sum += part.weight * part.mean;
        return sum;
    }

    static std::size_t argmin(const Eigen::VectorXd& values) {
        Eigen::Index least = 0;
        values.minCoeff(&least);
        return static_cast<std::size_t>(least);
    }

    /// The variance of log epochs between runs of the same size.
    [[nodiscard]] double run_variance() const {
        double squares = usual_weight * usual_deviation * usual_deviation;
        double freedom = usual_weight;
        for (const auto& [size, record] : state_.sizes) {
            const auto reached = recent(record.reached);
            if (reached.size() < 2) continue;
            const double mean = mean_log(reached);
            for (const double epochs : reached)
                squares += (std::log(epochs) - mean) * (std::log(epochs) - mean);
            freedom += static_cast<double>(reached.size() - 1);
        }
        return squares / freedom;
    }

    static double mean_log(std::span<const double> values) {
        double sum = 0;
        for (const double value : values) sum += std::log(value);
        return sum / static_cast<double>(values.size());
    }

private:
    struct Observed {
        std::vector<double> places;
        std::vector<double> logs;
        std::vector<double> variances;

        void add(double place, double log, double variance) {
            places.push_back(place);
            logs.push_back(log);
            variances.push_back(variance);
        }
    };

    [[nodiscard]] Mixture log_epochs(const std::vector<std::uint32_t>& sizes) const {
        const double variance = run_variance();
        Observed observed;
        for (const auto& [size, record] : state_.sizes) {
            const auto reached = recent(record.reached);
            const auto stopped = recent(record.stopped);
            if (reached.empty() && stopped.empty()) continue;
            // A stopped run would have gone on for an unknown time: half as long again, or so.
            if (reached.empty())
                observed.add(octaves(size), mean_log(stopped) + 0.4,
                             (variance + 0.1) / static_cast<double>(stopped.size()));
            else
                observe_size(record, variance, octaves(size), observed);
        }
        return predict(observed, epochs_law, octaves(sizes));
    }

    /// What a run that reaches the target takes, with those that do not before it.
    static void observe_size(const BatchSizeRecord& record, double variance, double place,
                             Observed& observed) {
        const auto reached = recent(record.reached);
        const auto stopped = recent(record.stopped);
        const double once = std::exp(mean_log(reached));
        double vain = 0;  // epochs of stopped runs, for each that reaches the target
        for (const double epochs : stopped) vain += epochs / static_cast<double>(stopped.size());
        vain *=
            static_cast<double>(record.stopped.size()) / static_cast<double>(record.reached.size());
        const double share = vain / (once + vain);
        observed.add(
            place, std::log(once + vain),
            variance / static_cast<double>(reached.size()) +
                (stopped.empty() ? 0 : share * share / static_cast<double>(stopped.size())));
    }

    [[nodiscard]] Mixture log_epoch_costs(const std::vector<std::uint32_t>& sizes) const {
        Observed observed;
        for (const auto& [size, record] : state_.sizes)
            if (record.profile) observed.add(octaves(size), std::log(record.profile->cost), 1e-8);
        return predict(observed, epoch_cost_law, octaves(sizes));
    }

    /// One part for each share that the law may have, weighted by the likelihood of what was seen.
    [[nodiscard]] static Mixture predict(const Observed& observed, const Law& law,
                                         const std::vector<double>& at) {
        Mixture mixture;
        double most = -std::numeric_limits<double>::infinity();
        for (const double share : {0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0}) {
            mixture.push_back(predict(observed, law, share, at));
            most = std::max(most, mixture.back().weight);
        }
        double sum = 0;
        for (Normal& part : mixture) sum += part.weight = std::exp(part.weight - most);
        for (Normal& part : mixture) part.weight /= sum;
        return mixture;
    }

    /// The part for one share, with the log likelihood for its weight.
    [[nodiscard]] static Normal predict(const Observed& observed, const Law& law, double share,
                                        const std::vector<double>& at) {
        const auto n = static_cast<Eigen::Index>(observed.places.size());
        Eigen::VectorXd values(n);
        Eigen::VectorXd noise(n);
        double level = 0;
        for (const double log : observed.logs) level += log / static_cast<double>(n);
        for (Eigen::Index i = 0; i < n; ++i) {
            const auto k = static_cast<std::size_t>(i);
            values(i) = observed.logs[k] - level - law.log(share, observed.places[k]);
            noise(i) = observed.variances[k];
        }
        const Process process{observed.places, values, noise, Deviations{law.deviations}};
        Normal part{process.log_likelihood(), process.mean(at), process.posterior(at)};
        for (std::size_t i = 0; i < at.size(); ++i)
            part.mean(static_cast<Eigen::Index>(i)) += level + law.log(share, at[i]);
        return part;
    }
    using Process = GaussianProcess<double, Deviations>;

    const BatchSizeOptions& options_;
    const BatchSizeState& state_;
};

}  // namespace kdvfs::inline v0_3::train::detail
