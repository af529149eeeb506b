// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/tune/predicted_costs.hpp>
#include <tools/cli/text_options.hpp>
#include <tools/worth.hpp>

#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <vector>

/// `kdvfs plan --predict`: plans without a sweep.
namespace cli {

/// Core clocks in MHz: "510,600,690" or "510:1410:90", first, last and step.
inline std::vector<kdvfs::Megahertz> parse_core_clocks(const std::string& option,
                                                       const std::string& text) {
    const char separator = text.find(':') == std::string::npos ? ',' : ':';
    std::vector<std::uint32_t> numbers;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        const auto number = kdvfs::io::parse_number<std::uint32_t>(
            std::string_view{text}.substr(begin, end - begin));
        if (!number || *number == 0 || *number > 100'000)
            reject(option, text, "give clocks in MHz such as 510,600,690 or 510:1410:90");
        numbers.push_back(*number);
        begin = end + 1;
    }
    std::vector<kdvfs::Megahertz> clocks;
    if (separator == ',') {
        for (const std::uint32_t number : numbers) clocks.push_back({number});
        return clocks;
    }
    if (numbers.size() != 3 || numbers[1] < numbers[0] ||
        (numbers[1] - numbers[0]) / numbers[2] > 1000)
        reject(option, text, "give the first clock, the last and a step: 510:1410:90");
    for (std::uint32_t clock = numbers[0]; clock <= numbers[1]; clock += numbers[2])
        clocks.push_back({clock});
    clocks.push_back({numbers[1]});
    return clocks;
}

/// The costs of a profile's kernels at these core clocks and at its memory clocks. Where the
/// profile has the baseline alone, says which clocks to measure to save more.
/// @param clocks of which the highest is what a core clock left to the board is
inline kdvfs::tune::CostTable predicted_from_few(const kdvfs::tune::Profile& profile,
                                                 const std::string& option,
                                                 const std::string& clocks) {
    using namespace kdvfs::tune;
    std::set<kdvfs::Megahertz> memories;
    std::set<kdvfs::ClockPoint> measured;
    for (const KernelProfile& kernel : profile.kernels())
        for (const ProfilePoint& point : kernel.points) {
            memories.insert(point.clock.memory);
            measured.insert(point.clock);
        }
    PredictedBoard board;
    for (const kdvfs::Megahertz core : parse_core_clocks(option, clocks))
        for (const kdvfs::Megahertz memory : memories) board.clocks.push_back({core, memory});
    if (const auto limit = worth::data_sheet_limit(profile.gpu()))
        board.power_limit = kdvfs::Watts{*limit};
    if (measured.size() == 1) {
        std::string points;
        for (const kdvfs::ClockPoint point : points_to_measure(board, *measured.begin()))
            points += (points.empty() ? "" : ", ") + std::to_string(point.core.count);
        std::fprintf(stderr, "kdvfs: rows at %s MHz would show where more can be saved\n",
                     points.c_str());
    }
    return predicted_costs(profile, board);
}

}  // namespace cli
