// SPDX-License-Identifier: MIT
// The marker kernel as PTX text, for processes whose files no device compiler has seen (Python).
// `sh tools/library/marker_ptx.sh` writes include/kdvfs/detail/device/nvidia/marker_ptx.hpp from
// it.
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>

extern "C" __global__ void kdvfs_marker(kdvfs::device::MarkerArguments arguments) {
    kdvfs::device::mark(arguments);
}
