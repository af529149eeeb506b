// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/kernel_interval.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::measure {

/// Which column of the normal equations a kernel under a clock has. A kernel meets few clocks, so
/// its columns are searched one by one.
class KernelColumns {
public:
    using Columns = std::vector<std::pair<ClockPoint, std::size_t>>;

    [[nodiscard]] std::optional<std::size_t> find(KernelId kernel, ClockPoint applied) const {
        if (kernel.value >= by_kernel_.size()) return {};
        for (const auto& [clock, column] : by_kernel_[kernel.value]) {
            if (clock == applied) return column;
        }
        return {};
    }

    void insert(KernelId kernel, ClockPoint applied, std::size_t column) {
        if (by_kernel_.size() <= kernel.value) by_kernel_.resize(kernel.value + std::size_t{1});
        by_kernel_[kernel.value].emplace_back(applied, column);
        if (by_column_.size() <= column) by_column_.resize(column + 1);
        by_column_[column] = kernel;
    }

    [[nodiscard]] const Columns& of(KernelId kernel) const {
        static const Columns none;
        return kernel.value < by_kernel_.size() ? by_kernel_[kernel.value] : none;
    }

    /// The kernel that a column belongs to; of a column that was inserted.
    [[nodiscard]] KernelId kernel(std::size_t column) const { return by_column_.at(column); }

    /// Kernels that have a column.
    [[nodiscard]] std::vector<KernelId> kernels() const {
        std::vector<KernelId> found;
        for (std::uint32_t i = 0; i < by_kernel_.size(); ++i) {
            if (!by_kernel_[i].empty()) found.push_back({i});
        }
        return found;
    }

private:
    std::vector<Columns> by_kernel_;
    std::vector<KernelId> by_column_;
};

}  // namespace kdvfs::measure
