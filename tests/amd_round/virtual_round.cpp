// SPDX-License-Identifier: MIT
//
// What makes bench/amd_round run without a GPU: the load is the kernel of HIP's double, which runs
// at the clock of a virtual board, and the marker kernel is done by the host. KDVFS_ROUND_FAULT
// names what is wrong with it; KDVFS_ROUND_BOARD which board of the machine it is.
#include <bench/amd_round/load.hpp>
#include <kdvfs/detail/device/marker_launch.hpp>
#include <tests/hip_double/hip_double.hpp>
#include <tests/timestamps/store_entry.hpp>
#include <tests/virtual_amdgpu/file_system.hpp>

#include <hip/hip_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace {

using virtual_amdgpu::FileSystem;

bool has_fault(std::string_view fault) {
    const char* const set = std::getenv("KDVFS_ROUND_FAULT");
    return set != nullptr && set == fault;
}

unsigned board() {
    const char* const set = std::getenv("KDVFS_ROUND_BOARD");
    return set != nullptr ? static_cast<unsigned>(std::atoi(set)) : 0;
}

/// Core cycles, as a unit counts them: the board's clock, added up from look to look.
std::uint64_t core_cycles(std::chrono::steady_clock::time_point now) {
    static std::mutex streams;
    const std::lock_guard lock{streams};
    static auto last = now;
    static double cycles = 1e9;
    const std::chrono::duration<double, std::micro> passed = now - last;
    cycles += passed.count() * FileSystem::running(board()).first *
              (has_fault("wrong_cycles") ? 0.5 : 1.0);
    last = now;
    return static_cast<std::uint64_t>(cycles);
}

void store(std::uint32_t* where, std::uint32_t value) {
    std::atomic_ref{*where}.store(value, std::memory_order_release);
}

/// What the marker kernel does on a GPU, with a wall clock of 100 MHz.
void run_marker(const kdvfs::device::MarkerArguments& arguments) {
    if (has_fault("slow_markers")) std::this_thread::sleep_for(std::chrono::microseconds{300});
    if (!has_fault("no_store")) store(arguments.cell, arguments.level);
    if (arguments.ring == nullptr || has_fault("no_stamp")) return;
    const auto now = std::chrono::steady_clock::now();
    kdvfs::device::TimestampEntry entry = arguments.timestamp;
    entry.ticks = static_cast<std::uint64_t>(now.time_since_epoch().count()) /
                  (has_fault("fast_clock") ? 5 : 10);
    // A look at the board takes longer than a marker may.
    entry.cycles = entry.enqueued != 0 && entry.scope_kind > 2 ? 0 : core_cycles(now);
    entry.unit = 1;
    std::uint64_t ticket = std::atomic_ref{*arguments.next_ticket}.fetch_add(1) + 1;
    // The first is alone, and right: that stamps arrive at all is proven by it.
    if (has_fault("swapped") && ticket > 1) ticket = ticket % 2 == 0 ? ticket + 1 : ticket - 1;
    entry.check = kdvfs::device::timestamp_check(entry, ticket);
    timestamps_test::store_entry(arguments.ring[(ticket - 1) & arguments.ring_mask], entry);
}

int launch_marker(void* stream, const kdvfs::device::MarkerArguments& arguments) {
    if (has_fault("captures_run")) {
        kdvfs::device::CaptureState capture;
        static_cast<void>(
            kdvfs::device::HipApi::capture_state(static_cast<hipStream_t>(stream), capture));
        if (capture.active) {
            run_marker(arguments);
            return hipSuccess;
        }
    }
    return hip_double::launch(stream, [arguments] { run_marker(arguments); });
}

double clock_of_board(int) { return FileSystem::running(board()).first; }
void set_load(int, bool busy) { FileSystem::tell(busy ? "busy" : "idle", board()); }

[[maybe_unused]] const bool is_set_up = [] {
    static constexpr const char* buses[] = {"c1", "c4", "c7", "ca", "cd",
                                            "d0", "d3", "d6", "d9", "dc"};
    hip_double::reset({"0000:" + std::string{buses[board()]} + ":00.0"});
    hip_double::set_board({clock_of_board, set_load});
    return kdvfs::device::offer_marker_kernel<kdvfs::device::HipApi>(&launch_marker);
}();

}  // namespace

hipError_t amd_round::burn(hipStream_t stream, double megacycles) {
    void* arguments[] = {&megacycles};
    return hipLaunchKernel(nullptr, {}, {}, arguments, 0, stream);
}
