// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace kdvfs {

/// The median of the last nine values: follows a change of shape within five, ignores outliers.
class MovingMedian {
public:
    void add(std::int64_t value) {
        last_[added_ % last_.size()] = value;
        ++added_;
    }

    /// @returns the median, the lower one of two; 0 before the first value
    [[nodiscard]] std::int64_t median() const {
        const std::size_t count = std::min(added_, last_.size());
        if (count == 0) return 0;
        auto sorted = last_;
        const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(count);
        const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((count - 1) / 2);
        std::nth_element(sorted.begin(), middle, end);
        return *middle;
    }

private:
    std::array<std::int64_t, 9> last_{};
    std::size_t added_ = 0;
};

}  // namespace kdvfs
