// SPDX-License-Identifier: MIT
//
// libcupti.so.13 over the double of the driver: callbacks at calls, and records of what ran. As
// CUPTI, it has one subscriber, one set of kinds, one pair of buffer callbacks (the last one
// registered) and one clock in a process. Layouts are written afresh from CUPTI's documentation.
//
// It ends at exit, as the real one does, by a handler from the time of its subscription: it hands
// out what it still has. A call that is under way then or comes later, and the end of a thread that
// has called it, ends the program by SIGSEGV. Callbacks go on to the last.
#include "cuda_double.hpp"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace {

struct CallbackData {
    int site;
    int padding;
    const char* function;
    const void* parameters;
    const void* result;
    const char* symbol;
    void* context;
    std::uint32_t context_uid;
    std::uint32_t padding2;
    std::uint64_t* kept;
    std::uint32_t correlation;
    std::uint32_t padding3;
};
using Callback = void (*)(void*, int, std::uint32_t, const CallbackData*);
using Wanted = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using Done = void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);
using Timestamp = std::uint64_t (*)();

struct Record {
    std::uint32_t kind;
    std::uint32_t correlation;
    std::uint64_t start;
    std::uint64_t end;
    const char* symbol;
    unsigned blocks;
};

struct State {
    std::mutex mutex;
    Callback callback = nullptr;
    void* user = nullptr;
    std::set<std::pair<int, std::uint32_t>> calls;  ///< domain, number
    std::set<std::uint32_t> kinds;
    Wanted wanted = nullptr;
    Done done = nullptr;
    std::vector<Record> records;  ///< in no buffer yet
    std::condition_variable many;
    std::uint64_t taken = 0;
    std::uint64_t kernels = 0;  ///< that have records
    bool kernels_off_alone = false;
    unsigned switched_off = 0;  // records of kernels
    bool kernels_gone = false;
    std::uint8_t* buffer = nullptr;  ///< that is being filled
    std::size_t room = 0;
    std::size_t used = 0;
    Timestamp timestamp = nullptr;
    std::uint64_t clock_at = 0;      ///< ns since 1970, when the clock was registered
    std::uint64_t timestamp_at = 0;  ///< what it said then
};
State& state() {
    static auto& one = *new State;
    return one;
}

std::atomic<bool> ended{false};
std::atomic<int> under_way{0};

/// By a fault, as a signal that is raised waits where the thread blocks it.
void crash() {
    static int* volatile nowhere = nullptr;
    *nowhere = 1;
}

/// What it keeps of each thread that has called it.
struct OfThread {
    bool called = false;
    ~OfThread() {
        if (ended) crash();
    }
};
thread_local OfThread of_thread;

/// A call from outside.
struct Call {
    Call() {
        of_thread.called = true;
        ++under_way;
        if (ended) crash();
    }
    ~Call() { --under_way; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
};

constexpr std::size_t many_records = 256;

/// CUpti_ActivityKernel10, CUpti_ActivityMemcpy6, CUpti_ActivityGraphTrace2.
std::size_t size_of(std::uint32_t kind) { return kind == 10 ? 216 : 96; }

std::uint64_t now_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

/// A time in nanoseconds since 1970, in the clock that was registered: along the line through two
/// comparisons, as CUPTI says that it does. The caller holds the lock.
std::uint64_t in_registered_clock(std::uint64_t time) {
    State& its = state();
    if (its.timestamp == nullptr) return time;
    const double rate = static_cast<double>(its.timestamp() - its.timestamp_at) /
                        static_cast<double>(now_ns() - its.clock_at);
    const auto since = static_cast<double>(static_cast<std::int64_t>(time - its.clock_at));
    return its.timestamp_at + static_cast<std::uint64_t>(static_cast<std::int64_t>(since * rate));
}

std::size_t write_record(std::uint8_t* at, const Record& record) {
    const std::size_t size = size_of(record.kind);
    std::memset(at, 0, size);
    const auto put = [at](std::size_t offset, auto value) {
        std::memcpy(at + offset, &value, sizeof value);
    };
    put(0, record.kind);
    const bool graph = record.kind == 51;
    put(graph ? 4 : record.kind == 10 ? 92 : 44, record.correlation);
    put(graph ? 8 : 16, in_registered_clock(record.start));
    put(graph ? 16 : 24, in_registered_clock(record.end));
    if (record.kind == 10) {
        put(52, record.blocks);
        put(56, 1U);
        put(60, 1U);
        put(104, record.symbol);
    }
    return size;
}

/// Gives the buffer that is being filled to whoever is registered now.
void return_buffer() {
    std::uint8_t* buffer = nullptr;
    std::size_t room = 0;
    std::size_t used = 0;
    {
        const std::lock_guard lock{state().mutex};
        buffer = std::exchange(state().buffer, nullptr);
        room = state().room;
        used = state().used;
    }
    if (buffer != nullptr) state().done(nullptr, 0, buffer, room, used);
}

/// Requests a buffer where there is none. @returns whether there is one
bool has_buffer() {
    {
        const std::lock_guard lock{state().mutex};
        if (state().buffer != nullptr) return true;
    }
    std::uint8_t* buffer = nullptr;
    std::size_t room = 0;
    std::size_t most = 0;
    state().wanted(&buffer, &room, &most);
    const std::lock_guard lock{state().mutex};
    state().buffer = buffer;
    state().room = room;
    state().used = 0;
    return buffer != nullptr;
}

std::mutex& one_fills() {
    static auto& mutex = *new std::mutex;
    return mutex;
}

/// Puts what has run into buffers; those that are full go back.
void fill() {
    const std::lock_guard filling{one_fills()};
    std::vector<Record> records;
    {
        const std::lock_guard lock{state().mutex};
        records.swap(state().records);
    }
    for (const Record& record : records) {
        bool full = false;
        for (bool written = false; !written;) {
            if (!has_buffer()) return;
            const std::lock_guard lock{state().mutex};
            State& its = state();
            if (its.buffer == nullptr) continue;  // flushed in between
            its.used += write_record(its.buffer + its.used, record);
            full = its.used + size_of(10) > its.room;
            written = true;
        }
        if (full) return_buffer();
    }
}

void on_call(std::uint32_t id, const void* parameters, const char* symbol, const int* status,
             std::uint32_t correlation) {
    Callback callback = nullptr;
    {
        const std::lock_guard lock{state().mutex};
        if (state().calls.contains({1, id})) callback = state().callback;
    }
    if (callback == nullptr) return;
    CallbackData data{};
    data.site = status == nullptr ? 0 : 1;
    data.parameters = parameters;
    data.result = status;
    // Only launches of kernels set it; elsewhere it is whatever was there before.
    const bool launches_kernel = id == 307 || id == 652;
    data.symbol = launches_kernel ? symbol : reinterpret_cast<const char*>(std::uintptr_t{64});
    data.context = &state();
    data.correlation = correlation;
    callback(state().user, 1, id, &data);
}

void on_ran(std::uint32_t kind, std::uint32_t correlation, std::uint64_t start, std::uint64_t end,
            const char* symbol, unsigned blocks, bool in_graph) {
    {
        const std::lock_guard lock{state().mutex};
        // A graph has either its own record or those of its nodes.
        if (in_graph && state().kinds.contains(51)) return;
        if (!state().kinds.contains(kind) || (kind == 10 && state().kernels_gone)) return;
        // What CUPTI does under load: a record in so many never comes.
        const char* const lose = std::getenv("CUPTI_DOUBLE_LOSES_ONE_IN");
        if (lose != nullptr && ++state().taken % std::strtoull(lose, nullptr, 10) == 0) return;
        state().records.push_back({kind, correlation, start, end, symbol, blocks});
        if (kind == 10) ++state().kernels;
        if (state().records.size() != many_records) return;
    }
    state().many.notify_one();
}

/// As CUPTI's own thread: what is done with records delays no work of the GPU.
void fill_beside() {
    while (true) {
        {
            std::unique_lock lock{state().mutex};
            state().many.wait_for(lock, std::chrono::milliseconds{10},
                                  [] { return state().records.size() >= many_records; });
        }
        if (!ended) fill();
    }
}

void lock_before_fork() {
    one_fills().lock();
    state().mutex.lock();
}
void unlock_after_fork() {
    state().mutex.unlock();
    one_fills().unlock();
}

const pid_t process = ::getpid();

void end() {
    if (::getpid() != process) return;  // in a forked child
    {
        const std::lock_guard nobody_fills{one_fills()};
        if (under_way > 0) crash();
        ended = true;
    }
    fill();
    return_buffer();
}

}  // namespace

extern "C" {

int cuptiSubscribe(void** subscriber, Callback callback, void* user) {
    static const int ends = std::atexit(&end);
    static_cast<void>(ends);
    // A forked child launches, too, and has no thread that would unlock what was locked.
    static const int forks =
        ::pthread_atfork(&lock_before_fork, &unlock_after_fork, &unlock_after_fork);
    static_cast<void>(forks);
    const Call call;
    if (std::getenv("CUPTI_DOUBLE_HELD") != nullptr || state().callback != nullptr) return 39;
    state().callback = callback;
    state().user = user;
    *subscriber = &state();
    const cuda_double::Listener listener{&on_call, &on_ran};
    cuda_double_listen(&listener);
    return 0;
}
int cuptiUnsubscribe(void*) {
    const Call call;
    const std::lock_guard lock{state().mutex};
    state().callback = nullptr;
    state().calls.clear();
    return 0;
}
int cuptiEnableCallback(std::uint32_t on, void*, int domain, std::uint32_t id) {
    const Call call;
    const std::lock_guard lock{state().mutex};
    if (on != 0) {
        state().calls.insert({domain, id});
    } else {
        state().calls.erase({domain, id});
    }
    return 0;
}
int cuptiEnableDomain(std::uint32_t on, void* subscriber, int domain) {
    for (std::uint32_t id = 0; id < 807; ++id) cuptiEnableCallback(on, subscriber, domain, id);
    return 0;
}
int cuptiActivityEnable(std::uint32_t kind) {
    const Call call;
    const cuda_double::Listener listener{&on_call, &on_ran};
    cuda_double_listen(&listener);
    const std::lock_guard lock{state().mutex};
    // Seen on an H200: records of kernels that were switched while others stayed on never come
    // back.
    if (kind == 10 && state().kernels_off_alone) state().kernels_gone = true;
    state().kinds.insert(kind);
    return 0;
}
int cuptiActivityDisable(std::uint32_t kind) {
    const Call call;
    const std::lock_guard lock{state().mutex};
    if (state().kinds.erase(kind) > 0 && kind == 10) {
        state().kernels_off_alone = true;
        ++state().switched_off;
    }
    if (state().kinds.empty()) state().kernels_off_alone = false;
    return 0;
}
int cuptiActivityRegisterTimestampCallback(Timestamp timestamp) {
    const Call call;
    const std::lock_guard lock{state().mutex};
    state().clock_at = now_ns();
    state().timestamp_at = timestamp();
    state().timestamp = timestamp;
    return 0;
}
int cuptiActivityRegisterCallbacks(Wanted wanted, Done done) {
    const Call call;
    static const int counted = std::atexit([] {
        const char* const file = std::getenv("CUPTI_DOUBLE_COUNTS");
        if (file == nullptr) return;
        const std::lock_guard lock{state().mutex};
        std::ofstream{file} << state().kernels << ' ' << state().switched_off << '\n';
    });
    static_cast<void>(counted);
    {
        const std::lock_guard lock{state().mutex};
        state().wanted = wanted;
        state().done = done;
    }
    static const bool started = [] {
        std::thread{&fill_beside}.detach();
        return true;
    }();
    static_cast<void>(started);
    return 0;
}
int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t used, std::uint8_t** record) {
    const Call call;
    std::uint8_t* next = buffer;
    if (*record != nullptr) {
        std::uint32_t kind = 0;
        std::memcpy(&kind, *record, sizeof kind);
        next = *record + size_of(kind);
    }
    if (next >= buffer + used) return 12;
    *record = next;
    return 0;
}
int cuptiActivityFlushAll(std::uint32_t) {
    const Call call;
    fill();
    return_buffer();
    return 0;
}
int cuptiGetTimestamp(std::uint64_t* nanoseconds) {
    const Call call;
    *nanoseconds = state().timestamp == nullptr ? now_ns() : state().timestamp();
    return 0;
}
int cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) {
    *dropped = 0;
    return 0;
}
int cuptiGetResultString(int status, const char** text) {
    *text = status == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_SUCCESS";
    return 0;
}

}  // extern "C"
