// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/kernel.hpp>
#include <kdvfs/tune/cost.hpp>
#include <kdvfs/tune/sweep_file.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kdvfs::tune {

/// A kernel to be measured by itself.
struct SweepKernel {
    KernelKey key;
    std::string group{};
    std::uint32_t count = 1;  ///< launches per iteration
};

/// Whether a sweep has a sample already.
inline bool has_sample(const Profile& profile, const KernelKey& key, ClockPoint clock,
                       std::uint32_t index) {
    for (const KernelProfile& kernel : profile.kernels()) {
        if (kernel.key != key) continue;
        const ProfilePoint* point = kernel.find(clock);
        if (point == nullptr) return false;
        for (const auto& sample : point->samples)
            if (sample.index == index) return true;
    }
    return false;
}

/// Measures every kernel at every clock point, `samples` times, round by round so that drift
/// spreads over all. What the file holds already is not measured again.
/// `measure(kernel, clock)` returns the `Cost` of one launch, settled and warm;
/// `progress(done, all)` is called after each.
/// @throws Error as `SweepFile::append`; whatever `measure` throws
template <class Measure, class Progress>
void sweep_grid(SweepFile& file, std::span<const SweepKernel> kernels,
                std::span<const ClockPoint> points, std::uint32_t samples, Measure&& measure,
                Progress&& progress) {
    const std::size_t all = kernels.size() * points.size() * samples;
    std::size_t done = 0;
    for (std::uint32_t sample = 0; sample < samples; ++sample) {
        for (std::size_t k = 0; k < kernels.size(); ++k) {
            const SweepKernel& kernel = kernels[k];
            for (const ClockPoint clock : points) {
                if (!has_sample(file.profile(), kernel.key, clock, sample)) {
                    file.append(
                        {kernel.key, clock, measure(k, clock), kernel.group, kernel.count, sample});
                }
                progress(++done, all);
            }
        }
    }
}

}  // namespace kdvfs::tune
