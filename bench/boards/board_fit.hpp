// SPDX-License-Identifier: MIT
#pragma once

#include <bench/boards/workload_model.hpp>

#include <cctype>
#include <map>
#include <set>
#include <utility>

namespace board_fit {

/// What a workload's name says: `prefill_ffn_p128_g1_b8` is of class `prefill_ffn` and batch 8.
struct NameParts {
    std::string kind;  ///< empty if the name begins with neither phase
    double batch = 1;
    double prompt = 1;
    std::string model;  ///< up to the first `_`
};

inline NameParts name_parts(const std::string& name) {
    NameParts parts;
    std::vector<std::string> tokens;
    std::istringstream text{name};
    for (std::string token; std::getline(text, token, '_');) tokens.push_back(token);
    if (!tokens.empty()) parts.model = tokens[0];
    if (tokens.size() > 1 && (tokens[0] == "prefill" || tokens[0] == "decode"))
        parts.kind = tokens[0] + "_" + tokens[1];
    for (const std::string& t : tokens) {
        if (t.size() < 2 || !std::isdigit(static_cast<unsigned char>(t[1]))) continue;
        if (t[0] == 'b') parts.batch = std::stod(t.substr(1));
        if (t[0] == 'p' || t[0] == 's') parts.prompt = std::stod(t.substr(1));
    }
    return parts;
}

/// A board fitted to workloads: the shared physics, how traits follow from the row at the highest
/// clock, and what the model misses by class and clock.
class BoardFit {
public:
    /// @param low_known whether predictions will also know the row at the lowest clock
    BoardFit(BoardFacts board, const std::vector<Workload>& fitted, bool low_known);

    /// The prediction of a workload from its highest row, and its lowest one if `low_known`.
    [[nodiscard]] std::vector<Predicted> predict(const std::string& name,
                                                 const std::vector<Row>& known,
                                                 const std::vector<double>& clocks) const;
    [[nodiscard]] const SharedPhysics& shared() const { return shared_; }

private:
    struct Miss {
        double log_time = 0, log_watts = 0;
    };

    [[nodiscard]] Eigen::VectorXd features(const std::string& name, const Row& top) const;
    /// The share of time that a board below its limit is busy, going by its watts: a busy board
    /// would draw up to a fifth more than its limit at the highest clock (assumption).
    [[nodiscard]] double busy_share(const Row& top) const {
        const double idle = idle_watts(board_, top.core_mhz);
        return std::clamp((top.watts - idle) / (1.2 * board_.limit_watts - idle), 0.05, 0.95);
    }
    /// What traits are expected before any workload is seen: below the limit, the time that the
    /// board waits does not follow the core clock.
    [[nodiscard]] Eigen::Vector4d expected(const Row& top) const {
        Eigen::Vector4d mean = Prior{}.mean;
        if (at_limit(board_, top)) return mean;
        const double busy = busy_share(top);
        mean[0] = std::log(busy / (1 - busy));
        return mean;
    }
    [[nodiscard]] Prior prior_of(const std::string& name, const Row& top) const;
    [[nodiscard]] std::vector<Row> known_rows(const Workload& w) const {
        if (low_known_ && w.rows.size() > 1) return {w.rows.front(), w.rows.back()};
        return {w.rows.back()};
    }
    void fit_shared(const std::vector<Workload>& fitted);
    void fit_prior(const std::vector<Workload>& fitted);
    void fit_misses(const std::vector<Workload>& fitted);

    BoardFacts board_;
    bool low_known_;
    std::vector<std::string> kinds_;
    SharedPhysics shared_{};
    Eigen::MatrixXd weights_;  ///< traits by features
    Eigen::Matrix4d covariance_ = Prior{}.covariance;
    std::map<std::pair<std::string, int>, Miss> misses_;
};

inline BoardFit::BoardFit(BoardFacts board, const std::vector<Workload>& fitted, bool low_known)
    : board_{std::move(board)}, low_known_{low_known} {
    std::set<std::string> kinds;
    for (const Workload& w : fitted)
        if (const std::string kind = name_parts(w.name).kind; !kind.empty()) kinds.insert(kind);
    kinds_.assign(kinds.begin(), kinds.end());
    fit_shared(fitted);
    fit_prior(fitted);
    fit_misses(fitted);
}

inline Eigen::VectorXd BoardFit::features(const std::string& name, const Row& top) const {
    const NameParts parts = name_parts(name);
    const auto kinds = static_cast<Eigen::Index>(kinds_.size());
    Eigen::VectorXd z = Eigen::VectorXd::Zero(5 + kinds);
    const bool limited = at_limit(board_, top);
    z[0] = 1;
    z[1] = limited ? 0 : 1;
    z[2] = limited ? 0 : 2 * (busy_share(top) - 0.5);
    z[3] = limited && top.held_mhz > 0 ? 20 * (std::log(top.held_mhz / top.core_mhz) + 0.12) : 0;
    z[4] = kinds > 0 ? 0.2 * (std::log2(parts.batch) - 3) : 0;
    for (Eigen::Index k = 0; k < kinds; ++k)
        z[5 + k] = parts.kind == kinds_[static_cast<std::size_t>(k)] ? 1 : 0;
    return z;
}

inline Prior BoardFit::prior_of(const std::string& name, const Row& top) const {
    Prior prior;
    if (weights_.size() > 0) {
        prior.mean = expected(top) + weights_ * features(name, top);
        prior.covariance = covariance_;
    }
    return prior;
}

inline void BoardFit::fit_shared(const std::vector<Workload>& fitted) {
    const auto cost_of = [&](const SharedPhysics& shared) {
        double total = 0;
        for (const Workload& w : fitted) {
            double cost = 0;
            most_likely(board_, shared, w.rows, Prior{}, &cost);
            total += cost;
        }
        return total;
    };
    double best = cost_of(shared_);
    for (double step : {1.0, 0.5, 0.25, 0.12}) {
        for (bool moved = true; moved;) {
            moved = false;
            for (int which = 0; which < 4; ++which) {
                SharedPhysics next = shared_;
                const double sign = which % 2 ? -step : step;
                if (which < 2)
                    next.volts_exponent = std::clamp(next.volts_exponent + sign, 1.0, 4.0);
                else
                    next.busy_watts_per_ghz =
                        std::clamp(next.busy_watts_per_ghz + 16 * sign, 0.0, 150.0);
                const double cost = cost_of(next);
                if (cost < best - 1e-6) {
                    best = cost;
                    shared_ = next;
                    moved = true;
                }
            }
        }
    }
}

inline void BoardFit::fit_prior(const std::vector<Workload>& fitted) {
    constexpr int rounds = 6;
    const Prior start;
    for (int round = 0; round < rounds; ++round) {
        const Eigen::Index width = features(fitted.front().name, fitted.front().top()).size();
        Eigen::MatrixXd z(width, static_cast<Eigen::Index>(fitted.size()));
        Eigen::MatrixXd x(4, z.cols());
        for (Eigen::Index i = 0; i < z.cols(); ++i) {
            const Workload& w = fitted[static_cast<std::size_t>(i)];
            z.col(i) = features(w.name, w.top());
            x.col(i) = most_likely(board_, shared_, w.rows, prior_of(w.name, w.top())).x -
                       expected(w.top());
        }
        Eigen::MatrixXd normal = z * z.transpose();
        for (Eigen::Index k = 0; k < width; ++k) normal(k, k) += k == 0 ? 0.3 : 1.0;
        weights_ = normal.ldlt().solve(z * x.transpose()).transpose();
        const Eigen::MatrixXd rest = x - weights_ * z;
        const double n = static_cast<double>(z.cols());
        covariance_ =
            (rest * rest.transpose() + 2 * 0.1 * Eigen::Matrix4d(start.covariance)) / (n + 2);
    }
}

inline void BoardFit::fit_misses(const std::vector<Workload>& fitted) {
    // The median: a workload whose time is noise must not move the others.
    const auto shrunk_median = [](std::vector<double> values) {
        constexpr double shrunk_by = 1;
        const double count = static_cast<double>(values.size());
        std::sort(values.begin(), values.end());
        const std::size_t half = values.size() / 2;
        const double median =
            values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
        return median * count / (count + shrunk_by);
    };
    std::map<std::pair<std::string, int>, std::pair<std::vector<double>, std::vector<double>>> logs;
    for (const Workload& w : fitted) {
        std::vector<double> clocks;
        for (const Row& row : w.rows) clocks.push_back(row.core_mhz);
        const std::vector<Predicted> all = predict(w.name, known_rows(w), clocks);
        for (std::size_t i = 0; i + 1 < w.rows.size(); ++i) {
            auto& [times, watts] =
                logs[{name_parts(w.name).kind, static_cast<int>(w.rows[i].core_mhz)}];
            times.push_back(std::log(w.rows[i].time_s / all[i].time_s));
            watts.push_back(std::log(w.rows[i].watts / all[i].watts));
        }
    }
    for (const auto& [key, missed] : logs)
        misses_[key] = {shrunk_median(missed.first), shrunk_median(missed.second)};
}

inline std::vector<Predicted> BoardFit::predict(const std::string& name,
                                                const std::vector<Row>& known,
                                                const std::vector<double>& clocks) const {
    const Row& top = known.back();
    const Traits traits = most_likely(board_, shared_, known, prior_of(name, top));
    const WorkloadModel model{board_, shared_, top, traits};
    std::vector<Predicted> result;
    for (double mhz : clocks) {
        Predicted p = model.at(mhz);
        const auto miss = misses_.find({name_parts(name).kind, static_cast<int>(mhz)});
        if (miss != misses_.end()) {
            p.time_s *= std::exp(miss->second.log_time);
            p.watts *= std::exp(miss->second.log_watts);
        }
        result.push_back(p);
    }
    return result;
}

}  // namespace board_fit
