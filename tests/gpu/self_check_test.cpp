// SPDX-License-Identifier: MIT
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/report.hpp>
#include <tests/gpu/rig.hpp>

#include <cstddef>
#include <functional>
#include <sstream>
#include <string>
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

/// A sensor outside the GPU sees 4 % more, a voltage converter's losses, say.
class HeldAgainstASensor : public OnSimulatedGpu {
protected:
    static constexpr double more = 1.04;
    BoundGpu<Policies> open() {
        GpuOptions options = gpu_options();
        options.reference = {"a wattmeter", [this] {
                                 if (gone)
                                     throw Error{Errc::io, {"read the wattmeter", "", "", ""}};
                                 return device.true_energy() * more;
                             }};
        return simulated::open(device, options).with<Policies>();
    }
    bool gone = false;
};

TEST_F(HeldAgainstASensor, TheReportSaysWhatTheSensorSaw) {
    const auto gpu = open();
    for (int i = 0; i < 200; ++i)
        launch<Free>(gpu, stream, [&] { device.launch(stream, work(5)); });
    device.synchronize(stream);
    const measure::Report report = gpu.report();
    ASSERT_TRUE(report.totals.reference);
    EXPECT_EQ(report.totals.reference->name, "a wattmeter");
    EXPECT_NEAR(report.totals.reference->ratio(), 1 / more, 2e-3);
    EXPECT_NEAR(report.totals.reference->time.count(), 1.0, 0.02);
    std::ostringstream text;
    text << report;
    EXPECT_NE(text.str().find("reference a wattmeter: "), std::string::npos);
    std::ostringstream json;
    write_json(json, report);
    EXPECT_NE(json.str().find(R"("reference":{"name":"a wattmeter","joules":)"), std::string::npos);
    gone = true;
    const measure::Report without = gpu.report();
    EXPECT_FALSE(without.totals.reference);
    EXPECT_TRUE(has_note(without, "read the wattmeter"));
}

TEST_F(HeldAgainstASensor, TheSelfCheckRefusesACounterThatTheSensorContradicts) {
    const auto gpu = open();
    const SelfCheck sound = gpu.self_check();
    EXPECT_TRUE(sound.passed) << sound.reason;
    ASSERT_TRUE(sound.reference);
    EXPECT_NEAR(sound.reference->count / sound.counted.count, more, 0.01);
    device.meter().scale(1.5);
    const SelfCheck wrong = gpu.self_check();
    EXPECT_FALSE(wrong.passed);
    EXPECT_NE(wrong.reason.find("a wattmeter"), std::string::npos) << wrong.reason;
}

TEST_F(HeldAgainstASensor, ASensorThatCannotBeReadIsAnErrorAtOnce) {
    gone = true;
    EXPECT_THROW(static_cast<void>(open()), Error);
}

TEST_F(SelfChecking, AClosedGpuCannotBeChecked) {
    gpu.close();
    EXPECT_THROW(static_cast<void>(gpu.self_check()), Error);
}

}  // namespace
