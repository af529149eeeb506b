// SPDX-License-Identifier: MIT
//
// saxpy: one kernel at a clock of its own on an AMD GPU, and what it used. Ends with 2 where there
// is no GPU whose clocks can be set.
#include "saxpy.hpp"

#include <kdvfs/rocm.hpp>

#include <exception>
#include <iostream>

namespace {

constexpr int exit_no_gpu = 2;

}  // namespace

int main() try {
    kdvfs::GpuOptions options;
    options.meter_every = 1;
    const auto gpu = kdvfs::rocm::open(0, options).with<saxpy::Policies>();
    if (!saxpy::has_kernel()) {
        std::cout << "built without hipcc: a copy of the same bytes stands in for the kernel\n";
    }
    saxpy::run(gpu, 1 << 28, 1000);
    std::cout << gpu.report();
    gpu.close();
} catch (const kdvfs::Error& error) {
    std::cerr << "saxpy: " << error.what() << '\n';
    return exit_no_gpu;
} catch (const std::exception& error) {
    std::cerr << "saxpy: " << error.what() << '\n';
    return 1;
}
