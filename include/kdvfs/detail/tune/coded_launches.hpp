// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {
namespace detail {

/// For each launch, where the same kernel is launched next; the end where it is not.
inline std::vector<std::size_t> next_places(std::span<const std::uint32_t> launches) {
    std::uint32_t most = 0;
    for (const std::uint32_t kernel : launches) most = std::max(most, kernel);
    std::vector<std::size_t> last(launches.empty() ? 0 : most + std::size_t{1}, launches.size());
    std::vector<std::size_t> next(launches.size());
    for (std::size_t i = launches.size(); i-- > 0;) next[i] = std::exchange(last[launches[i]], i);
    return next;
}

/// The run at a place that covers most launches. Its length is the distance to one of the next
/// launches of the same kernel; a few of them are tried, and the search ends at a run that covers
/// a good deal, so that coding takes time in proportion to the sequence.
inline LaunchRun longest_run(std::span<const std::uint32_t> launches,
                             const std::vector<std::size_t>& next, std::size_t first) {
    constexpr int tried = 64;
    LaunchRun best{1, 1};
    std::size_t second = next[first];
    for (int i = 0; i < tried && second < launches.size(); ++i, second = next[second]) {
        const std::size_t length = second - first;
        std::size_t same = 0;
        while (second + same < launches.size() && launches[first + same] == launches[second + same])
            ++same;
        const std::size_t times = 1 + same / length;
        if (times < 2 || times * length <= std::size_t{best.times} * best.length) continue;
        best = {static_cast<std::uint32_t>(times), static_cast<std::uint32_t>(length)};
        if (times >= 8) break;
    }
    return best;
}

}  // namespace detail

/// Run-length codes a sequence of launches, whose runs may be of many kernels.
inline CodedLaunches encode_launches(std::span<const std::uint32_t> launches) {
    const std::vector<std::size_t> next = detail::next_places(launches);
    CodedLaunches coded;
    bool open = false;  // the last run comes once and may be made longer
    for (std::size_t first = 0; first < launches.size();) {
        const LaunchRun run = detail::longest_run(launches, next, first);
        const auto stretch = launches.subspan(first, run.length);
        coded.launches.insert(coded.launches.end(), stretch.begin(), stretch.end());
        if (run.times == 1 && open) {
            ++coded.runs.back().length;
        } else {
            coded.runs.push_back(run);
        }
        open = run.times == 1;
        first += std::size_t{run.times} * run.length;
    }
    return coded;
}

}  // namespace kdvfs::inline v0_3::tune
