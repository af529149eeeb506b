// SPDX-License-Identifier: MIT
#pragma once

#include <bench/boards/measured_rows.hpp>
#include <kdvfs/device/simulated/board.hpp>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace board_fit {

/// What is known of a board before any workload is fitted.
struct BoardFacts {
    kdvfs::simulated::VoltageCurve voltage;  ///< relative to the lowest
    kdvfs::simulated::VoltageCurve idle;     ///< watts over the lowest's, by core clock
    double idle_watts = 0;                   ///< at the lowest clock
    double limit_watts = 0;                  ///< the board's power limit
};

/// The idle watts of a board under a clock.
inline double idle_watts(const BoardFacts& board, double mhz) {
    return board.idle_watts * board.idle.at(mhz);
}

/// Physics that all workloads of a board share; fitted.
struct SharedPhysics {
    double volts_exponent = 2;      ///< energy of core work goes as volts to this power
    double busy_watts_per_ghz = 0;  ///< beyond idle, while anything runs, at relative volts 1
};

/// One workload, given its row at the highest clock.
///     time = ((A / f)^p + M^p)^(1/p),   power = idle(f) + busy(f) + (K v^e + R) / time
/// with A / (f M) and the core's share K v^e / (K v^e + R) given where the highest clock holds.
struct Traits {
    static constexpr int count = 4;
    Eigen::Vector4d x{0, 0, 0, 0};

    [[nodiscard]] double core_to_memory() const { return std::exp(x[0]); }
    [[nodiscard]] double overlap() const { return 1 + std::exp(x[1]); }
    [[nodiscard]] double core_share() const { return 1 / (1 + std::exp(-x[2])); }
    /// The clock that held at the highest clock, as a part of it.
    [[nodiscard]] double held() const { return std::min(1.0, std::exp(x[3])); }
};

/// A prediction at one clock.
struct Predicted {
    double time_s = 0;
    double watts = 0;
    double held_mhz = 0;
};

/// Whether the board was at its limit at this row.
inline bool at_limit(const BoardFacts& board, const Row& row) {
    return row.held_mhz > 0 ? row.held_mhz < 0.995 * row.core_mhz
                            : row.watts > 0.95 * board.limit_watts;
}

class WorkloadModel {
public:
    WorkloadModel(const BoardFacts& board, const SharedPhysics& shared, const Row& top,
                  const Traits& traits)
        : board_{board}, shared_{shared}, traits_{traits}, top_{top} {
        held_top_ = at_limit(board, top) ? top.core_mhz * traits.held() : top.core_mhz;
        limit_ = at_limit(board, top) ? top.watts : board.limit_watts;
        // At the highest clock the time and the power are those measured.
        dynamic_ = std::max(1.0, top.watts - overhead(held_top_));
    }

    [[nodiscard]] Predicted at(double mhz) const {
        double held = std::min(mhz, top_.core_mhz);
        if (watts(held) > limit_ * (1 + 1e-9)) {
            double low = 0.3 * held, high = held;
            for (int i = 0; i < 40; ++i) {
                held = (low + high) / 2;
                (watts(held) > limit_ ? high : low) = held;
            }
        }
        return {top_.time_s * slowdown(held), watts(held), held};
    }

private:
    [[nodiscard]] double overhead(double mhz) const {
        const double volts = board_.voltage.at(mhz);
        return idle_watts(board_, mhz) + shared_.busy_watts_per_ghz * mhz / 1000 * volts * volts;
    }
    [[nodiscard]] double slowdown(double mhz) const {
        const double p = traits_.overlap(), core = traits_.core_to_memory();
        return std::pow((std::pow(core * held_top_ / mhz, p) + 1) / (std::pow(core, p) + 1), 1 / p);
    }
    [[nodiscard]] double watts(double mhz) const {
        const double volts = board_.voltage.at(mhz) / board_.voltage.at(held_top_);
        const double core = traits_.core_share() * std::pow(volts, shared_.volts_exponent);
        return overhead(mhz) + dynamic_ * (core + 1 - traits_.core_share()) / slowdown(mhz);
    }

    const BoardFacts& board_;
    SharedPhysics shared_;
    Traits traits_;
    Row top_;
    double held_top_ = 0;
    double limit_ = 0;
    double dynamic_ = 0;
};

/// What is believed of a workload's traits before its lower clocks are seen.
struct Prior {
    Eigen::Vector4d mean{1.2, 1.0, 1.0, -0.08};
    Eigen::Matrix4d covariance = Eigen::Vector4d{4, 1, 2, 0.01}.asDiagonal();
};

/// Standard deviations of one row, relative.
struct RowNoise {
    double time = 0.015;
    double watts = 0.02;
    double held = 0.004;
};

/// The most likely traits given rows (of which the last is the highest clock) and a prior.
/// @param cost if not null, receives the squared residuals of the rows
inline Traits most_likely(const BoardFacts& board, const SharedPhysics& shared,
                          const std::vector<Row>& rows, const Prior& prior, double* cost = nullptr,
                          RowNoise noise = {}) {
    const Eigen::Matrix4d whiten =
        prior.covariance.llt().matrixL().solve(Eigen::Matrix4d::Identity());
    const Row& top = rows.back();
    const auto residuals = [&](const Traits& t) {
        Eigen::VectorXd r(3 * static_cast<Eigen::Index>(rows.size()) + Traits::count);
        const WorkloadModel model{board, shared, top, t};
        Eigen::Index n = 0;
        for (const Row& row : rows) {
            const Predicted p = model.at(row.core_mhz);
            r[n++] = std::log(p.time_s / row.time_s) / noise.time;
            r[n++] = std::log(p.watts / row.watts) / noise.watts;
            r[n++] = row.held_mhz > 0 ? std::log(p.held_mhz / row.held_mhz) / noise.held : 0;
        }
        r.tail<4>() = whiten * (t.x - prior.mean);
        return r;
    };
    Traits best;
    best.x = prior.mean;
    Eigen::VectorXd r = residuals(best);
    double damping = 1e-2;
    for (int step = 0; step < 60 && damping < 1e8; ++step) {
        Eigen::MatrixXd jacobian(r.size(), Traits::count);
        for (int k = 0; k < Traits::count; ++k) {
            Traits moved = best;
            moved.x[k] += 1e-4;
            jacobian.col(k) = (residuals(moved) - r) / 1e-4;
        }
        Eigen::Matrix4d normal = jacobian.transpose() * jacobian;
        normal.diagonal() *= 1 + damping;
        Traits next = best;
        next.x -= normal.ldlt().solve(jacobian.transpose() * r).cwiseMax(-1.0).cwiseMin(1.0);
        const Eigen::VectorXd candidate = residuals(next);
        if (candidate.squaredNorm() < r.squaredNorm()) {
            const bool done = r.squaredNorm() - candidate.squaredNorm() < 1e-6;
            best = next;
            r = candidate;
            damping /= 5;
            if (done) break;
        } else {
            damping *= 5;
        }
    }
    if (cost) *cost = r.squaredNorm();
    return best;
}

}  // namespace board_fit
