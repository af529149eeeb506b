// SPDX-License-Identifier: MIT
#pragma once

#include "hip_double.hpp"

#include <hip/hip_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

using Operation = std::function<void()>;

/// A captured operation, and what a profiler is told when it is put.
struct GraphNode {
    Operation operation;
    std::optional<hip_double::Work> work;
};
/// A captured graph: a line of operations.
struct ihipGraph {
    std::vector<GraphNode> operations;
};

/// A stream: one thread that runs operations in order, or none, where they are run as they come.
struct ihipStream_t {
    explicit ihipStream_t(int its_device, bool at_once = false, std::mutex* its_queue = nullptr)
        : device{its_device}, queue_mutex{its_queue} {
        if (!at_once) worker = std::thread{[this] { run(); }};
    }
    ~ihipStream_t() {
        if (!worker.joinable()) return;
        {
            const std::lock_guard lock{mutex};
            stopping = true;
        }
        changed.notify_all();
        worker.join();
    }
    ihipStream_t(const ihipStream_t&) = delete;
    ihipStream_t& operator=(const ihipStream_t&) = delete;

    void enqueue(Operation operation) {
        if (!worker.joinable()) {
            operation();
            return;
        }
        {
            const std::lock_guard lock{mutex};
            queue.push_back(std::move(operation));
        }
        changed.notify_all();
    }

    void wait() {
        std::unique_lock lock{mutex};
        changed.wait(lock, [this] { return queue.empty() && !busy; });
    }

    bool is_idle() {
        const std::lock_guard lock{mutex};
        return queue.empty() && !busy;
    }

    const int device;
    std::mutex* const queue_mutex;  ///< of the hardware queue it shares; null: one of its own
    std::unique_ptr<ihipGraph> recording;  ///< of a running capture; under the double's lock
    bool capture_is_broken = false;
    unsigned long long capture_id = 0;

private:
    void run() {
        std::unique_lock lock{mutex};
        while (true) {
            changed.wait(lock, [this] { return stopping || !queue.empty(); });
            if (queue.empty()) return;
            const Operation operation = std::move(queue.front());
            queue.pop_front();
            busy = true;
            lock.unlock();
            if (queue_mutex != nullptr) {
                const std::lock_guard held{*queue_mutex};
                operation();
            } else {
                operation();
            }
            lock.lock();
            busy = false;
            changed.notify_all();
        }
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Operation> queue;
    bool busy = false;
    bool stopping = false;
    std::thread worker;
};

/// A graph made ready to launch.
struct hipGraphExec {
    std::vector<GraphNode> operations;
};

/// An event: what its last record came to. Shared with the stream that will pass it.
struct ihipEvent_t {
    struct Record {
        std::mutex mutex;
        std::condition_variable passed;
        bool is_passed = false;
        std::chrono::steady_clock::time_point at;
    };
    std::mutex mutex;
    std::shared_ptr<Record> record;

    std::shared_ptr<Record> latest() {
        const std::lock_guard lock{mutex};
        return record;
    }
};
