// SPDX-License-Identifier: MIT
// libkdvfs_nvidia: NVIDIA GPUs by their CUDA number, with streams.
#include <kdvfs/detail/open/cuda.hpp>
