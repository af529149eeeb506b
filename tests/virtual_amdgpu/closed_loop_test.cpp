// SPDX-License-Identifier: MIT
//
// The whole way: scopes on HIP's double, markers in its streams, listener and actuator, the real
// ROCm SMI, a virtual board whose clock the double's kernels run at and whose energy follows.
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/rocm.hpp>

#include <tests/hip_double/hip_double.hpp>
#include <tests/virtual_amdgpu/file_system.hpp>

#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

// ROCm SMI unlocks mutexes in shared memory that ThreadSanitizer has not seen it lock.
extern "C" const char* __tsan_default_suppressions() { return "mutex:librocm_smi64\n"; }

namespace kdvfs {
namespace {

using namespace kdvfs::literals;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using virtual_amdgpu::FileSystem;

struct Slow : Kernel<"slow"> {};
struct Fast : Kernel<"fast"> {};
using Policies = PolicyRegistry<Bind<"slow", CapClock<850_MHz>>, Bind<"fast", AutoClock>>;

const GpuOptions ungated{.switch_latency = Duration{0}};  // every scope switches

double virtual_clock(int) { return FileSystem::core_clock(); }

void set_load(int, bool busy) { FileSystem::tell(busy ? "busy" : "idle"); }

class ClosedLoop : public virtual_amdgpu::FileSystemTest {
protected:
    void SetUp() override {
        FileSystemTest::SetUp();
        if (IsSkipped()) return;
        hip_double::reset({"0000:c1:00.0", "0000:c4:00.0"});
        hip_double::set_board({virtual_clock, set_load});
        ASSERT_EQ(hipStreamCreate(&stream_), hipSuccess);
        found_ = FileSystem::settings();
    }

    void TearDown() override {
        if (stream_ != nullptr) static_cast<void>(hipStreamDestroy(stream_));
        if (!present()) return;
        EXPECT_EQ(FileSystem::settings(), found_);
    }

    void launch_kernel(double megacycles) const {
        void* arguments[] = {&megacycles};
        ASSERT_EQ(hipLaunchKernel(nullptr, {}, {}, arguments, 0, stream_), hipSuccess);
    }

    static bool comes_to(const std::string& level, double max) {
        const auto start = Clock::now();
        while (Clock::now() - start < 2s) {
            if (FileSystem::settings().starts_with(level) && virtual_clock(0) == max) return true;
            std::this_thread::sleep_for(200us);
        }
        return false;
    }

    hipStream_t stream_ = nullptr;
    std::string found_;
};

TEST_F(ClosedLoop, OpensTheGpuThatHipMeansByRocmSmi) {
    const Gpu gpu = rocm::open(0);
    EXPECT_EQ(to_string(gpu.info()), "AMD Instinct MI210 (0000:c1:00.0)");
    EXPECT_EQ(gpu.info().mechanism, "rocm_smi range");
    EXPECT_EQ(rocm::open(1).info().name, "AMD Instinct MI300X");
    EXPECT_FALSE(gpu.measure_only());
    EXPECT_EQ(&rocm::open(0).scope_sink(), &gpu.scope_sink());
}

TEST_F(ClosedLoop, AnIdleClockHoldsWhileNoStreamWorks) {
    GpuOptions options;
    options.switch_latency = 1ms;
    options.idle_clock = {.clock = ClockPoint{.core = 850_MHz}, .after = 20ms, .tolerated_loss = 1};
    const auto gpu = rocm::open(0, options).with<Policies>();
    const auto run = [&](double megacycles) {
        FrequencyScope<Fast> scope{gpu, stream_};
        launch_kernel(megacycles);
    };
    run(170);  // 100 ms; the host has left the scope
    for (;;) {
        const double clock = virtual_clock(0);
        if (hipStreamQuery(stream_) != hipErrorNotReady) break;
        ASSERT_EQ(clock, 1700) << "the stream works";
        std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(comes_to("manual", 850));
    run(17);
    EXPECT_TRUE(comes_to("auto", 1700)) << "with the first launch";
    EXPECT_TRUE(comes_to("manual", 850));
    gpu.next_iteration();
    EXPECT_TRUE(comes_to("auto", 1700)) << "with the next iteration";
    EXPECT_GE(gpu.report().idle_clock->times, 2U);
}

TEST_F(ClosedLoop, AnIdleClockWaitsUntilItsWakesAreEarned) {
    GpuOptions options;
    options.switch_latency = 50ms;  // 1 % of 5 s
    options.idle_clock.clock = ClockPoint{.core = 850_MHz};
    const auto gpu = rocm::open(0, options).with<Policies>();
    {
        FrequencyScope<Fast> scope{gpu, stream_};
        launch_kernel(1);
    }
    std::this_thread::sleep_for(150ms);
    EXPECT_EQ(virtual_clock(0), 1700);
    EXPECT_EQ(gpu.report().scopes.writes, 0U);
}

TEST_F(ClosedLoop, ARequestByAddressNeedsNoStream) {
    const auto gpu = rocm::open("0000:c1:00.0", ungated).with<Policies>();
    {
        auto request = gpu.request(850_MHz);
        EXPECT_TRUE(comes_to("manual", 850));
        request.change(auto_clock);
        EXPECT_TRUE(comes_to("auto", 1700));
        request.change(850_MHz);
        EXPECT_TRUE(comes_to("manual", 850));
    }
    EXPECT_TRUE(comes_to("auto", 1700));
    try {
        const FrequencyScope<Slow> scope{gpu, stream_};
        FAIL() << "a scope was entered without a stream";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_supported);
        EXPECT_NE(std::string{error.what()}.find("Gpu::request"), std::string::npos);
    }
    EXPECT_THROW(static_cast<void>(rocm::open("c1:00")), Error);
}

TEST_F(ClosedLoop, StreamsComeWithALaterOpening) {
    const auto gpu = rocm::open("0000:c1:00.0", ungated).with<Policies>();
    EXPECT_EQ(&rocm::open(0).scope_sink(), &gpu.scope_sink()) << "one GPU, one object";
    {
        const FrequencyScope<Slow> scope{gpu, stream_};
        launch_kernel(1);
        EXPECT_TRUE(comes_to("manual", 850));
    }
    EXPECT_TRUE(comes_to("auto", 1700));
    EXPECT_EQ(hipStreamSynchronize(stream_), hipSuccess);
    gpu.next_iteration();
    const measure::Report report = gpu.report();
    EXPECT_EQ(report.scopes.switches, 1U);
}

TEST_F(ClosedLoop, AScopeRunsItsKernelAtItsClock) {
    auto gpu = rocm::open(0, ungated).with<Policies>();
    const auto seconds_for = [&](double megacycles) {
        const auto start = Clock::now();
        launch_kernel(megacycles);
        EXPECT_EQ(hipStreamSynchronize(stream_), hipSuccess);
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    const double at_auto = seconds_for(170);
    double capped = 0;
    {
        FrequencyScope<Slow> scope{gpu, stream_};
        ASSERT_TRUE(comes_to("manual", 850));
        capped = seconds_for(170);
    }
    EXPECT_TRUE(comes_to("auto", 1700));
    EXPECT_NEAR(capped / at_auto, 2, 0.4);
    gpu.close();
}

TEST_F(ClosedLoop, TheClockIsAskedForWhenTheStreamGetsThere) {
    auto gpu = rocm::open(0, ungated).with<Policies>();
    launch_kernel(255);  // 150 ms at 1700 MHz
    const auto start = Clock::now();
    {
        FrequencyScope<Slow> scope{gpu, stream_};
        launch_kernel(85);
    }
    EXPECT_LT(Clock::now() - start, 50ms) << "entering a scope has waited for the stream";
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(FileSystem::settings(), found_) << "the clock was set before the stream got there";
    EXPECT_TRUE(comes_to("manual", 850));
    EXPECT_TRUE(comes_to("auto", 1700));
    gpu.close();
}

TEST_F(ClosedLoop, AScopeStillOpenAtTheEndIsPutBack) {
    {
        auto gpu = rocm::open(0, ungated).with<Policies>();
        auto scope = std::make_unique<FrequencyScope<Slow>>(gpu, stream_);
        ASSERT_TRUE(comes_to("manual", 850));
        gpu.close();
        EXPECT_EQ(FileSystem::settings(), found_);
    }
    EXPECT_EQ(FileSystem::settings(), found_);
}

TEST_F(ClosedLoop, ACapturedGraphAsksAtEachReplay) {
    hip_double::set_quirks({.operations_run_at_once_in_capture = true});
    auto gpu = rocm::open(0, ungated).with<Policies>();
    ASSERT_EQ(hipStreamBeginCapture(stream_, hipStreamCaptureModeGlobal), hipSuccess);
    {
        FrequencyScope<Slow> scope{gpu, stream_};
        launch_kernel(85);
    }
    hipGraph_t graph = nullptr;
    hipGraphExec_t ready = nullptr;
    ASSERT_EQ(hipStreamEndCapture(stream_, &graph), hipSuccess);
    ASSERT_EQ(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0), hipSuccess);
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(FileSystem::settings(), found_) << "the capture itself has set the clock";
    for (int replay = 0; replay < 3; ++replay) {
        ASSERT_EQ(hipGraphLaunch(ready, stream_), hipSuccess);
        EXPECT_TRUE(comes_to("manual", 850)) << replay;
        EXPECT_TRUE(comes_to("auto", 1700)) << replay;
    }
    EXPECT_EQ(hipGraphExecDestroy(ready), hipSuccess);
    EXPECT_EQ(hipGraphDestroy(graph), hipSuccess);
    gpu.close();
}

/// What one kernel has really drawn, by the board itself, however late a busy machine set its
/// clock.
struct TrueEnergy {
    double joules = 0;
    double seconds = 0;
    [[nodiscard]] double watts() const { return joules / seconds; }
};

TEST_F(ClosedLoop, EnergyFollowsTheClock) {
    GpuOptions options = ungated;
    options.meter_every = 1;
    // A report of a disturbed machine may say that it cannot tell; three in a row do not.
    for (int attempt = 0; attempt < 3; ++attempt) {
        auto gpu = rocm::open(0, options).with<Policies>();
        const auto run = [&]<class K>(K, TrueEnergy& truth, double megacycles) {
            const double before = FileSystem::running().second;
            const auto start = Clock::now();
            {
                FrequencyScope<K> scope{gpu, stream_};
                launch_kernel(megacycles);
            }
            ASSERT_EQ(hipStreamSynchronize(stream_), hipSuccess);
            truth.joules += FileSystem::running().second - before;
            truth.seconds += std::chrono::duration<double>(Clock::now() - start).count();
        };
        std::map<std::string, TrueEnergy, std::less<>> board;
        // Longer than a busy machine takes to write the clock, and no mix twice running: always in
        // the same one, two kernels and the idle between them cannot be resolved.
        for (int iteration = 0; iteration < 16; ++iteration) {
            gpu.next_iteration();
            run(Slow{}, board["slow"], 68.0 * (1 + iteration % 4));
            run(Fast{}, board["fast"], 136.0 * (1 + iteration / 4));
            std::this_thread::sleep_for(20ms);
        }
        gpu.next_iteration();
        const measure::Report report = gpu.report();
        gpu.close();
        std::ostringstream text;
        text << report;
        std::printf("%s\nthe board: slow %.1f W, fast %.1f W\n", text.str().c_str(),
                    board["slow"].watts(), board["fast"].watts());
        // The virtual MI210's own power: 45 + 240 (r + 2 r^3) / 3 watts at the share r of 1700 MHz.
        // A scope's first milliseconds run at the clock before, so each leans to the other.
        EXPECT_GT(board["slow"].watts(), 100);
        EXPECT_LT(board["fast"].watts(), 286);
        int resolved = 0;
        for (const auto& row : report.rows) {
            const auto truth = board.find(row.kernel.name);
            if (truth == board.end() || row.energy.joules.count == 0) continue;
            ++resolved;
            EXPECT_NEAR((row.energy.joules / row.counted_time).count, truth->second.watts(),
                        0.1 * truth->second.watts())
                << row.kernel.name;
        }
        if (resolved == 2) {
            EXPECT_LT(board["slow"].watts(), 0.6 * board["fast"].watts());
            return;
        }
    }
    FAIL() << "no report resolves both kernels";
}

TEST_F(ClosedLoop, TheSelfCheckPassesACounterThatRunsAndRefusesOneThatStandsStill) {
    const Gpu gpu = rocm::open(0);
    const measure::SelfCheck sound = gpu.self_check();
    EXPECT_TRUE(sound.passed) << sound.reason;
    ASSERT_TRUE(sound.drawn);
    EXPECT_NEAR(sound.counted.count, 45, 2) << "what the virtual MI210 draws idle";
    FileSystem::tell("freeze");
    const measure::SelfCheck frozen = gpu.self_check();
    FileSystem::tell("thaw");
    EXPECT_FALSE(frozen.passed);
    EXPECT_EQ(frozen.reason, "the counter stands still");
    gpu.close();
}

TEST_F(ClosedLoop, AnAdministratorsClockStaysAndIsReported) {
    auto gpu = rocm::open(0, ungated).with<Policies>();
    {
        FrequencyScope<Slow> scope{gpu, stream_};
        ASSERT_TRUE(comes_to("manual", 850));
        device::AmdgpuSysfs administrator{io::PciAddress{0, 0xc1, 0, 0}};
        administrator.apply({1000_MHz, auto_clock});
        std::this_thread::sleep_for(1300ms);  // it is verified once a second
        try {
            gpu.check();
            ADD_FAILURE() << "nobody noticed";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::external_change);
        }
    }
    EXPECT_EQ(virtual_clock(0), 1000);
    FileSystem::tell("reset");
}

TEST_F(ClosedLoop, AfterAGpuResetTheClockIsAskedForAgain) {
    auto gpu = rocm::open(0, ungated).with<Policies>();
    {
        FrequencyScope<Slow> scope{gpu, stream_};
        ASSERT_TRUE(comes_to("manual", 850));
        std::this_thread::sleep_for(100ms);  // it has been read back, too
        FileSystem::tell("reset");
        EXPECT_TRUE(comes_to("manual", 850));  // it is verified once a second
    }
    EXPECT_TRUE(comes_to("auto", 1700));
    gpu.close();
}

TEST_F(ClosedLoop, AStreamDestroyedUnderAScopeLosesItsVote) {
    auto gpu = rocm::open(0, ungated).with<Policies>();
    hipStream_t other = nullptr;
    ASSERT_EQ(hipStreamCreate(&other), hipSuccess);
    {
        FrequencyScope<Slow> scope{gpu, other};
        ASSERT_TRUE(comes_to("manual", 850));
        ASSERT_EQ(hipStreamDestroy(other), hipSuccess);
    }
    EXPECT_TRUE(comes_to("auto", 1700));
    EXPECT_THROW(gpu.check(), Error);
    gpu.close();
}

TEST_F(ClosedLoop, ScopesLeftInAnyOrderLeaveWhatTheOthersAskFor) {
    auto gpu = rocm::open(0, ungated).with<Policies>();
    auto outer = std::make_unique<FrequencyScope<Slow>>(gpu, stream_);
    auto inner = std::make_unique<FrequencyScope<Fast>>(gpu, stream_);
    EXPECT_TRUE(comes_to("auto", 1700));
    outer.reset();
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(virtual_clock(0), 1700);
    inner.reset();
    outer = std::make_unique<FrequencyScope<Slow>>(gpu, stream_);
    EXPECT_TRUE(comes_to("manual", 850));
    outer.reset();
    EXPECT_TRUE(comes_to("auto", 1700));
    gpu.close();
}

TEST_F(ClosedLoop, AForkedChildLeavesItsParentsClocksAlone) {
    auto gpu = rocm::open(0, ungated).with<Policies>();
    auto scope = std::make_unique<FrequencyScope<Slow>>(gpu, stream_);
    ASSERT_TRUE(comes_to("manual", 850));
    const pid_t child = ::fork();
    if (child == 0) {
        scope.reset();
        { const auto dropped = std::move(gpu); }
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(virtual_clock(0), 850);
    scope.reset();
    EXPECT_TRUE(comes_to("auto", 1700));
    gpu.close();
}

TEST_F(ClosedLoop, ASecondProcessVotesOrMeasuresWhatAnotherDrives) {
    ASSERT_EQ(hipStreamDestroy(std::exchange(stream_, nullptr)), hipSuccess);
    const pid_t second = ::fork();  // of a process without threads
    if (second == 0) {
        std::this_thread::sleep_for(500ms);
        int result = 1;
        if (!rocm::open(0).info().mechanism.starts_with("votes (process ")) ::_exit(4);
        GpuOptions options;
        options.share_clocks = false;
        try {
            static_cast<void>(rocm::open(0, options));
        } catch (const Error& error) {
            result = error.code() == Errc::busy ? 0 : 2;
        }
        options.on_refused = OnRefused::measure_only;
        const Gpu gpu = rocm::open(0, options);
        const bool says_so = gpu.info().mechanism.starts_with("measure only: cannot take over");
        ::_exit(gpu.measure_only() && says_so ? result : 3);
    }
    const Gpu gpu = rocm::open(0);
    int status = 0;
    ::waitpid(second, &status, 0);
    EXPECT_EQ(status, 0);
    gpu.close();
}

}  // namespace
}  // namespace kdvfs
