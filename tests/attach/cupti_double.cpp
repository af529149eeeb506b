// SPDX-License-Identifier: MIT
//
// libcupti.so.13 over the double of the driver: callbacks at calls, and records of what ran, in
// buffers of whoever subscribes. Layouts are written afresh from CUPTI's documentation.
#include "cuda_double.hpp"

#include <time.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
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

struct Record {
    std::uint32_t kind;
    std::uint32_t correlation;
    std::uint64_t start;
    std::uint64_t end;
};

struct State {
    std::mutex mutex;
    Callback callback = nullptr;
    void* user = nullptr;
    std::set<std::uint32_t> calls;
    std::set<std::uint32_t> kinds;
    Wanted wanted = nullptr;
    Done done = nullptr;
    std::vector<Record> records;
    std::uint64_t taken = 0;
    std::uint64_t kernels = 0;  ///< that have records
    bool kernels_gone = false;
};
State& state() {
    static auto& one = *new State;
    return one;
}

/// CUpti_ActivityKernel10, CUpti_ActivityMemcpy6, CUpti_ActivityGraphTrace2.
std::size_t size_of(std::uint32_t kind) { return kind == 10 ? 216 : 96; }

std::size_t write_record(std::uint8_t* at, const Record& record) {
    const std::size_t size = size_of(record.kind);
    std::memset(at, 0, size);
    const auto put = [at](std::size_t offset, auto value) {
        std::memcpy(at + offset, &value, sizeof value);
    };
    put(0, record.kind);
    const bool graph = record.kind == 51;
    put(graph ? 4 : record.kind == 10 ? 92 : 44, record.correlation);
    put(graph ? 8 : 16, record.start);
    put(graph ? 16 : 24, record.end);
    return size;
}

void deliver() {
    std::vector<Record> records;
    {
        const std::lock_guard lock{state().mutex};
        records.swap(state().records);
    }
    std::size_t next = 0;
    while (next < records.size()) {
        std::uint8_t* buffer = nullptr;
        std::size_t room = 0;
        std::size_t most = 0;
        state().wanted(&buffer, &room, &most);
        std::size_t used = 0;
        while (next < records.size() && used + size_of(records[next].kind) <= room) {
            used += write_record(buffer + used, records[next++]);
        }
        state().done(nullptr, 0, buffer, room, used);
    }
}

void on_call(std::uint32_t id, const void* parameters, const char* symbol, const int* status,
             std::uint32_t correlation) {
    Callback callback = nullptr;
    {
        const std::lock_guard lock{state().mutex};
        if (state().calls.contains(id)) callback = state().callback;
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

void on_ran(std::uint32_t kind, std::uint32_t correlation, std::uint64_t start, std::uint64_t end) {
    bool full = false;
    {
        const std::lock_guard lock{state().mutex};
        if (!state().kinds.contains(kind) || (kind == 10 && state().kernels_gone)) return;
        // What CUPTI does under load: a record in so many never comes.
        const char* const lose = std::getenv("CUPTI_DOUBLE_LOSES_ONE_IN");
        if (lose != nullptr && ++state().taken % std::strtoull(lose, nullptr, 10) == 0) return;
        state().records.push_back({kind, correlation, start, end});
        if (kind == 10) ++state().kernels;
        full = state().records.size() >= 200;
    }
    if (full) deliver();
}

}  // namespace

extern "C" {

int cuptiSubscribe(void** subscriber, Callback callback, void* user) {
    if (std::getenv("CUPTI_DOUBLE_HELD") != nullptr) return 39;
    state().callback = callback;
    state().user = user;
    *subscriber = &state();
    const cuda_double::Listener listener{&on_call, &on_ran};
    cuda_double_listen(&listener);
    return 0;
}
int cuptiUnsubscribe(void*) {
    state().callback = nullptr;
    return 0;
}
int cuptiEnableCallback(std::uint32_t on, void*, int, std::uint32_t id) {
    const std::lock_guard lock{state().mutex};
    if (on != 0) {
        state().calls.insert(id);
    } else {
        state().calls.erase(id);
    }
    return 0;
}
int cuptiActivityEnable(std::uint32_t kind) {
    const std::lock_guard lock{state().mutex};
    // Seen on an H200: records of kernels that were switched while others stayed on never come
    // back.
    if (kind == 10 && !state().kinds.empty()) state().kernels_gone = true;
    state().kinds.insert(kind);
    return 0;
}
int cuptiActivityDisable(std::uint32_t kind) {
    const std::lock_guard lock{state().mutex};
    state().kinds.erase(kind);
    return 0;
}
int cuptiActivityRegisterCallbacks(Wanted wanted, Done done) {
    state().wanted = wanted;
    state().done = done;
    std::atexit([] {
        const char* const file = std::getenv("CUPTI_DOUBLE_COUNTS");
        if (file != nullptr) std::ofstream{file} << state().kernels << '\n';
    });
    return 0;
}
int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t used, std::uint8_t** record) {
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
    deliver();
    return 0;
}
/// Nothing comes by itself until a buffer is full (H200, CUDA 13.0).
int cuptiActivityFlushPeriod(std::uint32_t) { return 0; }
int cuptiGetTimestamp(std::uint64_t* nanoseconds) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    *nanoseconds = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
                   static_cast<std::uint64_t>(now.tv_nsec);
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
