// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace kdvfs::measure {

/// How a row's noise follows from that of the rows before it. Predictors of all orders up to the
/// chosen one are kept, for the first rows after a gap have fewer rows before them.
class Autoregression {
public:
    static constexpr std::size_t most_lags = 8;

    /// White noise.
    Autoregression() : predictors_(1), innovations_{1} {}

    /// By Levinson and Durbin's recursion; the order is the one of least Bayesian information
    /// criterion (Schwarz, Annals of Statistics 6, 1978).
    /// @param correlations of a row with those 1, 2, ... rows before it
    /// @param rows         from how many rows they are known
    Autoregression(std::span<const double> correlations, double rows) : Autoregression{} {
        double best = 0;
        std::size_t order = 0;
        for (std::size_t k = 1; k <= std::min(correlations.size(), most_lags); ++k) {
            const std::vector<double>& last = predictors_.back();
            double reflection = correlations[k - 1];
            for (std::size_t i = 1; i < k; ++i) {
                reflection -= last[i - 1] * correlations[k - 1 - i];
            }
            reflection = std::clamp(reflection / innovations_.back(), -0.999, 0.999);
            std::vector<double> next(k, reflection);
            for (std::size_t i = 1; i < k; ++i) {
                next[i - 1] = last[i - 1] - reflection * last[k - 1 - i];
            }
            const double innovation = innovations_.back() * (1 - reflection * reflection);
            predictors_.push_back(std::move(next));
            innovations_.push_back(innovation);
            const double criterion =
                rows * std::log(innovation) + static_cast<double>(k) * std::log(rows);
            if (criterion >= best) continue;
            best = criterion;
            order = k;
        }
        predictors_.resize(order + 1);
        innovations_.resize(order + 1);
    }

    [[nodiscard]] std::size_t order() const { return predictors_.size() - 1; }
    /// Weights of the rows 1, 2, ... before, where there are `known` of them.
    [[nodiscard]] std::span<const double> predictor(std::size_t known) const {
        return predictors_[std::min(known, order())];
    }
    /// Variance of what the predictor leaves, of noise of variance 1.
    [[nodiscard]] double innovation(std::size_t known) const {
        return innovations_[std::min(known, order())];
    }

private:
    std::vector<std::vector<double>> predictors_;
    std::vector<double> innovations_;
};

}  // namespace kdvfs::measure
