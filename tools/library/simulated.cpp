// SPDX-License-Identifier: MIT
// libkdvfs: handles, and simulated GPUs.
#include <kdvfs/gpu.hpp>
#include <kdvfs/simulated.hpp>
