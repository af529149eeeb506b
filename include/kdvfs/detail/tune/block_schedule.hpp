// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// Blocks of work at points that are to be measured: which runs now, the stretch at the baseline
/// beside each, and what becomes of blocks that could not be measured. Sweeps of kernels, of
/// operations and of steps and the search for a power limit are its users: they say which points
/// they want and how long blocks last, and measure them. Results may lag behind by any number of
/// blocks. Pure.
/// @tparam Point  clocks, or a power limit
/// @tparam Length of work: iterations, steps or time
template <class Point, class Length>
class BlockSchedule {
public:
    /// Work in a row at one point, the last part of which is measured.
    struct Stage {
        Point point{};
        Length settling{};
        Length measured{};
        std::uint64_t number = 0;  ///< odd at the baseline, the next even one at the block beside
        /// What ranks run at, at once, where there are several; the slowest is `point`.
        std::shared_ptr<const std::vector<Point>> points{};
    };

    explicit BlockSchedule(Point baseline, std::uint64_t seed = 1)
        : baseline_{baseline}, random_{seed} {}

    // What runs.

    /// Whether nothing is planned: a stage is to be added.
    [[nodiscard]] bool is_idle() const { return stages_.empty(); }
    /// @pre not `is_idle()`, as for the next four
    [[nodiscard]] const Stage& stage() const { return stages_.front(); }
    [[nodiscard]] bool is_measured() const { return passed_ >= stage().settling; }
    [[nodiscard]] bool begins_measuring() const { return passed_ == stage().settling; }
    [[nodiscard]] bool begins() const { return passed_ == Length{}; }
    /// So much work of the stage has been given out.
    void pass(Length work) {
        passed_ += work;
        if (passed_ < stage().settling + stage().measured) return;
        if (stage().number > 0) ++ended_;
        stages_.pop_front();
        passed_ = {};
    }
    /// Ends the stage that runs, and drops those behind it.
    void cut() {
        stages_.clear();
        passed_ = {};
    }
    /// Measured stages that are over, and those behind them.
    [[nodiscard]] std::uint64_t ended() const { return ended_; }
    [[nodiscard]] std::uint64_t left() const {
        return static_cast<std::uint64_t>(std::count_if(
            stages_.begin(), stages_.end(), [](const Stage& stage) { return stage.number > 0; }));
    }

    // What is to run.

    void add_baseline(Length settling, Length measured) {
        stages_.push_back({baseline_, settling, measured, 2 * ++pairs_ - 1});
    }
    /// A block, without a stretch at the baseline.
    void add_alone(Point point, Length settling, Length measured) {
        stages_.push_back({point, settling, measured, 2 * ++pairs_});
    }
    /// A block behind a stretch at the baseline that is measured for as long.
    /// @param wait at the baseline, at least, before the block
    void add(Point point, Length settling, Length measured, Length wait = {}) {
        if (!std::exchange(has_baseline_, false))
            add_baseline(std::max(settling, wait > measured ? wait - measured : Length{}),
                         measured);
        else if (wait > Length{})
            stages_.push_back({.point = baseline_, .settling = wait});
        stages_.push_back({point, settling, measured, 2 * pairs_});
    }
    /// The same, of ranks that each run at a point of their own; until all have come back
    /// (`came_back`), the block is out.
    /// @returns its number
    std::uint64_t add(std::vector<Point> points, Point slowest, Length settling, Length measured,
                      Length wait) {
        add(slowest, settling, measured, wait);
        for (const Point point : points) ++attempts_[{2 * pairs_, point}].under_way;
        if (points.size() > 1)
            stages_.back().points = std::make_shared<const std::vector<Point>>(std::move(points));
        return 2 * pairs_;
    }
    /// Blocks are out: the stretch at the baseline that the next one needs, then `each` of work.
    void wait(Length settling, Length measured, Length each) {
        if (!std::exchange(has_baseline_, true)) return add_baseline(settling, measured);
        stages_.push_back({.point = baseline_, .settling = each});
    }

    /// Points whose blocks are still to be added, once for each block.
    [[nodiscard]] std::vector<Point>& wanted() { return wanted_; }
    void shuffle() { std::shuffle(wanted_.begin(), wanted_.end(), random_); }
    /// Takes wanted points from the end; some more than once where fewer are left.
    [[nodiscard]] std::vector<Point> take(std::size_t count) {
        std::vector<Point> points;
        for (; points.size() < count && !wanted_.empty(); wanted_.pop_back())
            points.push_back(wanted_.back());
        for (std::size_t i = 0; points.size() < count; ++i) points.push_back(points[i]);
        std::shuffle(points.begin(), points.end(), random_);
        return points;
    }

    // What became of blocks.

    /// Whether blocks that were added have not come back, measured or dropped.
    [[nodiscard]] bool has_blocks_out() const { return !attempts_.empty(); }
    /// A block has been measured, or could not be. Where no rank has measured its point, it is
    /// tried again, three times, each twice as long.
    void came_back(std::uint64_t number, Point point, bool measured) {
        if (measured)
            failures_.erase(point);
        else
            ++dropped_;
        const auto attempt = attempts_.find({number, point});
        if (attempt == attempts_.end()) return;
        attempt->second.measured = attempt->second.measured || measured;
        if (--attempt->second.under_way > 0) return;
        const bool any = attempt->second.measured;
        attempts_.erase(attempt);
        if (any) return;
        if (++failures_[point] < most_failures)
            wanted_.push_back(point);
        else
            given_up_.insert(point);
    }
    /// Makes the next block at a point twice as long, until one is measured.
    void grow(Point point) { ++failures_[point]; }
    /// How many times as long as the first a block at a point is to be.
    [[nodiscard]] std::uint32_t growth(Point point) const {
        const auto found = failures_.find(point);
        return found == failures_.end() ? 1U : 1U << std::min(found->second, 20U);
    }
    [[nodiscard]] const std::set<Point>& given_up() const { return given_up_; }
    [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

private:
    static constexpr std::uint32_t most_failures = 3;

    /// The blocks of a stage at one point, one a rank.
    struct Attempt {
        std::size_t under_way = 0;
        bool measured = false;  ///< at least one of them
    };

    Point baseline_;
    std::mt19937_64 random_;
    std::deque<Stage> stages_;
    Length passed_{};  ///< of the first stage
    std::uint64_t ended_ = 0;
    std::uint64_t pairs_ = 0;    ///< of stages
    bool has_baseline_ = false;  ///< the stretch before the next block is planned already
    std::vector<Point> wanted_;
    std::map<std::pair<std::uint64_t, Point>, Attempt> attempts_;  ///< by stage and point
    std::map<Point, std::uint32_t> failures_;                      ///< in a row
    std::set<Point> given_up_;
    std::uint64_t dropped_ = 0;
};

}  // namespace kdvfs::inline v0_3::tune::detail
