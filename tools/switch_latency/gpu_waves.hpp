// SPDX-License-Identifier: MIT
#pragma once

#include "wave_bench.hpp"

#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/gpu/open.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>
#include <utility>

/// A real GPU, opened to be measured; its streams are those of its runtime.
template <class Api>
class GpuWaves final : public WaveBench {
public:
    using Launch = std::function<void(typename Api::Stream stream, unsigned steps)>;

    /// @param device as the runtime numbers it; the calling thread's until this is gone
    /// @param start  enqueues a kernel of so many steps
    /// @param open   opens the GPU with `wave_options`
    template <class Open>
    GpuWaves(int device, Launch start, Open open)
        : current_{device}, gpu_{open()}, stream_{Api::name}, launch_{std::move(start)} {
        calibrate();
    }

    [[nodiscard]] const kdvfs::Gpu& gpu() const override { return gpu_; }
    [[nodiscard]] kdvfs::StreamRef stream() const override { return stream_.get(); }
    void launch() override { launch_(stream_.get(), steps_); }
    void synchronize() override {
        kdvfs::device::check<Api>(Api::synchronize(stream_.get()), "wait for the load", Api::name);
    }
    void pass(kdvfs::Duration time) override { std::this_thread::sleep_for(time); }

private:
    /// Makes a kernel last about a millisecond at the clock that holds.
    void calibrate() {
        constexpr int calls = 20;
        constexpr double wanted = 1e-3;  // s
        for (int round = 0; round < 4; ++round) {
            const auto begin = std::chrono::steady_clock::now();
            for (int i = 0; i < calls; ++i) launch();
            synchronize();
            const kdvfs::Seconds each = (std::chrono::steady_clock::now() - begin) / calls;
            const double factor = std::clamp(wanted / std::max(each.count(), 1e-7), 0.01, 100.0);
            steps_ = static_cast<unsigned>(std::clamp(std::round(steps_ * factor), 1.0, 1e8));
        }
    }

    kdvfs::device::OnDevice<Api> current_;
    kdvfs::Gpu gpu_;
    kdvfs::device::OwnStream<Api> stream_;
    Launch launch_;
    unsigned steps_ = 10'000;
};
