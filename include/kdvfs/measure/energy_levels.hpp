// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/measure/sample_join.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kdvfs::measure {

/// The time of one level, iteration or enclosing scope, by what ran in it; shared by 1/n among
/// overlapping kernels.
struct LevelTime {
    std::optional<KernelId> scope{};       ///< nothing: the iteration
    std::uint64_t runs = 0;                ///< that have ended
    double counted_seconds = 0;            ///< under trusted samples
    std::vector<double> column_seconds{};  ///< by column, whether under trusted samples or not

    void add(std::size_t column, double seconds) {
        if (column_seconds.size() <= column) column_seconds.resize(column + 1);
        column_seconds[column] += seconds;
    }
};

/// Sums up how long each kernel ran within each scope that encloses others, and within iterations.
/// A moment counts once in each scope that encloses it, however often that scope encloses itself.
/// Not thread-safe.
class EnergyLevels {
public:
    /// Scopes at `place` lie directly in a scope of kernel `enclosing`, which lies at `parent`.
    /// Places are told in order, from 1 on; 0 lies in none.
    void add_place(std::uint32_t parent, KernelId enclosing) {
        std::vector<std::size_t> levels = places_[parent];
        const std::size_t level = level_of(enclosing);
        if (std::find(levels.begin(), levels.end(), level) == levels.end()) levels.push_back(level);
        places_.push_back(std::move(levels));
    }
    [[nodiscard]] std::size_t places() const { return places_.size(); }

    void mark_iteration(IterationMark mark) {
        if (open_ && mark != IterationMark::spoilt) end_iteration();
        open_.reset();
        if (mark == IterationMark::begins) open_.emplace();
    }

    /// Any level may have some of a kernel's time.
    [[nodiscard]] bool any() const { return open_ || levels_.size() > 1; }
    /// A kernel at `place` ran for `seconds`, whose joules are under `column`.
    void run(KernelId kernel, std::uint32_t place, std::size_t column, double seconds,
             bool counted) {
        const std::size_t own = kernel.value < by_kernel_.size() ? by_kernel_[kernel.value] : none;
        const std::vector<std::size_t>& around = places_[place < places_.size() ? place : 0];
        for (const std::size_t level : around) pass(levels_[level], column, seconds, counted);
        if (own != none && std::find(around.begin(), around.end(), own) == around.end()) {
            pass(levels_[own], column, seconds, counted);
        }
        if (open_) pass(*open_, column, seconds, counted);
    }
    /// A run of `kernel` is over.
    void end_run(KernelId kernel) {
        if (kernel.value >= by_kernel_.size() || by_kernel_[kernel.value] == none) return;
        ++levels_[by_kernel_[kernel.value]].runs;
    }
    /// No kernel ran for `seconds`.
    void idle(std::size_t column, double seconds, bool counted) {
        if (open_) pass(*open_, column, seconds, counted);
    }

    /// The iteration, where one has ended, then the enclosing scopes.
    [[nodiscard]] std::vector<LevelTime> levels() const {
        return {levels_.begin() + (levels_[iteration].runs == 0 ? 1 : 0), levels_.end()};
    }

private:
    static constexpr std::size_t iteration = 0;
    static constexpr std::size_t none = ~std::size_t{0};

    void end_iteration() {
        LevelTime& all = levels_[iteration];
        ++all.runs;
        all.counted_seconds += open_->counted_seconds;
        for (std::size_t j = 0; j < open_->column_seconds.size(); ++j) {
            all.add(j, open_->column_seconds[j]);
        }
    }
    std::size_t level_of(KernelId scope) {
        if (by_kernel_.size() <= scope.value) by_kernel_.resize(scope.value + std::size_t{1}, none);
        std::size_t& level = by_kernel_[scope.value];
        if (level == none) {
            level = levels_.size();
            levels_.push_back({.scope = scope});
        }
        return level;
    }
    static void pass(LevelTime& level, std::size_t column, double seconds, bool counted) {
        level.add(column, seconds);
        if (counted) level.counted_seconds += seconds;
    }

    std::vector<LevelTime> levels_{1};
    std::vector<std::size_t> by_kernel_;                // the level of an enclosing scope
    std::vector<std::vector<std::size_t>> places_{{}};  // the levels around each place
    std::optional<LevelTime> open_;                     // the iteration that goes on
};

}  // namespace kdvfs::measure
