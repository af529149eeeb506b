// SPDX-License-Identifier: MIT
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/report.hpp>
#include <tests/gpu/rig.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

namespace {

using namespace rig;

struct Phase : Kernel<"phase"> {};
struct Scan : Kernel<"scan"> {
    static constexpr bool runs_once = true;
};
using Repeated = PolicyRegistry<Bind<"slow", CapClock<800_MHz>>, Default<AutoClock>>;

/// A step of four kernels, the same each time, on a board whose counter moves every 50 ms.
class RepeatingInPlace : public OnSimulatedGpu {
protected:
    RepeatingInPlace() : OnSimulatedGpu{device_options(50ms, {3e-2})} {}

    static GpuOptions repeating(Duration after) {
        GpuOptions options = gpu_options();
        options.repeat.on = true;
        options.repeat.after = after;
        return options;
    }
    static simulated::KernelModel stream_work(double milliseconds) {
        return {.memory_time = Seconds{milliseconds * 1e-3},
                .core_energy = {0.02 * milliseconds},
                .memory_energy = {0.09 * milliseconds}};
    }
    template <class BoundGpu>
    void step(const BoundGpu& gpu) {
        {
            FrequencyScope<Phase> phase{gpu, stream};
            launch<Free>(gpu, stream, [&] { count(free_calls, work(3)); });
            launch<Slow>(gpu, stream, [&] { count(slow_calls, work(1)); });
        }
        launch<Middle>(gpu, stream, [&] { count(middle_calls, stream_work(2)); });
        launch<Scan>(gpu, stream, [&] { count(scan_calls, work(0.2)); });
        device.synchronize(stream);
        device.advance(300us);
        gpu.next_iteration();
    }
    void count(int& calls, simulated::KernelModel kernel) {
        ++calls;
        if (garbage) kernel.core_energy = kernel.core_energy * 0.3;
        device.launch(stream, kernel);
    }
    /// Steps until kernels have been repeated, whose results draw less from then on.
    /// @returns how many were taken, with the one in which it happened
    template <class BoundGpu>
    int steps_until_repeated(const BoundGpu& gpu) {
        const int before = free_calls;
        int taken = 0;
        while (free_calls == before + taken && taken < 10'000) {
            step(gpu);
            ++taken;
        }
        garbage = true;
        return taken;
    }

    bool garbage = false;
    int free_calls = 0;
    int slow_calls = 0;
    int middle_calls = 0;
    int scan_calls = 0;
};

TEST_F(RepeatingInPlace, TellsKernelsThatAlwaysRunInTheSameMix) {
    const auto resolved = [](const measure::Report& report) {
        int count = 0;
        for (const auto& row : report.rows) count += row.energy.resolved ? 1 : 0;
        return count;
    };
    constexpr int steps = 500;
    {
        const auto plain = simulated::open(device, gpu_options()).with<Repeated>();
        for (int i = 0; i < steps; ++i) step(plain);
        EXPECT_LT(resolved(plain.report()), 3);
        EXPECT_EQ(free_calls, steps);
        plain.close();
    }
    const auto gpu = simulated::open(device, repeating(10s)).with<Repeated>();
    const int taken = steps_until_repeated(gpu);
    EXPECT_NEAR(taken, 1310, 50) << "of 7.6 ms, in 10 s";
    EXPECT_GT(free_calls, steps + taken + 30);
    EXPECT_GT(slow_calls, steps + taken + 30);
    EXPECT_GT(middle_calls, steps + taken + 30);
    EXPECT_EQ(scan_calls, steps + taken) << "marked to run once";
    const int before = free_calls;
    constexpr int later = 200;
    for (int i = 0; i < later; ++i) step(gpu);
    EXPECT_EQ(free_calls, before + later) << "repeated once";
    device.advance(60ms);
    const auto report = gpu.report();
    const auto expect = [&](const char* name, const simulated::KernelModel& kernel, ClockPoint at,
                            double calls_ms) {
        const auto& line = row(report, name);
        ASSERT_TRUE(line.energy.resolved) << name;
        ASSERT_TRUE(line.repeated) << name;
        const double truth =
            operate(device.board(), kernel, at).power.count * line.counted_time.count();
        EXPECT_NEAR(line.energy.joules.count, truth, line.energy.half_width.count) << name;
        EXPECT_LT(line.energy.half_width.count, 0.1 * truth) << name;
        EXPECT_NEAR(line.repeated->time.count() / static_cast<double>(line.repeated->calls),
                    calls_ms * 1e-3, 0.02e-3 * calls_ms)
            << name;
        EXPECT_EQ(line.calls, static_cast<std::uint64_t>(taken + later)) << name;
    };
    expect("free", work(3), as_found, 3);
    expect("slow", work(1), slow, 1700.0 / 800);
    expect("middle", stream_work(2), as_found, 2);
    EXPECT_NEAR(row(report, "slow").repeated->held.count, 800, 10);
    EXPECT_FALSE(row(report, "scan").repeated);
    EXPECT_TRUE(has_note(report, "not repeated"));
    EXPECT_TRUE(has_note(report, " scan"));
    EXPECT_TRUE(has_note(report, " phase"));
    EXPECT_TRUE(has_note(report, "before kernels were repeated"));
    EXPECT_NEAR(report.fit.repeated_scale, 1, 0.03);
    const auto& totals = report.totals;
    EXPECT_NEAR(totals.together.joules.count + totals.unexplained.count, totals.counter.count,
                1e-6 * totals.counter.count);
    EXPECT_LT(std::abs(totals.unexplained.count),
              totals.unexplained_half_width.count + 0.002 * totals.counter.count);
    std::ostringstream text;
    text << report;
    EXPECT_NE(text.str().find(" repeated"), std::string::npos);
    EXPECT_NE(text.str().find("repeated: slow "), std::string::npos);
    std::ostringstream json;
    measure::write_json(json, report);
    EXPECT_NE(json.str().find(R"("repeats":)"), std::string::npos);
}

TEST_F(RepeatingInPlace, TheIterationOfTheRepetitionsIsNotCounted) {
    const auto gpu = simulated::open(device, repeating(1s)).with<Repeated>();
    for (int i = 0; i < 50; ++i) step(gpu);
    EXPECT_TRUE(has_note(gpu.report(), "no kernel was repeated in place")) << "not yet";
    const TimePoint began = device.now();
    for (int i = 0; i < 50; ++i) step(gpu);
    const double each = Seconds{device.now() - began}.count() / 50;
    const int taken = 100 + steps_until_repeated(gpu);
    for (int i = 0; i < 50; ++i) step(gpu);
    device.advance(60ms);
    const auto report = gpu.report();
    ASSERT_FALSE(report.levels.empty());
    const auto& iteration = report.levels.front();
    ASSERT_TRUE(iteration.iteration);
    // The first step ran before the first call of next_iteration().
    const int counted = taken - 2;
    EXPECT_EQ(iteration.runs, static_cast<std::uint64_t>(counted)) << "none after that";
    EXPECT_NEAR(iteration.time.count() / counted, each, 1e-3 * each);
}

TEST_F(RepeatingInPlace, AFailureNamesTheKernel) {
    const auto gpu = simulated::open(device, repeating(0s)).with<Repeated>();
    int calls = 0;
    const auto fails_twice = [&] {
        if (++calls == 2) throw std::runtime_error{"an illegal memory access"};
        device.launch(stream, work(1));
    };
    try {
        launch<Middle>(gpu, stream, variant(7), fails_twice);
        ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("repeat kernel 'middle#7' in place"), std::string::npos) << text;
        EXPECT_NE(text.find("illegal memory access"), std::string::npos) << text;
        EXPECT_NE(text.find("runs_once"), std::string::npos) << text;
    }
    device.synchronize(stream);
    launch<Free>(gpu, stream, [&] { device.launch(stream, work(1)); });
    device.synchronize(stream);
    device.advance(60ms);
    EXPECT_TRUE(row(gpu.report(), "free").repeated) << "the next one is repeated all the same";
}

TEST_F(RepeatingInPlace, TheEnvironmentRepeatsWhereTheProgramAllowsIt) {
    setenv("KDVFS_MODE", "repeat", 1);
    GpuOptions options = gpu_options();
    options.repeat.after = 0s;
    options.meter_every = 16;
    options.may_repeat = true;
    testing::internal::CaptureStderr();
    auto gpu = simulated::open(device, options).with<Repeated>();
    unsetenv("KDVFS_MODE");
    int inner = 0;
    int outer = 0;
    launch<Free>(gpu, stream, [&] {
        ++outer;
        launch<Middle>(gpu, stream, [&] {
            ++inner;
            device.launch(stream, work(1));
        });
    });
    EXPECT_GT(outer, 10);
    EXPECT_GT(inner, outer) << "repeated by itself where it runs in the program, not before";
    gpu.close();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("repeating kernels in place"), std::string::npos) << said;
    EXPECT_NE(said.find("discard the results"), std::string::npos) << said;
}

TEST_F(RepeatingInPlace, TheEnvironmentAloneRepeatsNothing) {
    setenv("KDVFS_MODE", "repeat", 1);
    GpuOptions options = gpu_options();
    options.repeat.after = 0s;
    testing::internal::CaptureStderr();
    const auto gpu = simulated::open(device, options).with<Repeated>();
    unsetenv("KDVFS_MODE");
    int calls = 0;
    for (int i = 0; i < 20; ++i) {
        launch<Free>(gpu, stream, [&] {
            ++calls;
            device.launch(stream, work(1));
        });
    }
    device.synchronize(stream);
    EXPECT_EQ(calls, 20);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("KDVFS_MODE=repeat is ignored"), std::string::npos) << said;
    const auto notes = gpu.report().notes;
    EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
        return note.find("KDVFS_MODE=repeat was ignored") != std::string::npos;
    }));
}

}  // namespace
