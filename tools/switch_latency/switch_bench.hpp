// SPDX-License-Identifier: MIT
#pragma once

#include "marked_iterations.hpp"

#include <kdvfs/detail/measure/switch_latency.hpp>
#include <kdvfs/device/contracts.hpp>

#include <memory>

/// A GPU whose switching latencies are measured. Its clocks are back where they were found when it
/// is gone.
class SwitchBench {
public:
    virtual ~SwitchBench() = default;
    [[nodiscard]] virtual const kdvfs::DeviceInfo& info() const = 0;
    [[nodiscard]] virtual const kdvfs::SupportedClocks& supported_clocks() const = 0;
    /// Must not outlive the bench.
    [[nodiscard]] virtual kdvfs::measure::SwitchExperiment experiment() = 0;
    /// Puts the clocks back now. @throws kdvfs::Error
    virtual void restore() = 0;
};

/// @throws kdvfs::Error where there is no such GPU, its clocks cannot be set, or the program was
///         built without the means
std::unique_ptr<SwitchBench> open_amd_gpu(int hip_device, IterationSettings settings);
/// The same by NVIDIA's driver, without CUDA.
std::unique_ptr<SwitchBench> open_nvidia_gpu(int cuda_device, IterationSettings settings);
