// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/tune/launch_trace.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/tune/profile.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

/// Several GPUs that do one job, in one process or in several: each has a rank, and files of its
/// own.
namespace kdvfs::inline v0_3::tune {

/// The file of one rank: "profile.csv" is "profile.rank2.csv" for rank 2.
inline std::filesystem::path rank_path(std::filesystem::path file, std::size_t rank) {
    const std::string extension = file.extension().string();
    return file.replace_extension(".rank" + std::to_string(rank) + extension);
}

/// What one rank was measured to do. Without a number it is the only one.
struct RankProfile {
    std::optional<std::size_t> rank;
    Profile profile;
    LaunchSequence sequence;  ///< empty where none was recorded
    LaunchTrace trace{};      ///< its iterations; empty where none were recorded
};

/// The ranks of which there is a file beside `file`, ascending: none where only `file` itself may
/// be.
inline std::vector<std::size_t> ranks_beside(const std::filesystem::path& file) {
    const std::string begin = file.stem().string() + ".rank";
    const std::string end = file.extension().string();
    std::vector<std::size_t> ranks;
    std::error_code unreadable;
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    for (const auto& entry : std::filesystem::directory_iterator{folder, unreadable}) {
        const std::string name = entry.path().filename().string();
        if (name.size() <= begin.size() + end.size() || !name.starts_with(begin) ||
            !name.ends_with(end))
            continue;
        const auto number = kdvfs::detail::parse_number<std::size_t>(
            std::string_view{name}.substr(begin.size(), name.size() - begin.size() - end.size()));
        if (number) ranks.push_back(*number);
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
}

/// The profiles of all ranks, by the name that the only one's would have.
/// @throws Error (invalid_input, io) as `read_profile` and `read_launches`
inline std::vector<RankProfile> read_rank_profiles(const std::filesystem::path& file) {
    const auto read = [](std::optional<std::size_t> rank, const std::filesystem::path& path) {
        const std::filesystem::path launches = sequence_path(path);
        const std::filesystem::path trace = detail::trace_path(path);
        return RankProfile{
            rank, read_profile(path),
            std::filesystem::exists(launches) ? read_launches(launches) : LaunchSequence{},
            std::filesystem::exists(trace) ? detail::read_trace(trace) : detail::LaunchTrace{}};
    };
    std::vector<RankProfile> ranks;
    if (std::filesystem::exists(file)) ranks.push_back(read(std::nullopt, file));
    for (const std::size_t rank : ranks_beside(file)) {
        if (!ranks.empty() && !ranks.front().rank)
            throw Error{
                Errc::invalid_input,
                {"read profiles", file.string(), "there are profiles of single ranks beside it",
                 "keep either the one or the others"}};
        ranks.push_back(read(rank, rank_path(file, rank)));
    }
    if (ranks.empty()) ranks.push_back(read(std::nullopt, file));  // says that it is not there
    return ranks;
}

/// Ranks that are equal share a plan: they have the same GPU, kernels and launches. Indices into
/// `ranks`, in order.
inline std::vector<std::vector<std::size_t>> equal_ranks(std::span<const RankProfile> ranks) {
    const auto keys = [](const Profile& profile) {
        std::vector<std::pair<KernelKey, std::uint32_t>> kernels;
        for (const KernelProfile& kernel : profile.kernels())
            kernels.emplace_back(kernel.key, kernel.count);
        std::sort(kernels.begin(), kernels.end());
        return kernels;
    };
    std::vector<std::vector<std::size_t>> groups;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
            const RankProfile& first = ranks[group.front()];
            return first.profile.gpu() == ranks[r].profile.gpu() &&
                   first.sequence.launches == ranks[r].sequence.launches &&
                   keys(first.profile) == keys(ranks[r].profile);
        });
        if (same == groups.end())
            groups.push_back({r});
        else
            same->push_back(r);
    }
    return groups;
}

/// Equal ranks as one: a kernel costs the sum of their energies and the longest of their times,
/// since all wait for the last. Clock points that not all of them were measured at are left out, as
/// are their blocks: each rank has its own.
/// @param members indices into `ranks`, as `equal_ranks` groups them
/// @throws Error (invalid_input) as `Profile::add`
inline RankProfile merge_ranks(std::span<const RankProfile> ranks,
                               std::span<const std::size_t> members) {
    const RankProfile& first = ranks[members.front()];
    RankProfile merged{std::nullopt, Profile{first.profile.gpu()}, first.sequence, first.trace};
    const auto find = [&](std::size_t member, const KernelKey& key,
                          ClockPoint clock) -> const ProfilePoint* {
        for (const KernelProfile& kernel : ranks[member].profile.kernels())
            if (kernel.key == key) return kernel.find(clock);
        return nullptr;
    };
    for (const KernelProfile& kernel : first.profile.kernels()) {
        for (const ProfilePoint& point : kernel.points) {
            std::vector<const ProfilePoint*> points;
            for (const std::size_t member : members)
                points.push_back(find(member, kernel.key, point.clock));
            if (std::find(points.begin(), points.end(), nullptr) != points.end()) continue;
            std::size_t samples = point.samples.size();
            for (const ProfilePoint* of_rank : points)
                samples = std::min(samples, of_rank->samples.size());
            for (std::size_t s = 0; s < samples; ++s) {
                Cost all;
                double variance = 0;
                for (const ProfilePoint* of_rank : points) {
                    const ProfileSample& sample = of_rank->samples[s];
                    all.energy += sample.cost.energy;
                    all.time = std::max(all.time, sample.cost.time);
                    variance += sample.energy_sd.count * sample.energy_sd.count;
                }
                merged.profile.add({kernel.key,
                                    point.clock,
                                    all,
                                    kernel.group,
                                    kernel.count,
                                    static_cast<std::uint32_t>(s),
                                    point.clock == first.profile.baseline(),
                                    {std::sqrt(variance)}});
            }
        }
    }
    // Gaps end when the last rank goes on.
    for (const std::size_t member : members) {
        const auto& gaps = ranks[member].sequence.gaps;
        for (std::size_t i = 0; i < std::min(gaps.size(), merged.sequence.gaps.size()); ++i)
            merged.sequence.gaps[i] = std::max(merged.sequence.gaps[i], gaps[i]);
    }
    return merged;
}

}  // namespace kdvfs::inline v0_3::tune
