// SPDX-License-Identifier: MIT
//
// Stands where a library over rocprofiler-sdk would: records of what HIP's double has run, each
// with the number that its launching thread had pushed, handed out in batches and late, as buffers
// are.
#include <tests/hip_double/hip_double.hpp>

#include <time.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace {

struct Record {
    std::uint64_t launch;
    std::uint64_t start;
    std::uint64_t end;
};

// Never destroyed: records are asked for until the very end.
std::mutex& mutex = *new std::mutex;
std::vector<Record>& records = *new std::vector<Record>;
void (*resolved)(std::uint64_t, std::uint64_t, std::uint64_t) = nullptr;

std::uint64_t& pushed() {
    thread_local std::uint64_t launch = 0;
    return launch;
}

/// Not the host's monotonic clock: rocprofiler's may be another, too.
std::uint64_t clock_now() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

void deliver() {
    std::vector<Record> done;
    {
        const std::lock_guard lock{mutex};
        done.swap(records);
    }
    for (const Record& record : done) resolved(record.launch, record.start, record.end);
}

void ran(std::uint64_t launch, std::uint64_t start, std::uint64_t end) {
    bool full = false;
    {
        const std::lock_guard lock{mutex};
        records.push_back({launch, start, end});
        full = records.size() >= 100;
    }
    if (full) deliver();
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) int kdvfs_dispatch_records_begin(
    void (*tell)(std::uint64_t, std::uint64_t, std::uint64_t)) {
    resolved = tell;
    hip_double::listen({&pushed, &clock_now, &ran});
    return 0;
}
__attribute__((visibility("default"))) void kdvfs_dispatch_records_push(std::uint64_t launch) {
    pushed() = launch;
}
__attribute__((visibility("default"))) void kdvfs_dispatch_records_pop() { pushed() = 0; }
__attribute__((visibility("default"))) void kdvfs_dispatch_records_flush() { deliver(); }
__attribute__((visibility("default"))) std::uint64_t kdvfs_dispatch_records_now() {
    return clock_now();
}
}
