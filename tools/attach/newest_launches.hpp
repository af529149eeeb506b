// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

namespace attach {

/// What is known of the newest launches, by correlation. Each call of the driver takes a number, so
/// that a launch is found by its own, wherever the numbers have got to by then.
template <class Known>
class NewestLaunches {
public:
    /// @param most launches that are remembered
    explicit NewestLaunches(std::size_t most) : most_{most} {}

    /// @returns null where nothing is known of it yet, or any more
    [[nodiscard]] const Known* find(std::uint32_t correlation) const {
        const auto found = launches_.find(correlation);
        return found == launches_.end() ? nullptr : &found->second;
    }
    [[nodiscard]] Known* find(std::uint32_t correlation) {
        const auto found = launches_.find(correlation);
        return found == launches_.end() ? nullptr : &found->second;
    }

    /// In place of what was known of it.
    void put(std::uint32_t correlation, const Known& known) {
        if (!launches_.insert_or_assign(correlation, known).second) return;
        order_.push_back(correlation);
        if (order_.size() <= most_) return;
        launches_.erase(order_.front());
        order_.pop_front();
    }

private:
    std::size_t most_;
    std::unordered_map<std::uint32_t, Known> launches_;
    std::deque<std::uint32_t> order_;  ///< the oldest first
};

}  // namespace attach
