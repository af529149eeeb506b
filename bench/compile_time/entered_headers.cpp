// SPDX-License-Identifier: MIT
//
// Counts the headers of kdvfs whose functions run on the way of a scope to the driver's file, and
// on that of a reading of the energy counter to report.json, on HIP's double and a virtual board.
// The compiler calls `__cyg_profile_func_enter` at the entry of each function, inlined ones
// included; binutils' addr2line says in which file it stands. Functions of the library's threads
// count too, which look at votes and samples meanwhile.
#include <kdvfs/measure/report_files.hpp>
#include <kdvfs/rocm.hpp>

#include <tests/hip_double/hip_double.hpp>
#include <tests/virtual_amdgpu/interpose.hpp>

#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

namespace {

/// The functions that were entered: an open hash table, which any thread may add to at any time.
struct Entered {
    std::array<std::atomic<void*>, 1U << 16U> functions{};
    std::atomic<bool> records{false};

    __attribute__((no_instrument_function)) void add(void* function) {
        for (std::size_t at = reinterpret_cast<std::uintptr_t>(function) >> 2U;; ++at) {
            std::atomic<void*>& place = functions[at % functions.size()];
            void* found = place.load(std::memory_order_relaxed);
            if (found == function ||
                (found == nullptr && place.compare_exchange_strong(found, function)) ||
                found == function)
                return;
        }
    }
};
constinit Entered entered;

}  // namespace

extern "C" {
__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void* function, void*) {
    if (entered.records.load(std::memory_order_relaxed)) entered.add(function);
}
__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void*, void*) {}
}

namespace {

using namespace std::chrono_literals;
using namespace kdvfs::literals;

struct Capped : kdvfs::Kernel<"capped"> {};
struct Kept : kdvfs::Kernel<"kept"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"capped", kdvfs::CapClock<1100_MHz>>,
                                       kdvfs::Bind<"kept", kdvfs::KeepClock>>;

/// The headers that were entered since the last call.
std::set<std::string> take_headers() {
    entered.records = false;
    const std::string folder = std::filesystem::temp_directory_path() / "kdvfs_entered";
    std::ofstream addresses{folder};
    for (auto& function : entered.functions)
        if (void* const at = function.exchange(nullptr)) addresses << at << '\n';
    addresses.close();
    const std::string command =
        "addr2line -e " + std::filesystem::read_symlink("/proc/self/exe").string() + " < " + folder;
    FILE* const lines = ::popen(command.c_str(), "r");
    std::set<std::string> headers;
    std::array<char, 4096> line{};
    while (std::fgets(line.data(), line.size(), lines) != nullptr) {
        const std::string text = line.data();
        const auto begin = text.find("include/kdvfs/");
        if (begin != std::string::npos)
            headers.insert(text.substr(begin + 14, text.rfind(':') - begin - 14));
    }
    ::pclose(lines);
    std::filesystem::remove(folder);
    return headers;
}

/// Prints headers, and how many they are. @param anyway entered where nothing is done, too
void print_headers(const std::string& what, const std::set<std::string>& headers,
                   const std::set<std::string>& anyway) {
    const auto known = [&](const std::string& header) { return anyway.count(header) > 0; };
    std::cout << what << ": " << headers.size() << " headers entered, "
              << std::count_if(headers.begin(), headers.end(), known)
              << " of them (*) by threads that look around anyway\n";
    for (const std::string& header : headers)
        std::cout << (known(header) ? "* " : "  ") << header << '\n';
}

void work_for(hipStream_t stream, std::chrono::milliseconds time) {
    static_cast<void>(hip_double::launch(stream, [time] { std::this_thread::sleep_for(time); }));
    static_cast<void>(hipStreamSynchronize(stream));
}

}  // namespace

int main() {
    virtual_amdgpu::Machine machine{{virtual_amdgpu::mi210()}};
    const virtual_amdgpu::Mounted mounted{machine};
    hip_double::reset({machine.address(0)});
    hipStream_t stream = nullptr;
    if (hipStreamCreate(&stream) != hipSuccess) return 1;
    {
        kdvfs::GpuOptions options;
        options.clock_path = kdvfs::ClockPath::driver_files;
        options.switch_latency = kdvfs::Duration{0};
        options.meter_every = 1U << 30U;
        const auto gpu = kdvfs::rocm::open(0, options).with<Policies>();
        gpu.next_iteration();
        for (int warming = 0; warming < 2; ++warming) {  // kinds and threads are known afterwards
            const kdvfs::FrequencyScope<Capped> scope{gpu, stream};
            work_for(stream, 50ms);
        }
        std::this_thread::sleep_for(100ms);
        entered.records = true;
        std::this_thread::sleep_for(200ms);
        const std::set<std::string> anyway = take_headers();
        const std::size_t written = machine.writes().size();
        entered.records = true;
        {
            const kdvfs::FrequencyScope<Capped> scope{gpu, stream};
            while (machine.writes().size() == written) std::this_thread::sleep_for(1ms);
            print_headers("a scope down to the driver's file", take_headers(), anyway);
        }
        std::this_thread::sleep_for(100ms);
    }
    {
        kdvfs::GpuOptions options;
        options.clock_path = kdvfs::ClockPath::driver_files;
        const auto gpu = kdvfs::rocm::open(0, options).with<Policies>();
        gpu.next_iteration();
        entered.records = true;
        for (int i = 0; i < 20; ++i) {
            const kdvfs::FrequencyScope<Kept> scope{gpu, stream};
            work_for(stream, 10ms);
        }
        std::ostringstream json;
        kdvfs::measure::write_json(json, gpu.report());
        print_headers("a reading up to report.json", take_headers(), {});
    }
    static_cast<void>(hipStreamDestroy(stream));
    return 0;
}
