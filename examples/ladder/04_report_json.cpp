// SPDX-License-Identifier: MIT
//
// The report for other programs:
//
//     04_report_json > report.json
//     04_report_json --csv > report.csv
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/simulated.hpp>

#include <exception>
#include <iostream>
#include <string_view>

using namespace kdvfs::literals;

struct Gemm : kdvfs::Kernel<"gemm"> {};
struct Gelu : kdvfs::Kernel<"gelu"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"gemm", kdvfs::AutoClock>,
                                       kdvfs::Bind<"gelu", kdvfs::CapClock<1100_MHz>>>;

int main(int argc, char** argv) try {
    kdvfs::simulated::Device device{kdvfs::simulated::mi210()};
    const auto gemm = roofline(device.board(), {.matrix_flops = 4e13, .memory_bytes = 2e9});
    const auto gelu = roofline(device.board(), {.vector_flops = 3e10, .memory_bytes = 4e11});
    auto* const stream = device.create_stream();
    const auto gpu =
        kdvfs::simulated::open(device, {.switch_latency = kdvfs::Duration{0}, .meter_every = 1})
            .with<Policies>();

    for (int step = 0; step < 10; ++step) {
        gpu.next_iteration();
        kdvfs::launch<Gemm>(gpu, stream, [&] { device.launch(stream, gemm); });
        kdvfs::launch<Gelu>(gpu, stream, [&] { device.launch(stream, gelu); });
    }
    device.synchronize(stream);
    gpu.close();

    const bool csv = argc > 1 && std::string_view{argv[1]} == "--csv";
    csv ? kdvfs::measure::write_csv(std::cout, gpu.report())
        : kdvfs::measure::write_json(std::cout, gpu.report());
    return 0;
} catch (const std::exception& error) {
    std::cerr << "04_report_json: " << error.what() << '\n';
    return 1;
}
