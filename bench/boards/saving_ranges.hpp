// SPDX-License-Identifier: MIT
#pragma once

#include <bench/boards/saving_programs.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// What can be told of savings from the watts as found alone.
namespace savings {

/// Up to what a program saves, by the share of the power limit that it draws: the highest of the
/// quantiles of the other groups of boards, in each of which programs with like shares count most.
/// From below nothing is certain: a program may be bound by the core clock, or be at the limit.
class Ranges {
public:
    /// @param quantile of each group
    Ranges(const std::vector<Program>& programs, const std::string& without, double quantile)
        : quantile_{quantile} {
        for (const Program& program : programs)
            if (program.group != without) known_[program.group].push_back(&program);
    }

    [[nodiscard]] double high(double power_share, std::size_t way, std::size_t bound) const {
        double most = 0;
        for (const auto& [group, programs] : known_)
            most = std::max(most, quantile_of(programs, power_share, way, bound));
        return most;
    }

private:
    static constexpr double alike = 0.08;        ///< shares of power
    static constexpr double least_weight = 0.5;  ///< of programs with any other share

    [[nodiscard]] double quantile_of(const std::vector<const Program*>& programs,
                                     double power_share, std::size_t way, std::size_t bound) const {
        std::vector<std::pair<double, double>> saved;
        double sum = 0;
        for (const Program* program : programs) {
            const double off = (program->power_share - power_share) / alike;
            saved.emplace_back(program->saved_pct[way][bound],
                               std::exp(-0.5 * off * off) + least_weight);
            sum += saved.back().second;
        }
        std::sort(saved.begin(), saved.end());
        double reached = 0;
        for (const auto& [value, weight] : saved) {
            reached += weight;
            if (reached >= quantile_ * sum) return value;
        }
        return saved.back().first;
    }

    double quantile_;
    std::map<std::string, std::vector<const Program*>> known_;
};

/// How often ranges held, and how wide they are.
struct Held {
    std::map<std::string, double> by_group;  ///< share of a group's programs
    std::vector<double> widths;

    [[nodiscard]] double all() const {
        double sum = 0;
        for (const auto& [group, share] : by_group) sum += share;
        return sum / static_cast<double>(by_group.size());
    }
    [[nodiscard]] double worst() const {
        double least = 1;
        for (const auto& [group, share] : by_group) least = std::min(least, share);
        return least;
    }
    /// Whether the ranges may be printed.
    [[nodiscard]] bool enough() const { return all() >= 0.9 && worst() >= 0.8; }
    [[nodiscard]] double median_width() const {
        std::vector<double> sorted = widths;
        std::sort(sorted.begin(), sorted.end());
        return sorted[sorted.size() / 2];
    }
};

inline std::set<std::string> groups_of(const std::vector<Program>& programs) {
    std::set<std::string> groups;
    for (const Program& program : programs) groups.insert(program.group);
    return groups;
}

/// Judges one group's programs by the others', and adds what was found.
inline void judge(const std::vector<Program>& judged, const Ranges& ranges,
                  const std::string& group, std::size_t way, std::size_t bound, Held& held) {
    constexpr double rounding = 0.05;  // points
    std::size_t count = 0;
    std::size_t kept = 0;
    for (const Program& program : judged) {
        if (program.group != group) continue;
        const double high = ranges.high(program.power_share, way, bound);
        ++count;
        kept += program.saved_pct[way][bound] <= high + rounding ? 1 : 0;
        held.widths.push_back(high);
    }
    held.by_group[group] = static_cast<double>(kept) / static_cast<double>(count);
}

}  // namespace savings
