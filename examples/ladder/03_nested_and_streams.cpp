// SPDX-License-Identifier: MIT
//
// Scopes in scopes, and two streams that want different clocks at the same time.
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>

#include <exception>
#include <iostream>

using namespace kdvfs::literals;

struct Backward : kdvfs::Kernel<"backward"> {};
struct Gelu : kdvfs::Kernel<"gelu"> {};
struct Norm : kdvfs::Kernel<"norm"> {};
struct Gemm : kdvfs::Kernel<"gemm"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"backward", kdvfs::CapClock<1100_MHz>>,
                                       kdvfs::Bind<"gelu", kdvfs::CapClock<1100_MHz>>,
                                       kdvfs::Bind<"norm", kdvfs::CapClock<900_MHz>>,
                                       kdvfs::Bind<"gemm", kdvfs::CapClock<1500_MHz>>>;

// So short a program shows no gate: every scope switches, whatever that costs.
const kdvfs::GpuOptions ungated{.switch_latency = kdvfs::Duration{0}};

int main() try {
    kdvfs::simulated::Device device{kdvfs::simulated::mi210()};
    const auto work = roofline(device.board(), {.vector_flops = 3e10, .memory_bytes = 2e11});
    auto* const stream = device.create_stream();
    auto* const other = device.create_stream();
    const auto gpu = kdvfs::simulated::open(device, ungated).with<Policies>();

    {  // Neighbours with one clock: the outer scope switches, the inner ones need not.
        kdvfs::FrequencyScope<Backward> pass{gpu, stream};
        kdvfs::launch<Gelu>(gpu, stream, [&] { device.launch(stream, work); });
        kdvfs::launch<Norm>(gpu, stream, [&] { device.launch(stream, work); });  // its own clock
        kdvfs::launch<Gelu>(gpu, stream, [&] { device.launch(stream, work); });  // 1100 MHz again
    }
    device.synchronize(stream);

    {  // One clock for the whole board: the highest request of all streams in a scope wins.
        kdvfs::FrequencyScope<Norm> low{gpu, stream};
        kdvfs::FrequencyScope<Gemm> high{gpu, other};
        device.launch(stream, work);
        device.launch(other, work);
        device.synchronize();
        std::cout << "both streams in a scope: " << device.read_clock_state().cap.core.count
                  << " MHz\n";
    }
    device.synchronize();

    const auto scopes = gpu.report().scopes;
    std::cout << scopes.scopes << " scopes: " << scopes.switches << " switched the clock, "
              << scopes.stream_redundant << " had their enclosing scope's\n";
    gpu.close();
    std::cout << "closed: " << to_string(device.read_clock_state().cap) << '\n';
    return 0;
} catch (const std::exception& error) {
    std::cerr << "03_nested_and_streams: " << error.what() << '\n';
    return 1;
}
