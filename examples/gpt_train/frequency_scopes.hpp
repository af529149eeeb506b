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

// Every kernel starts at the board's own choice; a plan's policies.hpp takes this place.
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::AutoClock>>;

/// Each kernel at the clock that the registry of `gpu` gives it.
template <class BoundGpu>
struct FrequencyScopes {
    const BoundGpu& gpu;

    template <kdvfs::NamedKernel Kernel, class Work>
    void run(gpu::Stream stream, kdvfs::Variant shape, Work&& work) {
        kdvfs::launch<Kernel>(gpu, stream, shape, std::forward<Work>(work));
    }
};

}  // namespace gpt
