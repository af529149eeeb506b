// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace kdvfs::simulated {

/// What is going to happen in virtual time. Events of one instant happen in the order in which
/// they were scheduled, so that a run is the same every time.
class EventQueue {
public:
    using Action = std::function<void()>;

    void schedule(TimePoint at, Action action) {
        events_.emplace(std::pair{at, ++scheduled_}, std::move(action));
    }

    [[nodiscard]] bool empty() const { return events_.empty(); }

    /// When the next event is due; the end of time where there is none.
    [[nodiscard]] TimePoint next() const {
        return events_.empty() ? TimePoint::max() : events_.begin()->first.first;
    }

    /// Takes the next event out. @pre not empty
    Action pop() {
        auto node = events_.extract(events_.begin());
        return std::move(node.mapped());
    }

private:
    std::map<std::pair<TimePoint, std::uint64_t>, Action> events_;
    std::uint64_t scheduled_ = 0;
};

}  // namespace kdvfs::simulated
