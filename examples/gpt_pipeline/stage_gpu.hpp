// SPDX-License-Identifier: MIT
#pragma once

// A host compiler is enough here. nvcc says by itself that it is for CUDA, to g++ as well.
#if defined(__HIP_PLATFORM_AMD__) || defined(__NVCC__)
#define GPT_PIPELINE_SIMULATED 0
#include "../gpt_train/open_gpu.hpp"
#else
#define GPT_PIPELINE_SIMULATED 1
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#endif
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstdint>

namespace gpt {

// Only operations have clocks here: kernels keep what their operation has.
using PipelinePolicies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::KeepClock>>;

#if !GPT_PIPELINE_SIMULATED

/// The GPU that this rank sees first. Time is the GPU's own.
class StageGpu {
public:
    static constexpr bool is_simulated = false;

    [[nodiscard]] const kdvfs::BoundGpu<PipelinePolicies>& gpu() const { return gpu_; }
    /// The default stream, where the stage's work is.
    [[nodiscard]] kdvfs::StreamRef stream() const { return nullptr; }
    void wait_until(std::int64_t) {}
    void compute(double) {}
    [[nodiscard]] std::int64_t end_of_work() { return 0; }

private:
    kdvfs::BoundGpu<PipelinePolicies> gpu_ = open_gpu({}).with<PipelinePolicies>();
};

#else

/// Kernels run on the host; what they would take and draw is a simulated GPU's, in virtual time,
/// as if each layer were one of a model of 30 thousand million parameters.
class StageGpu {
public:
    static constexpr bool is_simulated = true;

    [[nodiscard]] const kdvfs::BoundGpu<PipelinePolicies>& gpu() const { return gpu_; }
    [[nodiscard]] kdvfs::StreamRef stream() const { return stream_; }

    /// What is enqueued from now on waits until then.
    void wait_until(std::int64_t nanoseconds) {
        const std::uint32_t number = ++arrivals_;
        device_.schedule(kdvfs::TimePoint{kdvfs::Duration{nanoseconds}},
                         [this, number] { arrived_ = std::max(arrived_, number); });
        device_.put_wait(stream_, &arrived_, number);
    }
    /// @param layers of work, a backward pass being two of each
    void compute(double layers) {
        device_.launch(stream_, kdvfs::simulated::roofline(
                                    device_.board(),
                                    {.matrix_flops = 2e12 * layers, .memory_bytes = 4e9 * layers},
                                    {.matrix = 0.62}));
    }
    [[nodiscard]] std::int64_t end_of_work() {
        device_.synchronize();
        return device_.now().time_since_epoch().count();
    }

private:
    kdvfs::simulated::Device device_{kdvfs::simulated::mi250x()};
    kdvfs::simulated::Stream* stream_ = device_.create_stream();
    kdvfs::BoundGpu<PipelinePolicies> gpu_ =
        kdvfs::simulated::open(device_).with<PipelinePolicies>();
    std::uint32_t arrivals_ = 0;
    std::uint32_t arrived_ = 0;
};

#endif

}  // namespace gpt
