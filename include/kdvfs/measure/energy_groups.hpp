// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/symmetric_matrix.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// Which energies that are not known one by one are known together. Two kernels that always run in
/// the same mix trade energy in the estimate: what one is given too much, the other lacks, and the
/// error of their sum is small. So the two of the untold whose errors are most opposed are put
/// together, and so on, until a group is told or no errors oppose each other any more. The choice
/// looks at the spread of errors, never at the errors, so that a group's interval stays honest.
class EnergyGroups {
public:
    struct Group {
        std::vector<std::size_t> units;
        double joules = 0;
        double half_width = 0;
    };

    EnergyGroups(std::span<const double> joules, SymmetricMatrix covariance, double student,
                 double widest_resolved)
        : covariance_{std::move(covariance)}, student_{student}, widest_resolved_{widest_resolved} {
        for (std::size_t i = 0; i < joules.size(); ++i) {
            Group unit{{i}, joules[i], student_ * deviation(i)};
            if (!told(unit) && covariance_(i, i) > 0) open_.push_back(std::move(unit));
        }
        while (join_most_opposed()) {
        }
        join_leftovers();
        std::sort(found_.begin(), found_.end(),
                  [](const Group& a, const Group& b) { return a.joules > b.joules; });
    }

    /// Groups of two or more units that are told together, largest first.
    [[nodiscard]] const std::vector<Group>& found() const { return found_; }

private:
    [[nodiscard]] double deviation(std::size_t i) const {
        return std::sqrt(std::max(covariance_(i, i), 0.0));
    }
    [[nodiscard]] bool told(const Group& group) const {
        return group.joules > 0 && group.half_width <= widest_resolved_ * group.joules;
    }

    [[nodiscard]] double correlation(const Group& a, const Group& b) const {
        const double spread = deviation(a.units.front()) * deviation(b.units.front());
        return spread > 0 ? covariance_(a.units.front(), b.units.front()) / spread : 0;
    }

    /// A group's variance lies in `covariance_` at its first unit, and so do its covariances.
    void join(Group& into, const Group& from) {
        const std::size_t i = into.units.front();
        const std::size_t j = from.units.front();
        covariance_(i, i) += 2 * covariance_(i, j) + covariance_(j, j);
        for (std::size_t k = 0; k < covariance_.size(); ++k) {
            if (k != i) covariance_(i, k) += covariance_(j, k);
        }
        into.units.insert(into.units.end(), from.units.begin(), from.units.end());
        into.joules += from.joules;
        into.half_width = student_ * deviation(i);
    }

    bool join_most_opposed() {
        std::size_t first = 0;
        std::size_t second = 0;
        double lowest = 0;
        for (std::size_t a = 0; a < open_.size(); ++a) {
            for (std::size_t b = a + 1; b < open_.size(); ++b) {
                if (correlation(open_[a], open_[b]) >= lowest) continue;
                lowest = correlation(open_[a], open_[b]);
                first = a;
                second = b;
            }
        }
        if (first == second) return false;
        join(open_[first], open_[second]);
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(second));
        if (told(open_[first])) {
            found_.push_back(std::move(open_[first]));
            open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(first));
        }
        return true;
    }

    /// What is left over goes to the told group that it trades most with, if that stays told.
    void join_leftovers() {
        for (const Group& rest : open_) {
            Group* partner = nullptr;
            double lowest = 2;
            for (Group& group : found_) {
                if (correlation(group, rest) >= lowest) continue;
                lowest = correlation(group, rest);
                partner = &group;
            }
            if (partner == nullptr) continue;
            const std::size_t i = partner->units.front();
            const std::size_t j = rest.units.front();
            const double variance = covariance_(i, i) + 2 * covariance_(i, j) + covariance_(j, j);
            if (told({{}, partner->joules + rest.joules, student_ * std::sqrt(variance)})) {
                join(*partner, rest);
            }
        }
    }

    SymmetricMatrix covariance_;
    double student_;
    double widest_resolved_;
    std::vector<Group> open_;
    std::vector<Group> found_;
};

}  // namespace kdvfs::measure
