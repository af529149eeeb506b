// SPDX-License-Identifier: MIT
#include <tests/gpu/rig.hpp>

#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <sstream>
#include <string>

namespace rig {
namespace {

/// The share of a kernel's time in which a clock held, within 2 %, as the
/// report has it.
double reported_share(const measure::ReportRow& row, double clock) {
    double share = 0;
    for (const measure::ClockShare& each : row.held_clocks) {
        if (std::abs(each.clock.count - clock) <= 0.02 * clock) share += each.share;
    }
    return share;
}

/// A program whose low scopes lie between others, on a board that takes so long
/// to switch. The clocks that really hold are looked at every 20 us.
class HeldClocks : public testing::Test {
protected:
    struct Seen {
        Duration low{};
        Duration all{};
        [[nodiscard]] double share() const { return Seconds{low} / Seconds{all}; }
    };

    measure::Report run(Duration latency, double low_ms, double free_ms, int steps) {
        simulated::DeviceOptions options = device_options();
        options.clock_switch = simulated::uniform_switch(latency);
        simulated::Device device{simulated::mi210(), options};
        const auto gpu = simulated::open(device, gpu_options()).with<Policies>();
        auto* const stream = device.create_stream();
        for (auto& each : seen_) each = {};
        Seen* now = nullptr;
        const auto begin = [&](Seen& kernel) { device.call_back(stream, [&] { now = &kernel; }); };
        const auto end = [&] { device.call_back(stream, [&] { now = nullptr; }); };
        constexpr Duration look = 20us;
        bool looking = true;
        const std::function<void()> watch = [&] {
            if (!looking) return;
            if (now != nullptr) {
                now->all += look;
                if (device.effective_clocks() == slow) now->low += look;
            }
            device.schedule(device.now() + look, watch);
        };
        watch();
        // Far from all changes, as scopes are that the gate holds back at first.
        for (int i = 0; i < 3; ++i) {
            launch<Kept>(gpu, stream, [&] { device.launch(stream, work(free_ms)); });
            launch<Free>(gpu, stream, [&] { device.launch(stream, work(free_ms)); });
        }
        device.synchronize(stream);
        for (int i = 0; i < steps; ++i) {
            launch<Free>(gpu, stream, [&] {
                begin(seen_[0]);
                device.launch(stream, work(free_ms));
                end();
            });
            launch<Slow>(gpu, stream, [&] {
                begin(seen_[1]);
                device.launch(stream, work(low_ms));
                end();
            });
            device.synchronize(stream);
        }
        looking = false;
        return gpu.report();
    }

    std::array<Seen, 2> seen_;  // free, slow
};

TEST_F(HeldClocks, OfAKernelInWhichTheSwitchArrivesAreTwo) {
    const auto report = run(10ms, 15, 200, 10);
    const auto& low = row(report, "slow");
    EXPECT_NEAR(reported_share(low, 800), seen_[1].share(), 0.02);
    EXPECT_NEAR(reported_share(low, 1700), 1 - seen_[1].share(), 0.02);
    EXPECT_NEAR(low.asked_share, seen_[1].share(), 0.02);
    EXPECT_LT(seen_[1].share(), 0.7);
    EXPECT_GT(seen_[1].share(), 0.1);
    std::ostringstream text;
    text << report;
    EXPECT_NE(text.str().find(" %), 1700 ("), std::string::npos) << text.str();
}

TEST_F(HeldClocks, AreThoseOfTheSimulation) {
    std::mt19937 random{20261124};
    const auto between = [&](double least, double most) {
        return least * std::pow(most / least, std::uniform_real_distribution{0.0, 1.0}(random));
    };
    for (int i = 0; i < 24; ++i) {
        const double latency = between(0.1, 150);
        const double low_ms = between(0.3, 3) * latency + 1;
        const double free_ms = between(0.5, 4) * latency + 1;
        const auto report =
            run(std::chrono::duration_cast<Duration>(Seconds{latency * 1e-3}), low_ms, free_ms, 12);
        const std::string what = std::to_string(latency) + " ms; low " + std::to_string(low_ms) +
                                 " ms, free " + std::to_string(free_ms) + " ms";
        const auto& low = row(report, "slow");
        EXPECT_NEAR(reported_share(low, 800), seen_[1].share(), 0.02) << what;
        EXPECT_NEAR(reported_share(low, 1700), 1 - seen_[1].share(), 0.02) << what;
        EXPECT_NEAR(low.asked_share, seen_[1].share(), 0.02) << what;
    }
}

TEST_F(HeldClocks, OfScopesShorterThanTheSwitchAreNotTheirs) {
    const auto report = run(50ms, 5, 100, 10);
    EXPECT_LT(row(report, "slow").asked_share, 0.05);
    std::ostringstream text;
    text << report;
    EXPECT_NE(text.str().find("shorter than the switch"), std::string::npos) << text.str();
}

TEST_F(HeldClocks, AreInTheTrace) {
    simulated::DeviceOptions options = device_options();
    options.clock_switch = simulated::uniform_switch(10ms);
    simulated::Device device{simulated::mi210(), options};
    const auto gpu = simulated::open(device, gpu_options()).with<Policies>();
    std::ostringstream out;
    gpu.trace_to(out);
    auto* const stream = device.create_stream();
    for (int i = 0; i < 3; ++i) {
        launch<Free>(gpu, stream, [&] { device.launch(stream, work(100)); });
        launch<Slow>(gpu, stream, [&] { device.launch(stream, work(100)); });
    }
    device.synchronize(stream);
    gpu.end_trace();
    const std::string text = out.str();
    for (const char* part : {R"("core clock held MHz","args":{"value":1700})",
                             R"("core clock held MHz","args":{"value":800})",
                             R"("core cap applied MHz","args":{"value":1700})",
                             R"("core cap applied MHz","args":{"value":800})"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part;
    }
    EXPECT_EQ(text.find(R"(MHz","args":{"value":0})"), std::string::npos) << "auto is no clock";
}

}  // namespace
}  // namespace rig
