// SPDX-License-Identifier: MIT
// libkdvfs: real GPUs by their PCI address, without HIP and CUDA.
#include <kdvfs/nvidia.hpp>
#include <kdvfs/rocm.hpp>
