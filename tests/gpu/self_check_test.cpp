// SPDX-License-Identifier: MIT
#include <tests/gpu/rig.hpp>

#include <cstddef>
#include <functional>
#include <vector>

namespace {

using namespace rig;
using measure::SelfCheck;

class SelfChecking : public OnSimulatedGpu {
protected:
    /// A load for longer than any check, in kernels of 5 ms.
    void load() {
        for (int i = 0; i < 400; ++i) device.launch(stream, work(5));
    }

    BoundGpu<Policies> gpu = simulated::open(device, gpu_options()).with<Policies>();
};

TEST_F(SelfChecking, PassesASoundCounterIdleAndUnderLoad) {
    for (const bool loaded : {false, true}) {
        if (loaded) load();
        const TimePoint began = device.now();
        const SelfCheck check = gpu.self_check();
        EXPECT_TRUE(check.passed) << check.reason;
        EXPECT_TRUE(check.reason.empty());
        ASSERT_TRUE(check.drawn);
        const double truth = loaded ? operate(device.board(), work(5), as_found).power.count
                                    : idle_power(device.board(), as_found).count;
        EXPECT_NEAR(check.counted.count, truth, 0.01 * truth);
        EXPECT_NEAR(check.drawn->count, truth, 0.01 * truth);
        EXPECT_LT(device.now() - began, 600ms);
        EXPECT_GE(device.now() - began, 500ms);
    }
    EXPECT_FALSE(has_note(gpu.report(), "self-check"));
}

TEST_F(SelfChecking, RefusesEachFaultOfTheCounterWithTheReason) {
    struct Case {
        std::function<void()> fault;
        const char* reason;
    };
    const std::vector<Case> cases{
        {[&] { device.meter().scale(2); }, "off by a factor of 2"},
        {[&] { device.meter().scale(0.5); }, "off by a factor of 0.5"},
        {[&] { device.meter().freeze(true); }, "the counter stands still"},
        {[&] { device.schedule(device.now() + 200ms, [&] { device.meter().transition({-5}); }); },
         "the counter went backwards"},
        {[&] { device.schedule(device.now() + 200ms, [&] { device.meter().transition({1e4}); }); },
         "the counter grew by more than a board can draw"},
        {[&] { device.faults().inject(simulated::Call::read_energy, simulated::Fault::busy, 20); },
         "a read of the counter failed"},
        {[&] { device.faults().inject(simulated::Call::read_energy, simulated::Fault::vanished); },
         "the device has no energy counter"}};
    for (const Case& faulty : cases) {
        device.advance(1ms);
        faulty.fault();
        const SelfCheck check = gpu.self_check();
        EXPECT_FALSE(check.passed) << faulty.reason;
        EXPECT_NE(check.reason.find(faulty.reason), std::string::npos) << check.reason;
        EXPECT_TRUE(has_note(gpu.report(), "the self-check refused the energy counter"));
        device.meter().scale(1);
        device.meter().freeze(false);
        device.faults().clear();
        device.advance(1s);
    }
}

TEST_F(SelfChecking, TellsWhatThePowerReadingsAreMeansOver) {
    for (int i = 0; i < 30; ++i) {
        device.launch(stream, work(7 + i % 3));
        device.launch(stream, {.fixed_time = Seconds{0.009}});
    }
    const SelfCheck check = gpu.self_check();
    ASSERT_TRUE(check.power_window);
    EXPECT_NEAR(Seconds{*check.power_window}.count(), 1e-3, 0.2e-3);
    EXPECT_TRUE(has_note(gpu.report(), "means over 1"));
}

TEST_F(SelfChecking, AClosedGpuCannotBeChecked) {
    gpu.close();
    EXPECT_THROW(static_cast<void>(gpu.self_check()), Error);
}

}  // namespace
