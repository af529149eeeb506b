// SPDX-License-Identifier: MIT
#pragma once

#include <bench/boards/board_fit.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace board_fit {

/// The error of one predicted row, % of the measured value.
struct RowError {
    std::string workload;
    double core_mhz = 0;
    double time_pct = 0;
    double energy_pct = 0;
};

/// All predicted rows, and whether clocks picked from them are good ones.
struct Judgement {
    std::vector<RowError> rows;
    int picks = 0;
    int good_picks = 0;  ///< within 1.5 points of the best saving and 1 point of the bound

    [[nodiscard]] double mean_time_pct() const {
        double sum = 0;
        for (const RowError& row : rows) sum += std::abs(row.time_pct);
        return sum / static_cast<double>(rows.size());
    }
    [[nodiscard]] double mean_energy_pct() const {
        double sum = 0;
        for (const RowError& row : rows) sum += std::abs(row.energy_pct);
        return sum / static_cast<double>(rows.size());
    }
};

struct JudgeOptions {
    bool low_known = false;  ///< the row at the lowest clock is known, too
    bool by_model = false;   ///< workloads of the judged one's model are not fitted
    std::size_t every = 1;   ///< judge the first of so many workloads
};

/// The workloads of `all` that may be fitted when `judged` is judged.
inline std::vector<Workload> apart_from(const std::vector<Workload>& all, const Workload& judged,
                                        bool by_model) {
    std::vector<Workload> rest;
    for (const Workload& w : all) {
        const bool same_model = name_parts(w.name).model == name_parts(judged.name).model;
        if (w.name != judged.name && !(by_model && same_model)) rest.push_back(w);
    }
    return rest;
}

/// The row with the least energy among those that keep a slowdown against the highest clock.
template <class Rows>
std::size_t best_row(const Rows& rows, double highest_time, double slowdown) {
    std::size_t best = rows.size() - 1;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const bool kept = rows[i].time_s <= highest_time * (1 + slowdown);
        const double energy = rows[i].time_s * rows[i].watts;
        if (kept && energy < rows[best].time_s * rows[best].watts) best = i;
    }
    return best;
}

inline void judge_picks(const Workload& w, const std::vector<Predicted>& predicted,
                        Judgement& judgement) {
    constexpr double lost_at_most = 0.015, over_bound_at_most = 0.01;
    const Row& top = w.top();
    for (double bound : {0.05, 0.10}) {
        const Row& pick = w.rows[best_row(predicted, top.time_s, bound)];
        const Row& best = w.rows[best_row(w.rows, top.time_s, bound)];
        const double lost =
            (pick.time_s * pick.watts - best.time_s * best.watts) / (top.time_s * top.watts);
        const bool kept = pick.time_s <= top.time_s * (1 + bound + over_bound_at_most);
        ++judgement.picks;
        judgement.good_picks += kept && lost <= lost_at_most ? 1 : 0;
    }
}

/// Predicts each workload of `judged` from its known rows by a fit to `fitted` without it.
inline Judgement judge(const BoardFacts& board, const std::vector<Workload>& fitted,
                       const std::vector<Workload>& judged, JudgeOptions options) {
    Judgement judgement;
    for (std::size_t n = 0; n < judged.size(); n += options.every) {
        const Workload& w = judged[n];
        const BoardFit fit{board, apart_from(fitted, w, options.by_model), options.low_known};
        std::vector<Row> known{w.top()};
        if (options.low_known) known.insert(known.begin(), w.rows.front());
        std::vector<double> clocks;
        for (const Row& row : w.rows) clocks.push_back(row.core_mhz);
        const std::vector<Predicted> predicted = fit.predict(w.name, known, clocks);
        for (std::size_t i = options.low_known ? 1 : 0; i + 1 < w.rows.size(); ++i) {
            const Row& row = w.rows[i];
            const double energy =
                predicted[i].time_s * predicted[i].watts / (row.time_s * row.watts);
            judgement.rows.push_back({w.name, row.core_mhz,
                                      100 * (predicted[i].time_s / row.time_s - 1),
                                      100 * (energy - 1)});
        }
        judge_picks(w, predicted, judgement);
    }
    return judgement;
}

}  // namespace board_fit
