// SPDX-License-Identifier: MIT
//
// library_calls: hipBLAS calls at clocks of their own. Ends with 2 where there is no GPU whose
// clocks can be set.
#include "mlp.hpp"

#include <kdvfs/rocm.hpp>

#include <exception>
#include <iostream>

namespace {

constexpr int exit_no_gpu = 2;

}  // namespace

int main() try {
    kdvfs::GpuOptions options;
    options.meter_every = 1;
    const auto gpu = kdvfs::rocm::open(0, options).with<library_calls::Policies>();
    static_cast<void>(library_calls::run(gpu, 1024, 1024, 100));
    std::cout << gpu.report();
    gpu.close();
} catch (const kdvfs::Error& error) {
    std::cerr << "library_calls: " << error.what() << '\n';
    return exit_no_gpu;
} catch (const std::exception& error) {
    std::cerr << "library_calls: " << error.what() << '\n';
    return 1;
}
