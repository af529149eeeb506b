// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/core.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/detail/gpu/thread_loop.hpp>
#include <kdvfs/device/hip.hpp>
#include <kdvfs/gpu.hpp>

#include <tests/thread_loop/prompt_runtime.hpp>

#include <memory>
#include <utility>

namespace hip_double {

/// A GPU whose streams are those of the double, and whose clocks and counter are those of a board
/// that keeps what it is told.
inline kdvfs::Gpu open(const std::shared_ptr<prompt::Board>& board,
                       const kdvfs::GpuOptions& options = {}) {
    kdvfs::detail::GpuCore::Parts parts{.info = board->info(), .clocks = board->supported_clocks()};
    parts.initial = kdvfs::detail::prove_clock_control(*board);
    parts.runtime = std::make_unique<kdvfs::detail::RuntimeOf<kdvfs::device::Hip>>(0);
    auto core = std::make_shared<kdvfs::detail::GpuCore>(std::move(parts), options);
    core->drive_with(std::make_unique<kdvfs::detail::ThreadLoop>(
        *core, kdvfs::detail::device_calls(board, board)));
    return kdvfs::Gpu{std::move(core)};
}

}  // namespace hip_double
