// SPDX-License-Identifier: MIT
// libkdvfs_rocm: AMD GPUs by their HIP number, with streams.
#include <kdvfs/detail/open/hip.hpp>
