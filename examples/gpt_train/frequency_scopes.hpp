// SPDX-License-Identifier: MIT
#pragma once

#include "kernel_names.hpp"

#include <kdvfs/kdvfs.hpp>

#include <utility>

namespace gpt {

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
