// SPDX-License-Identifier: MIT
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/report.hpp>
#include <tests/gpu/rig.hpp>

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
    static simulated::DeviceOptions slow_counter() {
        simulated::DeviceOptions options = device_options();
        options.energy_counter->period = 50ms;
        options.energy_counter->noise = {5e-2};
        return options;
    }
    static GpuOptions repeating() {
        GpuOptions options = gpu_options();
        options.repeat.on = true;
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
        board.synchronize(stream);
        board.advance(300us);
        gpu.next_iteration();
    }
    void count(int& calls, const simulated::KernelModel& kernel) {
        ++calls;
        board.launch(stream, kernel);
    }

    simulated::Device board{simulated::mi210(), slow_counter()};
    simulated::Stream* stream = board.create_stream();
    int free_calls = 0;
    int slow_calls = 0;
    int middle_calls = 0;
    int scan_calls = 0;
};

TEST_F(RepeatingInPlace, TellsKernelsThatAlwaysRunInTheSameMix) {
    const auto told = [](const measure::Report& report) {
        int resolved = 0;
        for (const auto& row : report.rows) resolved += row.energy.resolved ? 1 : 0;
        return resolved;
    };
    constexpr int steps = 500;
    {
        const auto plain = simulated::open(board, gpu_options()).with<Repeated>();
        for (int i = 0; i < steps; ++i) step(plain);
        EXPECT_LT(told(plain.report()), 3);
        EXPECT_EQ(free_calls, steps);
        plain.close();
    }
    const auto gpu = simulated::open(board, repeating()).with<Repeated>();
    step(gpu);
    EXPECT_GT(free_calls, steps + 30);
    EXPECT_GT(slow_calls, steps + 30);
    EXPECT_GT(middle_calls, steps + 30);
    EXPECT_EQ(scan_calls, steps + 1) << "marked to run once";
    const int before = free_calls;
    for (int i = 1; i < steps; ++i) step(gpu);
    EXPECT_EQ(free_calls, before + steps - 1) << "repeated once";
    board.advance(60ms);
    const auto report = gpu.report();
    const auto expect = [&](const char* name, const simulated::KernelModel& kernel, ClockPoint at,
                            double calls_ms) {
        const auto& line = row(report, name);
        ASSERT_TRUE(line.energy.resolved) << name;
        ASSERT_TRUE(line.repeated) << name;
        const double truth =
            operate(board.board(), kernel, at).power.count * line.counted_time.count();
        EXPECT_NEAR(line.energy.joules.count, truth, line.energy.half_width.count) << name;
        EXPECT_LT(line.energy.half_width.count, 0.1 * truth) << name;
        EXPECT_NEAR(line.repeated->time.count() / static_cast<double>(line.repeated->calls),
                    calls_ms * 1e-3, 0.02e-3 * calls_ms)
            << name;
        EXPECT_EQ(line.calls, static_cast<std::uint64_t>(steps)) << name;
    };
    expect("free", work(3), as_found, 3);
    expect("slow", work(1), slow, 1700.0 / 800);
    expect("middle", stream_work(2), as_found, 2);
    EXPECT_NEAR(row(report, "slow").repeated->held.count, 800, 10);
    EXPECT_FALSE(row(report, "scan").repeated);
    EXPECT_TRUE(has_note(report, "not repeated"));
    EXPECT_TRUE(has_note(report, " scan"));
    EXPECT_TRUE(has_note(report, " phase"));
    EXPECT_NEAR(report.fit.repeated_scale, 1, 0.03);
    const auto& totals = report.totals;
    EXPECT_NEAR(totals.kernels.joules.count + totals.idle.joules.count + totals.unexplained.count,
                totals.counter.count, 1e-6 * totals.counter.count);
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
    const auto gpu = simulated::open(board, repeating()).with<Repeated>();
    step(gpu);
    const TimePoint began = board.now();
    for (int i = 0; i < 200; ++i) step(gpu);
    const double each = Seconds{board.now() - began}.count() / 200;
    board.advance(60ms);
    const auto report = gpu.report();
    ASSERT_FALSE(report.levels.empty());
    const auto& iteration = report.levels.front();
    ASSERT_TRUE(iteration.iteration);
    EXPECT_EQ(iteration.runs, 199U) << "of 200, the last has no successor";
    EXPECT_NEAR(iteration.time.count() / 199, each, 1e-3 * each);
}

TEST_F(RepeatingInPlace, AFailureNamesTheKernel) {
    const auto gpu = simulated::open(board, repeating()).with<Repeated>();
    int calls = 0;
    const auto fails_twice = [&] {
        if (++calls == 2) throw std::runtime_error{"an illegal memory access"};
        board.launch(stream, work(1));
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
    board.synchronize(stream);
    launch<Free>(gpu, stream, [&] { board.launch(stream, work(1)); });
    board.synchronize(stream);
    board.advance(60ms);
    EXPECT_TRUE(row(gpu.report(), "free").repeated) << "the next one is repeated all the same";
}

TEST_F(RepeatingInPlace, TheEnvironmentAsksForItToo) {
    setenv("KDVFS_MODE", "repeat", 1);
    const auto gpu = simulated::open(board, gpu_options()).with<Repeated>();
    unsetenv("KDVFS_MODE");
    int inner = 0;
    int outer = 0;
    launch<Free>(gpu, stream, [&] {
        ++outer;
        launch<Middle>(gpu, stream, [&] {
            ++inner;
            board.launch(stream, work(1));
        });
    });
    EXPECT_GT(outer, 10);
    EXPECT_GT(inner, outer) << "repeated by itself where it runs in the program, not before";
}

}  // namespace
