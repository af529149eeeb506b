// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/gpu_api.hpp>
#include <kdvfs/detail/device/marker_launch.hpp>
#include <tests/timestamps/store_entry.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// A `GpuApi` without a library behind it: streams run everything at once on the caller's thread,
/// unless they are held or captured. One thread at a time. Device addresses are not the host's:
/// what is taken for one without having been translated crashes.
namespace api_double {

using Operation = std::function<void()>;

struct StreamObject {
    int device = 0;
    bool held = false;
    std::deque<Operation> waiting;
    bool recording = false;
    bool capture_is_broken = false;
    std::uint64_t capture = 0;
    std::vector<Operation> recorded;

    void hold() { held = true; }
    void release() {
        held = false;
        while (!waiting.empty()) {
            const Operation next = std::move(waiting.front());
            waiting.pop_front();
            next();
        }
    }
};

struct EventObject {
    bool passed = false;
    std::chrono::steady_clock::time_point at;
};

enum class Status {
    success,
    not_ready,
    not_supported,
    invalid,
    captured,
    capture_invalidated,
    out_of_memory
};

/// What goes wrong on the device or in its driver.
struct Faults {
    bool writes_refused = false;
    bool writes_vanish = false;
    bool writes_overtake = false;  ///< every second one comes before the one in front of it
    bool sets_refused = false;
    bool callbacks_refused = false;
    bool waits_refused = false;
    bool kernels_refused = false;
    bool kernels_vanish = false;
    bool timestamps_vanish = false;
    bool timestamps_swap = false;  ///< tickets are drawn in another order than kernels run
    bool clock_goes_back = false;
    double clock_factor = 1;  ///< of the wall clock's rate that the API claims
    std::uint32_t unit = 0;   ///< where kernels run
    bool cycles_stand = false;
    bool cycles_are_ticks = false;
    bool events_refused = false;
    double event_factor = 1;
    int late_looks = 0;  ///< so many queries of an event that has passed keep the host for long
};

/// What a test knows and says; `reset` before each.
struct World {
    Faults faults;
    int current_device = 0;
    std::uint64_t captures = 0;
    std::uint64_t device_lookups = 0;
    std::uint64_t capture_queries = 0;
    std::uint32_t skipped_write = 0;
    std::vector<std::unique_ptr<StreamObject>> streams;
    StreamObject default_stream;
    std::vector<std::unique_ptr<EventObject>> events;
    std::vector<std::unique_ptr<std::uint64_t[]>> memory;
};

inline std::uint64_t tag_of_mapped_memory() { return std::uint64_t{1} << 62U; }
inline std::uint64_t tag_of_device_memory() { return std::uint64_t{1} << 61U; }

template <class T>
T* tagged(T* pointer, std::uint64_t tag) {
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) | tag);
}
/// The memory behind a device's address; the process ends where it is no such address.
template <class T>
T* behind(T* address, std::uint64_t tag) {
    const auto value = reinterpret_cast<std::uintptr_t>(address);
    if ((value & tag) == 0) std::abort();
    return reinterpret_cast<T*>(value & ~tag);
}

/// As CUDA does it.
struct CudaLike {
    static constexpr const char* name = "CUDA";
    static constexpr bool records = true;
    static constexpr bool signal_memory = false;
    static constexpr double megahertz = 1000;
};
/// As HIP does it.
struct HipLike {
    static constexpr const char* name = "HIP";
    static constexpr bool records = false;
    static constexpr bool signal_memory = true;
    static constexpr double megahertz = 100;
};

template <class Vendor>
struct Api {
    using StreamObject = api_double::StreamObject;
    using Stream = StreamObject*;
    using Event = EventObject*;
    using Status = api_double::Status;
    enum class CaptureMode { global, relaxed };
    using Home = int;

    static constexpr const char* name = Vendor::name;
    static constexpr const char* compiler = "the double's compiler";
    static constexpr bool records_writes = Vendor::records;
    static constexpr bool records_callbacks = Vendor::records;
    static constexpr bool waits_in_signal_memory = Vendor::signal_memory;
    static constexpr Status success = Status::success;
    static constexpr Status not_ready = Status::not_ready;
    static constexpr Status not_supported = Status::not_supported;
    static constexpr Status cannot_capture = Status::captured;
    static constexpr Status capture_invalidated = Status::capture_invalidated;
    static constexpr Status out_of_memory = Status::out_of_memory;
    static constexpr CaptureMode relaxed_capture = CaptureMode::relaxed;

    static World& world() {
        static World instance;
        return instance;
    }
    static void reset() {
        world() = World{};
        kdvfs::device::marker_kernel_of_program<Api>() = launch_marker;
    }

    static kdvfs::Errc code_of(Status status) {
        if (status == Status::not_supported) return kdvfs::Errc::not_supported;
        return status == Status::out_of_memory ? kdvfs::Errc::io : kdvfs::Errc::invalid_input;
    }
    static std::string words_of(Status status) {
        return "error " + std::to_string(static_cast<int>(status));
    }
    static const char* remedy_for(Status) { return ""; }
    static void forget_last_error() {}

    static Status get_device(int* device) {
        *device = world().current_device;
        return Status::success;
    }
    static Status set_device(int device) {
        if (device < 0 || device > 1) return Status::invalid;
        world().current_device = device;
        return Status::success;
    }
    static Status pci_address(char* text, int, int) {
        *text = '\0';
        return Status::success;
    }
    static double wall_clock_megahertz(int) { return Vendor::megahertz; }
    static Home home(int device) { return device; }
    static std::string external(Stream stream, int, Home home) {
        ++world().device_lookups;
        const int its = is_default(stream) ? world().current_device : stream->device;
        return its == home ? "" : "it is another's";
    }
    static bool is_default(Stream stream) { return stream == nullptr || is_per_thread(stream); }
    static bool is_per_thread(Stream stream) { return stream == per_thread(); }
    static Stream per_thread() {
        static StreamObject stream;
        return &stream;
    }

    static Status make_stream(Stream* stream) {
        world().streams.push_back(std::make_unique<StreamObject>());
        *stream = world().streams.back().get();
        (*stream)->device = world().current_device;
        return Status::success;
    }
    static Status destroy_stream(Stream) { return Status::success; }
    static Status synchronize(Stream stream) {
        if (object(stream).recording) return Status::captured;
        object(stream).release();
        return Status::success;
    }
    static Status query_stream(Stream stream) {
        return object(stream).waiting.empty() ? Status::success : Status::not_ready;
    }
    static Status capture_state(Stream stream, kdvfs::device::CaptureState& capture) {
        ++world().capture_queries;
        const StreamObject& its = object(stream);
        capture = {its.recording && !its.capture_is_broken, its.recording && its.capture_is_broken,
                   its.capture};
        return Status::success;
    }
    static Status exchange_capture_mode(CaptureMode* mode) {
        static CaptureMode current = CaptureMode::global;
        std::swap(*mode, current);
        return Status::success;
    }

    static Status register_host_memory(void*, std::size_t) { return Status::success; }
    static Status device_address(void** device, void* host) {
        *device = tagged(host, tag_of_mapped_memory());
        return Status::success;
    }
    static Status make_device_memory(void** memory, std::size_t bytes) {
        world().memory.push_back(std::make_unique<std::uint64_t[]>(bytes / 8 + 1));
        *memory = tagged(static_cast<void*>(world().memory.back().get()), tag_of_device_memory());
        return Status::success;
    }
    static Status make_signal_memory(std::uint32_t** word) {
        if (!waits_in_signal_memory) return Status::not_supported;
        world().memory.push_back(std::make_unique<std::uint64_t[]>(1));
        *word = reinterpret_cast<std::uint32_t*>(world().memory.back().get());
        return Status::success;
    }

    static Status write(Stream stream, std::uint32_t* word, std::uint32_t value) {
        if (world().faults.writes_refused) return Status::not_supported;
        auto* const there = behind(word, tag_of_mapped_memory());
        if (world().faults.writes_vanish) return Status::success;
        if (world().faults.writes_overtake && value % 2 == 1) {
            world().skipped_write = value;
            return Status::success;
        }
        const std::uint32_t late = std::exchange(world().skipped_write, 0);
        const auto store_both = [there, value, late] {
            store(there, value);
            if (late != 0) store(there, late);
        };
        return object(stream).recording && !records_writes ? at_once(store_both)
                                                           : put(stream, store_both);
    }
    static Status set(Stream stream, std::uint32_t* word, std::uint32_t value) {
        if (world().faults.sets_refused) return Status::not_supported;
        return put(stream,
                   [there = behind(word, tag_of_mapped_memory()), value] { store(there, value); });
    }
    /// Holds the stream until the word is there; whoever sets the word lets the stream go.
    static Status wait(Stream stream, std::uint32_t* word, std::uint32_t value) {
        if (world().faults.waits_refused) return Status::not_supported;
        const auto* there = waits_in_signal_memory ? word : behind(word, tag_of_mapped_memory());
        if (*there < value) object(stream).hold();
        return Status::success;
    }
    template <void (*Function)(void*)>
    static Status call_back(Stream stream, void* data) {
        if (world().faults.callbacks_refused) return Status::not_supported;
        const auto call = [data] { Function(data); };
        return object(stream).recording && !records_callbacks ? at_once(call) : put(stream, call);
    }

    static Status make_event(Event* event) {
        world().events.push_back(std::make_unique<EventObject>());
        *event = world().events.back().get();
        return Status::success;
    }
    static Status record(Event event, Stream stream) {
        if (world().faults.events_refused) return Status::out_of_memory;
        event->passed = false;
        return put(stream, [event] {
            event->at = std::chrono::steady_clock::now();
            event->passed = true;
        });
    }
    static Status query(Event event) {
        if (!event->passed) return Status::not_ready;
        if (world().faults.late_looks > 0) {
            --world().faults.late_looks;
            std::this_thread::sleep_for(std::chrono::milliseconds{3});
        }
        return Status::success;
    }
    static Status elapsed(float* milliseconds, Event from, Event to) {
        using Milliseconds = std::chrono::duration<double, std::milli>;
        *milliseconds = static_cast<float>(Milliseconds{to->at - from->at}.count() *
                                           world().faults.event_factor);
        return Status::success;
    }

    // Of the double's own.

    static StreamObject& object(Stream stream) {
        return stream == nullptr ? world().default_stream : *stream;
    }
    static Status put(Stream stream, Operation operation) {
        StreamObject& its = object(stream);
        if (its.recording) {
            its.recorded.push_back(std::move(operation));
        } else if (its.held) {
            its.waiting.push_back(std::move(operation));
        } else {
            operation();
        }
        return Status::success;
    }
    static void begin_capture(Stream stream) {
        stream->recording = true;
        stream->capture_is_broken = false;
        stream->capture = ++world().captures;
        stream->recorded.clear();
    }
    static std::vector<Operation> end_capture(Stream stream) {
        stream->recording = false;
        return std::move(stream->recorded);
    }

    /// What the marker kernel does.
    static int launch_marker(void* stream, const kdvfs::device::MarkerArguments& arguments) {
        if (world().faults.kernels_refused) return static_cast<int>(Status::invalid);
        return static_cast<int>(put(static_cast<Stream>(stream), [arguments] { run(arguments); }));
    }

private:
    static Status at_once(const Operation& operation) {
        operation();
        return Status::success;
    }
    static void store(std::uint32_t* where, std::uint32_t value) {
        std::atomic_ref{*where}.store(value, std::memory_order_release);
    }

    static void run(const kdvfs::device::MarkerArguments& arguments) {
        const Faults& faults = world().faults;
        if (faults.kernels_vanish) return;
        store(behind(arguments.cell, tag_of_mapped_memory()), arguments.level);
        if (arguments.ring == nullptr || faults.timestamps_vanish) return;
        kdvfs::device::TimestampEntry entry = arguments.timestamp;
        const std::chrono::duration<double, std::micro> now =
            std::chrono::steady_clock::now().time_since_epoch();
        entry.ticks =
            static_cast<std::uint64_t>(now.count() * Vendor::megahertz * faults.clock_factor);
        if (faults.clock_goes_back) entry.ticks = ~entry.ticks >> 4U;
        entry.cycles = static_cast<std::uint64_t>(now.count() * 1700);
        if (faults.cycles_are_ticks) entry.cycles = entry.ticks;
        if (faults.cycles_stand) entry.cycles = 42;
        entry.unit = faults.unit;
        // The counter must be in the device's own memory.
        auto* const counter = behind(arguments.next_ticket, tag_of_device_memory());
        std::uint64_t ticket = ++*counter;
        if (faults.timestamps_swap) ticket = ticket % 2 == 0 ? ticket - 1 : ticket + 1;
        entry.check = kdvfs::device::timestamp_check(entry, ticket);
        timestamps_test::store_entry(
            behind(arguments.ring, tag_of_mapped_memory())[(ticket - 1) & arguments.ring_mask],
            entry);
    }
};

using Cuda = Api<CudaLike>;
using Hip = Api<HipLike>;
static_assert(kdvfs::device::GpuApi<Cuda> && kdvfs::device::GpuApi<Hip>);

}  // namespace api_double
