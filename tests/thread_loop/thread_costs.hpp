// SPDX-License-Identifier: MIT
#pragma once

#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace kdvfs {

/// What a thread has taken so far, as /proc tells.
struct ThreadCost {
    std::uint64_t wakes = 0;  ///< times that it slept and was woken
    double cpu = 0;           ///< seconds

    friend ThreadCost operator-(const ThreadCost& a, const ThreadCost& b) {
        return {a.wakes - b.wakes, a.cpu - b.cpu};
    }
};

/// @param folder /proc/PID or /proc/PID/task/TID
inline ThreadCost cost_in(const std::string& folder) {
    ThreadCost cost;
    std::uint64_t nanoseconds = 0;
    std::ifstream{folder + "/schedstat"} >> nanoseconds;
    cost.cpu = 1e-9 * static_cast<double>(nanoseconds);
    std::ifstream status{folder + "/status"};
    for (std::string word; status >> word;) {
        if (word == "voluntary_ctxt_switches:") status >> cost.wakes;
    }
    return cost;
}

/// All threads of this process that have this name.
inline ThreadCost cost_of_thread(const std::string& name) {
    ThreadCost all;
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
        std::string its_name;
        std::getline(std::ifstream{task.path() / "comm"}, its_name);
        if (its_name != name) continue;
        const ThreadCost cost = cost_in(task.path());
        all.wakes += cost.wakes;
        all.cpu += cost.cpu;
    }
    return all;
}

inline ThreadCost cost_of_process(pid_t process) {
    return cost_in("/proc/" + std::to_string(process));
}

/// CPU time of a sleep and the wake after it on this machine, in seconds: what no thread that looks
/// at something now and then can do without.
inline double cost_of_a_wake() {
    constexpr int wakes = 200;
    const auto cpu = [] {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double before = cpu();
    for (int i = 0; i < wakes; ++i) std::this_thread::sleep_for(std::chrono::microseconds{200});
    return (cpu() - before) / wakes;
}

/// Memory of this process that is resident, in bytes.
inline std::size_t resident_bytes() {
    std::size_t total = 0;
    std::size_t resident = 0;
    std::ifstream{"/proc/self/statm"} >> total >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace kdvfs
