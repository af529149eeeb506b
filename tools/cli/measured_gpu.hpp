// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/boards.hpp>
#include <examples/gpt3_xl/iteration.hpp>
#include <kdvfs/detail/device/replay.hpp>
#include <kdvfs/detail/tune/kernel_bench.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/profile.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cli {

/// A GPU that can be asked what a launch costs at a clock point: `sim:NAME` (the kernels of one
/// GPT-3-XL iteration on a simulated board) or `replay:FILE` (a sweep file).
struct MeasuredGpu {
    std::string name;
    std::vector<kdvfs::tune::SweepKernel> kernels;
    std::vector<kdvfs::ClockPoint> points;
    kdvfs::ClockPoint baseline;
    std::function<kdvfs::tune::Cost(std::size_t kernel, kdvfs::ClockPoint clock)> measure;
};

inline MeasuredGpu simulated_gpu(const std::string& preset, double noise, std::uint64_t seed) {
    auto found = gpt3::find_case(preset);
    if (!found) {
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"open a simulated GPU", preset, "there is no such preset",
                            "take " + gpt3::list_of_cases()}};
    }
    MeasuredGpu gpu{"simulated " + found->board.name, {}, found->points, {}, {}};
    for (std::size_t entry = 0; entry < gpt3::kernel_count; ++entry) {
        const auto& published = gpt3::published_table[entry];
        gpu.kernels.push_back({{std::string{published.name}, {}},
                               std::string{gpt3::pass_of(entry)},
                               static_cast<std::uint32_t>(published.repeats)});
    }
    gpu.measure = [board = std::make_shared<gpt3::Case>(*std::move(found)), noise,
                   random = std::mt19937_64{seed}](std::size_t kernel,
                                                   kdvfs::ClockPoint clock) mutable {
        const auto point = kdvfs::simulated::operate(board->board, board->kernels[kernel], clock);
        std::normal_distribution<double> normal{1, noise};
        const kdvfs::tune::Cost cost{point.time, point.power * point.time};
        if (noise == 0) return cost;
        return kdvfs::tune::Cost{cost.time * normal(random), cost.energy * normal(random)};
    };
    return gpu;
}

inline MeasuredGpu replayed_gpu(const std::string& file, std::uint64_t seed) {
    const kdvfs::tune::Profile profile = kdvfs::tune::read_profile(std::filesystem::path{file});
    auto device = std::make_shared<kdvfs::replay::Device>(profile.gpu(), seed);
    MeasuredGpu gpu{profile.gpu(), {}, {}, *profile.baseline(), {}};
    std::set<kdvfs::ClockPoint> points;
    for (const auto& kernel : profile.kernels()) {
        gpu.kernels.push_back({kernel.key, kernel.group, kernel.count});
        for (const auto& point : kernel.points) {
            points.insert(point.clock);
            for (const auto& sample : point.samples)
                device->add(kernel.key, point.clock, {sample.cost.time, sample.cost.energy});
        }
    }
    gpu.points.assign(points.begin(), points.end());
    gpu.measure = [device, kernels = gpu.kernels](std::size_t kernel, kdvfs::ClockPoint clock) {
        device->apply(clock);
        const auto launch = device->run(kernels[kernel].key);
        return kdvfs::tune::Cost{launch.time, launch.energy};
    };
    return gpu;
}

/// @throws Error (invalid_input) for anything but `sim:NAME` and `replay:FILE`
inline MeasuredGpu open_measured(const std::string& device, double noise, std::uint64_t seed) {
    if (device.starts_with("sim:")) return simulated_gpu(device.substr(4), noise, seed);
    if (device.starts_with("replay:")) return replayed_gpu(device.substr(7), seed);
    throw kdvfs::Error{
        kdvfs::Errc::invalid_input,
        {"open a device to measure on", device, "it is neither sim:NAME nor replay:FILE",
         "kernels on a real GPU live in the program that launches them: sweep there"}};
}

}  // namespace cli
