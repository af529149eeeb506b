// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/simulated/kernel_model.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <variant>

namespace kdvfs::simulated {

class Device;
class Engine;

/// A point in a stream that other streams and the host can wait for.
class Event {
public:
    /// When the stream passed the event last. @pre it has been recorded and reached
    [[nodiscard]] TimePoint time() const { return time_; }

private:
    friend class Device;
    friend class Engine;
    class Engine;
    std::uint64_t enqueued_ = 0;
    std::uint64_t reached_ = 0;
    TimePoint time_{};
};

/// What can stand in a stream.
struct KernelOperation {
    KernelModel kernel;
};
struct MarkerOperation {
    Marker marker;
};
struct RecordOperation {
    Event* event;
    std::uint64_t number;
};
struct WaitOperation {
    Event* event;
    std::uint64_t number;
};
struct AnswerOperation {
    const std::uint32_t* word;
    std::uint32_t number;
};
struct CallbackOperation {
    std::function<void()> call;
};
using Operation = std::variant<KernelOperation, MarkerOperation, RecordOperation, WaitOperation,
                               AnswerOperation, CallbackOperation>;

/// Recorded work of one stream, to be launched many times.
class Graph {
private:
    friend class Device;
    friend class Engine;
    class Engine;
    std::deque<Operation> operations_;
};

/// A queue of work on a simulated device; created by it and valid as long as it.
class Stream {
private:
    friend class Device;
    friend class Engine;
    class Engine;
    Device* device_ = nullptr;
    std::deque<Operation> queue_;
    bool busy_ = false;          // the front operation has begun
    std::uint64_t capture_ = 0;  // the capture that is being recorded, 0 = none
    Graph recorded_;
};

}  // namespace kdvfs::simulated
