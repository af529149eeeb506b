// SPDX-License-Identifier: MIT
#include <kdvfs/detail/tune/kernel_bench.hpp>
#include <kdvfs/detail/tune/sweep_engine.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/simulated.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

namespace kdvfs::tune {
namespace {

using namespace std::chrono_literals;

/// Kernels as callables on a `Gpu`: a simulated MI210 with its own counter, clocks after 10 ms.
class Bench : public ::testing::Test {
protected:
    static BlockOptions quick() {
        return {.settle = 50ms, .switch_latency = 10ms, .measured = 50ms, .counter_rows = 20};
    }
    [[nodiscard]] BenchStream on_stream() {
        return {stream, [this] { device.synchronize(stream); }};
    }
    void add_kernels(KernelBench& bench) {
        bench.add({{"gemm", {}}, "forward", 24}, [this] { device.launch(stream, gemm); });
        bench.add({{"copy", variant(1)}}, [this] { device.launch(stream, copy); });
    }
    [[nodiscard]] Cost truth(std::size_t kernel, ClockPoint clock) const {
        const auto point = simulated::operate(device.board(), kernel == 0 ? gemm : copy, clock);
        return {point.time, point.power * point.time};
    }

    simulated::Device device{simulated::mi210()};
    simulated::Stream* stream = device.create_stream();
    simulated::KernelModel gemm = roofline(device.board(), {.matrix_flops = 2e11});
    simulated::KernelModel copy = roofline(device.board(), {.memory_bytes = 4e7});
    Gpu gpu = simulated::open(device);
};

TEST_F(Bench, MeasuresALaunchAtTheClockThatWasAskedFor) {
    KernelBench bench{gpu, on_stream(), quick()};
    add_kernels(bench);
    for (std::size_t kernel = 0; kernel < 2; ++kernel) {
        for (const ClockPoint clock : {ClockPoint{}, ClockPoint{{500}, auto_clock},
                                       ClockPoint{{1200}, auto_clock}, ClockPoint{}}) {
            const Cost found = bench(kernel, clock);
            const Cost real = truth(kernel, clock);
            EXPECT_NEAR(found.time / real.time, 1, 0.005) << kernel << ' ' << to_string(clock);
            EXPECT_NEAR(found.energy / real.energy, 1, 0.005) << kernel << ' ' << to_string(clock);
        }
    }
    gpu.check();
}

TEST_F(Bench, FeedsAnIsolatedSweep) {
    const auto path = std::filesystem::temp_directory_path() /
                      ("kdvfs_bench_" + std::to_string(::getpid()) + ".csv");
    std::filesystem::remove(path);
    {
        KernelBench bench{gpu, on_stream(), quick()};
        add_kernels(bench);
        const auto points = clock_grid(gpu.supported_clocks(), 4);
        SweepFile file{path, gpu_name(gpu.info()), ClockPoint{}};
        sweep_grid(file, bench.kernels(), points, 2, bench, [](std::size_t, std::size_t) {});
    }
    const Profile profile = read_profile(path);
    EXPECT_EQ(profile.gpu(), "simulated AMD Instinct MI210");
    ASSERT_EQ(profile.kernels().size(), 2U);
    EXPECT_EQ(profile.kernels()[0].count, 24U);
    for (const KernelProfile& kernel : profile.kernels()) {
        EXPECT_EQ(kernel.points.size(), 5U);
        for (const ProfilePoint& point : kernel.points) {
            const Cost real = truth(kernel.key.name == "gemm" ? 0 : 1, point.clock);
            EXPECT_NEAR(point.mean().energy / real.energy, 1, 0.005) << to_string(point.clock);
        }
    }
    std::filesystem::remove(path);
}

TEST_F(Bench, PutsTheClocksBack) {
    {
        KernelBench bench{gpu, on_stream(), quick()};
        add_kernels(bench);
        static_cast<void>(bench(0, {{500}, auto_clock}));
        EXPECT_EQ(device.effective_clocks(), (ClockPoint{{500}, auto_clock}));
    }
    device.synchronize();
    device.advance(50ms);
    EXPECT_TRUE(device.effective_clocks().is_auto());
}

TEST_F(Bench, SaysWhenClocksDoNotHold) {
    KernelBench bench{gpu, on_stream(), quick()};
    add_kernels(bench);
    gpu.protect(device.create_stream());
    try {
        static_cast<void>(bench(0, {{500}, auto_clock}));
        FAIL() << "a standing vote for auto went unnoticed";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::refused) << error.what();
    }
    EXPECT_THROW(static_cast<void>(bench(0, {{100}, auto_clock})), Error) << "not in the list";
}

TEST_F(Bench, SaysWhenTheCounterIsSilent) {
    KernelBench bench{gpu, on_stream(), quick()};
    add_kernels(bench);
    device.faults().inject(simulated::Call::read_energy, simulated::Fault::refused, 0, 1'000'000);
    EXPECT_THROW(static_cast<void>(bench(1, ClockPoint{})), Error);
}

}  // namespace
}  // namespace kdvfs::tune
