// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>
#include <kdvfs/core/units.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// How long each of a few values held. Allocates only for a value it has not seen.
template <class Value>
class TimeShares {
public:
    void add(const Value& value, Duration time) {
        total_ += time;
        for (auto& [known, held] : shares_) {
            if (known == value) {
                held += time;
                return;
            }
        }
        shares_.emplace_back(value, time);
    }

    [[nodiscard]] Duration total() const { return total_; }

    /// The value that held longest; a default value where there is none.
    [[nodiscard]] Value longest() const {
        const auto it = std::max_element(shares_.begin(), shares_.end(),
                                         [](auto& a, auto& b) { return a.second < b.second; });
        return it == shares_.end() ? Value{} : it->first;
    }

    /// The value in the middle of the time; a default value where there is none.
    [[nodiscard]] Value median() const {
        auto sorted = shares_;
        std::sort(sorted.begin(), sorted.end());
        Duration passed{0};
        for (const auto& [value, time] : sorted) {
            passed += time;
            if (2 * passed >= total_) return value;
        }
        return {};
    }

    /// The share of the time, 0 to 1, in which `accept(value)` held.
    template <class Accept>
    [[nodiscard]] double share(Accept accept) const {
        Duration accepted{0};
        for (const auto& [value, time] : shares_) {
            if (accept(value)) accepted += time;
        }
        return total_ > Duration::zero() ? Seconds{accepted} / Seconds{total_} : 0;
    }

private:
    std::vector<std::pair<Value, Duration>> shares_;
    Duration total_{0};
};

}  // namespace kdvfs::measure
