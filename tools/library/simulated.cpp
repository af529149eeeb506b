// SPDX-License-Identifier: MIT
// libkdvfs: handles, and simulated GPUs.
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/simulated.hpp>

namespace {

/// Clang emits a constructor that is marked as used in its form for derived classes alone; programs
/// that make a device need the other.
[[gnu::used]] kdvfs::simulated::Device* make_device(kdvfs::simulated::Board board,
                                                    kdvfs::simulated::DeviceOptions options) {
    return new kdvfs::simulated::Device{std::move(board), std::move(options)};
}

}  // namespace
