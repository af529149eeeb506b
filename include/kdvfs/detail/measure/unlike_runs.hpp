// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/merged_columns.hpp>
#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/sensor_prior.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// A sample whose columns are split into finer ones.
struct SplitSample {
    SensorSample sample;
    std::vector<std::size_t> columns;  ///< what each finer column is a part of

    /// Whether some column has more than one part.
    [[nodiscard]] bool splits() const {
        std::vector<std::size_t> sorted = columns;
        std::sort(sorted.begin(), sorted.end());
        return std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
    }
};

/// Splits the columns by the kernel that ran before; what seldom follows it is one part.
[[nodiscard]] inline SplitSample split_by_neighbour(const SensorSample& sample) {
    constexpr std::size_t most = 128;  // each costs what it takes to know one more power
    using Pair = std::pair<std::size_t, std::size_t>;  // column, and what ran before it
    const auto visit = [](SensorSample& all, auto label) {
        std::size_t before = RowSums::idle_column;
        std::size_t last = RowSums::idle_column;
        all.relabel([&](const SensorSample::Entry& entry) {
            if (entry.column != last && last != RowSums::idle_column) before = last;
            last = entry.column;
            return label(Pair{entry.column, before}, entry.share);
        });
    };
    SplitSample split{sample, {}};
    std::map<Pair, double> seconds;
    visit(split.sample, [&](const Pair& pair, double share) {
        seconds[pair] += share;
        return pair.first;
    });
    std::vector<double> longest;
    for (const auto& [pair, time] : seconds) longest.push_back(time);
    std::sort(longest.rbegin(), longest.rend());
    const double least = longest.size() > most ? longest[most] : 0;
    constexpr std::size_t seldom = ~std::size_t{0};
    std::map<Pair, std::size_t> places;
    visit(split.sample, [&](Pair pair, double) {
        if (seconds[pair] <= least) pair.second = seldom;
        const auto [found, is_new] = places.try_emplace(pair, split.columns.size());
        if (is_new) split.columns.push_back(pair.first);
        return found->second;
    });
    return split;
}

/// Splits the columns by the third of their runs.
[[nodiscard]] inline SplitSample split_by_third(const SensorSample& sample, std::size_t columns) {
    SplitSample split{sample.in_thirds(), {}};
    for (std::size_t j = 0; j < 3 * columns; ++j) split.columns.push_back(j / 3);
    return split;
}

/// What the powers of columns miss because the powers of their parts differ, W: parts whose powers
/// lie around their column's, normally (DerSimonian and Laird, Controlled Clinical Trials 7, 1986).
class UnlikeRuns {
public:
    /// @param fine  the equations of the same rows by the parts
    /// @param whole the column of each part
    UnlikeRuns(const RowSums& fine, std::span<const std::size_t> whole, const ColumnPrior& prior)
        : whole_(whole.begin(), whole.end()) {
        SymmetricMatrix gram = fine.level.gram;
        std::vector<double> right = fine.level.right;
        for (std::size_t j = 0; j < right.size(); ++j) {
            gram(j, j) += prior.precision[j];
            right[j] += prior.centre[j] * prior.precision[j];
        }
        const Cholesky factor{gram};
        watts_ = factor.solve(std::move(right));
        const SymmetricMatrix errors = factor.robust_covariance(fine.level.scatter);
        for (std::size_t j = 0; j < watts_.size(); ++j) variance_.push_back(errors(j, j));
        shares_ = fine.shares;
        gram_ = std::move(gram);
    }

    /// Adds to the covariance of the columns' errors what this moves their powers by, W^2.
    void add_to(SymmetricMatrix& errors) const {
        const std::size_t columns = errors.size();
        SymmetricMatrix gram{columns};
        std::vector<std::vector<double>> cross(watts_.size(), std::vector<double>(columns));
        std::vector<double> all(columns);
        for (std::size_t j = 0; j < watts_.size(); ++j) {
            all[whole_[j]] += shares_[j];
            for (std::size_t i = 0; i < watts_.size(); ++i) cross[j][whole_[i]] += gram_(i, j);
            for (std::size_t k = 0; k <= whole_[j]; ++k) gram(whole_[j], k) += cross[j][k];
        }
        const Cholesky factor{gram};
        const auto [effects, spreads] = known_effects(columns);
        std::vector<double> moved(columns);
        for (std::size_t j = 0; j < watts_.size(); ++j) {
            if (spreads[j] <= 0) continue;
            std::vector<double> by = factor.solve(cross[j]);  // of the columns, for 1 W of the part
            by[whole_[j]] -= shares_[j] / all[whole_[j]];
            for (std::size_t k = 0; k < columns; ++k) moved[k] += effects[j] * by[k];
            errors.add_outer(by, spreads[j]);
        }
        errors.add_outer(moved, 1);
    }
    /// How far powers of parts lie around their column's, root mean square of all time, W.
    [[nodiscard]] double deviation(std::size_t columns) const {
        double sum = 0;
        double all = 0;
        const std::vector<double> between = between_by_column(columns);
        for (std::size_t j = 0; j < watts_.size(); ++j) {
            sum += shares_[j] * between[whole_[j]];
            all += shares_[j];
        }
        return all > 0 ? std::sqrt(sum / all) : 0;
    }

private:
    /// How far each part lies from its column, W, and the variance of that.
    [[nodiscard]] std::pair<std::vector<double>, std::vector<double>> known_effects(
        std::size_t columns) const {
        std::vector<double> effects(watts_.size());
        std::vector<double> spreads(watts_.size());
        for (std::size_t column = 0; column < columns; ++column) {
            const std::vector<std::size_t> own = parts(column);
            const double between = between_parts(own);
            if (between <= 0) continue;
            const double mean = excess(own, between).first;
            for (const std::size_t j : own) {
                effects[j] = (watts_[j] - mean) * between / (between + variance_[j]);
                spreads[j] = between * variance_[j] / (between + variance_[j]);
            }
        }
        return {effects, spreads};
    }
    [[nodiscard]] std::vector<std::size_t> parts(std::size_t column) const {
        std::vector<std::size_t> own;
        for (std::size_t j = 0; j < watts_.size(); ++j) {
            if (whole_[j] == column && shares_[j] > 0) own.push_back(j);
        }
        return own;
    }
    [[nodiscard]] std::vector<double> between_by_column(std::size_t columns) const {
        std::vector<double> all;
        for (std::size_t j = 0; j < columns; ++j) all.push_back(between_parts(parts(j)));
        return all;
    }
    /// The mean of parts and how much they lie beside it, where their powers have a variance
    /// beside their errors': chi-square.
    [[nodiscard]] std::pair<double, double> excess(std::span<const std::size_t> parts,
                                                   double between) const {
        double weights = 0;
        double mean = 0;
        for (const std::size_t j : parts) {
            const double weight = 1 / (variance_[j] + between);
            weights += weight;
            mean += weight * (watts_[j] - mean) / weights;
        }
        double square = 0;
        for (const std::size_t j : parts) {
            square += (watts_[j] - mean) * (watts_[j] - mean) / (variance_[j] + between);
        }
        return {mean, square};
    }
    /// The variance of the parts' powers beside their errors (Paule and Mandel, 1982); 0 where
    /// errors explain what they differ by.
    [[nodiscard]] double between_parts(std::span<const std::size_t> parts) const {
        if (parts.size() < 2) return 0;
        const auto degrees = static_cast<double>(parts.size() - 1);
        if (excess(parts, 0).second < degrees + 2 * std::sqrt(2 * degrees)) return 0;
        double low = 0;
        double high = 1e6;  // W^2
        for (int i = 0; i < 50; ++i) {
            const double middle = 0.5 * (low + high);
            (excess(parts, middle).second > degrees ? low : high) = middle;
        }
        return high;
    }

    std::vector<std::size_t> whole_;
    std::vector<double> watts_;
    std::vector<double> variance_;  // of their errors, W^2
    std::vector<double> shares_;
    SymmetricMatrix gram_;
};

/// What one column is made of, where its parts have no column each.
struct ColumnParts {
    std::size_t column = 0;
    std::vector<double> shares;              ///< of rows, by part
    std::vector<std::vector<double>> cross;  ///< with columns' shares, by part; may be shorter

    /// By new columns. Rows have weights, by which the products of all parts are the column's.
    /// @param whole    the column that each becomes
    /// @param products of the column, by new columns
    /// @param own      its new column
    [[nodiscard]] std::vector<std::vector<double>> merged(std::span<const std::size_t> whole,
                                                          std::span<const double> products,
                                                          std::size_t own) const {
        std::vector<std::vector<double>> by(shares.size(), std::vector<double>(products.size()));
        std::vector<double> sums(products.size());
        for (std::size_t p = 0; p < by.size(); ++p) {
            for (std::size_t i = 0; i < cross[p].size(); ++i) {
                if (whole[i] == MergedColumns::left_out) continue;
                by[p][whole[i]] += cross[p][i];
                sums[whole[i]] += cross[p][i];
            }
        }
        // Products with parts of runs (`RunPart`) cancel.
        const double usual = sums[own] > 0 ? products[own] / sums[own] : 0;
        for (std::size_t k = 0; k < sums.size(); ++k) {
            const bool adds_up = sums[k] > 0 && products[k] > 0;
            const double weight = adds_up ? products[k] / sums[k] : usual;
            for (auto& part : by) part[k] *= weight;
        }
        return by;
    }
};

/// What the powers of columns miss where one stands for kernels of unlike powers: what these draw
/// beyond its mean falls to their neighbours, and in a step that repeats to the same ones each
/// time, which no scatter of rows shows. They lie around that mean as columns of one kernel do
/// around theirs.
/// @param fine  equations of all kernels' own columns
/// @param whole the column that each becomes; `MergedColumns::left_out`: none
/// @param pool  of a fine column that has several kernels
/// @returns covariance of the columns' errors, W^2
[[nodiscard]] inline SymmetricMatrix errors_of_merging(
    const RowSums& fine, std::span<const std::size_t> whole, std::size_t columns,
    const std::optional<ColumnParts>& pool = {}) {
    struct Part {
        std::size_t whole;
        double share;
        std::vector<double> cross;
    };
    const auto skips = [&](std::size_t j) { return whole[j] == MergedColumns::left_out; };
    std::vector<double> all(columns);
    std::vector<double> right(columns);
    std::vector<std::size_t> count(columns);
    std::vector<Part> parts;
    SymmetricMatrix gram{columns};
    const auto add_part = [&](std::size_t column, double share, std::vector<double> cross) {
        if (share > 0) parts.push_back({column, share, std::move(cross)});
        return share > 0 ? 1U : 0U;
    };
    for (std::size_t j = 0; j < whole.size(); ++j) {
        if (skips(j)) continue;
        std::vector<double> cross(columns);
        for (std::size_t i = 0; i < whole.size(); ++i) {
            if (!skips(i)) cross[whole[i]] += fine.level.gram(i, j);
        }
        for (std::size_t k = 0; k <= whole[j]; ++k) gram(whole[j], k) += cross[k];
        all[whole[j]] += fine.shares[j];
        right[whole[j]] += fine.level.right[j];
        if (pool && pool->column == j) {
            const double sum = std::accumulate(pool->shares.begin(), pool->shares.end(), 0.0);
            std::vector<std::vector<double>> by = pool->merged(whole, cross, whole[j]);
            for (std::size_t p = 0; p < by.size() && sum > 0; ++p) {
                const double share = fine.shares[j] * pool->shares[p] / sum;
                count[whole[j]] += add_part(whole[j], share, std::move(by[p]));
            }
        } else {
            const auto one = add_part(whole[j], fine.shares[j], std::move(cross));
            count[whole[j]] += fine.rests[j] == 0 ? one : 0;
        }
    }
    const double differs = PowerPrior::differing(fine);
    const double mean = fine.power.mean_watts();
    for (std::size_t k = 0; k < columns; ++k) {
        gram(k, k) += 1 / (differs * differs);
        right[k] += mean / (differs * differs);
    }
    const Cholesky factor{gram};
    const std::vector<double> watts = factor.solve(std::move(right));
    double weight = 0;
    double centre = 0;
    double square = 0;
    for (std::size_t k = 0; k < columns; ++k) {
        if (count[k] != 1 || all[k] <= 0) continue;
        weight += all[k];
        const double off = watts[k] - centre;
        centre += off * all[k] / weight;
        square += off * (watts[k] - centre) * all[k];
    }
    const double variance =
        weight > 0 ? std::min(square / weight, differs * differs) : differs * differs;
    SymmetricMatrix errors{columns};
    for (Part& part : parts) {
        if (count[part.whole] < 2) continue;
        std::vector<double> by = factor.solve(std::move(part.cross));  // of 1 W of the part
        by[part.whole] -= part.share / all[part.whole];
        errors.add_outer(by, variance);
    }
    return errors;
}

}  // namespace kdvfs::inline v0_3::measure
