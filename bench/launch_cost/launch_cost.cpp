// SPDX-License-Identifier: MIT
//
// What a profiler costs the launches of a program, on the double of CUDA's driver.
//   launch_cost SECONDS KINDS [gap=MICROSECONDS] [ranges=DEPTH] [grids=N] [us=KERNEL]
// A step launches 200 kernels of KINDS kinds (each with N grids), inside DEPTH ranges of NVTX,
// waits for them, and sleeps for the gap. Prints one line: launches a second, ns of CPU of the
// launching thread for each, seconds of CPU of all other threads, the seconds since 1970 at
// which the work ended, and the seconds that the first launch took, before these.
#include <tests/attach/cuda_double.hpp>

#include <dlfcn.h>
#include <time.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

// NVTX as its header has it: tables of pointers, filled in by the library that is injected.
using Function = void (*)();
Function push_function = nullptr;
Function pop_function = nullptr;
std::array<Function*, 16> core_table{};
std::array<Function*, 16> domain_table{};

int table_of(int module, Function*** table, unsigned* size) {
    constexpr int core = 1;
    constexpr int domains = 5;
    core_table[9] = &push_function;
    core_table[11] = &pop_function;
    *table = module == core ? core_table.data() : domain_table.data();
    *size = core_table.size();
    return module == core || module == domains ? 1 : 0;
}

const void* export_table(std::uint32_t id) {
    struct Callbacks {
        std::size_t size;
        int (*table)(int, Function***, unsigned*);
    };
    static const Callbacks callbacks{sizeof(Callbacks), &table_of};
    return id == 1 ? &callbacks : nullptr;
}

void load_nvtx() {
    const char* const path = std::getenv("NVTX_INJECTION64_PATH");
    void* const library = path != nullptr ? dlopen(path, RTLD_LAZY) : nullptr;
    if (library == nullptr) return;
    using Begin = int (*)(const void* (*)(std::uint32_t));
    if (void* const begin = dlsym(library, "InitializeInjectionNvtx2"))
        reinterpret_cast<Begin>(begin)(&export_table);
}

double seconds_of(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Work {
    double seconds = 1;
    int kinds = 1;
    double gap = 0;  // microseconds of sleep after a step
    int ranges = 0;
    unsigned grids = 1;
    double microseconds = 0;  // of a kernel
};

Work read_arguments(int argc, char** argv) {
    Work work;
    work.seconds = std::atof(argv[1]);
    work.kinds = std::atoi(argv[2]);
    for (int i = 3; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const auto equals = argument.find('=');
        if (equals == std::string_view::npos) continue;
        const std::string_view name = argument.substr(0, equals);
        const double value = std::atof(argv[i] + equals + 1);
        if (name == "gap") work.gap = value;
        if (name == "ranges") work.ranges = static_cast<int>(value);
        if (name == "grids") work.grids = static_cast<unsigned>(value);
        if (name == "us") work.microseconds = value;
    }
    return work;
}

/// Launches until the time is over; the number of launches.
std::uint64_t launch(const Work& work, std::vector<cuda_double::Kernel>& kernels, void* stream) {
    constexpr int step = 200;
    std::uint64_t launches = 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto since = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    while (since() < work.seconds) {
        for (int depth = 0; depth < work.ranges && push_function != nullptr; ++depth)
            reinterpret_cast<int (*)(const char*)>(push_function)("range");
        for (int i = 0; i < step; ++i, ++launches) {
            const auto round = static_cast<unsigned>(launches / kernels.size());
            cuLaunchKernel(&kernels[launches % kernels.size()], 64 + round % work.grids, 1, 1, 128,
                           1, 1, 0, stream, nullptr, nullptr);
        }
        for (int depth = 0; depth < work.ranges && pop_function != nullptr; ++depth)
            reinterpret_cast<int (*)()>(pop_function)();
        cuStreamSynchronize(stream);
        if (work.gap > 0) {
            std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(work.gap));
        }
    }
    return launches;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::puts("usage: launch_cost SECONDS KINDS [gap=US] [ranges=N] [grids=N] [us=KERNEL]");
        return 2;
    }
    const Work work = read_arguments(argc, argv);
    constexpr unsigned enough_cores = 4;
    if (std::thread::hardware_concurrency() >= enough_cores) ::setenv("CUDA_DOUBLE_POLLS", "1", 1);
    cuInit(0);
    load_nvtx();
    std::vector<std::string> names;
    for (int i = 0; i < work.kinds; ++i) {
        const std::string name = "kernel" + std::to_string(i);
        names.push_back("_Z" + std::to_string(name.size()) + name + "Pf");
    }
    std::vector<cuda_double::Kernel> kernels;
    for (const std::string& name : names)
        kernels.push_back(
            {.symbol = name.c_str(), .microseconds = work.microseconds, .watts = 100});
    void* stream = nullptr;
    cuStreamCreate(&stream, 0);
    const double opened = seconds_of(CLOCK_MONOTONIC);
    cuLaunchKernel(kernels.data(), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
    cuStreamSynchronize(stream);
    const double process = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    const double thread = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    const double begin = seconds_of(CLOCK_MONOTONIC);
    const std::uint64_t launches = launch(work, kernels, stream);
    const double rate = static_cast<double>(launches) / (seconds_of(CLOCK_MONOTONIC) - begin);
    const double own = seconds_of(CLOCK_THREAD_CPUTIME_ID) - thread;
    const double others = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - process - own;
    std::printf("%.1f %.1f %.3f %.6f %.4f\n", rate, 1e9 * own / static_cast<double>(launches),
                others, seconds_of(CLOCK_REALTIME), begin - opened);
}
