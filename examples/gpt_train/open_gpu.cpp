// SPDX-License-Identifier: MIT
#include "open_gpu.hpp"

#if defined(__HIP_PLATFORM_AMD__)
#include <kdvfs/rocm.hpp>
#else
#include <kdvfs/nvidia.hpp>
#endif
#include <kdvfs/report.hpp>

#include <iostream>

namespace gpt {

#if defined(__HIP_PLATFORM_AMD__)
/// Drives the clocks where it may, and measures where it may not.
kdvfs::Gpu open_gpu() {
    return kdvfs::rocm::open(0, {.on_refused = kdvfs::OnRefused::measure_only});
}
#else
/// Measures only: NVIDIA GPUs are often shared. `kdvfs::nvidia::open` drives their clocks.
kdvfs::Gpu open_gpu() { return kdvfs::nvidia::measure(0); }
#endif

void print_report(const kdvfs::Gpu& gpu) { std::cout << gpu.report() << std::flush; }

}  // namespace gpt
