// SPDX-License-Identifier: MIT
// libkdvfs: handles, and simulated GPUs.
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/simulated.hpp>
