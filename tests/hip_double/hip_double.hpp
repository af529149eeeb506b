// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// What tests tell the double of libamdhip64. It has devices, streams, events, stream memory
/// operations, callbacks, captures and graphs, and is sound for order, errors and lifetimes; its
/// times are those of sleeping host threads.
namespace hip_double {

/// ROCm's awkward behaviours, each behind a switch.
struct Quirks {
    /// Stream memory operations and callbacks are not recorded by a capture: they run at once, and
    /// say that all is well.
    bool operations_run_at_once_in_capture = false;
    /// An event query from a thread in the global capture mode ends every running capture.
    bool event_query_breaks_captures = false;
    /// Stream memory operations are refused.
    bool no_stream_memory_operations = false;
    bool no_memsets = false;
    bool no_waits = false;
    /// Events cannot be recorded.
    bool no_event_records = false;
    /// Events go by a clock that runs twice as fast.
    bool events_run_fast = false;
    /// Four hardware queues serve all streams made from then on, in turn: one that waits holds up
    /// those that share its queue.
    bool streams_share_queues = false;
    /// A call that succeeds resets what hipGetLastError returns, as before ROCm 7.
    bool success_resets_error = false;
};

/// A simulated kernel runs for so many million core cycles: the clock, and who is told about the
/// load, are the test's. Convention: the first argument of `hipLaunchKernel` points to a double.
struct Board {
    double (*core_mhz)(int device) = nullptr;  ///< null: 1000
    void (*set_busy)(int device, bool busy) = nullptr;
};

/// Starts from nothing with devices at these PCI addresses. No stream may be alive.
void reset(std::vector<std::string> pci_addresses);
void set_quirks(Quirks quirks);
void set_board(Board board);

/// Streams that are created from now on do everything at once, on the caller's thread: what is left
/// of a call's cost is bookkeeping, for benchmarks.
void run_at_once(bool at_once);

/// Puts work of the test's own into a stream, as a kernel launch: recorded by a capture.
/// @returns a hipError_t
int launch(void* stream, std::function<void()> work);

/// Work in a queue of the hardware.
struct Work {
    const char* kernel = nullptr;    ///< its symbol; null: a copy
    std::uint32_t grid[3]{1, 1, 1};  ///< in blocks
    std::uint32_t block[3]{1, 1, 1};
    int copy = 0;  ///< hipMemcpyKind
    int device = 0;
};
/// Whoever wants to be told of it, as a profiler is: null functions tell nobody.
struct Listener {
    /// On the thread that puts it into a queue. @returns a number for it
    std::uint64_t (*put)(const Work& work) = nullptr;
    std::uint64_t (*now)() = nullptr;
    void (*ran)(std::uint64_t number, const Work& work, std::uint64_t start,
                std::uint64_t end) = nullptr;
};
/// What the double hands to a library with `rocprofiler_set_api_table`, as HIP hands its tables:
/// the one that HIP_DOUBLE_ROCPROFILER names, at the first call, where there is a tool in the
/// process (`rocprofiler_configure`).
struct ApiTable {
    void (*listen)(Listener listener);
};
void listen(Listener listener);

/// Look-ups of a stream's device and of its capture since the last `reset`.
struct Queries {
    std::uint64_t device = 0;
    std::uint64_t capture = 0;
};
Queries queries();

/// Bytes that copies have moved since the last `reset`.
std::uint64_t copied_bytes();

}  // namespace hip_double
