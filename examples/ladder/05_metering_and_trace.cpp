// SPDX-License-Identifier: MIT
//
// Metering one iteration in four, and a trace of what was metered for https://ui.perfetto.dev:
//
//     05_metering_and_trace trace.json
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>

#include <exception>
#include <fstream>
#include <iostream>

using namespace kdvfs::literals;

struct Gemm : kdvfs::Kernel<"gemm"> {};
struct Gelu : kdvfs::Kernel<"gelu"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"gemm", kdvfs::AutoClock>,
                                       kdvfs::Bind<"gelu", kdvfs::CapClock<1100_MHz>>>;

int main(int argc, char** argv) try {
    kdvfs::simulated::Device device{kdvfs::simulated::mi210()};
    const auto gemm = roofline(device.board(), {.matrix_flops = 4e12, .memory_bytes = 2e9});
    const auto gelu = roofline(device.board(), {.vector_flops = 3e9, .memory_bytes = 4e10});
    auto* const stream = device.create_stream();

    const auto gpu =
        kdvfs::simulated::open(device, {.switch_latency = kdvfs::Duration{0}, .meter_every = 4})
            .with<Policies>();
    std::ofstream trace;  // outlives the trace
    if (argc > 1) {
        trace.open(argv[1]);
        gpu.trace_to(trace);
    }
    for (int step = 0; step < 20; ++step) {
        gpu.next_iteration();  // how kdvfs knows which scopes belong together
        kdvfs::launch<Gemm>(gpu, stream, [&] { device.launch(stream, gemm); });
        kdvfs::launch<Gelu>(gpu, stream, [&] { device.launch(stream, gelu); });
        device.synchronize(stream);
    }
    if (argc > 1) gpu.end_trace();
    gpu.close();

    for (const auto& row : gpu.report().rows) {
        std::cout << to_string(row.kernel) << ": " << row.metered_calls << " of " << row.calls
                  << " calls metered, " << to_string(row.energy) << " in "
                  << row.counted_time.count() << " s, simulated\n";
    }
    return 0;
} catch (const std::exception& error) {
    std::cerr << "05_metering_and_trace: " << error.what() << '\n';
    return 1;
}
