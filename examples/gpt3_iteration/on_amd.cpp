// SPDX-License-Identifier: MIT
// The same iteration on an AMD GPU: 897 launches of stand-ins for the 46 kernels, which burn the
// FLOPs and move the bytes of GPT-3-XL's shapes, each in its scope. KDVFS_PLAN names a plan to
// obey; without one every kernel runs at the board's own clocks. Ends with 2 where there is no GPU
// whose clocks can be set.

#include <examples/gpt3_iteration/scoped_iteration.hpp>
#include <examples/gpt3_iteration/stand_in.hpp>
#include <examples/gpt3_xl/kernel_work.hpp>
#include <kdvfs/rocm.hpp>
#include <kdvfs/tune/plan_file.hpp>

#include <hip/hip_runtime_api.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace gpt3 {
namespace {

constexpr int exit_no_gpu = 2;

using FollowPlan = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::FromPlan<kdvfs::AutoClock>>>;
using Kernels = std::array<StandIn, kernel_count>;

void check(hipError_t status) {
    if (status != hipSuccess) throw std::runtime_error{hipGetErrorString(status)};
}

double seconds_of(hipStream_t stream, const std::function<void()>& enqueue) {
    const auto began = std::chrono::steady_clock::now();
    enqueue();
    check(hipStreamSynchronize(stream));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void run(const kdvfs::BoundGpu<FollowPlan>& gpu, int iterations) {
    const StandIns stand_ins;
    Kernels kernels;
    for (std::size_t entry = 0; entry < kernel_count; ++entry) {
        kernels[entry] = deal_out(kernel_work[entry], stand_ins.blocks_at_once());
    }
    hipStream_t stream = nullptr;
    check(hipStreamCreate(&stream));
    const auto launch = [&](std::size_t entry) { stand_ins.launch(stream, kernels[entry]); };
    const double unscoped = seconds_of(stream, [&] {
        for (const std::size_t entry : launch_sequence()) launch(entry);
    });
    std::printf(
        "%zu launches of %zu stand-ins%s\nwithout scopes: %.4f s\n", launch_count, kernel_count,
        StandIns::burns_flops() ? "" : " (built without hipcc: copies, no FLOPs)", unscoped);
    for (int iteration = 0; iteration < iterations; ++iteration) {
        const double scoped = seconds_of(stream, [&] { launch_iteration(gpu, stream, launch); });
        std::printf("iteration %d: %.4f s\n", iteration, scoped);
        gpu.next_iteration();
    }
    std::cout << gpu.report() << std::flush;
    gpu.close();
    static_cast<void>(hipStreamDestroy(stream));
}

std::optional<int> iterations_of(int argc, char** argv) {
    if (argc == 1) return 10;
    const std::string_view text = argv[1];
    int count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (argc == 2 && error == std::errc{} && end == text.data() + text.size() && count > 0) {
        return count;
    }
    return std::nullopt;
}

/// @returns nothing, having said why, where there is no GPU whose clocks can be set
std::optional<kdvfs::Gpu> open_gpu() {
    kdvfs::GpuOptions options;
    options.meter_every = 1;
    options.switch_latency = kdvfs::Duration{0};  // plans know it: the gate has no say
    try {
        return kdvfs::rocm::open(0, options);
    } catch (const kdvfs::Error& error) {
        std::fprintf(stderr, "gpt3_iteration_amd: %s\n", error.what());
        return std::nullopt;
    }
}

}  // namespace
}  // namespace gpt3

int main(int argc, char** argv) try {
    const auto iterations = gpt3::iterations_of(argc, argv);
    if (!iterations) {
        std::fputs("usage: gpt3_iteration_amd [ITERATIONS]\n", stderr);
        return 1;
    }
    const auto gpu = gpt3::open_gpu();
    if (!gpu) return gpt3::exit_no_gpu;
    const auto plan = kdvfs::tune::plan_from_environment(gpu->info(), gpu->supported_clocks(),
                                                         [](std::string_view) { return true; });
    gpt3::run(gpu->with<gpt3::FollowPlan>(plan), *iterations);
} catch (const std::exception& error) {
    std::fprintf(stderr, "gpt3_iteration_amd: %s\n", error.what());
    return 1;
}
