// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/row_sums.hpp>
#include <kdvfs/measure/symmetric_matrix.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// The watts of all columns and the covariance of their errors.
///
/// There are two ways to see the rows. As they are, they hit each column's mean power over its
/// time, whatever that power depends on, but noise that lasts from row to row weighs heavily. Less
/// what the rows before foretell, they lose that noise, but they weigh how powers change at a
/// column's begin and end, and miss its mean where the power depends on what ran before or for how
/// long. Where the two differ by no more than the noise explains, the second is taken, else the
/// first: the way of least mean square error, whose bias the difference of both shows.
class PowerEstimate {
public:
    /// @param seconds of each column: what its watts weigh in the choice of the way
    /// @param spread  of the columns' powers, as `PowerPrior` has it
    PowerEstimate(const RowSums& sums, std::span<const double> seconds, double spread);

    /// Rows beyond as many as the powers that they determine.
    [[nodiscard]] double degrees_of_freedom() const { return degrees_; }
    /// Of all columns' joules as the rows' own noise moves the counter, J^2: the scatter of the
    /// level way, whichever was taken.
    [[nodiscard]] double total_variance() const { return total_variance_; }
    [[nodiscard]] bool whitened() const { return whitened_; }
    [[nodiscard]] const std::vector<double>& watts() const { return watts_; }
    [[nodiscard]] const SymmetricMatrix& covariance() const { return covariance_; }
    /// From how many independent rows a column's scatter is known.
    [[nodiscard]] double rows_of(std::size_t column) const { return rows_of_[column]; }

private:
    struct Way {
        std::vector<double> watts;
        SymmetricMatrix covariance;
        double known = 0;  ///< how many powers the rows determine
    };
    [[nodiscard]] Way solve(const NormalSums& sums) const;
    [[nodiscard]] std::vector<double> non_negative(const NormalSums& sums,
                                                   std::vector<double> watts) const;
    void choose(Way level, Way white, std::span<const double> seconds);
    void add_model_error(const RowSums& sums);

    PowerPrior prior_;
    double degrees_ = 0;
    double total_variance_ = 0;
    bool whitened_ = false;
    std::vector<double> watts_;
    SymmetricMatrix covariance_;
    std::vector<double> rows_of_;
};

inline PowerEstimate::PowerEstimate(const RowSums& sums, std::span<const double> seconds,
                                    double spread)
    : prior_{sums.watts / std::max(sums.rows, 1.0), spread} {
    Way level = solve(sums.level);
    degrees_ = sums.rows - level.known;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        for (std::size_t j = 0; j < seconds.size(); ++j) {
            total_variance_ += seconds[i] * seconds[j] * level.covariance(i, j);
        }
    }
    if (sums.whitened) {
        choose(std::move(level), solve(sums.white), seconds);
    } else {
        watts_ = std::move(level.watts);
        covariance_ = std::move(level.covariance);
    }
    add_model_error(sums);
    watts_ = non_negative(whitened_ ? sums.white : sums.level, std::move(watts_));
    const double independent = whitened_ ? 1 : sums.fewer_rows / std::max(sums.rows, 1.0);
    for (std::size_t j = 0; j < sums.columns(); ++j) {
        const double shares = sums.shares[j];
        const double rows =
            sums.squared_shares[j] > 0 ? shares * shares / sums.squared_shares[j] : 0;
        rows_of_.push_back(independent * rows);
    }
}

inline PowerEstimate::Way PowerEstimate::solve(const NormalSums& sums) const {
    const Cholesky factor = prior_.factor(sums.gram);
    SymmetricMatrix middle = sums.scatter;
    for (std::size_t i = 0; i < middle.size(); ++i) middle(i, i) += prior_.precision();
    Way way{prior_.watts(factor, sums.right), factor.sandwich(middle), 0};
    for (const double variance : factor.inverse_diagonal()) {
        way.known += 1 - std::min(1.0, variance * prior_.precision());
    }
    return way;
}

/// Sets powers that came out negative to zero, and finds the others anew.
inline std::vector<double> PowerEstimate::non_negative(const NormalSums& sums,
                                                       std::vector<double> watts) const {
    std::vector<std::size_t> free(watts.size());
    for (std::size_t i = 0; i < free.size(); ++i) free[i] = i;
    while (std::any_of(free.begin(), free.end(), [&](std::size_t i) { return watts[i] < 0; })) {
        std::erase_if(free, [&](std::size_t i) { return watts[i] < 0; });
        SymmetricMatrix gram{free.size()};
        std::vector<double> right(free.size());
        for (std::size_t a = 0; a < free.size(); ++a) {
            right[a] = sums.right[free[a]];
            for (std::size_t b = 0; b <= a; ++b) gram(a, b) = sums.gram(free[a], free[b]);
        }
        const auto found = prior_.watts(prior_.factor(gram), std::move(right));
        std::fill(watts.begin(), watts.end(), 0.0);
        for (std::size_t a = 0; a < free.size(); ++a) watts[free[a]] = found[a];
    }
    return watts;
}

inline void PowerEstimate::choose(Way level, Way white, std::span<const double> seconds) {
    double level_square = 0;
    double white_square = 0;
    double bias_square = 0;
    double excess = 0;  // of the squared differences, in what chance makes of them
    double columns = 0;
    std::vector<double> chance(seconds.size());
    for (std::size_t j = 0; j < seconds.size(); ++j) {
        const double weight = seconds[j] * seconds[j];
        const double difference = std::pow(white.watts[j] - level.watts[j], 2);
        // The variance of the difference of an estimate and of a better one (Hausman,
        // Econometrica 46, 1978); both are estimates, so that a part of the larger is the least.
        constexpr double least = 0.1;
        const double own = level.covariance(j, j);
        chance[j] = std::max(own - white.covariance(j, j), least * own);
        level_square += weight * own;
        white_square += weight * white.covariance(j, j);
        bias_square += weight * (difference - chance[j]);
        if (chance[j] <= 0) continue;
        excess += difference / chance[j] - 1;
        ++columns;
    }
    // Level rows sum up to the counter: what the other way makes of all joules shows its bias, too.
    double all = 0;
    double all_chance = 0;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        all += seconds[i] * (white.watts[i] - level.watts[i]);
        for (std::size_t j = 0; j < seconds.size(); ++j) {
            all_chance +=
                seconds[i] * seconds[j] * (level.covariance(i, j) - white.covariance(i, j));
        }
    }
    bias_square = std::max({bias_square, all * all - std::max(all_chance, 0.0), 0.0});
    whitened_ = white_square + bias_square < level_square;
    Way& way = whitened_ ? white : level;
    watts_ = std::move(way.watts);
    covariance_ = std::move(way.covariance);
    if (!whitened_ || columns == 0) return;
    // What is left of the difference beyond twice its own chance is the way's error.
    excess = std::max(0.0, excess / columns - 2 * std::sqrt(2 / columns));
    for (std::size_t j = 0; j < seconds.size(); ++j) covariance_(j, j) += excess * chance[j];
}

/// What rows with several columns hold beyond the fit could be any of theirs, and so could what
/// was drawn in: any part of it, so that the error is evenly spread up to the whole.
inline void PowerEstimate::add_model_error(const RowSums& sums) {
    for (std::size_t j = 0; j < sums.columns(); ++j) {
        if (sums.shares[j] <= 0) continue;
        const double square = std::pow(sums.shared_excess[j], 2) - sums.shared_variance[j];
        constexpr double even = 1.0 / 3;  // the variance of what is evenly spread over -1 to 1
        const double model = std::max(square, 0.0) + std::pow(sums.drawn_in[j], 2);
        covariance_(j, j) += even * model / std::pow(sums.shares[j], 2);
    }
}

}  // namespace kdvfs::measure
