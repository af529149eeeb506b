// SPDX-License-Identifier: MIT
// Programs that never call next_iteration(), for much longer than the ring of timestamps lasts.
#include <tests/gpu/rig.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace rig {
namespace {

const measure::ReportRow& row_of(const measure::Report& report, const std::string& kernel) {
    for (const auto& row : report.rows) {
        if (row.kernel.name == kernel) return row;
    }
    throw std::out_of_range{kernel};
}

/// Runs `steps` of two kernels back to back: the GPU is never idle.
/// @param ahead steps that are enqueued before the host waits
template <class BoundGpu>
void run(simulated::Device& device, const BoundGpu& gpu, simulated::Stream* stream, int steps,
         int ahead) {
    for (int i = 0; i < steps; ++i) {
        launch<Slow>(gpu, stream, [&] { device.launch(stream, work(0.12)); });
        launch<Free>(gpu, stream, [&] { device.launch(stream, work(0.08)); });
        if (i % ahead == ahead - 1) device.synchronize(stream);
    }
    device.synchronize(stream);
}

TEST(LongRun, LosesNothingWithoutIterations) {
    constexpr int steps = 30'000;  // 120,000 timestamps; the ring has room for 65,536
    simulated::Device device{simulated::mi210(), device_options()};
    const auto gpu = simulated::open(device, gpu_options()).with<Policies>();
    run(device, gpu, device.create_stream(), steps, 100);
    const measure::Report report = gpu.report();
    for (const char* kernel : {"slow", "free"}) {
        EXPECT_EQ(row_of(report, kernel).calls, std::uint64_t{steps});
        EXPECT_EQ(row_of(report, kernel).metered_calls, std::uint64_t{steps});
    }
    EXPECT_LT(report.totals.idle_time / report.totals.counted_time, 0.03)
        << "markers alone run between the kernels";
    EXPECT_NEAR(report.totals.together.joules.count, report.totals.counter.count,
                1e-3 * report.totals.counter.count);
}

TEST(LongRun, TakesTimeWithLostTimestampsForUnknownNeverForIdle) {
    constexpr int steps = 4'000;
    simulated::DeviceOptions options = device_options();
    options.timestamp_capacity = 64;  // 16 steps; the collector comes every millisecond, or 5 steps
    simulated::Device device{simulated::mi210(), options};
    GpuOptions slow_collector = gpu_options();
    slow_collector.sampler.period = 10ms;  // or 50 steps: two thirds are lost
    const auto gpu = simulated::open(device, slow_collector).with<Policies>();
    run(device, gpu, device.create_stream(), steps, 200);
    const measure::Report report = gpu.report();
    const auto lost =
        static_cast<double>(std::uint64_t{steps} - row_of(report, "slow").metered_calls);
    EXPECT_GT(lost, 0.3 * steps) << "this test is about losses";
    EXPECT_LE(report.totals.idle_time.count(), 0.05 * report.totals.counted_time.count());
    EXPECT_GT(report.totals.outside.count, 0.2 * report.totals.counter.count)
        << "what ran meanwhile is outside of what is attributed";
    bool noted = false;
    for (const std::string& note : report.notes) {
        noted = noted || note.find("timestamps were overwritten") != std::string::npos;
    }
    EXPECT_TRUE(noted);
}

}  // namespace
}  // namespace rig
