// SPDX-License-Identifier: MIT
//
// libcuda.so.1 without a GPU: each stream is a thread that sleeps as long as its kernels take.
// Declared afresh from CUDA's documentation, so that a slip in the library shows against it.
#include "cuda_double.hpp"

#include <tests/nvml_double/nvml_double.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int success = 0;
constexpr int invalid_value = 1;
constexpr int invalid_handle = 400;
constexpr int context_lost = 700;  // CUDA_ERROR_ILLEGAL_ADDRESS, from then on at each call

using namespace std::chrono_literals;

std::atomic<bool> context_is_lost{false};

/// A profiler may come and go while kernels run.
std::atomic<decltype(cuda_double::Listener::call)> call_listener{nullptr};
std::atomic<decltype(cuda_double::Listener::ran)> work_listener{nullptr};

std::uint64_t since_1970(std::chrono::steady_clock::time_point time) {
    static const auto epoch = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::system_clock::now().time_since_epoch() -
        std::chrono::steady_clock::now().time_since_epoch());
    return static_cast<std::uint64_t>((time.time_since_epoch() + epoch).count());
}

/// The board whose counter and clock kernels feel, where there is a double of NVML.
class Board {
public:
    static Board& instance() {
        static auto& board = *new Board;
        return board;
    }
    /// The clock as a part of the highest one.
    double clock() const {
        if (state_ == nullptr) return 1;
        const auto lock = state_->core_lock;
        return lock ? std::max(lock->second, 210U) / 1980.0 : 1;
    }
    /// CUDA_DOUBLE_ADDRESS: where a node has several.
    static const char* address() {
        const char* const text = std::getenv("CUDA_DOUBLE_ADDRESS");
        return text == nullptr ? "0000:1b:00.0" : text;
    }
    /// Work begins or has ended.
    void note_work(bool ended) {
        if (shown_ == nullptr) return;
        const double joules = count();
        if (ended) {
            std::atomic_ref{shown_->last}.store(joules);
        } else if (!has_worked_.exchange(true)) {
            std::atomic_ref{shown_->first}.store(joules);
        }
    }
    using Time = std::chrono::steady_clock::time_point;
    /// A kernel draws so much more from then to then, which may be past already: what was not
    /// counted is made up for.
    void run(double watts, Time start, Time end) {
        count();
        const std::lock_guard lock{mutex_};
        joules_ += joules(watts, start, std::min(end, counted_));
        if (end > counted_) running_.push_back({watts, std::max(start, counted_), end});
    }

private:
    Board() {
        // What a meter beside the board would say of the whole run, for `kdvfs tune`.
        std::atexit([] {
            const char* const file = std::getenv("KDVFS_COST");
            if (file == nullptr || *file == '\0') return;
            const std::chrono::duration<double> time =
                std::chrono::steady_clock::now() - instance().began_;
            std::ofstream{file} << "time_s,energy_j\n"
                                << time.count() << ',' << instance().count() << '\n';
        });
        const char* const path = std::getenv("KDVFS_NVML");
        if (path == nullptr) return;
        void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return;
        using Hand = nvml_double::Board* (*)();
        state_ = reinterpret_cast<Hand>(::dlsym(library, "nvml_double_board"))();
        state_->address = address();
        // A board with few clocks, whose sweep is short.
        if (std::getenv("CUDA_DOUBLE_FEW_CLOCKS") != nullptr) {
            state_->core_clocks_by_memory = {{2619, {1980, 1000}}};
        }
        // A user without rights.
        if (std::getenv("CUDA_DOUBLE_REFUSES_CLOCKS") != nullptr) {
            for (const char* name :
                 {"nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks",
                  "nvmlDeviceSetMemoryLockedClocks", "nvmlDeviceResetMemoryLockedClocks"}) {
                state_->faults[name] = {.code = 4};  // NVML_ERROR_NO_PERMISSION
            }
        }
        shown_ = show();
        state_->before_read = [] { instance().count(); };
        std::thread{[this] {
            while (true) {
                std::this_thread::sleep_for(std::chrono::milliseconds{1});
                count();
            }
        }}.detach();
    }
    /// Counts up to now. @returns joules
    double count() {
        const std::lock_guard lock{mutex_};
        const Time now = std::chrono::steady_clock::now();
        double watts = rest_watts;
        joules_ += joules(rest_watts, counted_, now);
        for (const Run& run : running_) {
            joules_ += joules(run.watts, std::max(run.start, counted_), std::min(run.end, now));
            if (run.start <= now && now < run.end) watts += run.watts;
        }
        std::erase_if(running_, [now](const Run& run) { return run.end <= now; });
        counted_ = now;
        if (shown_ != nullptr) std::atomic_ref{shown_->now}.store(joules_);
        if (state_ != nullptr) {
            std::atomic_ref{state_->millijoules}.store(static_cast<std::uint64_t>(joules_ * 1e3));
            std::atomic_ref{state_->milliwatts}.store(static_cast<unsigned>(watts * 1e3));
        }
        return joules_;
    }
    /// CUDA_DOUBLE_COUNTER: a file that has the counter in joules, now, when work began first and
    /// when it ended last; also of a process that is killed.
    struct Shown {
        double now;
        double first;
        double last;
    };
    static Shown* show() {
        const char* const path = std::getenv("CUDA_DOUBLE_COUNTER");
        const int file = path == nullptr ? -1 : ::open(path, O_RDWR | O_CREAT, 0600);
        if (file < 0 || ::ftruncate(file, sizeof(Shown)) != 0) return nullptr;
        void* const memory =
            ::mmap(nullptr, sizeof(Shown), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        return memory == MAP_FAILED ? nullptr : static_cast<Shown*>(memory);
    }
    Shown* shown_ = nullptr;
    std::atomic<bool> has_worked_{false};
    const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    nvml_double::Board* state_ = nullptr;
    std::mutex mutex_;
    struct Run {
        double watts;
        Time start;
        Time end;
    };
    static double joules(double watts, Time from, Time to) {
        return watts * std::max(0.0, std::chrono::duration<double>(to - from).count());
    }
    static constexpr double rest_watts = 100;
    std::vector<Run> running_;
    Time counted_ = began_;
    double joules_ = 0;
};

struct Operation {
    std::uint32_t kind = 10;
    std::uint32_t correlation = 0;
    double microseconds = 0;
    double watts = 0;
    double core_share = 1;
    std::function<void()> act{};
    const char* symbol = nullptr;
    unsigned blocks = 0;
    bool in_graph = false;
    std::chrono::steady_clock::time_point put{};    ///< into a stream
    std::chrono::steady_clock::time_point start{};  ///< of its run
    std::chrono::steady_clock::time_point end{};
};

struct Graph {
    std::vector<Operation> operations;
};

struct Stream {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::vector<Operation>> work;
    bool busy = false;
    std::unique_ptr<Graph> recording;
    std::atomic<std::size_t> queued{0};
    std::chrono::steady_clock::time_point free_at{};

    Stream() {
        std::thread{[this] { run(); }}.detach();
    }
    void put(std::vector<Operation> operations) {
        {
            const std::lock_guard lock{mutex};
            const auto now = std::chrono::steady_clock::now();
            for (Operation& operation : operations) {
                operation.put = now;
                if (exact() && !operation.act) begin(operation, std::max(now, free_at));
            }
            work.push_back(std::move(operations));
            ++queued;
        }
        changed.notify_all();
    }
    /// CUDA_DOUBLE_POLLS: as a GPU does, it looks for work by itself for a while. Else a launch
    /// that finds the stream empty wakes a thread, which takes longer than all that profilers do.
    void poll() const {
        static const bool polls = std::getenv("CUDA_DOUBLE_POLLS") != nullptr;
        if (!polls) return;
        const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds{2};
        while (queued.load() == 0 && std::chrono::steady_clock::now() < until) {
        }
    }
    void run() {
        std::unique_lock lock{mutex};
        while (true) {
            lock.unlock();
            poll();
            lock.lock();
            changed.wait(lock, [this] { return !work.empty(); });
            auto operations = std::move(work.front());
            work.pop_front();
            --queued;
            busy = true;
            lock.unlock();
            const Operation& first = operations.front();
            const auto start = exact() ? first.start : std::max(first.put, free_at);
            auto end = start;
            for (Operation& operation : operations) end = std::max(end, perform(operation));
            const auto tell = work_listener.load();
            if (first.in_graph && first.correlation != 0 && tell != nullptr) {
                tell(51, first.correlation, since_1970(start), since_1970(end), nullptr, 0, false);
            }
            lock.lock();
            busy = false;
            changed.notify_all();
        }
    }
    /// With CUDA_DOUBLE_EXACT the GPU's time and its counter do not depend on when this thread is
    /// woken: a kernel begins when it was put or the one before has ended, and takes its own time.
    /// Else it runs until the thread is woken.
    static bool exact() {
        static const bool asked = std::getenv("CUDA_DOUBLE_EXACT") != nullptr;
        return asked;
    }
    using Time = std::chrono::steady_clock::time_point;
    /// Power falls with the square of the clock, but for three tenths of it.
    static double watts_of(const Operation& operation, double clock) {
        return operation.watts * (0.3 + 0.7 * clock * clock);
    }
    /// The board feels it from `start` on, for its time. @post `free_at` is its end
    void begin(Operation& operation, Time start) {
        const double clock = Board::instance().clock();
        const std::chrono::duration<double, std::micro> time{
            operation.microseconds * (operation.core_share / clock + 1 - operation.core_share)};
        operation.start = start;
        operation.end = start + std::chrono::duration_cast<std::chrono::nanoseconds>(time);
        Board::instance().run(watts_of(operation, clock), start, operation.end);
        free_at = operation.end;
    }
    /// @returns when it has ended
    Time perform(Operation& operation) {
        if (operation.act) {
            operation.act();
            return std::chrono::steady_clock::now();
        }
        Board& board = Board::instance();
        board.note_work(false);
        if (!exact()) begin(operation, std::chrono::steady_clock::now());
        std::this_thread::sleep_until(operation.end);
        if (!exact()) {
            const Time woken = std::chrono::steady_clock::now();
            board.run(watts_of(operation, board.clock()), operation.end, woken);
            operation.end = free_at = woken;
        }
        board.note_work(true);
        if (const auto tell = work_listener.load(); tell != nullptr && operation.correlation != 0) {
            tell(operation.kind, operation.correlation, since_1970(operation.start),
                 since_1970(operation.end), operation.symbol, operation.blocks, operation.in_graph);
        }
        return operation.end;
    }
};

std::atomic<int> writes_in_captures{0};

Stream& stream_of(void* handle) {
    static auto& mutex = *new std::mutex;
    static auto& defaults = *new std::map<void*, std::unique_ptr<Stream>>;
    if (reinterpret_cast<std::uintptr_t>(handle) > 2) return *static_cast<Stream*>(handle);
    const std::lock_guard lock{mutex};
    auto& stream = defaults[handle];
    if (!stream) stream = std::make_unique<Stream>();
    return *stream;
}

std::uint32_t next_correlation() {
    static std::atomic<std::uint32_t> last{0};
    return ++last;
}

/// A call that profilers see: `act` gets its correlation and returns the status.
template <class Parameters, class Act>
int resolved(std::uint32_t id, const Parameters& parameters, const char* symbol, Act act) {
    const std::uint32_t correlation = next_correlation();
    if (const auto tell = call_listener.load(); tell != nullptr)
        tell(id, &parameters, symbol, nullptr, correlation);
    const int status = act(correlation);
    if (const auto tell = call_listener.load(); tell != nullptr)
        tell(id, &parameters, symbol, &status, correlation);
    return status;
}

int enqueue(void* handle, Operation operation) {
    Stream& stream = stream_of(handle);
    {
        const std::lock_guard lock{stream.mutex};
        if (stream.recording) {
            operation.correlation = 0;
            stream.recording->operations.push_back(std::move(operation));
            return success;
        }
    }
    stream.put({std::move(operation)});
    return success;
}

int launch(void* kernel, void* stream, std::uint32_t correlation, unsigned blocks = 1) {
    if (kernel == nullptr) return invalid_handle;
    const auto& its = *static_cast<const cuda_double::Kernel*>(kernel);
    if (context_is_lost) return context_lost;
    if (its.ready != nullptr && !std::exchange(*its.ready, false)) {
        switch (its.unready) {
            case cuda_double::Unready::ends_the_program: std::abort();
            case cuda_double::Unready::fails: context_is_lost = true; return success;
            case cuda_double::Unready::does_nothing:
                return enqueue(stream, {10, correlation, 1, 0, 1, {}});
            case cuda_double::Unready::hangs:
                return enqueue(stream, {.act = [] { std::this_thread::sleep_for(1h); }});
        }
    }
    thread_local const void* last = nullptr;
    const double share = std::exchange(last, kernel) == kernel ? its.again : 1;
    return enqueue(stream, {10,
                            correlation,
                            share * its.microseconds,
                            its.watts,
                            its.core_share,
                            {},
                            its.symbol,
                            blocks});
}

}  // namespace

extern "C" {

void cuda_double_listen(const cuda_double::Listener* listens) {
    call_listener = listens->call;
    work_listener = listens->ran;
}
int cuda_double_writes_in_captures() { return writes_in_captures; }

int cuInit(unsigned) {
    static const int loaded = [] {
        Board::instance();
        const char* const path = std::getenv("CUDA_INJECTION64_PATH");
        if (path == nullptr) return 0;
        void* const library = ::dlopen(path, RTLD_LAZY);
        if (library == nullptr) return 0;
        if (void* const begin = ::dlsym(library, "InitializeInjection")) {
            reinterpret_cast<int (*)()>(begin)();
        }
        return 1;
    }();
    static_cast<void>(loaded);
    return success;
}

int cuCtxGetDevice(int* device) {
    *device = 0;
    return success;
}
int cuDeviceGetPCIBusId(char* text, int room, int) {
    std::strncpy(text, Board::address(), static_cast<std::size_t>(room));
    return success;
}

int cuStreamCreate(void** stream, unsigned) {
    *stream = new Stream;  // its thread runs until the end
    return success;
}
int cuStreamSynchronize(void* handle) {
    Stream& stream = stream_of(handle);
    std::unique_lock lock{stream.mutex};
    stream.changed.wait(lock, [&] { return stream.work.empty() && !stream.busy; });
    return context_is_lost ? context_lost : success;
}
int cuStreamBeginCapture_v2(void* handle, int) {
    Stream& stream = stream_of(handle);
    const std::lock_guard lock{stream.mutex};
    stream.recording = std::make_unique<Graph>();
    return success;
}
int cuStreamEndCapture(void* handle, void** graph) {
    Stream& stream = stream_of(handle);
    const std::lock_guard lock{stream.mutex};
    *graph = stream.recording.release();
    return success;
}
int cuStreamIsCapturing(void* handle, int* status) {
    Stream& stream = stream_of(handle);
    const std::lock_guard lock{stream.mutex};
    *status = stream.recording ? 1 : 0;
    return success;
}

int cuGraphGetNodes(void* graph, void** nodes, std::size_t* count) {
    auto& operations = static_cast<Graph*>(graph)->operations;
    *count = operations.size();
    for (std::size_t i = 0; nodes != nullptr && i < *count; ++i) nodes[i] = &operations[i];
    return success;
}
int cuGraphNodeGetType(void* node, int* type) {
    switch (static_cast<const Operation*>(node)->kind) {
        case 10: *type = 0; return success;
        case 1: *type = 1; return success;
        case 2: *type = 2; return success;
        default: return invalid_value;
    }
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags) {
    struct {
        void** executable;
        void* graph;
        unsigned long long flags;
    } parameters{executable, graph, flags};
    return resolved(643, parameters, nullptr, [&](std::uint32_t) {
        *executable = graph;
        return success;
    });
}
int cuGraphLaunch(void* executable, void* stream) {
    struct {
        void* executable;
        void* stream;
    } parameters{executable, stream};
    return resolved(514, parameters, nullptr, [&](std::uint32_t correlation) {
        std::vector<Operation> operations = static_cast<Graph*>(executable)->operations;
        for (Operation& operation : operations) {
            operation.correlation = correlation;
            operation.in_graph = true;
        }
        if (!operations.empty()) stream_of(stream).put(std::move(operations));
        return success;
    });
}

int cuLaunchKernel(void* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_bytes, void* stream, void** arguments,
                   void** extra) {
    struct {
        void* kernel;
        unsigned sizes[7];
        void* stream;
        void** arguments;
        void** extra;
    } parameters{kernel, {gx, gy, gz, bx, by, bz, shared_bytes}, stream, arguments, extra};
    const char* const symbol =
        kernel == nullptr ? nullptr : static_cast<const cuda_double::Kernel*>(kernel)->symbol;
    return resolved(307, parameters, symbol, [&](std::uint32_t correlation) {
        return launch(kernel, stream, correlation, gx * gy * gz);
    });
}
int cuLaunchKernelEx(const cuda_double::Config* config, void* kernel, void** arguments,
                     void** extra) {
    struct {
        const cuda_double::Config* config;
        void* kernel;
        void** arguments;
        void** extra;
    } parameters{config, kernel, arguments, extra};
    return resolved(652, parameters, static_cast<const cuda_double::Kernel*>(kernel)->symbol,
                    [&](std::uint32_t correlation) {
                        const unsigned* const grid = config->grid;
                        return launch(kernel, config->stream, correlation,
                                      grid[0] * grid[1] * grid[2]);
                    });
}
int cuda_double_launch_unseen(void* kernel, void* stream) {
    return launch(kernel, stream, next_correlation());
}
int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void* stream) {
    struct {
        std::uint64_t to;
        const void* from;
        std::size_t bytes;
        void* stream;
    } parameters{to, from, bytes, stream};
    return resolved(277, parameters, nullptr, [&](std::uint32_t correlation) {
        return enqueue(stream, {1, correlation, 20, 100});
    });
}
int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
    struct {
        void* to;
        std::uint64_t from;
        std::size_t bytes;
    } parameters{to, from, bytes};
    return resolved(278, parameters, nullptr, [&](std::uint32_t correlation) {
        if (const int status = enqueue(nullptr, {1, correlation, 20, 100})) return status;
        return cuStreamSynchronize(nullptr);
    });
}
int cuMemsetD8Async(std::uint64_t to, unsigned char value, std::size_t count, void* stream) {
    struct {
        std::uint64_t to;
        unsigned char value;
        std::size_t count;
        void* stream;
    } parameters{to, value, count, stream};
    return resolved(216, parameters, nullptr, [&](std::uint32_t correlation) {
        if (to != 0) std::memset(reinterpret_cast<void*>(to), value, count);
        return enqueue(stream, {2, correlation, 10, 100});
    });
}

int cuStreamWriteValue32_v2(void* handle, std::uint64_t address, std::uint32_t value, unsigned) {
    int capturing = 0;
    cuStreamIsCapturing(handle, &capturing);
    if (capturing != 0) ++writes_in_captures;
    return enqueue(handle, {.act = [address, value] {
                       std::atomic_ref{*reinterpret_cast<std::uint32_t*>(address)}.store(value);
                   }});
}
int cuMemHostRegister_v2(void*, std::size_t, unsigned) { return success; }
int cuMemHostGetDevicePointer_v2(std::uint64_t* address, void* memory, unsigned) {
    *address = reinterpret_cast<std::uint64_t>(memory);
    return success;
}

}  // extern "C"
