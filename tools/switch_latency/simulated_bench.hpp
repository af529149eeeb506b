// SPDX-License-Identifier: MIT
#pragma once

#include "switch_bench.hpp"

#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>

#include <utility>

/// A simulated board.
class SimulatedBench final : public SwitchBench {
public:
    SimulatedBench(kdvfs::simulated::Board board, kdvfs::simulated::SwitchModel switching,
                   IterationSettings settings)
        : board_{std::move(board)},
          device_{board_, {.clock_switch = std::move(switching)}},
          iterations_{device_,
                      device_,
                      {.stream = stream_,
                       .launch = [this] { device_.launch(stream_, kernel_); },
                       .pass = [this](kdvfs::Duration time) { device_.advance(time); }},
                      settings} {}

    [[nodiscard]] const kdvfs::DeviceInfo& info() const override { return device_.info(); }
    [[nodiscard]] const kdvfs::SupportedClocks& supported_clocks() const override {
        return device_.supported_clocks();
    }
    [[nodiscard]] kdvfs::measure::SwitchExperiment experiment() override {
        return {.steady = [this](auto clock) { return iterations_.steady(clock); },
                .change = [this](auto from, auto to) { return iterations_.change(from, to); },
                .progress = {}};
    }
    void restore() override { iterations_.restore(); }

    /// 2 to 32 ms by target.
    static kdvfs::simulated::SwitchDelays invented_delays(kdvfs::ClockPoint, kdvfs::ClockPoint to) {
        using namespace std::chrono_literals;
        return {.switching_latency = 2ms * (1 << (to.core.count / 100 % 5)), .transition = 500us};
    }

private:
    kdvfs::simulated::Board board_;
    kdvfs::simulated::Device device_;
    kdvfs::simulated::Stream* stream_ = device_.create_stream();
    // About 150 us at the highest clock, on any board.
    kdvfs::simulated::KernelModel kernel_ = kdvfs::simulated::roofline(
        board_, {.vector_flops = 150e-6 * board_.throughput.vector_flops_per_cycle * 1e6 *
                                 board_.reference_core.count});
    MarkedIterations<kdvfs::simulated::Device, kdvfs::simulated::Device> iterations_;
};
