// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace attach {

/// When launches ran, of those whose records came last. Each call of the driver takes a correlation
/// number, so that a launch is found by its own, wherever the numbers have got to by then.
class LaunchTimes {
public:
    static constexpr std::uint32_t no_kind = ~std::uint32_t{0};
    struct Launch {
        kdvfs::TimePoint start{};
        kdvfs::TimePoint end{};
        std::uint32_t kind = no_kind;         ///< that the launch's own scope is to have
        std::uint32_t kind_before = no_kind;  ///< that it had
    };

    /// @param most launches that are remembered
    explicit LaunchTimes(std::size_t most) : newest_(most) { launches_.reserve(most); }

    /// @returns null where it has no record yet, or none any more
    [[nodiscard]] const Launch* find(std::uint32_t correlation) const {
        const auto found = launches_.find(correlation);
        return found == launches_.end() ? nullptr : &found->second;
    }
    [[nodiscard]] Launch* find(std::uint32_t correlation) {
        const auto found = launches_.find(correlation);
        return found == launches_.end() ? nullptr : &found->second;
    }

    /// In place of what was known of it.
    void put(std::uint32_t correlation, const Launch& launch) {
        if (!launches_.insert_or_assign(correlation, launch).second) return;
        std::uint32_t& oldest = newest_[count_ % newest_.size()];
        if (count_++ >= newest_.size()) launches_.erase(oldest);
        oldest = correlation;
    }

private:
    std::unordered_map<std::uint32_t, Launch> launches_;
    std::vector<std::uint32_t> newest_;  ///< a ring
    std::size_t count_ = 0;
};

}  // namespace attach
