// SPDX-License-Identifier: MIT
//
// libcuda.so.1 without a GPU, for processes that only the driver serves: two devices, whose work
// runs in the order in which it is enqueued: on the calling thread, but for the clock loop of
// switch_latency and what is enqueued behind it. Declared afresh from CUDA's
// documentation, and the marker kernel from its PTX text, so that a slip in the library shows
// against it.
#include <tests/nvml_double/nvml_double.hpp>

#include <dlfcn.h>
#include <time.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace {

constexpr int success = 0;
constexpr int invalid_value = 1;
constexpr int invalid_device = 101;
constexpr int invalid_context = 201;

std::array<int, 2> primary{};  // the markers of each device; the address is its primary context
int kernel = 0;                // and this the marker kernel
int loop = 0;                  // and this the clock loop
thread_local void* current = nullptr;
thread_local void* pushed_over = nullptr;

std::uint64_t now() {
    timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(time.tv_nsec);
}

template <class T>
T at(const std::byte* from, std::size_t offset) {
    T value;
    std::memcpy(&value, from + offset, sizeof value);
    return value;
}

/// Offsets and arithmetic as the PTX text has them.
void run_marker(const std::byte* parameters) {
    *at<std::uint32_t*>(parameters, 0) = at<std::uint32_t>(parameters, 8);
    auto* const ring = at<std::byte*>(parameters, 16);
    if (ring == nullptr) return;
    const std::uint64_t before =
        __atomic_fetch_add(at<std::uint64_t*>(parameters, 24), 1, __ATOMIC_RELAXED);
    std::byte* const entry = ring + ((before & at<std::uint64_t>(parameters, 32)) << 6U);
    const std::uint64_t time = now();
    const std::uint64_t cycles = time * 2;  // 2 GHz
    const std::uint64_t enqueued = at<std::uint64_t>(parameters, 80);
    const std::uint64_t unit = 7;
    constexpr std::uint64_t a = 11400714819323198485U;  // -7046029254386353131
    constexpr std::uint64_t b = 13787848793156543929U;  // -4658895280553007687
    constexpr std::uint64_t c = 10723151780598845931U;  // -7723592293110705685
    const auto word = [&](std::size_t offset) {
        return std::uint64_t{at<std::uint32_t>(parameters, offset)};
    };
    std::uint64_t sum = (before * a + a) ^ time;
    sum = (sum * b) ^ cycles;
    sum = (sum * c) ^ enqueued;
    sum = (sum * a) ^ (word(92) | word(88) << 32U);
    sum = (sum * b) ^ (unit | word(96) << 32U);
    sum = (sum * c) ^ word(100);
    sum = sum * a | 1U;
    const auto put = [&](std::size_t offset, const auto& value) {
        std::memcpy(entry + offset, &value, sizeof value);
    };
    put(0, time);
    put(8, cycles);
    put(16, enqueued);
    std::memcpy(entry + 24, parameters + 88, 16);
    put(40, static_cast<std::uint32_t>(unit));
    put(44, at<std::uint32_t>(parameters, 108));
    put(56, at<std::uint64_t>(parameters, 120));
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(entry + 48), sum, __ATOMIC_RELEASE);
}

/// The core clock that holds: what NVML's double is told holds 5 ms later.
unsigned core_megahertz() {
    static unsigned holds = 0;
    static unsigned requested = 0;
    static std::uint64_t since = 0;
    static const auto board = [] {
        void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_LAZY);
        void* const found = library == nullptr ? nullptr : ::dlsym(library, "nvml_double_board");
        return found == nullptr ? nullptr : reinterpret_cast<nvml_double::Board* (*)()>(found)();
    }();
    if (board == nullptr) return 1000;
    const unsigned now_requested = board->core_lock ? board->core_lock->second : board->wished_core;
    if (holds == 0) holds = requested = now_requested;
    if (now_requested != requested) {
        requested = now_requested;
        since = now();
    }
    if (now() - since > 5'000'000) holds = requested;
    return holds;
}

/// Takes so many steps of the clock that holds, of 20 cycles each.
void run_loop(unsigned steps) {
    const std::uint64_t end = now() + std::uint64_t{steps} * 20 * 1000 / core_megahertz();
    while (now() < end) {
    }
}

/// Work that runs beside its callers, in order.
class Queue {
public:
    void add(std::function<void()> work) {
        const std::lock_guard lock{mutex_};
        if (!thread_.joinable()) thread_ = std::thread{[this] { run(); }};
        work_.push_back(std::move(work));
        changed_.notify_all();
    }
    bool is_empty() {
        const std::lock_guard lock{mutex_};
        return work_.empty();
    }
    void wait() {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [this] { return work_.empty(); });
    }

private:
    void run() {
        for (;;) {
            std::unique_lock lock{mutex_};
            changed_.wait(lock, [this] { return !work_.empty(); });
            const std::function<void()> next = work_.front();
            lock.unlock();
            next();
            lock.lock();
            work_.pop_front();
            if (work_.empty()) changed_.notify_all();
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> work_;
    std::thread thread_;
};
Queue& queue() {
    static auto& its = *new Queue;  // its thread goes on until the process ends
    return its;
}

int needs_context() { return current == nullptr ? invalid_context : success; }
bool is_default(void* stream) { return reinterpret_cast<std::uintptr_t>(stream) <= 2; }

}  // namespace

extern "C" {

int cuInit(unsigned) { return success; }
int cuGetErrorString(int, const char** words) {
    *words = "words of the double";
    return success;
}
int cuDeviceGet(int* device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 || ordinal == 1 ? success : invalid_device;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
    *context = &primary.at(static_cast<std::size_t>(device));
    return success;
}
int cuCtxSetCurrent(void* context) {
    current = context;
    return success;
}
int cuCtxPushCurrent_v2(void* context) {
    pushed_over = current;
    current = context;
    return success;
}
int cuCtxPopCurrent_v2(void** context) {
    *context = current;
    current = pushed_over;
    return success;
}
int cuCtxGetCurrent(void** context) {
    *context = current;
    return success;
}
int cuCtxGetDevice(int* device) {
    *device = current == &primary[1] ? 1 : 0;
    return needs_context();
}
int cuDeviceGetPCIBusId(char* text, int room, int device) {
    static constexpr char address[] = "0000:1b:00.0";
    if (room < static_cast<int>(sizeof address)) return invalid_value;
    std::memcpy(text, address, sizeof address);
    if (device == 1) text[6] = 'c';
    return success;
}
int cuStreamGetCtx(void* stream, void** context) {
    *context = is_default(stream) ? current : *static_cast<void**>(stream);
    return *context == nullptr ? invalid_context : success;
}
int cuStreamCreate(void** stream, unsigned) {
    *stream = std::malloc(16);
    *static_cast<void**>(*stream) = current;
    return needs_context();
}
int cuStreamDestroy_v2(void* stream) {
    std::free(stream);
    return success;
}
int cuStreamSynchronize(void*) {
    queue().wait();
    return needs_context();
}
int cuStreamQuery(void*) { return needs_context(); }
int cuStreamGetCaptureInfo(void*, int* state, std::uint64_t* id) {
    *state = 0;
    *id = 0;
    return needs_context();
}
int cuThreadExchangeStreamCaptureMode(int*) { return success; }
int cuMemHostRegister_v2(void*, std::size_t, unsigned) { return needs_context(); }
int cuMemHostGetDevicePointer_v2(std::uint64_t* address, void* memory, unsigned) {
    *address = reinterpret_cast<std::uint64_t>(memory);
    return success;
}
int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
    *address = reinterpret_cast<std::uint64_t>(std::malloc(bytes));
    return needs_context();
}
int cuMemsetD8_v2(std::uint64_t address, unsigned char value, std::size_t count) {
    std::memset(reinterpret_cast<void*>(address), value, count);
    return success;
}
int cuStreamWriteValue32_v2(void*, std::uint64_t address, std::uint32_t value, unsigned) {
    *reinterpret_cast<volatile std::uint32_t*>(address) = value;
    return needs_context();
}
int cuMemsetD32Async(std::uint64_t address, unsigned value, std::size_t, void*) {
    *reinterpret_cast<volatile std::uint32_t*>(address) = value;
    return needs_context();
}
int cuLaunchHostFunc(void*, void (*function)(void*), void* data) {
    function(data);
    return needs_context();
}
int cuEventCreate(void** event, unsigned) {
    *event = std::calloc(1, sizeof(std::uint64_t));
    return needs_context();
}
int cuEventRecord(void* event, void*) {
    *static_cast<std::uint64_t*>(event) = now();
    return needs_context();
}
int cuEventQuery(void*) { return success; }
int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
    *milliseconds = static_cast<float>(
        static_cast<double>(*static_cast<std::uint64_t*>(to) - *static_cast<std::uint64_t*>(from)) *
        1e-6);
    return success;
}
int cuModuleLoadData(void** module, const void* text) {
    const auto has = [&](const char* entry) {
        return std::strstr(static_cast<const char*>(text), entry) != nullptr;
    };
    if (!has(".entry kdvfs_marker(") && !has(".entry kdvfs_clock_loop(")) return invalid_value;
    *module = has(".entry kdvfs_marker(") ? &kernel : &loop;
    return needs_context();
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
    *function = module;
    return std::strcmp(name, module == &kernel ? "kdvfs_marker" : "kdvfs_clock_loop") == 0
               ? success
               : invalid_value;
}
int cuLaunchKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, void*, void** arguments, void**) {
    if (current == nullptr) return invalid_context;
    if (function == &loop) {
        const unsigned steps = *static_cast<const unsigned*>(arguments[0]);
        queue().add([steps] { run_loop(steps); });
        return success;
    }
    if (function != &kernel) return invalid_value;
    ++*static_cast<int*>(current);
    const auto* const parameters = static_cast<const std::byte*>(arguments[0]);
    if (queue().is_empty()) {
        run_marker(parameters);
    } else {
        std::array<std::byte, 128> copy;
        std::memcpy(copy.data(), parameters, copy.size());
        queue().add([copy] { run_marker(copy.data()); });
    }
    return success;
}

/// What tests ask: how many markers have been launched.
int cuda_driver_double_markers() { return primary[0] + primary[1]; }
int cuda_driver_double_markers_of(int device) {
    return primary.at(static_cast<std::size_t>(device));
}
}
