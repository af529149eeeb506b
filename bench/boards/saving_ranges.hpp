// SPDX-License-Identifier: MIT
#pragma once

#include <bench/boards/saving_programs.hpp>
#include <tools/saving_ranges.hpp>

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

/// A program that was also measured at one lower clock, about 0.85 of the highest.
struct LowPointProgram {
    Program program;
    worth::LowerClock lower;

    LowPointProgram(const Sweep& sweep, const Mix& mix) : program{mix.program()} {
        double highest = sweep.highest_core == kdvfs::auto_clock ? 0 : sweep.highest_core.count;
        for (const kdvfs::ClockPoint point : sweep.clocks)
            if (point.core != kdvfs::auto_clock)
                highest = std::max<double>(highest, point.core.count);
        for (std::size_t c = 0; c < sweep.clocks.size(); ++c) {
            if (sweep.clocks[c].core == kdvfs::auto_clock) continue;
            const double share = sweep.clocks[c].core.count / highest;
            if (std::abs(share - wanted) >= std::abs(lower.clock - wanted)) continue;
            const auto [time, energy] = mix.at(c);
            lower = {share, time, energy / time};
        }
    }

private:
    static constexpr double wanted = 0.85;
};

/// How far such guesses are off, by the programs of other groups of boards.
class GuessErrors {
public:
    GuessErrors(const std::vector<LowPointProgram>& programs, const std::string& without,
                std::size_t bound) {
        for (const LowPointProgram& one : programs)
            if (one.program.group != without)
                errors_[one.program.group].push_back(one.program.saved_pct[0][bound] -
                                                     one.lower.guess(bounds_pct[bound]));
        for (auto& [group, errors] : errors_) std::sort(errors.begin(), errors.end());
    }

    /// The widest of the groups' quantiles.
    /// @param tail that lies outside, at each end
    [[nodiscard]] std::pair<double, double> range(double tail) const {
        std::pair<double, double> widest{0, 0};
        for (const auto& [group, errors] : errors_) {
            const auto at = static_cast<std::size_t>(tail * static_cast<double>(errors.size()));
            widest.first = std::min(widest.first, errors[at]);
            widest.second = std::max(widest.second, errors[errors.size() - 1 - at]);
        }
        return widest;
    }

private:
    std::map<std::string, std::vector<double>> errors_;
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

/// The same of ranges with a lower clock point.
/// @param errors of guesses of other groups, and the tail that lies outside at each end
inline void judge(const std::vector<LowPointProgram>& judged, const GuessErrors& errors,
                  double tail, const std::string& group, std::size_t bound, Held& held) {
    constexpr double rounding = 0.05;  // points
    const auto [below, above] = errors.range(tail);
    std::size_t count = 0;
    std::size_t kept = 0;
    for (const LowPointProgram& one : judged) {
        if (one.program.group != group) continue;
        const double guess = one.lower.guess(bounds_pct[bound]);
        const double low = std::max(0.0, guess + below);
        const double high = std::max(low, guess + above);
        const double saved = one.program.saved_pct[0][bound];
        ++count;
        kept += saved >= low - rounding && saved <= high + rounding ? 1 : 0;
        held.widths.push_back(high - low);
    }
    held.by_group[group] = static_cast<double>(kept) / static_cast<double>(count);
}

}  // namespace savings
