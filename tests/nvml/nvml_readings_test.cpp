// SPDX-License-Identifier: MIT
#include "double_fixture.hpp"

#include <kdvfs/measure/self_check.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kdvfs::device {
namespace {

using NvmlReadings = NvmlDouble;

/// Microseconds since 1970, as NVML dates its samples.
std::uint64_t unix_us(std::chrono::milliseconds ago) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(now - ago).count());
}

TimePoint now_on_timeline() {
    return TimePoint{std::chrono::steady_clock::now().time_since_epoch()};
}

TEST_F(NvmlReadings, EnergyIsInJoulesAtTheTimeOfTheRead) {
    Nvml gpu{address, options(ClockAccess::measure_only)};
    board().millijoules = 12'345'678;
    const TimePoint before = now_on_timeline();
    const EnergyReading reading = gpu.read_energy();
    EXPECT_EQ(reading.status, ReadingStatus::ok);
    EXPECT_DOUBLE_EQ(reading.joules.count, 12345.678);
    EXPECT_GE(reading.sampled_at, before);
    EXPECT_LE(reading.sampled_at, now_on_timeline());
}

TEST_F(NvmlReadings, TheOperatingPointIsTheProfilesThatAreEnforced) {
    EXPECT_EQ((Nvml{address, options()}.info().operating_point), "") << "it knows none";
    board().power_profiles = 0b1000111;
    EXPECT_EQ((Nvml{address, options()}.info().operating_point), "no workload power profile");
    Nvml gpu{address, options(ClockAccess::measure_only)};
    board().enforced_profiles = 0b1000010;  // by somebody else
    EXPECT_EQ(gpu.read_operating_point(), "workload power profiles 1 6");
    board().faults["nvmlDeviceWorkloadPowerProfileGetCurrentProfiles"] = {.code = 15};
    EXPECT_EQ(gpu.read_operating_point(), "");
}

TEST_F(NvmlReadings, AReadThatFailsIsAStatusAndNoNumber) {
    Nvml gpu{address, options(ClockAccess::measure_only)};
    board().faults["nvmlDeviceGetTotalEnergyConsumption"] = {.code = 15};
    EXPECT_EQ(gpu.read_energy().status, ReadingStatus::failed);
    board().faults["nvmlDeviceGetTotalEnergyConsumption"] = {.code = 3};
    EXPECT_EQ(gpu.read_energy().status, ReadingStatus::absent);
    board().faults["nvmlDeviceGetFieldValues"] = {.code = 15};
    EXPECT_EQ(gpu.read_power_instant().status, ReadingStatus::failed);
}

TEST_F(NvmlReadings, TheSelfCheckComparesEnergyWithPower) {
    Nvml gpu{address, options(ClockAccess::measure_only)};
    board().milliwatts = 350'000;
    for (const double factor : {1.0, 3.0, 0.0}) {
        measure::SelfCheckRun run{{.period = gpu.counter_period()}};
        const TimePoint began = now_on_timeline();
        for (TimePoint now = began; now < began + std::chrono::milliseconds{560};
             now = now_on_timeline()) {
            const Duration updates = (now - began) / gpu.counter_period() * gpu.counter_period();
            board().millijoules = static_cast<std::uint64_t>(
                1e6 + factor * 350'000 * std::chrono::duration<double>{updates}.count());
            run.take(gpu.read_energy(), now_on_timeline());
            run.take(gpu.read_power().watts, now_on_timeline());
            std::this_thread::sleep_for(std::chrono::milliseconds{5});
        }
        const measure::SelfCheck check = run.result();
        EXPECT_EQ(check.passed, factor == 1) << check.reason;
        if (factor == 3) {
            EXPECT_NE(check.reason.find("factor of"), std::string::npos) << check.reason;
        }
        if (factor == 0) {
            EXPECT_EQ(check.reason, "the counter stands still");
        }
    }
}

TEST_F(NvmlReadings, InstantAndAveragePowerAreDifferentFields) {
    const Nvml gpu{address, options(ClockAccess::measure_only)};
    board().milliwatts = 350'250;
    EXPECT_DOUBLE_EQ(gpu.read_power_instant().watts.count, 350.25);
    EXPECT_DOUBLE_EQ(gpu.read_power_average().watts.count, 351.25);
    EXPECT_DOUBLE_EQ(gpu.read_power_limit().count, 700);
}

/// Who works on the board, as the driver is made to show it.
TEST_F(NvmlReadings, OthersAtWorkAreNamedAndOwnOnesAreNot) {
    const auto own = static_cast<unsigned>(getpid());
    const auto other = static_cast<unsigned>(getppid());  // lives, and is no child of this one
    using Processes = std::vector<nvml_double::Process>;
    const auto look = [&](std::optional<Processes> listed) {
        Nvml gpu{address, options(ClockAccess::measure_only)};
        board().processes = std::move(listed);
        return gpu.read_other_processes();
    };
    EXPECT_TRUE(look({}).complete);
    EXPECT_TRUE(look({}).working.empty());
    const OtherProcesses beside = look(Processes{{own, 90}, {other, 5}});
    EXPECT_TRUE(beside.complete);
    ASSERT_EQ(beside.working.size(), 1U);
    EXPECT_NE(beside.working[0].find('(' + std::to_string(other) + ')'), std::string::npos)
        << beside.working[0];
    EXPECT_TRUE(look(Processes{{own, 90}, {other, 0}}).working.empty()) << "it only has a context";
    board().faults["nvmlDeviceGetProcessUtilization"] = {.code = 3};
    EXPECT_EQ(look(Processes{{own, 90}, {other, 0}}).working.size(), 1U) << "who knows";
    board().faults.clear();

    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    EXPECT_TRUE(look(Processes{{own, 90}, {static_cast<unsigned>(child), 40}}).working.empty());
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

/// A driver that shows the numbers of another PID namespace, or nobody.
TEST_F(NvmlReadings, NumbersOfAnotherNamespaceAreCounted) {
    Nvml gpu{address, options(ClockAccess::measure_only)};
    using Processes = std::vector<nvml_double::Process>;
    const auto look = [&](const Processes& listed) {
        board().processes = listed;
        return gpu.read_other_processes();
    };
    EXPECT_FALSE(look({}).complete);
    EXPECT_FALSE(look({{4'100'001, 80}, {4'100'002, 0}}).complete);
    EXPECT_TRUE(look({{4'100'001, 80}, {4'100'002, 0}}).working.empty()) << "that is this one";
    const OtherProcesses both = look({{4'100'001, 0}, {4'100'002, 70}});
    ASSERT_EQ(both.working.size(), 1U) << "one of the two is not";
    EXPECT_NE(both.working[0].find("4100001 4100002"), std::string::npos) << both.working[0];
    board().faults["nvmlDeviceGetComputeRunningProcesses"] = {.code = 4};
    EXPECT_FALSE(look({}).complete);
    EXPECT_TRUE(look({}).working.empty());
}

TEST_F(NvmlReadings, BufferedSamplesComeInOrderOnTheTimelineAndOnce) {
    Nvml gpu{address, options(ClockAccess::measure_only)};
    using std::chrono::milliseconds;
    board().samples = {{unix_us(milliseconds{10}), 300'000},
                       {unix_us(milliseconds{30}), 100'000},
                       {unix_us(milliseconds{20}), 200'000}};
    const auto samples = gpu.read_power_samples({});
    ASSERT_EQ(samples.size(), 3U);
    EXPECT_DOUBLE_EQ(samples[0].watts.count, 100);
    EXPECT_DOUBLE_EQ(samples[2].watts.count, 300);
    const auto age = now_on_timeline() - samples[2].sampled_at;
    EXPECT_GE(age, milliseconds{10});
    EXPECT_LT(age, std::chrono::seconds{10});
    EXPECT_NEAR(static_cast<double>((samples[2].sampled_at - samples[0].sampled_at).count()), 2e7,
                1e6);

    const auto newer = gpu.read_power_samples(samples[1].sampled_at + milliseconds{1});
    ASSERT_EQ(newer.size(), 1U);
    EXPECT_DOUBLE_EQ(newer[0].watts.count, 300);
    EXPECT_TRUE(gpu.read_power_samples(now_on_timeline()).empty());
}

TEST_F(NvmlReadings, ABoardWithoutASampleBufferHasNoSamples) {
    board().faults["nvmlDeviceGetSamples"] = {.code = 3};
    Nvml gpu{address, options(ClockAccess::measure_only)};
    EXPECT_TRUE(gpu.read_power_samples({}).empty());
}

TEST_F(NvmlReadings, BoardsAreListedByTheirAddressesAsSysfsSpellsThem) {
    EXPECT_EQ(nvml_addresses(NVML_DOUBLE), std::vector<std::string>{"0000:1b:00.0"});
    for (const char* spelled :
         {"0000:1B:00.0", "00000000:1B:00.0", "1b:00.0", "0:1b:0.0", "0000:1b:00"})
        EXPECT_EQ(nvml_address(spelled), "0000:1b:00.0") << spelled;
    for (const char* none : {"", "h100", "GPU-1b", "1b:00.0.0", "0000:1b:00.0 "})
        EXPECT_EQ(nvml_address(none), none);
    board().faults["nvmlDeviceGetHandleByIndex_v2"] = {.code = 4};  // another container's
    EXPECT_TRUE(nvml_addresses(NVML_DOUBLE).empty());
    EXPECT_THROW(nvml_addresses("/nowhere/libnvidia-ml.so"), Error);
}

TEST_F(NvmlReadings, LimitReasonsAreTold) {
    const Nvml gpu{address, options(ClockAccess::measure_only)};
    board().limit_reasons = 0x4 | 0x20;
    const LimitReasons reasons = gpu.read_limit_reasons();
    EXPECT_TRUE(reasons.power_cap());
    EXPECT_TRUE(reasons.thermal());
    EXPECT_FALSE(reasons.idle());
    EXPECT_FALSE(reasons.set_clocks());
    EXPECT_FALSE(reasons.hardware());
    board().limit_reasons = 0x80;
    EXPECT_TRUE(gpu.read_limit_reasons().hardware());
}

}  // namespace
}  // namespace kdvfs::device
