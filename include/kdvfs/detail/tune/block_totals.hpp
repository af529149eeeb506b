// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/solve/gaussian_condition.hpp>
#include <kdvfs/detail/tune/curve_estimate.hpp>
#include <kdvfs/tune/profile.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

/// What was measured together says together. In a block the counter tells the energy of all kernels
/// far better than that of each, and what one of them is given too much, others lack. So a block's
/// total is a measurement of its own, beside rows that by themselves say less than their standard
/// deviations: as much less as makes both agree with what was stated.
namespace kdvfs::inline v0_3::tune::detail {

/// Of the sum of a block, in squares of the block's energy.
struct BlockVariances {
    std::vector<double> rows;  ///< of each kernel's share, by themselves
    double total = 0;          ///< of the sum, by itself; infinite where the rows say it all
};

/// Independent rows and a total whose errors, put together, are those that were stated: with
/// variances a_k of the rows and t of the total, a row is told to a_k - a_k^2 / (sum a + t), and
/// the sum to 1 / (1 / sum a + 1 / t) (Sherman and Morrison). Solved by iteration; a row counts at
/// least a twentieth of what it stated.
inline BlockVariances apart(const std::vector<double>& stated_rows, double stated_total) {
    constexpr double least = 0.05;
    BlockVariances found{stated_rows, std::numeric_limits<double>::infinity()};
    for (int round = 0; round < 30; ++round) {
        double sum = 0;
        for (const double row : found.rows) sum += row;
        if (sum <= stated_total) break;  // nothing is opposed
        found.total = stated_total > 0 ? 1 / (1 / stated_total - 1 / sum) : 0;
        for (std::size_t k = 0; k < found.rows.size(); ++k)
            found.rows[k] =
                stated_rows[k] / std::max(least, 1 - found.rows[k] / (sum + found.total));
    }
    return found;
}

/// A block as estimates see it.
struct BlockTotal {
    struct Member {
        std::size_t kernel = 0;
        double launches = 1;  ///< in an iteration
    };
    Eigen::Index point = 0;  ///< of the grid
    double log_energy = 0;
    double variance = 0;  ///< of that, by itself
    std::vector<Member> members;
};

/// The log energies of one kernel over the grid, and their covariance.
struct EnergyCurve {
    Eigen::VectorXd mean;
    Eigen::MatrixXd covariance;
};

/// Brings kernels' energies, known one by one, into line with the totals of blocks: a Kalman update
/// of all curves at once. The log of a sum is linear in its terms' logs near where they are, so
/// that the update is done anew around each result. Errors of kernels are alike in part, so a total
/// that is off moves all of them, and not the largest most of all. A block that its rows cannot
/// explain, such as the last one of a file that was cut short, is left out.
class BlockTotals {
public:
    BlockTotals(std::vector<BlockTotal> blocks, std::size_t kernels) : blocks_{std::move(blocks)} {
        std::map<std::pair<Eigen::Index, std::vector<std::size_t>>, std::size_t> known;
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            std::vector<std::size_t> members;
            for (const BlockTotal::Member& member : blocks_[b].members)
                members.push_back(member.kernel);
            const auto [sum, is_new] =
                known.try_emplace({blocks_[b].point, std::move(members)}, sums_.size());
            if (is_new) sums_.emplace_back();
            sums_[sum->second].blocks.push_back(b);
        }
        shares_.setZero(static_cast<Eigen::Index>(sums_.size()),
                        static_cast<Eigen::Index>(kernels));
    }

    /// @param curves by kernel: what rows say; of members of blocks, whole covariances
    void apply_to(std::vector<EnergyCurve>& curves) {
        if (sums_.empty()) return;
        const std::vector<EnergyCurve> before = curves;
        find_alike(before);
        solve::GaussianCondition sums;
        for (int round = 0; round < 4; ++round) {
            linearise(curves);
            const Eigen::MatrixXd total = of_sums(before);
            weigh(before, total.diagonal());
            Eigen::VectorXd noise(total.rows());
            for (Eigen::Index s = 0; s < total.rows(); ++s)
                noise(s) = sums_[static_cast<std::size_t>(s)].variance;
            sums = {total, noise};
            const Eigen::VectorXd gained = sums.weights(residuals(before));
            for (const Eigen::Index k : members_) {
                const auto i = static_cast<std::size_t>(k);
                curves[i].mean = before[i].mean + with_sums(before, k) * gained;
            }
        }
        for (const Eigen::Index k : members_) {
            const Eigen::MatrixXd explained = sums.explained(with_sums(before, k).transpose());
            curves[static_cast<std::size_t>(k)].covariance -= explained.transpose() * explained;
        }
    }

private:
    /// Blocks of the same kernels at the same clock point.
    struct Sum {
        std::vector<std::size_t> blocks;
        double log_energy = 0;
        double variance = 0;
        double expected = 0;  ///< where the shares were taken
    };
    static constexpr double farthest = 5;  ///< standard deviations that rows may explain
    /// Of the variance of kernels' errors, what they have in common: kernels that resemble each
    /// other are shrunk alike, and off alike.
    static constexpr double share_alike = 0.5;

    [[nodiscard]] const BlockTotal& first(const Sum& sum) const {
        return blocks_[sum.blocks.front()];
    }
    /// What kernels' errors have in common: how errors at two clock points go together.
    void find_alike(const std::vector<EnergyCurve>& curves) {
        deviations_.clear();
        for (const EnergyCurve& curve : curves)
            deviations_.emplace_back(curve.covariance.diagonal().cwiseMax(0).cwiseSqrt());
        for (const Sum& sum : sums_)
            for (const BlockTotal::Member& member : first(sum).members)
                members_.push_back(static_cast<Eigen::Index>(member.kernel));
        std::sort(members_.begin(), members_.end());
        members_.erase(std::unique(members_.begin(), members_.end()), members_.end());
        const Eigen::Index n = curves[static_cast<std::size_t>(members_.front())].mean.size();
        alike_.setZero(n, n);
        for (const Eigen::Index k : members_) {
            const auto i = static_cast<std::size_t>(k);
            const Eigen::VectorXd inverse = deviations_[i].cwiseMax(1e-12).cwiseInverse();
            alike_ += inverse.asDiagonal() * curves[i].covariance * inverse.asDiagonal();
        }
        alike_ /= static_cast<double>(members_.size());
    }

    /// What each kernel's log energy adds to the log of each sum, near `curves`.
    void linearise(const std::vector<EnergyCurve>& curves) {
        around_.clear();
        for (const EnergyCurve& curve : curves) around_.push_back(curve.mean);
        for (std::size_t s = 0; s < sums_.size(); ++s) {
            const BlockTotal& block = first(sums_[s]);
            double whole = 0;
            for (const BlockTotal::Member& member : block.members) {
                const double energy =
                    member.launches * std::exp(curves[member.kernel].mean(block.point));
                shares_(static_cast<Eigen::Index>(s), static_cast<Eigen::Index>(member.kernel)) =
                    energy;
                whole += energy;
            }
            shares_.row(static_cast<Eigen::Index>(s)) /= whole;
            sums_[s].expected = std::log(whole);
        }
    }

    /// By sum, what all kernels' errors would add up to if they were the same in each.
    [[nodiscard]] Eigen::VectorXd added_alike() const {
        Eigen::VectorXd added = Eigen::VectorXd::Zero(shares_.rows());
        for (const Eigen::Index k : members_)
            added.array() +=
                shares_.col(k).array() * deviations_[static_cast<std::size_t>(k)](points()).array();
        return added;
    }

    /// The covariance of the logs of sums, by what rows say.
    [[nodiscard]] Eigen::MatrixXd of_sums(const std::vector<EnergyCurve>& curves) const {
        const std::vector<Eigen::Index> points = this->points();
        const Eigen::VectorXd added = added_alike();
        Eigen::MatrixXd total =
            share_alike * (added.asDiagonal() * alike_(points, points) * added.asDiagonal());
        for (const Eigen::Index k : members_) {
            const Eigen::MatrixXd& covariance = curves[static_cast<std::size_t>(k)].covariance;
            total += (1 - share_alike) * (shares_.col(k).asDiagonal() * covariance(points, points) *
                                          shares_.col(k).asDiagonal());
        }
        return total;
    }

    /// The covariance of a kernel's curve with the logs of sums.
    [[nodiscard]] Eigen::MatrixXd with_sums(const std::vector<EnergyCurve>& curves,
                                            Eigen::Index kernel) const {
        const auto i = static_cast<std::size_t>(kernel);
        const std::vector<Eigen::Index> points = this->points();
        return (1 - share_alike) *
                   (curves[i].covariance(Eigen::all, points) * shares_.col(kernel).asDiagonal()) +
               share_alike * (deviations_[i].asDiagonal() * alike_(Eigen::all, points) *
                              added_alike().asDiagonal());
    }
    [[nodiscard]] std::vector<Eigen::Index> points() const {
        std::vector<Eigen::Index> points;
        for (const Sum& sum : sums_) points.push_back(first(sum).point);
        return points;
    }

    /// By how much each sum is more than rows say, in logs.
    [[nodiscard]] Eigen::VectorXd residuals(const std::vector<EnergyCurve>& before) const {
        Eigen::VectorXd found(shares_.rows());
        for (std::size_t s = 0; s < sums_.size(); ++s) {
            const Eigen::Index point = first(sums_[s]).point;
            double expected = sums_[s].expected;
            for (const BlockTotal::Member& member : first(sums_[s]).members)
                expected += shares_(static_cast<Eigen::Index>(s),
                                    static_cast<Eigen::Index>(member.kernel)) *
                            (before[member.kernel].mean(point) - around_[member.kernel](point));
            found(static_cast<Eigen::Index>(s)) = sums_[s].log_energy - expected;
        }
        return found;
    }

    /// Blocks of the same sum as one; what they differ by beyond what was stated is their noise.
    void weigh(const std::vector<EnergyCurve>& before, const Eigen::VectorXd& spread) {
        const double scatter = noise();
        for (Sum& sum : sums_) sum.log_energy = 0;
        const Eigen::VectorXd expected = -residuals(before);
        for (std::size_t s = 0; s < sums_.size(); ++s) {
            const auto i = static_cast<Eigen::Index>(s);
            double precision = 0;
            for (const std::size_t b : sums_[s].blocks) {
                const double scale = blocks_[b].variance + scatter;
                const double off = blocks_[b].log_energy - expected(i);
                if (off * off > farthest * farthest * (scale + spread(i))) continue;
                sums_[s].log_energy += blocks_[b].log_energy / scale;
                precision += 1 / scale;
            }
            constexpr double nothing = 1e6;  // variance of what no block tells
            sums_[s].log_energy = precision > 0 ? sums_[s].log_energy / precision : expected(i);
            sums_[s].variance = precision > 0 ? 1 / precision : nothing;
        }
    }

    /// Variance of blocks of the same sum around their middle, beyond what was stated.
    [[nodiscard]] double noise() const {
        double squares = 0;
        double freedom = 0;
        for (const Sum& sum : sums_) {
            double middle = 0;
            for (const std::size_t b : sum.blocks) middle += blocks_[b].log_energy;
            middle /= static_cast<double>(sum.blocks.size());
            for (const std::size_t b : sum.blocks) {
                const double off = blocks_[b].log_energy - middle;
                squares += off * off - blocks_[b].variance;
            }
            freedom += static_cast<double>(sum.blocks.size()) - 1;
        }
        constexpr double rounding = 1e-10;
        return freedom > 0 ? std::max(squares / freedom, rounding) : rounding;
    }

    std::vector<BlockTotal> blocks_;
    std::vector<Sum> sums_;
    Eigen::MatrixXd shares_;             ///< by sum and kernel
    std::vector<Eigen::Index> members_;  ///< kernels of any sum
    std::vector<Eigen::VectorXd> deviations_;
    Eigen::MatrixXd alike_;
    std::vector<Eigen::VectorXd> around_;
};

/// The clock points of a profile, ascending.
inline std::vector<ClockPoint> clock_points(const Profile& profile) {
    std::vector<ClockPoint> clocks;
    for (const KernelProfile& kernel : profile.kernels()) {
        for (const ProfilePoint& point : kernel.points) clocks.push_back(point.clock);
        std::sort(clocks.begin(), clocks.end());
        clocks.erase(std::unique(clocks.begin(), clocks.end()), clocks.end());
    }
    return clocks;
}

inline std::size_t index_of(const std::vector<ClockPoint>& grid, ClockPoint clock) {
    return static_cast<std::size_t>(std::lower_bound(grid.begin(), grid.end(), clock) -
                                    grid.begin());
}

/// The rows of a block within the estimates' samples.
struct BlockRows {
    struct Row {
        std::size_t kernel = 0;
        std::size_t sample = 0;  ///< at the block's point
        double launches = 1;
        Joules energy{};  ///< of these launches
        Joules energy_sd{};
    };
    std::vector<Row> rows;
};

/// Takes apart what rows say from what their blocks' totals say, in `energies` and as totals.
inline std::vector<BlockTotal> take_apart(const Profile& profile,
                                          const std::vector<ClockPoint>& clocks,
                                          std::vector<KernelSamples>& energies) {
    std::map<std::uint32_t, BlockRows> blocks;
    for (std::size_t k = 0; k < profile.kernels().size(); ++k) {
        const KernelProfile& kernel = profile.kernels()[k];
        for (const ProfilePoint& point : kernel.points)
            for (std::size_t s = 0; s < point.samples.size(); ++s) {
                const ProfileSample& sample = point.samples[s];
                if (sample.block == 0) continue;
                const auto launches = static_cast<double>(kernel.count);
                blocks[sample.block].rows.push_back(
                    {k, s, launches, sample.cost.energy * launches, sample.energy_sd * launches});
            }
    }
    std::vector<BlockTotal> totals;
    for (const auto& [id, block] : blocks) {
        const auto& [resolved, clock] = profile.blocks().at(id);
        const auto square = [&, whole = resolved.energy](Joules deviation) {
            return deviation / whole * (deviation / whole);
        };
        std::vector<double> stated;
        for (const BlockRows::Row& row : block.rows) stated.push_back(square(row.energy_sd));
        const BlockVariances found = apart(stated, square(resolved.energy_sd));
        if (!std::isfinite(found.total)) continue;
        const std::size_t at = index_of(clocks, clock);
        BlockTotal& total = totals.emplace_back();
        total.point = static_cast<Eigen::Index>(at);
        total.log_energy = std::log(resolved.energy.count);
        total.variance = found.total;
        for (std::size_t r = 0; r < block.rows.size(); ++r) {
            const BlockRows::Row& row = block.rows[r];
            const double share = row.energy / resolved.energy;
            energies[row.kernel].at[at][row.sample].apart = found.rows[r] / (share * share);
            total.members.push_back({row.kernel, row.launches});
        }
    }
    return totals;
}

}  // namespace kdvfs::inline v0_3::tune::detail
