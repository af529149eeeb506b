// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/hip_api.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/gpu.hpp>

#include <tests/thread_loop/open_on_doubles.hpp>
#include <tests/thread_loop/prompt_runtime.hpp>

#include <memory>
#include <utility>

namespace hip_double {

/// A GPU whose streams are those of the double, and whose clocks and counter are those of a board
/// that keeps what it is told.
inline kdvfs::Gpu open(const std::shared_ptr<prompt::Board>& board,
                       const kdvfs::GpuOptions& options = {}) {
    return doubles::open_driven(std::make_shared<kdvfs::device::Hip>(0), board, options);
}

}  // namespace hip_double
