// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/iteration.hpp>
#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/tune/profile.hpp>

#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string>

namespace gpt3 {

/// What one launch of a kernel costs at a clock point, to the nanosecond and nanojoule: on a
/// simulated GPU of its own, whose clocks change at once and whose counter is ideal.
inline kdvfs::tune::Cost measure(const kdvfs::simulated::Board& board,
                                 const kdvfs::simulated::KernelModel& kernel,
                                 kdvfs::ClockPoint point) {
    kdvfs::simulated::Device device{
        board,
        {.clock_switch = kdvfs::simulated::uniform_switch(kdvfs::Duration{0}),
         .energy_counter = kdvfs::simulated::EnergyCounterTraits{}}};
    device.apply(point);
    device.advance(kdvfs::Duration{0});
    device.launch(nullptr, kernel);
    device.synchronize();
    return {device.now().time_since_epoch(),
            {std::round(device.read_energy().joules.count * 1e9) / 1e9}};
}

/// Measures every kernel of the iteration at every clock point, on its own.
/// @param progress is called with the kernels done so far
inline kdvfs::tune::Profile sweep(const kdvfs::simulated::Board& board,
                                  std::span<const kdvfs::simulated::KernelModel> kernels,
                                  std::span<const kdvfs::ClockPoint> points,
                                  const std::function<void(std::size_t)>& progress) {
    kdvfs::tune::Profile profile{"simulated " + board.name};
    for (std::size_t entry = 0; entry < kernels.size(); ++entry) {
        const PublishedKernel& published = published_table[entry];
        kdvfs::tune::ProfileRow row;
        row.key.name = published.name;
        row.group = pass_of(entry);
        row.count = static_cast<std::uint32_t>(published.repeats);
        for (const kdvfs::ClockPoint point : points) {
            row.clock = point;
            row.cost = measure(board, kernels[entry], point);
            profile.add(row);
        }
        progress(entry + 1);
    }
    return profile;
}

}  // namespace gpt3
