// SPDX-License-Identifier: MIT
#include <kdvfs/measure/report_files.hpp>

#include <tests/gpu/rig.hpp>

#include <memory>
#include <optional>
#include <sstream>
#include <string>

namespace rig {
namespace {

class ScopeAccounts : public OnSimulatedGpu {};

std::string as_text(const measure::Report& report) {
    std::ostringstream out;
    out << report;
    return out.str();
}
std::string as_json(const measure::Report& report) {
    std::ostringstream out;
    write_json(out, report);
    return out.str();
}

TEST_F(ScopeAccounts, SayWhichInequalityMadeAScopeNotWorthIt) {
    GpuOptions options = gpu_options();
    options.switch_latency = 1ms;
    const auto gpu = simulated::open(device, options).with<Policies>();
    for (int i = 0; i < 8; ++i) {
        {
            FrequencyScope<Slow> scope{gpu, stream};  // too short
            run(stream, 0.5);
        }
        {
            FrequencyScope<Middle> scope{gpu, stream};  // long enough, but the raise comes late
            run(stream, 20);
        }
        device.synchronize();
        gpu.next_iteration();
    }
    const auto report = gpu.report();
    const auto& slow_scopes = row(report, "slow").scopes;
    ASSERT_TRUE(slow_scopes.gate);
    EXPECT_TRUE(slow_scopes.gate->too_short);
    EXPECT_LT(slow_scopes.gate->dwell, 2ms);
    EXPECT_EQ(slow_scopes.gate->switch_latency, 1ms);
    const auto& middle_scopes = row(report, "middle").scopes;
    ASSERT_TRUE(middle_scopes.gate);
    EXPECT_FALSE(middle_scopes.gate->too_short);
    EXPECT_GT(middle_scopes.gate->loss, middle_scopes.gate->tolerated_loss);
    EXPECT_EQ(slow_scopes.not_worth_it + middle_scopes.not_worth_it, report.scopes.not_worth_it);
    EXPECT_NE(as_text(report).find("not worth it: slow"), std::string::npos);
    EXPECT_NE(as_json(report).find(R"("failed":"dwell")"), std::string::npos);
    EXPECT_NE(as_json(report).find(R"("failed":"late_raise")"), std::string::npos);
}

TEST_F(ScopeAccounts, NameBindingsThatNoScopeHasUsed) {
    const auto gpu = simulated::open(device, gpu_options()).with<Policies>();
    EXPECT_FALSE(has_note(gpu.report(), "no scope of these kernels")) << "nothing has run yet";
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 1);
    }
    EXPECT_TRUE(has_note(gpu.report(), "had no effect: free, kept, middle"));
    {
        FrequencyScope<Middle> middle_one{gpu, stream};
        FrequencyScope<Free> free_one{gpu, stream};
        FrequencyScope<Kept> kept_one{gpu, stream};
        run(stream, 1);
    }
    EXPECT_FALSE(has_note(gpu.report(), "no scope of these kernels"));
}

TEST_F(ScopeAccounts, CountWhatTheListenerDidNotSee) {
    GpuOptions options = gpu_options();
    options.listen_every = 10ms;
    const auto gpu = simulated::open(device, options).with<Policies>();
    for (int i = 0; i < 500; ++i) {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 0.1);
    }
    device.synchronize();
    device.advance(50ms);
    const auto report = gpu.report();
    const auto& scopes = row(report, "slow").scopes;
    EXPECT_EQ(scopes.asked, 500u);
    EXPECT_EQ(scopes.observed + scopes.missed, 500u);
    EXPECT_GT(scopes.missed, 400u) << "they came and went between two looks";
    EXPECT_EQ(report.scopes.missed, scopes.missed);
    EXPECT_LE(report.scopes.device_redundant, 10u)
        << "what nobody saw was not skipped as redundant";
    EXPECT_LE(report.scopes.writes, 10u);
    EXPECT_EQ(sum(report.scopes), 500u);
}

TEST_F(ScopeAccounts, MarkAKernelThatSeldomGotItsClock) {
    simulated::DeviceOptions late = device_options();
    late.clock_switch = simulated::uniform_switch(20ms);
    simulated::Device other{simulated::mi210(), late};
    auto* const its_stream = other.create_stream();
    GpuOptions options = gpu_options();
    options.listen_every = 3ms;
    const auto gpu = simulated::open(other, options).with<Policies>();
    for (int i = 0; i < 50; ++i) {
        {
            FrequencyScope<Slow> scope{gpu, its_stream};
            other.launch(its_stream, work(1));
        }
        FrequencyScope<Middle> scope{gpu, its_stream};
        other.launch(its_stream, work(9));
    }
    other.synchronize(its_stream);
    const auto report = gpu.report();
    EXPECT_LT(row(report, "slow").asked_share, 0.5);
    EXPECT_NE(as_text(report).find("late clock: slow"), std::string::npos);
}

TEST_F(ScopeAccounts, ALateScopeFindsTheGpuEnded) {
    auto gpu = std::make_unique<BoundGpu<Policies>>(
        simulated::open(device, gpu_options()).with<Policies>());
    std::optional<FrequencyScope<Slow>> scope;
    scope.emplace(*gpu, stream);
    run(stream, 1);
    gpu.reset();  // the last handle
    EXPECT_EQ(device.read_clock_state(), ClockState{}) << "its end does not wait for scopes";
    scope.reset();
    run(stream, 1);
    device.synchronize();
    EXPECT_EQ(device.read_clock_state(), ClockState{});
}

TEST_F(ScopeAccounts, NothingGoesBelowTheFloor) {
    GpuOptions options = gpu_options();
    options.controller.never_below = {.core = 900_MHz};
    const auto gpu = simulated::open(device, options).with<Policies>();
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 1);
    }
    {
        FrequencyScope<Middle> scope{gpu, stream};
        run(stream, 1);
    }
    device.synchronize();
    EXPECT_EQ(probed, (Clocks{{.core = {900}}, middle}));
}

TEST_F(ScopeAccounts, AProtectedStreamCanBeContentWithLessThanAuto) {
    const auto gpu = simulated::open(device, gpu_options()).with<Policies>();
    gpu.protect(device.create_stream(), {.core = 1000_MHz});
    {
        FrequencyScope<Slow> scope{gpu, stream};
        run(stream, 1);
    }
    device.synchronize();
    EXPECT_EQ(probed, (Clocks{{.core = {1000}}}));
}

TEST_F(ScopeAccounts, ProtectingAStreamSlowsNothing) {
    const auto gpu = simulated::open(device, gpu_options()).with<Policies>();
    gpu.protect(device.create_stream(), {.core = 500_MHz});
    run(stream, 5);
    device.synchronize();
    EXPECT_EQ(probed, Clocks{as_found});
    {
        const auto request = gpu.request(1100_MHz);
        run(stream, 5);
        device.synchronize();
    }
    run(stream, 5);
    device.synchronize();
    EXPECT_EQ(probed, (Clocks{as_found, middle, as_found}));
}

}  // namespace
}  // namespace rig
