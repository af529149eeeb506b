// SPDX-License-Identifier: MIT
//
// Every kind of policy in one registry: the board's own choice, a cap, a cap per architecture, a
// cap per shape of the kernel, and none at all.
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>

#include <cstdint>
#include <exception>
#include <iostream>

using namespace kdvfs::literals;

struct Attention : kdvfs::Kernel<"attention"> {};
struct Gelu : kdvfs::Kernel<"gelu"> {};
struct LayerNorm : kdvfs::Kernel<"layer_norm"> {};
struct Gemm : kdvfs::Kernel<"gemm"> {};
struct Copy : kdvfs::Kernel<"copy"> {};

constexpr std::uint32_t tall = 0;
constexpr std::uint32_t wide = 1;

using Policies = kdvfs::PolicyRegistry<
    kdvfs::Bind<"attention", kdvfs::AutoClock>, kdvfs::Bind<"gelu", kdvfs::CapClock<1100_MHz>>,
    // Another board, another clock.
    kdvfs::Bind<"layer_norm", kdvfs::ByArch<kdvfs::OnArch<"gfx90a", kdvfs::CapClock<900_MHz>>,
                                            kdvfs::OnArch<"gfx942", kdvfs::CapClock<1300_MHz>>,
                                            kdvfs::Otherwise<kdvfs::AutoClock>>>,
    // Which shape it is, the scope is told at run time.
    kdvfs::Bind<"gemm", kdvfs::ByVariant<kdvfs::OnVariant<wide, kdvfs::CapClock<1500_MHz>>,
                                         kdvfs::Otherwise<kdvfs::AutoClock>>>,
    // Every other kernel runs at whatever clock there is.
    kdvfs::Default<kdvfs::KeepClock>>;

// So short a program shows no gate: every scope switches, whatever that costs.
const kdvfs::GpuOptions ungated{.switch_latency = kdvfs::Duration{0}};

int main() try {
    kdvfs::simulated::Device device{kdvfs::simulated::mi210()};
    const auto work = roofline(device.board(), {.vector_flops = 3e10, .memory_bytes = 2e11});
    auto* const stream = device.create_stream();
    const auto gpu = kdvfs::simulated::open(device, ungated).with<Policies>();

    const auto launch_work = [&] { device.launch(stream, work); };
    kdvfs::launch<Attention>(gpu, stream, launch_work);
    kdvfs::launch<Gelu>(gpu, stream, launch_work);
    kdvfs::launch<LayerNorm>(gpu, stream, launch_work);
    kdvfs::launch<Gemm>(gpu, stream, kdvfs::variant(tall), launch_work);
    kdvfs::launch<Gemm>(gpu, stream, kdvfs::variant(wide), launch_work);
    kdvfs::launch<Copy>(gpu, stream, launch_work);
    device.synchronize(stream);

    std::cout << gpu.report();
    gpu.close();
    return 0;
} catch (const std::exception& error) {
    std::cerr << "02_policies: " << error.what() << '\n';
    return 1;
}
