// SPDX-License-Identifier: MIT
#pragma once

#include "switch_bench.hpp"

#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <kdvfs/extend.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>
#include <utility>

/// A real GPU: its clocks under lock, restore record and watchdog, its streams through its runtime.
template <class Api, class Clocks>
class GpuBench final : public SwitchBench {
public:
    /// Enqueues one iteration of so many steps.
    using Launch = std::function<void(typename Api::Stream stream, unsigned steps)>;

    /// @param device as the runtime numbers it; the calling thread's until this is gone
    /// @param board what `Clocks` is made of
    template <class... Board>
    GpuBench(int device, Launch launch, IterationSettings settings, Board&&... board)
        : card_{std::forward<Board>(board)...},
          current_{device},
          runtime_{device},
          stream_{Api::name},
          launch_{std::move(launch)},
          iterations_{runtime_,
                      proven(card_.clocks),
                      {.stream = stream_.get(),
                       .launch = [this] { launch_(stream_.get(), steps_); },
                       .pass = [](kdvfs::Duration time) { std::this_thread::sleep_for(time); }},
                      settings} {
        calibrate(std::chrono::microseconds{150});
    }

    /// Makes an iteration last about this long at the clock that holds now.
    void calibrate(kdvfs::Duration target) {
        for (int round = 0; round < 3; ++round) {
            const kdvfs::Seconds time = iterations_.time_iteration();
            const double factor = kdvfs::Seconds{target} / time;
            steps_ = static_cast<unsigned>(std::clamp(std::round(steps_ * factor), 1.0, 1e8));
        }
    }

    [[nodiscard]] const kdvfs::DeviceInfo& info() const override { return card_.clocks.info(); }
    [[nodiscard]] const kdvfs::SupportedClocks& supported_clocks() const override {
        return card_.clocks.supported_clocks();
    }
    [[nodiscard]] kdvfs::measure::SwitchExperiment experiment() override {
        return {.steady = [this](auto clock) { return iterations_.steady(clock); },
                .change = [this](auto from, auto to) { return iterations_.change(from, to); },
                .progress = {}};
    }
    void restore() override { iterations_.restore(); }

private:
    using Owned = kdvfs::restore::OwnedClocks<Clocks>;

    static Owned& proven(Owned& clocks) {
        static_cast<void>(kdvfs::extend::prove_clock_control(clocks));
        return clocks;
    }

    kdvfs::extend::OwnedDevice<Clocks, Owned> card_;
    kdvfs::device::OnDevice<Api> current_;
    kdvfs::device::GpuStreams<Api> runtime_;
    kdvfs::device::OwnStream<Api> stream_;
    Launch launch_;
    unsigned steps_ = 10'000;
    MarkedIterations<kdvfs::device::GpuStreams<Api>, Owned> iterations_;
};
