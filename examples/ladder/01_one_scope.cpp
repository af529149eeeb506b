// SPDX-License-Identifier: MIT
//
// One kernel at a clock of its own.
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>

#include <exception>
#include <iostream>

using namespace kdvfs::literals;

// A kernel has a name; the registry says at which clock a kernel of that name runs.
struct Gelu : kdvfs::Kernel<"gelu"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"gelu", kdvfs::CapClock<1100_MHz>>>;

// So short a program shows no gate: every scope switches, whatever that costs.
const kdvfs::GpuOptions ungated{.switch_latency = kdvfs::Duration{0}};

int main() try {
    kdvfs::simulated::Device device{kdvfs::simulated::mi210()};
    const auto gelu = roofline(device.board(), {.vector_flops = 3e10, .memory_bytes = 4e11});
    auto* const stream = device.create_stream();

    const auto gpu = kdvfs::simulated::open(device, ungated).with<Policies>();
    {
        kdvfs::FrequencyScope<Gelu> scope{gpu, stream};  // 1100 MHz when the stream gets here
        device.launch(stream, gelu);
    }  // and back to what it was when the stream gets here
    device.synchronize(stream);

    std::cout << gpu.report();
    gpu.close();  // throws what went wrong behind our back
    return 0;
} catch (const std::exception& error) {
    std::cerr << "01_one_scope: " << error.what() << '\n';
    return 1;
}
