// SPDX-License-Identifier: MIT
#pragma once

#include "kernel_names.hpp"

#include <kdvfs/gpu.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/scope.hpp>
#if defined(__CUDACC__)
#include <kdvfs/cuda_markers.hpp>
#elif defined(__HIPCC__)
#include <kdvfs/hip_markers.hpp>
#endif

#include <utility>

namespace gpt {

// Every kernel starts at the board's own choice; a plan's policies.hpp takes this place. Phases are
// there to be metered: they have no opinion of the clock.
using Policies = kdvfs::PolicyRegistry<
    kdvfs::Bind<"forward", kdvfs::KeepClock>, kdvfs::Bind<"backward", kdvfs::KeepClock>,
    kdvfs::Bind<"optimizer", kdvfs::KeepClock>, kdvfs::Default<kdvfs::AutoClock>>;

/// Each kernel at the clock that the registry of `gpu` gives it.
template <class BoundGpu>
struct FrequencyScopes {
    const BoundGpu& gpu;

    template <kdvfs::NamedKernel Kernel, class Work>
    void run(gpu::Stream stream, kdvfs::Variant shape, Work&& work) {
        kdvfs::launch<Kernel>(gpu, stream, shape, std::forward<Work>(work));
    }
    template <kdvfs::NamedKernel Phase, class Work>
    void phase(gpu::Stream stream, Work&& work) {
        kdvfs::FrequencyScope<Phase> scope{gpu, stream};
        std::forward<Work>(work)();
    }
};

}  // namespace gpt
