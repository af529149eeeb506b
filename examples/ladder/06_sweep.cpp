// SPDX-License-Identifier: MIT
//
// A loop that measures its own kernels while it works:
//
//     06_sweep profile.csv
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>
#include <kdvfs/tune/sweep.hpp>

#include <exception>
#include <iostream>

using namespace kdvfs::literals;

struct Gemm : kdvfs::Kernel<"gemm"> {};
struct Gelu : kdvfs::Kernel<"gelu"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::AutoClock>>;

int main(int argc, char** argv) try {
    if (argc != 2) {
        std::cerr << "06_sweep PROFILE.csv\n";
        return 1;
    }
    kdvfs::simulated::Device device{kdvfs::simulated::mi210()};
    const auto gemm = roofline(device.board(), {.matrix_flops = 4e12, .memory_bytes = 2e9});
    const auto gelu = roofline(device.board(), {.vector_flops = 3e9, .memory_bytes = 4e10});
    auto* const stream = device.create_stream();
    const kdvfs::Gpu gpu = kdvfs::simulated::open(device);

    kdvfs::tune::Sweeping<Policies> sweep{
        gpu,
        {.file = argv[1], .points = {{.core = 1100_MHz}, {.core = 1400_MHz}, {.core = 1700_MHz}}}};
    while (!sweep.done()) {
        sweep.next_iteration();  // the one line that a sweep adds; `sweep` stands in for the GPU
        kdvfs::launch<Gemm>(sweep, stream, [&] { device.launch(stream, gemm); });
        kdvfs::launch<Gelu>(sweep, stream, [&] { device.launch(stream, gelu); });
        device.synchronize(stream);
    }
    std::cout << "simulated " << to_string(sweep.progress()) << '\n';
    gpu.close();
    return 0;
} catch (const std::exception& error) {
    std::cerr << "06_sweep: " << error.what() << '\n';
    return 1;
}
