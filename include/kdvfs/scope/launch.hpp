// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/kernel.hpp>
#include <kdvfs/scope/frequency_scope.hpp>

#include <functional>
#include <utility>

namespace kdvfs {

/// Calls `work`, which enqueues on `stream`, inside a `FrequencyScope<K>`:
/// `kdvfs::launch<QkvGemm>(gpu, stream, [&] { hipblasGemmEx(handle, ...); });`
/// @returns what `work` returns; whatever it throws leaves the scope first
template <NamedKernel K, class BoundGpu, std::invocable Work>
decltype(auto) launch(const BoundGpu& gpu, StreamRef stream, Variant variant, Work&& work) {
    FrequencyScope<K> scope{gpu, stream, variant};
    return std::invoke(std::forward<Work>(work));
}

/// The same for a kernel with one shape.
template <NamedKernel K, class BoundGpu, std::invocable Work>
decltype(auto) launch(const BoundGpu& gpu, StreamRef stream, Work&& work) {
    return launch<K>(gpu, stream, Variant{}, std::forward<Work>(work));
}

}  // namespace kdvfs
