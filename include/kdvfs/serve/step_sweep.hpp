// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/serve/step_cells.hpp>
#include <kdvfs/detail/serve/step_meter.hpp>
#include <kdvfs/detail/tune/block_schedule.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/serve/step_table.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::serve {

/// How an engine is swept while it serves.
struct StepSweepOptions {
    std::vector<Megahertz> clocks{};  ///< to measure, ascending; the last is what runs otherwise
    Seconds gap{0.1};  ///< no swept step may take longer where it would not at the top
    Seconds switch_latency{0.006};
    Seconds warm_up{300};  ///< at the top clock; the load is what it serves meanwhile
    Seconds block{4};      ///< at a lower clock, then as long at the top clock
    Seconds settle{0.2};   ///< of a block, before it counts
    /// Where the table will have its rows; in between it interpolates.
    StepBuckets::Edges grid{{1, 64, 128, 256, 384, 512},
                            {1, 4, 8, 16, 32, 64, 128},
                            {1, 512, 1024, 2048, 4096, 8192},
                            {1, 2048, 8192, 131072}};
};

/// Measures a step table in the engine that serves: a pure state machine. Most of the time runs at
/// the top clock; in between, blocks run at a lower one. A step runs at a block's clock only where
/// it nearly always keeps the token gap there: by what steps of its bucket took at a clock nearby,
/// slowed down by the ratio of the clocks, and by how steps jitter and stall. What is known of
/// times grows downwards with that. Energies are those of an energy counter, slow and late as it
/// may be, attributed to the steps as a report attributes them to kernels. Not thread-safe; an
/// engine has one, and `add` joins what several engines measured.
class StepSweep {
public:
    /// @throws Error (invalid_input) for fewer than two clocks, clocks that do not ascend, auto
    ///         among them, or times that make no sense
    explicit StepSweep(StepSweepOptions options)
        : options_{checked(std::move(options))}, load_{buckets_} {
        for (std::size_t c = 0; c < options_.clocks.size(); ++c)
            measured_.emplace_back(options_.grid, buckets_.size());
        boards_.emplace_back(options_.clocks.size());
    }

    /// What the next step is to run at. An idle shape: the engine has nothing to do.
    [[nodiscard]] Megahertz clock_for(Seconds now, StepShape shape) {
        if (!began_) began_ = now;
        const std::size_t block = block_at(now);
        const std::size_t clock =
            phase_of(shape) == Phase::idle || keeps_gap(shape, block) ? block : top();
        if (clock != asked_) {
            asked_ = clock;
            steady_from_ = now + options_.switch_latency;
        }
        return options_.clocks[clock];
    }

    /// A step that `clock_for` was asked for has run.
    void ran(StepShape shape, Seconds begin, Seconds end) {
        Measured& at = measured_[asked_];
        const bool held = begin >= steady_from_ && covered(shape);
        boards_.front().ran(at.times, shape, asked_, begin, end, held);
        if (in_warm_up(begin)) load_.add(shape, end - begin);
        if (!held) return;
        Took& took = at.took[buckets_.bucket(shape)];
        took.total += end - begin;
        ++took.steps;
        detail::StepCellFit::Steps step;
        at.times.add(step, shape);
        at.times.close_one(step, (end - begin).count(), took.mean().count());
        ++at.steps;
        if (shape.sequences == 0) shape.context_tokens = 0;
        at.reach(shape);
    }
    /// The engine had nothing to do until now.
    void idled(Seconds now) {
        boards_.front().rested(asked_, now);
        if (in_warm_up(now)) load_.add({}, Seconds{0});
    }

    /// A sample of the energy counter, after all steps that began before it were given.
    void energy(Seconds time, Joules reading) {
        boards_.front().rested(asked_, time);
        boards_.front().sample(time, reading);
    }

    /// What another engine measured with the same options.
    void add(const StepSweep& other) {
        for (std::size_t c = 0; c < measured_.size(); ++c) {
            Measured& mine = measured_[c];
            const Measured& theirs = other.measured_[c];
            mine.times.add(theirs.times);
            mine.steps += theirs.steps;
            mine.reach(theirs.largest);
        }
        boards_.insert(boards_.end(), other.boards_.begin(), other.boards_.end());
        load_.add(other.load_);
    }

    /// The table so far: each clock's rows reach as far as steps were measured at it.
    [[nodiscard]] std::vector<StepRow> rows() const {
        std::vector<detail::StepCellFit> joules(measured_.size(),
                                                detail::StepCellFit{options_.grid});
        std::vector<detail::StepMeter::Idle> idle(measured_.size());
        for (const detail::StepMeter& board : boards_) board.add_to(joules, idle);
        std::vector<StepRow> rows;
        for (std::size_t c = 0; c < measured_.size(); ++c)
            if (measured_[c].times.rows() > 0 && joules[c].rows() > 0)
                add_rows(rows, c, joules[c].solve(), idle[c]);
        return rows;
    }
    /// The steps of the time at the top clock, before any block.
    [[nodiscard]] const StepLoad& load() const { return load_; }
    /// Steps that were measured at a clock, by its index.
    [[nodiscard]] double steps_at(std::size_t clock) const { return measured_[clock].steps; }

private:
    /// Steps of one bucket at one clock.
    struct Took {
        Seconds total{0};
        double steps = 0;
        [[nodiscard]] Seconds mean() const { return total / steps; }
    };
    struct Measured {
        Measured(const StepBuckets::Edges& grid, std::size_t buckets)
            : times{grid}, took(buckets) {}
        void reach(StepShape shape) {
            for (auto part : {&StepShape::prompt_tokens, &StepShape::sequences,
                              &StepShape::context_tokens, &StepShape::prompt_context})
                largest.*part = std::max(largest.*part, shape.*part);
        }
        detail::StepCellFit times;
        double steps = 0;
        std::vector<Took> took;  ///< by bucket
        StepShape largest{};
        std::uint64_t blocks = 0;
    };

    static constexpr double margin = 0.97;      ///< of the gap: shapes of one bucket differ
    static constexpr double few = 8;            ///< steps of a bucket that tell how long they take
    static constexpr double most_late = 0.005;  ///< share of a bucket's steps that break the gap
    static constexpr double most_raised_late = 0.0005;  ///< share of all tokens, by raises

    static StepSweepOptions checked(StepSweepOptions options) {
        const auto reject = [](const char* what, const char* why, const char* remedy) {
            throw Error{Errc::invalid_input, {"sweep the steps of an engine", what, why, remedy}};
        };
        const auto& clocks = options.clocks;
        if (clocks.size() < 2) reject("the clocks", "there is nothing to compare", "give several");
        if (std::find(clocks.begin(), clocks.end(), auto_clock) != clocks.end())
            reject("the clocks", "auto is among them", "give the top clock in MHz");
        if (!std::is_sorted(clocks.begin(), clocks.end()))
            reject("the clocks", "they do not ascend", "sort them");
        if (!(options.gap.count() > 0) || !(options.block > options.settle) ||
            !(options.switch_latency.count() >= 0))
            reject("the times", "a gap, a block or a latency is out of range",
                   "give a gap above zero, and blocks longer than they settle");
        static_cast<void>(StepBuckets{options.grid});
        return options;
    }

    [[nodiscard]] std::size_t top() const { return options_.clocks.size() - 1; }
    [[nodiscard]] bool in_warm_up(Seconds time) const {
        return !began_ || time - *began_ < options_.warm_up;
    }
    [[nodiscard]] bool covered(StepShape shape) const {
        const auto& grid = options_.grid;
        return buckets_.covered(shape) && shape.prompt_tokens <= grid.prompt_tokens.back() &&
               shape.sequences <= grid.sequences.back() &&
               shape.context_tokens <= grid.context_tokens.back() &&
               shape.prompt_context <= grid.prompt_context.back();
    }

    /// The clock of the block that now is in; chosen as it begins.
    std::size_t block_at(Seconds now) {
        if (in_warm_up(now)) return top();
        if (!blocks_.is_idle()) blocks_.pass(now - passed_to_);
        passed_to_ = now;
        if (blocks_.is_idle()) blocks_.add(next_block(), Seconds{0}, options_.block);
        return blocks_.stage().point;
    }

    /// Of the clocks at which the board may wait for prompts, the one that was measured least; high
    /// ones first, since they tell how long steps take below.
    [[nodiscard]] std::size_t next_block() {
        std::size_t best = top();
        for (std::size_t c = top(); c-- > 0 && may_wait_at(c);)
            if (best == top() || measured_[c].blocks < measured_[best].blocks) best = c;
        ++measured_[best].blocks;
        return best;
    }

    /// What steps of a bucket take at most in the mean: as long as at a lower clock, or as at a
    /// higher one, slowed down by the ratio of the clocks. Infinite where too few were measured.
    [[nodiscard]] Seconds bound(std::size_t bucket, std::size_t clock) const {
        Seconds least{std::numeric_limits<double>::infinity()};
        for (std::size_t c = 0; c < measured_.size(); ++c) {
            const Took& known = measured_[c].took[bucket];
            if (known.steps < few) continue;
            const double slower = static_cast<double>(options_.clocks[c].count) /
                                  static_cast<double>(options_.clocks[clock].count);
            least = std::min(least, known.mean() * std::max(1.0, slower));
        }
        return least;
    }
    /// The share of steps that break the gap: they jitter and stall as decode did at the top clock.
    [[nodiscard]] double late_share(Seconds mean) const {
        return load_.spread().share_beyond(options_.gap * margin, mean);
    }
    [[nodiscard]] bool keeps_gap(StepShape shape, std::size_t clock) const {
        if (clock == top()) return true;
        if (!covered(shape)) return false;
        return shape.sequences == 0 ||
               late_share(bound(buckets_.bucket(shape), clock)) <= most_late;
    }
    /// Whether steps that begin at a clock, raised or not, keep the gap nearly as often as at the
    /// top clock.
    [[nodiscard]] bool may_wait_at(std::size_t clock) const {
        const double slower = static_cast<double>(options_.clocks[top()].count) /
                              static_cast<double>(options_.clocks[clock].count);
        double tokens = 0;
        double late = 0;
        for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
            const Took& fast = measured_[top()].took[bucket];
            const std::uint32_t sequences = buckets_.corner(bucket).sequences;
            if (fast.steps == 0 || sequences == 0) continue;
            const Seconds slow = std::min(bound(bucket, clock), fast.mean() * slower);
            const Seconds raised = raised_time(slow, fast.mean(), options_.switch_latency);
            tokens += fast.steps * sequences;
            late += fast.steps * sequences *
                    (late_share(std::min(slow, raised)) - late_share(fast.mean()));
        }
        return late <= most_raised_late * tokens;
    }

    void add_rows(std::vector<StepRow>& rows, std::size_t clock,
                  const detail::StepCellFit::Solution& energies,
                  detail::StepMeter::Idle idle) const {
        const Measured& at = measured_[clock];
        const auto times = at.times.solve();
        const auto& grid = options_.grid;
        // Up to the first place that is no smaller than the largest step.
        const auto reach = [](const std::vector<std::uint32_t>& axis, std::uint32_t most) {
            const auto last = std::lower_bound(axis.begin(), axis.end(), most);
            return std::min(static_cast<std::size_t>(last - axis.begin()) + 1, axis.size());
        };
        const auto row = [&](Phase phase, std::uint32_t batch, std::uint32_t context, double time,
                             double joules, std::uint32_t read_before = 0) {
            if (time > 0 && joules > 0)
                rows.push_back({phase,
                                batch,
                                context,
                                options_.clocks[clock],
                                {Seconds{time}, Joules{joules}},
                                read_before});
        };
        if (at.largest.prompt_tokens > 0)
            for (std::size_t p = 0; p < reach(grid.prompt_tokens, at.largest.prompt_tokens); ++p)
                for (std::size_t c = 0; c < reach(grid.prompt_context, at.largest.prompt_context);
                     ++c)
                    row(Phase::prefill, 1, grid.prompt_tokens[p], times.prefill(p, c),
                        energies.prefill(p, c), grid.prompt_context[c]);
        if (at.largest.sequences > 0)
            for (std::size_t s = 0; s < reach(grid.sequences, at.largest.sequences); ++s)
                for (std::size_t c = 0; c < reach(grid.context_tokens, at.largest.context_tokens);
                     ++c)
                    row(Phase::decode, grid.sequences[s], grid.context_tokens[c],
                        times.decode(s, c), energies.decode(s, c));
        if (idle.seconds > 1) row(Phase::idle, 0, 0, idle.seconds, idle.joules);
    }

    StepSweepOptions options_;
    StepBuckets buckets_;
    StepLoad load_;
    std::vector<Measured> measured_;  ///< by clock
    std::optional<Seconds> began_;
    std::size_t asked_ = options_.clocks.size() - 1;
    Seconds steady_from_{0};
    tune::detail::BlockSchedule<std::size_t, Seconds> blocks_{asked_};  ///< by clock
    Seconds passed_to_{0};
    std::vector<detail::StepMeter> boards_;  ///< its own, then those of engines that were added
};

}  // namespace kdvfs::inline v0_3::serve
