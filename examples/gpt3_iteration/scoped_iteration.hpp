// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/iteration.hpp>
#include <kdvfs/kdvfs.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

/// The iteration's 897 launches, each in its scope, on whatever GPU runs them.
namespace gpt3 {

/// The tag type of an entry of `published_table`. A program with kernels of its own writes
/// `struct Gelu : kdvfs::Kernel<"gelu"> {};` instead.
template <std::size_t Entry>
struct TableKernel {
    static constexpr std::string_view name = published_table[Entry].name;
};

/// Launches one entry in its `FrequencyScope`.
template <std::size_t Entry, class BoundGpu, class LaunchKernel>
void launch_entry(const BoundGpu& gpu, kdvfs::StreamRef stream, LaunchKernel& launch_kernel) {
    kdvfs::FrequencyScope<TableKernel<Entry>> scope{gpu, stream};
    launch_kernel(Entry);
}

/// Launches the whole iteration, in order.
/// @param launch_kernel enqueues the kernel of an entry on `stream`
template <class BoundGpu, class LaunchKernel>
void launch_iteration(const BoundGpu& gpu, kdvfs::StreamRef stream, LaunchKernel launch_kernel) {
    using Launch = void (*)(const BoundGpu&, kdvfs::StreamRef, LaunchKernel&);
    static constexpr auto launches = []<std::size_t... Entry>(std::index_sequence<Entry...>) {
        return std::array<Launch, kernel_count>{&launch_entry<Entry, BoundGpu, LaunchKernel>...};
    }
    (std::make_index_sequence<kernel_count>{});
    for (const std::size_t entry : launch_sequence()) launches[entry](gpu, stream, launch_kernel);
}

}  // namespace gpt3
