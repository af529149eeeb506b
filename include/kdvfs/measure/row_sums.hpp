// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/symmetric_matrix.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// Normal equations of rows scaled to unit variance, and how far chance moves them.
struct NormalSums {
    SymmetricMatrix gram;
    SymmetricMatrix scatter;  ///< covariance of `right` about gram * watts
    std::vector<double> right;

    void grow(std::size_t columns) {
        gram.grow(columns);
        scatter.grow(columns);
        right.resize(columns);
    }
};

/// What is kept of rows that were fitted; grows with the columns, never with the rows.
struct RowSums {
    NormalSums level;       ///< of the rows as they are: hits each column's mean over its time
    NormalSums white;       ///< of the rows less what those before them foretell: least noise
    bool whitened = false;  ///< `white` differs from `level`; before, it is empty
    std::vector<double> shares;
    std::vector<double> squared_shares;
    /// What lies beyond the fit in rows that a column shares with others, W times rows, and the
    /// square of what chance makes of it.
    std::vector<double> shared_excess;
    std::vector<double> shared_variance;
    /// What lies beyond `RowFit::huber` and was drawn in, W times rows.
    std::vector<double> drawn_in;
    /// Of a row of this column alone and of a second, relative to its power squared; as last seen.
    std::vector<double> variances;
    double rows = 0;
    double fewer_rows = 0;  ///< rows without autocorrelation that would say as much
    double product = 0;     ///< of a row's noise and that of the row before it
    double square = 0;
    double watts = 0;    ///< sum of the rows' powers
    double scatter = 0;  ///< sum of the squares of what rows lie beyond the fit, W^2

    [[nodiscard]] std::size_t columns() const { return shares.size(); }
    void add_column() {
        const std::size_t columns = shares.size() + 1;
        level.grow(columns);
        if (whitened) white.grow(columns);
        for (auto* sums :
             {&shares, &squared_shares, &shared_excess, &shared_variance, &drawn_in, &variances})
            sums->resize(columns);
    }
    [[nodiscard]] double autocorrelation() const { return square > 0 ? product / square : 0; }
};

/// What is known of a column's power from elsewhere, W.
struct PowerBelief {
    double watts = 0;
    double deviation = 0;  ///< 0: nothing is known
};

/// What is assumed of columns' powers before any row is seen: they lie around the board's mean.
struct PowerPrior {
    double mean = 0;
    /// By about this. It matters only where the rows say nothing; boards draw 0 to 750 W (MI300X),
    /// so this assumes next to nothing.
    double spread = 500;

    [[nodiscard]] double precision() const { return 1 / (spread * spread); }
    /// The factor of the normal equations of rows and prior.
    [[nodiscard]] Cholesky factor(SymmetricMatrix gram) const {
        for (std::size_t i = 0; i < gram.size(); ++i) gram(i, i) += precision();
        return Cholesky{gram};
    }
    /// The powers that they say.
    [[nodiscard]] std::vector<double> watts(const Cholesky& factor,
                                            std::vector<double> right) const {
        for (double& value : right) value += mean * precision();
        return factor.solve(std::move(right));
    }
};

}  // namespace kdvfs::measure
