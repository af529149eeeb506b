// SPDX-License-Identifier: MIT
#pragma once

#include "wave_bench.hpp"

#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/simulated.hpp>

#include <utility>

/// A simulated board with sensors.
class SimulatedWaves final : public WaveBench {
public:
    SimulatedWaves(kdvfs::simulated::Board board, kdvfs::simulated::DeviceOptions options)
        : board_{std::move(board)}, device_{board_, std::move(options)} {}

    [[nodiscard]] const kdvfs::Gpu& gpu() const override { return gpu_; }
    [[nodiscard]] kdvfs::StreamRef stream() const override { return stream_; }
    void launch() override { device_.launch(stream_, kernel_); }
    void synchronize() override { device_.synchronize(stream_); }
    void pass(kdvfs::Duration time) override { device_.advance(time); }

private:
    kdvfs::simulated::Board board_;
    kdvfs::simulated::Device device_;
    kdvfs::Gpu gpu_ = kdvfs::simulated::open(device_, wave_options());
    kdvfs::simulated::Stream* stream_ = device_.create_stream();
    // A millisecond at the highest clock, on any board.
    kdvfs::simulated::KernelModel kernel_ = kdvfs::simulated::roofline(
        board_, {.vector_flops = 1e-3 * board_.throughput.vector_flops_per_cycle * 1e6 *
                                 board_.reference_core.count});
};
