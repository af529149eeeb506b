// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/sensor_measuring.hpp>
#include <kdvfs/extend.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/sensor_calibration.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

/// A GPU that works as it is told to, and is measured meanwhile. Its clocks are never touched.
class WaveBench {
public:
    virtual ~WaveBench() = default;
    [[nodiscard]] virtual const kdvfs::Gpu& gpu() const = 0;
    [[nodiscard]] virtual kdvfs::StreamRef stream() const = 0;
    /// Enqueues about a millisecond of work.
    virtual void launch() = 0;
    virtual void synchronize() = 0;
    /// Lets so much time pass without work.
    virtual void pass(kdvfs::Duration time) = 0;
};

/// How a GPU is opened whose sensors are measured: all is metered, the counter read at its own
/// rate.
inline kdvfs::GpuOptions wave_options() {
    kdvfs::GpuOptions options;
    options.on_refused = kdvfs::OnRefused::measure_only;
    options.meter_every = 1;
    options.sampler.period = kdvfs::Duration::zero();
    options.accumulator.sensors = kdvfs::measure::SensorCalibration{};  // what is there is old
    return options;
}

/// Has the GPU work and rest by turns. @param progress is told the part that is done
/// @returns all readings and when the work ran
inline kdvfs::measure::MeterRecord record_waves(WaveBench& bench,
                                                const std::vector<kdvfs::measure::Pulse>& pulses,
                                                const std::function<void(double)>& progress) {
    constexpr double call = 1e-3;  // s
    kdvfs::extend::GpuService& service = kdvfs::extend::service(bench.gpu());
    service.keep_record(true);
    bench.pass(std::chrono::seconds{1});
    double done = 0;
    for (const kdvfs::measure::Pulse& pulse : pulses) {
        {
            const kdvfs::Scope scope{bench.gpu(), bench.stream(), "load"};
            const auto calls = static_cast<int>(std::max(1.0, std::round(pulse.on.count() / call)));
            for (int i = 0; i < calls; ++i) bench.launch();
        }
        bench.synchronize();
        bench.pass(std::chrono::duration_cast<kdvfs::Duration>(pulse.off));
        if (progress) progress(++done / static_cast<double>(pulses.size()));
    }
    bench.pass(std::chrono::seconds{1});
    return service.take_record();
}

/// @throws kdvfs::Error where there is no such GPU, or its runtime is missing
std::unique_ptr<WaveBench> open_amd_waves(int hip_device);
/// The same on NVIDIA.
std::unique_ptr<WaveBench> open_nvidia_waves(int cuda_device);
