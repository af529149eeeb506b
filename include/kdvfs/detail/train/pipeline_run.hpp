// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/train/operation_sweep.hpp>
#include <kdvfs/detail/tune/block_meter.hpp>
#include <kdvfs/detail/tune/loss_budget.hpp>
#include <kdvfs/detail/tune/run_schedule.hpp>
#include <kdvfs/detail/tune/sweep_schedule.hpp>
#include <kdvfs/tune/saving.hpp>
#include <kdvfs/tune/sweep_options.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

namespace kdvfs::inline v0_3::train::detail {

/// The run of a pipeline that tunes itself: what each iteration runs at. `RunSchedule` leads it, as
/// any run that tunes itself. Every rank has one, all get the same exchanged figures, and so all
/// decide alike, an iteration or two behind what is known. Time is that of the rank that took
/// longest, energy that of all ranks. A pure state machine.
///
/// While it explores, all operations run at one clock after the other, from the highest down. A
/// block begins once the budget of lost time allows it; iterations run as found until then.
/// Exploring ends before the grid does where lower clocks cost energy, or too long a wait.
class PipelineRun {
public:
    using As = tune::detail::RunStep::As;
    /// What an iteration runs at.
    struct Step {
        As as = As::found;
        std::optional<tune::SweepStep> explored{};
    };

    /// @param rank of this rank  @param ranks all of them
    PipelineRun(const tune::detail::RunOptions& options, std::uint32_t rank, std::uint32_t ranks)
        : options_{options}, schedule_{options}, rank_{rank}, ranks_{ranks} {}

    [[nodiscard]] tune::RunPhase phase() const { return schedule_.phase(); }
    [[nodiscard]] tune::detail::RunSchedule& schedule() { return schedule_; }
    [[nodiscard]] tune::Saving saving() const { return schedule_.saving(); }

    /// @param samples of this rank's energy counter, which came in since the last call
    void add(std::span<const measure::EnergySample> samples) {
        for (const tune::detail::CountedCost& cost : meter_.add(samples))
            costs_.push_back(cost.iteration);
    }

    [[nodiscard]] std::size_t figures() const { return energies + ranks_; }
    /// What this rank knows as an iteration begins, to be exchanged as maxima.
    [[nodiscard]] std::vector<double> own_figures(TimePoint now) {
        std::vector<double> figures(this->figures(), 0.0);
        if (began_) figures[time] = Seconds{now - *began_}.count();
        began_ = now;
        if (costs_.empty()) return figures;
        const std::optional<tune::Cost>& cost = costs_.front();
        figures[block_time] = cost ? cost->time.count() : 0;
        figures[block_dropped] = cost ? 0 : 1;
        figures[energies + rank_] = cost ? cost->energy.count : 1;
        return figures;
    }
    /// @param all maxima of `own_figures` over the ranks
    /// @param comparable whether the iteration says something of the plan: not beside a slow stage
    void take(std::span<const double> all, bool comparable) {
        const Step ran = ran_.front();
        ran_.pop_front();
        tune::detail::SeenIteration seen{Seconds{all[time]}, 1};
        seen.as = ran.as;
        // Beside a slow stage iterations say nothing of the level either.
        seen.explored = ran.as == As::explored || !comparable;
        note_time(ran, seen.time);
        const auto its = all.subspan(energies, ranks_);
        if (std::all_of(its.begin(), its.end(), [](double joules) { return joules > 0; }))
            take_block(all);
        if (course_) schedule_.exploring(lost_, used_);
        next_ = schedule_.next(seen);
        if (!comparable) leave_out_blocks();
        if (phase() != tune::RunPhase::explore) forget_exploring();
    }

    /// Exploring begins: blocks of all points, in the order in which they come.
    /// @param period of the slowest energy counter
    void begin_exploring(std::vector<ClockPoint> points, std::uint32_t samples,
                         const tune::BlockOptions& block, Duration period) {
        const auto iterations = [&](Duration lasting) {
            const double count = std::ceil(Seconds{lasting} / found_);
            return static_cast<std::uint32_t>(std::clamp(count, 1.0, 1e6));
        };
        constexpr double of_what_is_left = 0.4;  // the plan needs some while nothing is known of it
        budget_ = tune::LossBudget{options_.max_slowdown / 2, schedule_.left() * of_what_is_left};
        lengths_ = {iterations(block.settling()), iterations(block.measuring(period))};
        course_.emplace(points.front());
        for (; samples > 0; --samples, std::reverse(points.begin(), points.end()))
            for (const ClockPoint point : points)
                course_->add_alone(point, lengths_.settling, lengths_.measured);
        as_found_ = 0;
        slowness_ = 1;
        given_up_ = false;
        used_ = Joules{};
        costs_of_points_.clear();
    }
    [[nodiscard]] const std::optional<tune::ClockBlocks>& course() const { return course_; }
    /// Whether exploring is over, and what it has measured is known.
    [[nodiscard]] bool has_explored() const { return course_ && is_over() && as_found_ > draining; }
    /// A plan is to be made of what is known.
    void end_exploring() {
        schedule_.explored();
        next_ = {};
        forget_exploring();
    }

    /// What the iteration that begins runs at.
    [[nodiscard]] Step next(TimePoint now) {
        Step step{next_.as, {}};
        std::optional<Block> block;
        if (course_) {
            step = explore();
            if (step.as == As::found)
                block = Block{Block::Kind::found};
            else if (step.explored->metered)
                block = Block{Block::Kind::explored};
        } else if (next_.block > 0) {
            block = Block{Block::Kind::compared, next_.block};
        }
        count_in(block, now);
        ran_.push_back(step);
        return step;
    }

private:
    // Places of exchanged figures.
    static constexpr std::size_t time = 0;        ///< of the iteration before
    static constexpr std::size_t block_time = 1;  ///< of the first block that is not known yet
    static constexpr std::size_t block_dropped = 2;
    static constexpr std::size_t energies = 3;  ///< of that block, by rank; 0: not known

    static constexpr std::uint32_t draining = 4;  ///< iterations that the host may be ahead
    static constexpr std::uint32_t settling = 2;  ///< iterations behind a change of clocks
    static constexpr Seconds longest_wait{900};   ///< for a block to be affordable

    /// Consecutive iterations that are counted together.
    struct Block {
        enum class Kind { found, explored, compared };
        Kind kind = Kind::found;
        std::uint32_t number = 0;  ///< compared: the schedule's
        bool operator==(const Block&) const = default;
    };

    void note_time(const Step& ran, Seconds took) {
        since_found_ = ran.as == As::found ? since_found_ + 1 : 0;
        if (since_found_ > settling && took > Seconds{0}) {
            known_ = std::min(known_ + 1, 16U);
            found_ += (took - found_) / known_;
        }
        if (!course_ || took <= Seconds{0}) return;
        budget_.set_baseline(found_);
        budget_.count_iteration();
        if (ran.as != As::explored) return;
        budget_.charge(1, took, found_);
        lost_ += took - found_;
        slowness_ = std::max(1.0, took / found_);
        last_core_ = ran.explored->clock.core;
    }

    void take_block(std::span<const double> all) {
        const Block block = waiting_.front();
        waiting_.pop_front();
        costs_.pop_front();
        double sum = 0;
        for (const double joules : all.subspan(energies, ranks_)) sum += joules;
        const tune::detail::BlockCost cost{Seconds{all[block_time]}, Joules{sum}};
        const bool dropped = all[block_dropped] > 0;
        if (block.kind == Block::Kind::compared) {
            if (dropped) return schedule_.dropped(block.number);
            return schedule_.measured(block.number, cost);
        }
        if (dropped) return;
        if (block.kind == Block::Kind::found) {
            found_energy_ = cost.energy;
            return;
        }
        used_ += (cost.energy - found_energy_) * (lengths_.settling + lengths_.measured);
        costs_of_points_.push_back(cost.energy.count);
    }

    /// Beside a slow stage nothing is compared. The plan is followed in the place of blocks; while
    /// too much time is lost, it is not.
    void leave_out_blocks() {
        if (block_ && block_->kind == Block::Kind::compared) schedule_.dropped(block_->number);
        if (next_.triple == 0) return;
        schedule_.dropped(next_.block);
        next_ = {As::planned};
    }

    // Exploring.

    [[nodiscard]] Step explore() {
        const std::uint64_t each = std::uint64_t{lengths_.settling} + lengths_.measured;
        if (is_over() || (course_->begins() && !is_affordable(each))) {
            ++as_found_;
            return {};
        }
        as_found_ = 0;
        return {As::explored, tune::next_step(*course_)};
    }
    [[nodiscard]] bool is_affordable(std::uint64_t iterations) {
        if (as_found_ < lengths_.measured && course_->ended() == 0) return false;
        const Megahertz core = course_->stage().point.core;
        const double lower =
            course_->ended() == 0 ? 1 : static_cast<double>(last_core_.count) / core.count;
        const Seconds each = found_ * slowness_ * std::max(lower, 1.0);
        const double wait =
            budget_.wait_before(static_cast<std::uint32_t>(iterations), each) * found_.count();
        given_up_ = wait > longest_wait.count();
        return wait == 0;
    }
    /// Two points in a row that cost more than one before end it.
    [[nodiscard]] bool is_over() const {
        if (given_up_ || course_->is_idle()) return true;
        const auto& costs = costs_of_points_;
        if (costs.size() < 4) return false;
        const double least = *std::min_element(costs.begin(), std::prev(costs.end(), 2));
        return std::min(costs.back(), costs[costs.size() - 2]) > least;
    }
    void forget_exploring() {
        course_.reset();
        lost_ = Seconds{0};
        used_ = Joules{};
    }

    // Blocks.

    void count_in(const std::optional<Block>& block, TimePoint now) {
        if (block != block_) {
            if (block_) {
                counted_.to = now;
                meter_.ended(counted_);
                waiting_.push_back(*block_);
            }
            block_ = block;
            counted_ = {0, 0, now, now};
        }
        ++counted_.iterations;
        meter_.skip_to(block_ ? counted_.from : now);
    }

    tune::detail::RunOptions options_;
    tune::detail::RunSchedule schedule_;
    std::uint32_t rank_;
    std::uint32_t ranks_;
    tune::detail::RunStep next_{};
    /// What iterations ran at whose time is not known yet; the first stands for what was before.
    std::deque<Step> ran_{Step{}};
    std::optional<TimePoint> began_;

    Seconds found_{0};         ///< an iteration as found
    std::uint32_t known_ = 0;  ///< iterations that `found_` is of, up to 16
    std::uint32_t since_found_ = 0;
    Joules found_energy_{};  ///< of all ranks, in an iteration as found

    tune::detail::BlockMeter meter_;
    std::optional<Block> block_;  ///< under way
    tune::detail::CountedBlock counted_;
    std::deque<Block> waiting_;                    ///< ended, their costs not known on all ranks
    std::deque<std::optional<tune::Cost>> costs_;  ///< of the first of them, on this rank

    std::optional<tune::ClockBlocks> course_;  ///< while it explores
    struct {
        std::uint32_t settling = 1;
        std::uint32_t measured = 1;
    } lengths_;  ///< of its blocks
    tune::LossBudget budget_{1};
    std::uint32_t as_found_ = 0;  ///< iterations in a row
    double slowness_ = 1;         ///< of the iteration explored last
    Megahertz last_core_{};       ///< and its clock
    bool given_up_ = false;       ///< the next block would cost too long a wait
    Seconds lost_{0};
    Joules used_{};
    std::vector<double> costs_of_points_;  ///< joules of an iteration, in order
};

}  // namespace kdvfs::inline v0_3::train::detail
