// SPDX-License-Identifier: MIT
//
// The functions of libamdhip64 that kdvfs and its tests call, under the library's own name and
// symbol versions, without a GPU.
#include "hip_double.hpp"

#include "modules.hpp"
#include "stream.hpp"

#include <dlfcn.h>
#include <hip/hip_ext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>

namespace {

struct Double {
    std::mutex mutex;
    std::vector<std::string> devices{"0000:c1:00.0"};
    hip_double::Quirks quirks;
    std::atomic<bool> success_resets_error = false;  // of the quirks; read under the lock and not
    hip_double::Board board;
    std::map<int, std::unique_ptr<ihipStream_t>> default_streams;
    std::map<std::pair<int, std::thread::id>, std::unique_ptr<ihipStream_t>> per_thread;
    std::set<ihipStream_t*> streams;
    std::set<ihipEvent_t*> events;  // the library knows them, so those alive at the end are no leak
    std::set<void*> signals;        // as these
    std::set<void*> memory;         // as these
    std::map<int, int> kernels_running;
    std::array<std::mutex, 4> queues;  // GPU_MAX_HW_QUEUES
    std::size_t streams_made = 0;
    unsigned long long captures = 0;
    bool at_once = false;
    std::atomic<std::uint64_t> copied_bytes{0};
    hip_double::Queries queries;
};

Double& state() {
    static auto& instance = *new Double;  // streams may outlive static destructors
    return instance;
}

thread_local int current_device = 0;
thread_local hipError_t last_error = hipSuccess;
thread_local hipStreamCaptureMode capture_mode = hipStreamCaptureModeGlobal;

hipError_t note(hipError_t error) {
    if (error != hipSuccess || state().success_resets_error) last_error = error;
    return error;
}

/// The stream behind a handle, or null for one that is not there. The caller holds the lock.
ihipStream_t* find(hipStream_t handle) {
    if (handle == nullptr || handle == hipStreamPerThread) {
        auto& stream = handle == nullptr
                           ? state().default_streams[current_device]
                           : state().per_thread[{current_device, std::this_thread::get_id()}];
        if (!stream) stream = std::make_unique<ihipStream_t>(current_device);
        return stream.get();
    }
    return state().streams.contains(handle) ? handle : nullptr;
}

hip_double::Listener& listener() {
    static hip_double::Listener one;
    return one;
}

/// Hands the table to a profiler, once, as HIP does at its first call.
void register_tables() {
    static const bool once = [] {
        const char* const path = std::getenv("HIP_DOUBLE_ROCPROFILER");
        if (path == nullptr || ::dlsym(RTLD_DEFAULT, "rocprofiler_configure") == nullptr) {
            return false;
        }
        void* const library = ::dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (library == nullptr) std::abort();
        using Set = int (*)(const char*, std::uint64_t, std::uint64_t, void**, std::uint64_t);
        static hip_double::ApiTable table{&hip_double::listen};
        void* tables[]{&table};
        reinterpret_cast<Set>(::dlsym(library, "rocprofiler_set_api_table"))("hip", 60200, 0,
                                                                             tables, 1);
        return true;
    }();
    static_cast<void>(once);
}

/// What is put into a queue, told to the listener; what is recorded is put later.
Operation told(Operation operation, const std::optional<hip_double::Work>& work) {
    if (!work || listener().ran == nullptr) return operation;
    return [operation = std::move(operation), work = *work, number = listener().put(*work)] {
        const std::uint64_t start = listener().now();
        operation();
        listener().ran(number, work, start, listener().now());
    };
}

/// Records into a capture, or puts into the stream.
/// @param work what a profiler is told of it; nothing where it is told nothing
hipError_t put(hipStream_t handle, Operation operation,
               const std::optional<hip_double::Work>& work = {}) {
    ihipStream_t* stream = nullptr;
    {
        const std::lock_guard lock{state().mutex};
        stream = find(handle);
        if (stream == nullptr) return note(hipErrorInvalidHandle);
        if (stream->recording) {
            if (stream->capture_is_broken) return note(hipErrorStreamCaptureInvalidated);
            stream->recording->operations.push_back({std::move(operation), work});
            return note(hipSuccess);
        }
    }
    // Without the lock: whoever listens may ask which device is current.
    stream->enqueue(told(std::move(operation), work));
    return note(hipSuccess);
}

bool runs_at_once(hipStream_t handle) {
    const std::lock_guard lock{state().mutex};
    const ihipStream_t* const stream = find(handle);
    return stream != nullptr && stream->recording &&
           state().quirks.operations_run_at_once_in_capture;
}

hip_double::Quirks quirks() {
    const std::lock_guard lock{state().mutex};
    return state().quirks;
}

void store(void* where, std::uint32_t value) {
    std::atomic_ref{*static_cast<std::uint32_t*>(where)}.store(value, std::memory_order_release);
}

void change_load(int device, int by) {
    const std::lock_guard lock{state().mutex};
    int& running = state().kernels_running[device];
    const bool was_busy = running > 0;
    running += by;
    if (state().board.set_busy != nullptr && was_busy != (running > 0)) {
        state().board.set_busy(device, running > 0);
    }
}

double clock_of(int device) {
    const std::lock_guard lock{state().mutex};
    return state().board.core_mhz != nullptr ? state().board.core_mhz(device) : 1000;
}

void run_kernel(int device, double megacycles) {
    change_load(device, 1);
    using Microseconds = std::chrono::duration<double, std::micro>;
    constexpr Microseconds slice{200};  // how soon a kernel feels a new clock
    auto last = std::chrono::steady_clock::now();
    while (megacycles > 0) {
        const double mhz = clock_of(device);
        std::this_thread::sleep_for(std::min(slice, Microseconds{megacycles * 1e6 / mhz}));
        const auto now = std::chrono::steady_clock::now();
        megacycles -= Microseconds{now - last}.count() * mhz / 1e6;
        last = now;
    }
    change_load(device, -1);
}

}  // namespace

namespace hip_double {

void reset(std::vector<std::string> pci_addresses) {
    std::map<int, std::unique_ptr<ihipStream_t>> defaults;
    std::map<std::pair<int, std::thread::id>, std::unique_ptr<ihipStream_t>> per_thread;
    const std::lock_guard lock{state().mutex};
    defaults.swap(state().default_streams);
    per_thread.swap(state().per_thread);
    state().devices = std::move(pci_addresses);
    state().quirks = {};
    state().success_resets_error = false;
    state().board = {};
    state().at_once = false;
    state().streams_made = 0;
    state().copied_bytes = 0;
    state().queries = {};
    current_device = 0;
}

void set_quirks(Quirks quirks) {
    const std::lock_guard lock{state().mutex};
    state().quirks = quirks;
    state().success_resets_error = quirks.success_resets_error;
}

void set_board(Board board) {
    const std::lock_guard lock{state().mutex};
    state().board = board;
}

void run_at_once(bool at_once) {
    const std::lock_guard lock{state().mutex};
    state().at_once = at_once;
}

int launch(void* stream, std::function<void()> work) {
    return put(static_cast<hipStream_t>(stream), std::move(work));
}

void listen(Listener wants) { listener() = wants; }

Queries queries() {
    const std::lock_guard lock{state().mutex};
    return state().queries;
}

std::uint64_t copied_bytes() { return state().copied_bytes; }

}  // namespace hip_double

extern "C" {

hipError_t hipInit(unsigned) {
    register_tables();
    return note(hipSuccess);
}

hipError_t hipGetDeviceCount(int* count) {
    register_tables();
    const std::lock_guard lock{state().mutex};
    *count = static_cast<int>(state().devices.size());
    return note(*count > 0 ? hipSuccess : hipErrorNoDevice);
}

hipError_t hipSetDevice(int device) {
    const std::lock_guard lock{state().mutex};
    if (device < 0 || device >= static_cast<int>(state().devices.size())) {
        return note(hipErrorInvalidDevice);
    }
    current_device = device;
    return note(hipSuccess);
}

hipError_t hipGetDevice(int* device) {
    register_tables();
    *device = current_device;
    return note(hipSuccess);
}

hipError_t hipDeviceGetPCIBusId(char* text, int length, int device) {
    const std::lock_guard lock{state().mutex};
    if (device < 0 || device >= static_cast<int>(state().devices.size())) {
        return note(hipErrorInvalidDevice);
    }
    std::snprintf(text, static_cast<std::size_t>(length), "%s",
                  state().devices[static_cast<std::size_t>(device)].c_str());
    return note(hipSuccess);
}

hipError_t hipDeviceSynchronize() {
    std::vector<ihipStream_t*> streams;
    {
        const std::lock_guard lock{state().mutex};
        for (auto& [device, stream] : state().default_streams) streams.push_back(stream.get());
        for (auto& [key, stream] : state().per_thread) streams.push_back(stream.get());
        for (ihipStream_t* stream : state().streams) streams.push_back(stream);
    }
    for (ihipStream_t* stream : streams) stream->wait();
    return note(hipSuccess);
}

hipError_t hipGetLastError() { return std::exchange(last_error, hipSuccess); }
hipError_t hipPeekAtLastError() { return last_error; }
const char* hipGetErrorName(hipError_t error) {
    return error == hipSuccess ? "hipSuccess" : "hipError of the double";
}
const char* hipGetErrorString(hipError_t error) { return hipGetErrorName(error); }

// Memory: the host's own.

hipError_t hipHostRegister(void*, size_t, unsigned) { return note(hipSuccess); }
hipError_t hipHostUnregister(void*) { return note(hipSuccess); }
hipError_t hipHostGetDevicePointer(void** device, void* host, unsigned) {
    *device = host;
    return note(hipSuccess);
}

hipError_t hipMalloc(void** memory, size_t bytes) {
    *memory = std::malloc(bytes);
    if (*memory == nullptr) return note(hipErrorOutOfMemory);
    const std::lock_guard lock{state().mutex};
    state().memory.insert(*memory);
    return note(hipSuccess);
}
hipError_t hipFree(void* memory) {
    const std::lock_guard lock{state().mutex};
    state().memory.erase(memory);
    std::free(memory);
    return note(hipSuccess);
}
hipError_t hipMemset(void* where, int value, size_t bytes) {
    std::memset(where, value, bytes);
    return note(hipSuccess);
}
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream) {
    return put(
        stream,
        [=] {
            std::memcpy(to, from, bytes);
            state().copied_bytes += bytes;
        },
        hip_double::Work{.copy = kind, .device = current_device});
}

hipError_t hipMemcpyAsync_spt(void* to, const void* from, size_t bytes, hipMemcpyKind kind,
                              hipStream_t stream) {
    return hipMemcpyAsync(to, from, bytes, kind, stream == nullptr ? hipStreamPerThread : stream);
}

namespace {
hipStream_t of_thread(hipStream_t stream) {
    return stream == nullptr ? hipStreamPerThread : stream;
}
}  // namespace

hipError_t hipStreamSynchronize_spt(hipStream_t stream) {
    return hipStreamSynchronize(of_thread(stream));
}
hipError_t hipStreamQuery_spt(hipStream_t stream) { return hipStreamQuery(of_thread(stream)); }
hipError_t hipMemset_spt(void* to, int value, size_t bytes) { return hipMemset(to, value, bytes); }
hipError_t hipEventRecord_spt(hipEvent_t event, hipStream_t stream) {
    return hipEventRecord(event, of_thread(stream));
}

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int) {
    if (attribute == hipDeviceAttributeMultiprocessorCount) {
        *value = 104;  // an MI210's
    } else if (attribute == hipDeviceAttributeCanUseStreamWaitValue) {
        *value = quirks().no_stream_memory_operations ? 0 : 1;
    } else {
        return note(hipErrorInvalidValue);
    }
    return note(hipSuccess);
}

// Streams.

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) {
    register_tables();
    const std::lock_guard lock{state().mutex};
    std::mutex* const queue = state().quirks.streams_share_queues
                                  ? &state().queues[state().streams_made++ % state().queues.size()]
                                  : nullptr;
    *stream = new ihipStream_t{current_device, state().at_once, queue};
    state().streams.insert(*stream);
    return note(hipSuccess);
}

hipError_t hipStreamCreate(hipStream_t* stream) { return hipStreamCreateWithFlags(stream, 0); }

hipError_t hipStreamDestroy(hipStream_t stream) {
    {
        const std::lock_guard lock{state().mutex};
        if (state().streams.erase(stream) == 0) return note(hipErrorInvalidHandle);
    }
    delete stream;  // runs what it still holds
    return note(hipSuccess);
}

hipError_t hipStreamSynchronize(hipStream_t handle) {
    ihipStream_t* stream = nullptr;
    {
        const std::lock_guard lock{state().mutex};
        stream = find(handle);
        if (stream == nullptr) return note(hipErrorInvalidHandle);
        if (stream->recording) return note(hipErrorStreamCaptureUnsupported);
    }
    stream->wait();
    return note(hipSuccess);
}

hipError_t hipStreamQuery(hipStream_t handle) {
    const std::lock_guard lock{state().mutex};
    ihipStream_t* const stream = find(handle);
    if (stream == nullptr) return note(hipErrorInvalidHandle);
    return stream->is_idle() ? hipSuccess : hipErrorNotReady;
}

int hipGetStreamDeviceId(hipStream_t handle) {
    const std::lock_guard lock{state().mutex};
    ++state().queries.device;
    const ihipStream_t* const stream = find(handle);
    return stream == nullptr ? -1 : stream->device;
}

hipError_t hipStreamWriteValue32(hipStream_t stream, void* where, uint32_t value, unsigned) {
    if (quirks().no_stream_memory_operations) return note(hipErrorNotSupported);
    if (runs_at_once(stream)) {
        store(where, value);
        return note(hipSuccess);
    }
    return put(stream, [where, value] { store(where, value); });
}

hipError_t hipExtMallocWithFlags(void** memory, size_t bytes, unsigned) {
    *memory = std::calloc(1, bytes);
    const std::lock_guard lock{state().mutex};
    state().signals.insert(*memory);
    return note(hipSuccess);
}

hipError_t hipStreamWaitValue32(hipStream_t stream, void* where, uint32_t value, unsigned flags,
                                uint32_t mask) {
    if (quirks().no_stream_memory_operations || quirks().no_waits)
        return note(hipErrorNotSupported);
    if (flags != hipStreamWaitValueGte) return note(hipErrorInvalidValue);
    const auto wait = [where, value, mask] {
        const std::atomic_ref word{*static_cast<std::uint32_t*>(where)};
        while ((word.load(std::memory_order_acquire) & mask) < value) {
            std::this_thread::sleep_for(std::chrono::microseconds{50});
        }
    };
    if (runs_at_once(stream)) {
        wait();
        return note(hipSuccess);
    }
    return put(stream, wait);
}

hipError_t hipMemsetD32Async(hipDeviceptr_t where, int value, size_t count, hipStream_t stream) {
    if (quirks().no_memsets) return note(hipErrorNotSupported);
    return put(stream, [where, value, count] {
        for (size_t i = 0; i < count; ++i) {
            store(static_cast<std::uint32_t*>(where) + i, static_cast<std::uint32_t>(value));
        }
    });
}

hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void* data,
                                unsigned) {
    if (runs_at_once(stream)) {
        callback(stream, hipSuccess, data);
        return note(hipSuccess);
    }
    return put(stream, [=] { callback(stream, hipSuccess, data); });
}

namespace {
/// Where all launches end up: none of them passes an exported symbol.
hipError_t launch_kernel(const char* symbol, dim3 grid, dim3 block, void** arguments,
                         hipStream_t stream) {
    if (grid.x == 0) return note(hipErrorInvalidConfiguration);
    const double megacycles = *static_cast<double*>(arguments[0]);
    int device = current_device;
    {
        const std::lock_guard lock{state().mutex};
        if (const ihipStream_t* found = find(stream)) device = found->device;
    }
    return put(
        stream, [device, megacycles] { run_kernel(device, megacycles); },
        hip_double::Work{.kernel = symbol,
                         .grid = {grid.x, grid.y, grid.z},
                         .block = {block.x, block.y, block.z},
                         .device = device});
}
/// The host's function stands for the kernel, as the compiler has it.
const char* symbol_of(const void* kernel) {
    Dl_info where{};
    return ::dladdr(kernel, &where) == 0 ? nullptr : where.dli_sname;
}
}  // namespace

hipError_t hipLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t,
                           hipStream_t stream) {
    return launch_kernel(symbol_of(kernel), grid, block, arguments, stream);
}
hipError_t hipExtLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t,
                              hipStream_t stream, hipEvent_t, hipEvent_t, int) {
    return launch_kernel(symbol_of(kernel), grid, block, arguments, stream);
}
/// A module's function points to its name here.
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz,
                                 unsigned bx, unsigned by, unsigned bz, unsigned,
                                 hipStream_t stream, void** parameters, void**) {
    if (const auto status = hip_double::launch_code(function, stream, parameters)) {
        return static_cast<hipError_t>(*status);
    }
    return launch_kernel(reinterpret_cast<const char*>(function), dim3(gx, gy, gz),
                         dim3(bx, by, bz), parameters, stream);
}
hipError_t hipLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** parameters,
                                      unsigned, hipStream_t stream) {
    return launch_kernel(symbol_of(kernel), grid, block, parameters, stream);
}
hipError_t hipExtLaunchMultiKernelMultiDevice(hipLaunchParams* list, int count, unsigned) {
    for (int i = 0; i < count; ++i) {
        const hipLaunchParams& each = list[i];
        if (const hipError_t error = launch_kernel(symbol_of(each.func), each.gridDim,
                                                   each.blockDim, each.args, each.stream)) {
            return error;
        }
    }
    return note(hipSuccess);
}

const char* hipKernelNameRefByPtr(const void* kernel, hipStream_t) { return symbol_of(kernel); }
const char* hipKernelNameRef(const hipFunction_t function) {
    return reinterpret_cast<const char*>(function);
}

// Events.

hipError_t hipEventCreate(hipEvent_t* event) {
    *event = new ihipEvent_t;
    const std::lock_guard lock{state().mutex};
    state().events.insert(*event);
    return note(hipSuccess);
}
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) { return hipEventCreate(event); }
hipError_t hipEventDestroy(hipEvent_t event) {
    {
        const std::lock_guard lock{state().mutex};
        if (state().events.erase(event) == 0) return note(hipErrorInvalidHandle);
    }
    delete event;
    return note(hipSuccess);
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    if (quirks().no_event_records) return note(hipErrorOutOfMemory);
    auto record = std::make_shared<ihipEvent_t::Record>();
    {
        const std::lock_guard lock{event->mutex};
        event->record = record;
    }
    return put(stream, [record] {
        const std::lock_guard lock{record->mutex};
        record->at = std::chrono::steady_clock::now();
        record->is_passed = true;
        record->passed.notify_all();
    });
}

hipError_t hipEventSynchronize(hipEvent_t event) {
    const auto record = event->latest();
    if (!record) return note(hipSuccess);
    std::unique_lock lock{record->mutex};
    record->passed.wait(lock, [&] { return record->is_passed; });
    return note(hipSuccess);
}

hipError_t hipEventQuery(hipEvent_t event) {
    if (quirks().event_query_breaks_captures && capture_mode == hipStreamCaptureModeGlobal) {
        const std::lock_guard lock{state().mutex};
        for (ihipStream_t* stream : state().streams) stream->capture_is_broken = true;
    }
    const auto record = event->latest();
    if (!record) return note(hipSuccess);
    const std::lock_guard lock{record->mutex};
    return record->is_passed ? hipSuccess : hipErrorNotReady;
}

hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop) {
    const bool events_run_fast = quirks().events_run_fast;
    const auto first = start->latest();
    const auto second = stop->latest();
    if (!first || !second) return note(hipErrorInvalidHandle);
    const std::scoped_lock lock{first->mutex, second->mutex};
    if (!first->is_passed || !second->is_passed) return note(hipErrorNotReady);
    *milliseconds = std::chrono::duration<float, std::milli>(second->at - first->at).count();
    if (events_run_fast) *milliseconds *= 2;
    return note(hipSuccess);
}

// Captures and graphs.

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
    std::swap(*mode, capture_mode);
    return note(hipSuccess);
}

hipError_t hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode) {
    const std::lock_guard lock{state().mutex};
    ihipStream_t* const stream = find(handle);
    if (stream == nullptr || handle == nullptr) return note(hipErrorStreamCaptureUnsupported);
    if (stream->recording) return note(hipErrorIllegalState);
    stream->recording = std::make_unique<ihipGraph>();
    stream->capture_is_broken = false;
    stream->capture_id = ++state().captures;
    return note(hipSuccess);
}

hipError_t hipStreamEndCapture(hipStream_t handle, hipGraph_t* graph) {
    const std::lock_guard lock{state().mutex};
    ihipStream_t* const stream = find(handle);
    if (stream == nullptr || !stream->recording) return note(hipErrorStreamCaptureUnmatched);
    std::unique_ptr<ihipGraph> recorded = std::move(stream->recording);
    if (stream->capture_is_broken) {
        *graph = nullptr;
        return note(hipErrorStreamCaptureInvalidated);
    }
    *graph = recorded.release();
    return note(hipSuccess);
}

hipError_t hipStreamGetCaptureInfo(hipStream_t handle, hipStreamCaptureStatus* status,
                                   unsigned long long* id) {
    const std::lock_guard lock{state().mutex};
    ++state().queries.capture;
    const ihipStream_t* const stream = find(handle);
    if (stream == nullptr) return note(hipErrorInvalidHandle);
    *status = hipStreamCaptureStatusNone;
    if (stream->recording) {
        *status = stream->capture_is_broken ? hipStreamCaptureStatusInvalidated
                                            : hipStreamCaptureStatusActive;
        if (id != nullptr) *id = stream->capture_id;
    }
    return note(hipSuccess);
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
    return hipStreamGetCaptureInfo(stream, status, nullptr);
}

hipError_t hipGraphInstantiate(hipGraphExec_t* ready, hipGraph_t graph, hipGraphNode_t*, char*,
                               size_t) {
    *ready = new hipGraphExec{graph->operations};
    return note(hipSuccess);
}

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count) {
    if (nodes != nullptr) return note(hipErrorNotSupported);
    *count = graph->operations.size();
    return note(hipSuccess);
}

hipError_t hipGraphLaunch(hipGraphExec_t graph, hipStream_t stream) {
    for (const auto& [operation, work] : graph->operations) {
        if (const hipError_t error = put(stream, operation, work)) return error;
    }
    return note(hipSuccess);
}

hipError_t hipGraphExecDestroy(hipGraphExec_t graph) {
    delete graph;
    return note(hipSuccess);
}

hipError_t hipGraphDestroy(hipGraph_t graph) {
    delete graph;
    return note(hipSuccess);
}

/// Of HIP 5.7 on: from a table of the library's own, not by its symbols.
hipError_t hipGetProcAddress(const char* name, void** function, int, std::uint64_t, void*) {
    const std::map<std::string, void*> known{
        {"hipModuleLaunchKernel", reinterpret_cast<void*>(&hipModuleLaunchKernel)},
        {"hipExtLaunchKernel", reinterpret_cast<void*>(&hipExtLaunchKernel)},
        {"hipGraphLaunch", reinterpret_cast<void*>(&hipGraphLaunch)},
        {"hipStreamSynchronize", reinterpret_cast<void*>(&hipStreamSynchronize)}};
    const auto found = known.find(name);
    *function = found == known.end() ? nullptr : found->second;
    return found == known.end() ? hipErrorInvalidValue : hipSuccess;
}

}  // extern "C"

/// Mangled as C++, as libamdhip64 5.2 exports it.
hipError_t hipExtModuleLaunchKernel(hipFunction_t function, std::uint32_t gx, std::uint32_t gy,
                                    std::uint32_t gz, std::uint32_t bx, std::uint32_t by,
                                    std::uint32_t bz, std::size_t, hipStream_t stream,
                                    void** parameters, void**, hipEvent_t, hipEvent_t,
                                    std::uint32_t) {
    // The grid is in threads.
    return launch_kernel(reinterpret_cast<const char*>(function), dim3(gx / bx, gy / by, gz / bz),
                         dim3(bx, by, bz), parameters, stream);
}
