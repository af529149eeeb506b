// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/report.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace attach {

/// A path with each number in it replaced: "step 12/forward" is "step */forward".
inline std::string without_numbers(std::string_view path) {
    std::string pattern;
    bool in_number = false;
    for (const char c : path) {
        const bool digit = c >= '0' && c <= '9';
        if (!digit) pattern += c;
        if (digit && !in_number) pattern += '*';
        in_number = digit;
    }
    return pattern;
}

/// Under which names ranges are reported. 32 paths that differ in their numbers alone are apart, as
/// the layers of a model are; those after them have one name, with `*` for the numbers, as the
/// steps of a training do. 256 paths are apart, whatever they are called. What is remembered is
/// bounded. Not thread-safe.
class RangeNames {
public:
    static constexpr std::size_t most_apart = 256;
    static constexpr std::size_t most_of_pattern = 32;

    [[nodiscard]] std::string of(std::string_view path) {
        if (apart_.contains(path)) return std::string{path};
        const bool room = apart_.size() < most_apart;
        std::string pattern = without_numbers(path);
        if (pattern == path) {
            if (!room) return "other ranges";
        } else {
            if (patterns_.size() >= most_apart && !patterns_.contains(pattern)) {
                return "other ranges";
            }
            std::size_t& members = patterns_[pattern];
            if (!room || members >= most_of_pattern) return pattern;
            ++members;
        }
        apart_.emplace(path);
        return std::string{path};
    }

private:
    std::set<std::string, std::less<>> apart_;
    std::map<std::string, std::size_t, std::less<>> patterns_;  // how many are apart
};

/// Adds the first ranges of a pattern to those that have the pattern's name, where there are any:
/// "step 0" to "step *". Half-widths add up: the errors of ranges of the same kernels are alike.
inline void pool_numbered_ranges(kdvfs::measure::Report& report) {
    std::map<std::string, kdvfs::measure::EnergyLevel*, std::less<>> pools;
    for (auto& level : report.levels) {
        const bool pattern = level.scope.name.find('*') != std::string::npos;
        if (pattern && !level.iteration) pools.emplace(level.scope.name, &level);
    }
    if (pools.empty()) return;
    std::vector<const kdvfs::measure::EnergyLevel*> added;
    for (auto& level : report.levels) {
        const auto pool = pools.find(without_numbers(level.scope.name));
        if (level.iteration || pool == pools.end() || pool->second == &level) continue;
        auto& sum = *pool->second;
        sum.runs += level.runs;
        sum.time += level.time;
        sum.counted_time += level.counted_time;
        sum.energy.joules = sum.energy.joules + level.energy.joules;
        sum.energy.half_width = sum.energy.half_width + level.energy.half_width;
        if (level.runs > 0) sum.energy.resolved = sum.energy.resolved && level.energy.resolved;
        added.push_back(&level);
    }
    std::erase_if(report.levels, [&](const auto& level) {
        return std::find(added.begin(), added.end(), &level) != added.end();
    });
}

}  // namespace attach
