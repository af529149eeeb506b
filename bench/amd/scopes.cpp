// SPDX-License-Identifier: MIT
//
// What scopes cost on AMD GPUs: host time around a launch, how long a clock write waits for the
// sampler, and what the two threads use. On the double of libamdhip64 and virtual boards, each
// beside the raw calls in the same run: there is no GPU, so no time here is a GPU's.
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/amd/hip_api.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kdvfs.hpp>

#include <tests/hip_double/gpu_on_double.hpp>
#include <tests/hip_double/hip_double.hpp>
#include <tests/thread_loop/open_on_doubles.hpp>
#include <tests/virtual_amdgpu/interpose.hpp>

#include <benchmark/benchmark.h>

#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace kdvfs {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Capped : Kernel<"capped"> {};
using Policies = PolicyRegistry<Bind<"capped", CapClock<1100_MHz>>>;

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// A GPU on the double whose streams do everything at once, so that calls cost little.
struct Rig {
    explicit Rig(bool metered, Duration sample_every = 1h) {
        hip_double::reset({"0000:c1:00.0"});
        hip_double::run_at_once(true);
        static_cast<void>(hipStreamCreate(&stream));
        GpuOptions options;
        options.meter_every = metered ? 1 : 1U << 30U;
        options.sampler.period = sample_every;
        gpu =
            std::make_unique<BoundGpu<Policies>>(hip_double::open(board, options).with<Policies>());
        gpu->next_iteration();
    }
    ~Rig() {
        gpu.reset();
        static_cast<void>(hipStreamDestroy(stream));
    }
    Rig(const Rig&) = delete;
    Rig& operator=(const Rig&) = delete;

    std::shared_ptr<prompt::Board> board = std::make_shared<prompt::Board>();
    hipStream_t stream = nullptr;
    std::unique_ptr<BoundGpu<Policies>> gpu;
};

/// The calls that kdvfs makes of the runtime for one scope.
void runtime_calls(hipStream_t stream, RequestCell& cell, std::uint32_t& level) {
    benchmark::DoNotOptimize(hipGetStreamDeviceId(stream));
    for (int marker = 0; marker < 2; ++marker) {
        hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
        unsigned long long id = 0;
        benchmark::DoNotOptimize(hipStreamGetCaptureInfo(stream, &status, &id));
        benchmark::DoNotOptimize(hipStreamWriteValue32(stream, &cell.word, ++level, 0));
    }
}

/// Batches of raw calls and of scopes take turns, so that both meet the same machine.
void enter_and_leave_on_top_of_the_runtimes_own_calls(benchmark::State& state) {
    constexpr int batch = 200;
    Rig rig{false};
    RequestCell cell;
    std::uint32_t level = 0;
    std::vector<double> raw;
    std::vector<double> scoped;
    const auto nanoseconds_each = [&](auto work) {
        const auto began = Clock::now();
        for (int i = 0; i < batch; ++i) work();
        return std::chrono::duration<double, std::nano>(Clock::now() - began).count() / batch;
    };
    for (auto _ : state) {
        raw.push_back(nanoseconds_each([&] { runtime_calls(rig.stream, cell, level); }));
        scoped.push_back(nanoseconds_each([&] {
            const FrequencyScope<Capped> scope{*rig.gpu, rig.stream};
            benchmark::ClobberMemory();
        }));
    }
    state.counters["runtime_ns"] = median(raw);
    state.counters["scope_ns"] = median(scoped);
    state.counters["on_top_ns"] = median(scoped) - median(raw);
}
BENCHMARK(enter_and_leave_on_top_of_the_runtimes_own_calls)->Iterations(2000);

/// CPU time that this process's thread of a name has used, in seconds.
double cpu_seconds_of(const std::string& name) {
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
        std::ifstream comm{task.path() / "comm"};
        std::string its_name;
        if (!std::getline(comm, its_name) || its_name != name) continue;
        const auto thread = static_cast<unsigned>(std::stoul(task.path().filename().string()));
        timespec used{};
        clock_gettime(static_cast<clockid_t>((~thread << 3U) | 6U), &used);  // as glibc makes them
        return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
    }
    return 0;
}

/// What kdvfs's two threads use while `work` goes on, in percent of a core. The counter is left
/// alone here: a read of it costs what the board's driver takes.
template <class Work>
void count_threads(benchmark::State& state, Work work) {
    const auto used = [] {
        return std::array{cpu_seconds_of("kdvfs-listen"), cpu_seconds_of("kdvfs-act")};
    };
    for (auto _ : state) {
        std::this_thread::sleep_for(100ms);
        const auto began = Clock::now();
        const auto before = used();
        work();
        const auto after = used();
        const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
        state.counters["listener_percent"] = 100 * (after[0] - before[0]) / seconds;
        state.counters["actuator_percent"] = 100 * (after[1] - before[1]) / seconds;
    }
}

void threads_without_scopes(benchmark::State& state) {
    Rig rig{false};
    count_threads(state, [] { std::this_thread::sleep_for(2s); });
}
BENCHMARK(threads_without_scopes)->Iterations(1);

void threads_with_one_long_scope(benchmark::State& state) {
    Rig rig{false};
    const FrequencyScope<Capped> scope{*rig.gpu, rig.stream};
    count_threads(state, [] { std::this_thread::sleep_for(2s); });
}
BENCHMARK(threads_with_one_long_scope)->Iterations(1);

/// A scope of that length after another, with as long a pause between.
void threads_with_scopes_of_ms(benchmark::State& state) {
    const auto length = std::chrono::milliseconds{state.range(0)};
    Rig rig{false};
    count_threads(state, [&] {
        for (auto i = 2s / (2 * length); i > 0; --i) {
            {
                const FrequencyScope<Capped> scope{*rig.gpu, rig.stream};
                std::this_thread::sleep_for(length);
            }
            std::this_thread::sleep_for(length);
        }
    });
}
BENCHMARK(threads_with_scopes_of_ms)->Arg(1)->Arg(5)->Arg(20)->Iterations(1);

/// From entering a scope to the first write that the board sees, on a virtual MI210 whose every
/// read takes 1.5 ms: once with a counter that is read without a pause, once with none read. Either
/// way the write follows one read of kdvfs's own, of the limits that hold.
void clock_write_while_the_sampler_reads(benchmark::State& state) {
    constexpr auto read_time = 1500us;
    const bool sampled = state.range(0) != 0;
    virtual_amdgpu::Machine machine{{virtual_amdgpu::mi210()}};
    const virtual_amdgpu::Mounted mounted{machine};
    hip_double::reset({"0000:c1:00.0"});
    hip_double::run_at_once(true);
    hipStream_t stream = nullptr;
    static_cast<void>(hipStreamCreate(&stream));
    const auto board = std::make_shared<device::AmdgpuSysfs>(device::amd::find_cards().front());
    GpuOptions options;
    options.sampler.period = sampled ? Duration{1ms} : Duration{1h};
    options.sampler.limits.period = 1ms;
    const auto gpu =
        doubles::open_driven(std::make_shared<device::Hip>(0), board, options).with<Policies>();
    machine.gpu(0).set_access_time(read_time, 0ns);
    std::vector<double> waits;
    for (auto _ : state) {
        machine.clear_writes();
        const auto began = Clock::now();
        {
            const FrequencyScope<Capped> scope{gpu, stream};
            while (machine.writes().empty()) std::this_thread::sleep_for(20us);
            waits.push_back(
                std::chrono::duration<double, std::milli>(Clock::now() - began).count());
            std::this_thread::sleep_for(10ms);
        }
        std::this_thread::sleep_for(10ms + std::chrono::microseconds{waits.size() * 137 % 1500});
    }
    std::sort(waits.begin(), waits.end());
    state.counters["read_ms"] = 1.5;
    state.counters["median_ms"] = waits[waits.size() / 2];
    state.counters["p95_ms"] = waits[waits.size() * 95 / 100];
    state.counters["worst_ms"] = waits.back();
    machine.gpu(0).set_access_time(0ns, 0ns);
    gpu.close();
    static_cast<void>(hipStreamDestroy(stream));
}
BENCHMARK(clock_write_while_the_sampler_reads)->ArgName("sampled")->Arg(0)->Arg(1)->Iterations(100);

}  // namespace
}  // namespace kdvfs
