// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/profile.hpp>

#include <kdvfs/detail/tune/sweep_file.hpp>
#include <kdvfs/error.hpp>

#include <cmath>
#include <utility>

namespace kdvfs::inline v0_3::tune {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::optional<std::string> find_fault(const Cost& cost) {
    const double time = cost.time.count();
    if (!std::isfinite(time)) return "the time is not finite";
    if (time <= 0) return "the time is not above zero";
    if (cost.time < shortest_launch) return "the time is below a nanosecond";
    if (cost.time > longest_launch) return "the time is above 1e7 s";
    if (!std::isfinite(cost.energy.count)) return "the energy is not finite";
    if (cost.energy.count < 0) return "the energy is negative";
    if (cost.energy / cost.time > most_board_power)
        return "energy over time is above a megawatt, which no GPU draws";
    return std::nullopt;
}

KDVFS_INLINE std::optional<std::string> find_fault(const ProfileRow& row, bool known_names) {
    if (!known_names && !is_kernel_name(row.key.name))
        return "a kernel name has 1 to 1024 printable ASCII characters except quotes and "
               "backslashes";
    if (!known_names && !row.group.empty() && !is_kernel_name(row.group))
        return "a group name has 1 to 1024 printable ASCII characters except quotes and "
               "backslashes";
    if (auto fault = find_fault(row.cost)) return fault;
    if (row.count == 0) return "the count of launches is zero";
    if (!std::isfinite(row.energy_sd.count) || row.energy_sd.count < 0)
        return "the standard deviation of the energy is negative or not finite";
    const ProfileBlock& block = row.block;
    if (block.id == 0 && block != ProfileBlock{})
        return "there is the energy of a block without id";
    if (block.id > 0 && !(block.energy.count > 0 && std::isfinite(block.energy.count)))
        return "the energy of the block is not above zero, or not finite";
    if (!std::isfinite(block.energy_sd.count) || block.energy_sd.count < 0)
        return "the standard deviation of the block's energy is negative or not finite";
    return std::nullopt;
}

KDVFS_INLINE bool ProfilePoint::is_resolved() const {
    return std::any_of(samples.begin(), samples.end(),
                       [](const ProfileSample& sample) { return sample.is_resolved(); });
}

KDVFS_INLINE Cost ProfilePoint::mean() const {
    const bool resolved = is_resolved();
    Cost sum;
    double count = 0;
    for (const ProfileSample& sample : samples) {
        if (resolved && !sample.is_resolved()) continue;
        sum += sample.cost;
        ++count;
    }
    return sum * (1.0 / count);
}

KDVFS_INLINE Profile::Profile(std::string gpu) : gpu_{std::move(gpu)} {
    if (!is_gpu_name(gpu_)) {
        throw Error{Errc::invalid_input,
                    {"make a profile", "GPU \"" + gpu_ + '"', "the name is not allowed",
                     "use up to 128 letters, digits, spaces and _.:,()/+@-"}};
    }
}

KDVFS_INLINE void Profile::add(const ProfileRow& row) {
    if (auto fault = try_add(row)) {
        throw Error{Errc::invalid_input,
                    {"add a measurement to a profile",
                     to_string(row.key) + " at " + to_string(row.clock), *fault, ""}};
    }
}

KDVFS_INLINE std::optional<std::string> Profile::try_add(const ProfileRow& row) {
    const std::size_t kernel = find_kernel(row.key);
    const bool known = kernel < kernels_.size() && kernels_[kernel].group == row.group;
    if (auto fault = find_fault(row, known)) return fault;
    if (row.is_baseline && marked_baseline_ && *marked_baseline_ != row.clock)
        return "another clock point is marked as baseline already: " + to_string(*marked_baseline_);
    if (auto fault = find_other_block(row)) return fault;
    if (kernel < kernels_.size()) {
        const std::size_t point = find_point(kernels_[kernel], row.clock);
        if (auto fault = find_contradiction(kernels_[kernel], point, row)) return fault;
        add_sample(kernels_[kernel], point, row);
    } else {
        index_.emplace(row.key, kernel);
        kernels_.push_back({row.key, row.group, row.count, {}});
        add_sample(kernels_.back(), 0, row);
    }
    last_kernel_ = kernel;
    if (row.block.id > 0) blocks_.try_emplace(row.block.id, MeasuredTogether{row.block, row.clock});
    if (row.is_baseline) marked_baseline_ = row.clock;
    return std::nullopt;
}

KDVFS_INLINE std::optional<ClockPoint> Profile::baseline() const {
    if (marked_baseline_) return marked_baseline_;
    std::optional<ClockPoint> highest;
    for (const KernelProfile& kernel : kernels_) {
        for (const ProfilePoint& point : kernel.points)
            highest = highest ? higher_cap(*highest, point.clock) : point.clock;
    }
    return highest;
}

KDVFS_INLINE const std::map<std::uint32_t, Profile::MeasuredTogether>& Profile::blocks() const {
    return blocks_;
}

KDVFS_INLINE ProfileBlock Profile::block_of(const ProfileSample& sample) const {
    return sample.block == 0 ? ProfileBlock{} : blocks_.at(sample.block).block;
}

KDVFS_INLINE const KernelProfile* Profile::find_without_baseline() const {
    const auto clock = baseline();
    for (const KernelProfile& kernel : kernels_)
        if (!clock || kernel.find(*clock) == nullptr) return &kernel;
    return nullptr;
}

KDVFS_INLINE const KernelProfile* Profile::find_at_limit() const {
    for (const KernelProfile& kernel : kernels_)
        for (const ProfilePoint& point : kernel.points)
            for (const ProfileSample& sample : point.samples)
                if (sample.at_limit) return &kernel;
    return nullptr;
}

KDVFS_INLINE std::size_t Profile::find_kernel(const KernelKey& key) const {
    for (const std::size_t likely : {last_kernel_, last_kernel_ + 1})
        if (likely < kernels_.size() && kernels_[likely].key == key) return likely;
    const auto known = index_.find(key);
    return known == index_.end() ? kernels_.size() : known->second;
}

KDVFS_INLINE std::size_t Profile::find_point(const KernelProfile& kernel, ClockPoint clock) const {
    const std::vector<ProfilePoint>& points = kernel.points;
    for (const std::size_t likely : {last_point_, last_point_ + 1})
        if (likely < points.size() && points[likely].clock == clock) return likely;
    const auto at = [clock](const ProfilePoint& point) { return point.clock == clock; };
    return static_cast<std::size_t>(std::find_if(points.begin(), points.end(), at) -
                                    points.begin());
}

KDVFS_INLINE std::optional<std::string> Profile::find_contradiction(const KernelProfile& kernel,
                                                                    std::size_t point,
                                                                    const ProfileRow& row) {
    if (kernel.group != row.group)
        return "the kernel is in group \"" + kernel.group + "\" elsewhere";
    if (kernel.count != row.count)
        return "the kernel has a count of " + std::to_string(kernel.count) + " elsewhere";
    if (point == kernel.points.size()) return std::nullopt;
    for (const ProfileSample& sample : kernel.points[point].samples) {
        if (sample.index == row.sample)
            return "sample " + std::to_string(row.sample) + " of " + to_string(row.key) + " at " +
                   to_string(row.clock) + " is there twice";
    }
    return std::nullopt;
}

KDVFS_INLINE std::optional<std::string> Profile::find_other_block(const ProfileRow& row) const {
    const auto known = blocks_.find(row.block.id);
    if (known == blocks_.end()) return std::nullopt;
    if (known->second.clock != row.clock)
        return "block " + std::to_string(row.block.id) + " is at " +
               to_string(known->second.clock) + " elsewhere";
    if (known->second.block != row.block)
        return "block " + std::to_string(row.block.id) + " has another energy elsewhere";
    return std::nullopt;
}

KDVFS_INLINE void Profile::add_sample(KernelProfile& kernel, std::size_t point,
                                      const ProfileRow& row) {
    const ProfileSample sample{row.sample,    row.block.id, row.cost,
                               row.energy_sd, row.held,     row.at_limit};
    if (point == kernel.points.size())
        kernel.points.push_back({row.clock, ProfileSamples{sample}});
    else
        kernel.points[point].samples.push_back(sample);
    last_point_ = point;
}

#endif

}  // namespace kdvfs::inline v0_3::tune
