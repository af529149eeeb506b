// SPDX-License-Identifier: MIT
//
// What tools/switch_latency does on a real AMD GPU, on HIP's double and a virtual board: clocks
// through watchdog and restore record, iterations between markers. The board follows at once, so
// what is found is the cost of the call itself.
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/amd/hip_api.hpp>
#include <tools/switch_latency/gpu_bench.hpp>

#include <tests/hip_double/hip_double.hpp>
#include <tests/virtual_amdgpu/file_system.hpp>

#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

// ROCm SMI unlocks mutexes in shared memory that ThreadSanitizer has not seen it lock.
extern "C" const char* __tsan_default_suppressions() { return "mutex:librocm_smi64\n"; }

namespace kdvfs {
namespace {

using namespace kdvfs::literals;
using namespace std::chrono_literals;
using virtual_amdgpu::FileSystem;

/// The clock of the first board, MHz, and when it changed: looked at each millisecond, as to read
/// the file system takes longer than short kernels.
class WatchedClock {
public:
    WatchedClock()
        : mhz_{FileSystem::core_clock()}, watcher_{[this](const std::stop_token& stop) {
              watch(stop);
          }} {}

    double mhz() const { return mhz_; }
    /// From `called` to the first change after that; zero where none was seen.
    Duration change_since(TimePoint called) {
        const std::lock_guard lock{mutex_};
        const auto first = std::upper_bound(changes_.begin(), changes_.end(), called);
        return first == changes_.end() ? Duration::zero() : *first - called;
    }

private:
    void watch(const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            std::this_thread::sleep_for(1ms);
            const double found = FileSystem::core_clock();
            if (mhz_.exchange(found) == found) continue;
            const std::lock_guard lock{mutex_};
            changes_.push_back(TimePoint{std::chrono::steady_clock::now().time_since_epoch()});
        }
    }

    std::atomic<double> mhz_;
    std::mutex mutex_;
    std::vector<TimePoint> changes_;
    std::jthread watcher_;
};
WatchedClock* watched = nullptr;

/// A step is 100 cycles here.
void launch_on_double(hipStream_t stream, unsigned steps) {
    double megacycles = 1e-4 * steps;
    void* arguments[] = {&megacycles};
    if (hipLaunchKernel(nullptr, {}, {}, arguments, 0, stream) != hipSuccess) {
        throw std::runtime_error{"launch"};
    }
}

using AmdBench = GpuBench<device::HipApi, device::amd::Clocks>;

device::amd::Card card() {
    return device::amd::find_card(io::parse_pci_address("0000:c1:00.0").value());
}

class SwitchLatencyOnAmd : public virtual_amdgpu::FileSystemTest {
protected:
    /// On a busy host the threads and the process that stand for the GPU come first, where that is
    /// allowed: they sleep most of the time.
    static void SetUpTestSuite() {
        const sched_param priority{.sched_priority = 1};
        static_cast<void>(::sched_setscheduler(0, SCHED_FIFO, &priority));
        FileSystemTest::SetUpTestSuite();
    }
    void SetUp() override {
        FileSystemTest::SetUp();
        if (IsSkipped()) return;
        hip_double::reset({"0000:c1:00.0", "0000:c4:00.0"});
        watched_.emplace();
        watched = &*watched_;
        hip_double::set_board({[](int) { return watched->mhz(); }, nullptr});
        found_ = FileSystem::settings();
    }
    void TearDown() override {
        if (!present()) return;
        EXPECT_EQ(FileSystem::settings(), found_);
    }

    static constexpr IterationSettings settings{.longest = 80ms, .before_call = 10ms, .steady = 20};

    std::string found_;

private:
    std::optional<WatchedClock> watched_;
};

TEST_F(SwitchLatencyOnAmd, TheMatrixIsMeasuredAndTheClocksAreBack) {
    AmdBench bench{0, launch_on_double, settings, card()};
    bench.calibrate(2ms);
    EXPECT_EQ(bench.info().name, "AMD Instinct MI210");
    measure::SwitchExperiment experiment = bench.experiment();
    Duration longest{0};
    experiment.change = [&, change = experiment.change](ClockPoint from, ClockPoint to) {
        const measure::SwitchTrace trace = change(from, to);
        longest = std::max(longest, watched->change_since(trace.called));
        return trace;
    };
    const auto latencies =
        measure::measure_switch_latencies({{.core = 850_MHz}, {.core = 1700_MHz}}, experiment, 5);
    bench.restore();
    EXPECT_EQ(FileSystem::settings(), found_);
    ASSERT_EQ(latencies.size(), 2U);
    for (const measure::SwitchLatency& entry : latencies) {
        EXPECT_EQ(entry.status, measure::SwitchStatus::measured);
        EXPECT_NEAR(Seconds{entry.iteration}.count(), 4e-3, 1.5e-3) << "2 ms at twice the clock";
        EXPECT_LE(entry.switching_low, longest + 5ms);
        EXPECT_GE(entry.repetitions, 3U);
    }
}

TEST_F(SwitchLatencyOnAmd, AnErrorInTheMiddleLeavesNoClockBehind) {
    int launches = 0;
    const auto failing = [&](hipStream_t stream, unsigned steps) {
        if (++launches > 100) throw std::runtime_error{"the GPU hangs"};
        launch_on_double(stream, steps);
    };
    try {
        AmdBench bench{0, failing, settings, card()};
        static_cast<void>(measure::measure_switch_latencies({{.core = 850_MHz}, {.core = 1700_MHz}},
                                                            bench.experiment(), 5));
        ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "the GPU hangs");
    }
    EXPECT_EQ(FileSystem::settings(), found_);
}

}  // namespace
}  // namespace kdvfs
