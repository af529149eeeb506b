// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/error.hpp>
#include <kdvfs/device/level_cell.hpp>

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace kdvfs {

/// Numbers the clock points that scopes ask for, so that a cell can carry one as a level. Only
/// grows; indices stay valid for the life of the GPU. Thread-safe.
class RequestTable {
public:
    /// @returns the index of a clock point, a new one where it has none yet
    /// @throws Error (invalid_input) once 4095 different points have been asked for
    RequestIndex index_of(ClockPoint point) {
        const std::lock_guard lock{mutex_};
        if (const auto known = indices_.find(point); known != indices_.end()) return known->second;
        if (points_.size() > LevelWord::most_requests) {
            throw Error{Errc::invalid_input,
                        {.action = "ask for " + to_string(point),
                         .object = "this GPU",
                         .vendor_words = "",
                         .remedy = "one process may ask for 4095 different clock points: plan with "
                                   "a coarser clock list"}};
        }
        const RequestIndex index{static_cast<std::uint32_t>(points_.size())};
        points_.push_back(point);
        indices_.emplace(point, index);
        return index;
    }

    /// @pre the index came from `index_of`
    [[nodiscard]] ClockPoint point(RequestIndex index) const {
        const std::lock_guard lock{mutex_};
        return points_.at(index.value);
    }

private:
    mutable std::mutex mutex_;
    std::vector<ClockPoint> points_{ClockPoint{}};  // index 0 is "no request"
    std::map<ClockPoint, RequestIndex> indices_;
};

}  // namespace kdvfs
