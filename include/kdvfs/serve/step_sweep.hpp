// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/serve/step.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/serve/step_table.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
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
    StepBuckets::Edges grid{
        {1, 64, 128, 256, 384, 512}, {1, 4, 8, 16, 32, 64, 128}, {1, 512, 1024, 2048, 4096, 8192}};
};

namespace detail {

/// Fits the cells of a step table to sums of steps: what a step costs is interpolated between its
/// cells, as StepTable does, and a cell is what a plane through all of them says plus a deviation
/// that must be earned by data. Least squares of relative errors.
class StepCellFit {
public:
    explicit StepCellFit(const StepBuckets::Edges& grid) : grid_{grid} {
        columns_ = first_cell + grid_.prompt_tokens.size() +
                   grid_.sequences.size() * grid_.context_tokens.size();
        matrix_.grow(columns_);
        right_.resize(columns_);
        row_.resize(columns_);
    }

    /// Adds so much of a step to the sum that is being made.
    void step(StepShape shape, double part) {
        if (shape.prompt_tokens > 0) {
            add(0, part);
            add(1, part * shape.prompt_tokens / prompt_scale);
            for (const auto& [index, weight] : places(grid_.prompt_tokens, shape.prompt_tokens))
                add(first_cell + index, part * weight);
        }
        if (shape.sequences > 0) decode(shape.sequences, shape.context_tokens, part);
        // A mixed step reads the weights once.
        if (phase_of(shape) == Phase::mixed)
            decode(grid_.sequences.front(), reference_context(), -part);
    }
    void idle(Seconds time) { add(idle_column, time.count()); }
    /// The sum has cost so much. Nothing is taken where that is not above zero.
    void close(double value) {
        if (value > 0) {
            std::vector<double> values;
            for (const std::size_t column : touched_) values.push_back(row_[column]);
            matrix_.add_outer(touched_, values, 1 / (value * value));
            for (std::size_t i = 0; i < touched_.size(); ++i)
                right_[touched_[i]] += values[i] / value;
            ++rows_;
            sum_ += value;
        }
        drop();
    }
    void drop() {
        for (const std::size_t column : touched_) row_[column] = 0;
        touched_.clear();
    }

    void add(const StepCellFit& other) {
        matrix_ += other.matrix_;
        for (std::size_t c = 0; c < columns_; ++c) right_[c] += other.right_[c];
        rows_ += other.rows_;
        sum_ += other.sum_;
    }
    [[nodiscard]] double rows() const { return rows_; }
    /// The sum of squares of relative errors that the best cells leave.
    [[nodiscard]] double unexplained() const {
        if (rows_ == 0) return 0;
        const std::vector<double> cells = solved();
        double sum = rows_;
        for (std::size_t i = 0; i < columns_; ++i) {
            if (cells[i] == 0) continue;
            sum -= 2 * right_[i] * cells[i];
            for (std::size_t j = 0; j < columns_; ++j) sum += cells[i] * matrix_(i, j) * cells[j];
        }
        return std::max(sum, 0.0);
    }

    /// What cells cost.
    class Solution {
    public:
        Solution(const StepCellFit& fit, std::vector<double> values)
            : fit_{fit}, values_{std::move(values)} {}
        [[nodiscard]] double prefill(std::size_t index) const {
            return values_[0] + values_[1] * fit_.grid_.prompt_tokens[index] / prompt_scale +
                   values_[first_cell + index];
        }
        [[nodiscard]] double decode(std::size_t sequences, std::size_t context) const {
            const double s = fit_.grid_.sequences[sequences];
            const double c = fit_.grid_.context_tokens[context];
            return values_[2] + values_[3] * s / sequence_scale +
                   values_[4] * s * c / context_scale +
                   values_[fit_.decode_cell(sequences, context)];
        }
        /// Watts, where sums are joules.
        [[nodiscard]] double idle() const { return values_[idle_column]; }

    private:
        const StepCellFit& fit_;
        std::vector<double> values_;
    };
    /// @pre rows() > 0
    [[nodiscard]] Solution solve() const { return {*this, solved()}; }

private:
    [[nodiscard]] std::vector<double> solved() const {
        measure::SymmetricMatrix matrix = matrix_;
        const double mean = sum_ / rows_;
        const auto hold = [&](std::size_t column, double width) {
            const std::size_t columns[]{column};
            const double one[]{1};
            matrix.add_outer(columns, one, noise * noise / (width * width * mean * mean));
        };
        for (std::size_t c = 0; c < first_cell; ++c) hold(c, 1e3);  // free, and never singular
        for (std::size_t c = first_cell; c < columns_; ++c) hold(c, deviation);
        return measure::Cholesky{matrix}.solve(right_);
    }

    static constexpr double noise = 0.02;      ///< of a sum, relative
    static constexpr double deviation = 0.15;  ///< of a cell from the plane, of the mean sum
    static constexpr double prompt_scale = 512, sequence_scale = 16, context_scale = 1e4;
    static constexpr std::size_t idle_column = 5, first_cell = 6;

    using Places = std::vector<std::pair<std::size_t, double>>;

    static Places places(const std::vector<std::uint32_t>& axis, std::uint32_t value) {
        const auto upper = std::lower_bound(axis.begin(), axis.end(), value);
        if (upper == axis.begin()) return {{0, 1}};
        if (upper == axis.end()) return {{axis.size() - 1, 1}};
        const auto index = static_cast<std::size_t>(upper - axis.begin());
        const double above = static_cast<double>(value - axis[index - 1]) /
                             static_cast<double>(axis[index] - axis[index - 1]);
        return {{index - 1, 1 - above}, {index, above}};
    }
    [[nodiscard]] std::uint32_t reference_context() const {
        return std::clamp(256U, grid_.context_tokens.front(), grid_.context_tokens.back());
    }
    [[nodiscard]] std::size_t decode_cell(std::size_t sequences, std::size_t context) const {
        return first_cell + grid_.prompt_tokens.size() + sequences * grid_.context_tokens.size() +
               context;
    }
    void decode(std::uint32_t sequences, std::uint32_t context, double part) {
        add(2, part);
        add(3, part * sequences / sequence_scale);
        add(4, part * sequences * context / context_scale);
        for (const auto& [s, weight] : places(grid_.sequences, sequences))
            for (const auto& [c, other] : places(grid_.context_tokens, context))
                add(decode_cell(s, c), part * weight * other);
    }
    void add(std::size_t column, double value) {
        if (value == 0) return;
        if (std::find(touched_.begin(), touched_.end(), column) == touched_.end())
            touched_.push_back(column);
        row_[column] += value;
    }

    StepBuckets::Edges grid_;
    std::size_t columns_ = 0;
    measure::SymmetricMatrix matrix_;
    std::vector<double> right_;
    std::vector<double> row_;
    std::vector<std::size_t> touched_;
    double rows_ = 0;
    double sum_ = 0;
};

}  // namespace detail

/// Measures a step table in the engine that serves: a pure state machine. Most of the time runs at
/// the top clock; in between, blocks run at a lower one. A step runs at a block's clock only where
/// it surely keeps the token gap there: by the longest that steps of its bucket took at a clock
/// nearby, slowed down by the ratio of the clocks. What is known of times grows downwards with
/// that. Energies are those of an energy counter, slow as it may be: the rows between its samples
/// are explained by the steps in them. Not thread-safe; an engine has one, and `add` joins what
/// several engines measured.
class StepSweep {
public:
    /// @throws Error (invalid_input) for fewer than two clocks, clocks that do not ascend, auto
    ///         among them, or times that make no sense
    explicit StepSweep(StepSweepOptions options)
        : options_{checked(std::move(options))}, load_{buckets_} {
        for (std::size_t c = 0; c < options_.clocks.size(); ++c)
            measured_.emplace_back(options_.grid, buckets_.size());
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
        steps_.push_back({shape, begin, end, held});
        if (in_warm_up(begin)) load_.add(shape, end - begin);
        if (!held) return;
        at.times.step(shape, 1);
        at.times.close((end - begin).count());
        at.largest.prompt_tokens = std::max(at.largest.prompt_tokens, shape.prompt_tokens);
        at.largest.sequences = std::max(at.largest.sequences, shape.sequences);
        if (shape.sequences > 0)
            at.largest.context_tokens = std::max(at.largest.context_tokens, shape.context_tokens);
        Longest& longest = at.longest[buckets_.bucket(shape)];
        longest.time = std::max(longest.time, end - begin);
        ++longest.steps;
    }
    /// The engine had nothing to do until now.
    void idled(Seconds now) {
        if (in_warm_up(now)) load_.add({}, Seconds{0});
    }

    /// A sample of the energy counter, after all steps that began before it were told.
    void energy(Seconds time, Joules reading) {
        if (last_reading_ && time <= last_sample_) return;  // the same sample again
        for (std::size_t lag = 0; last_reading_ && lag < lags.size(); ++lag)
            if (last_sample_ - lags[lag] >= steady_from_)
                add_row(lag, last_sample_, time, reading - *last_reading_);
        last_reading_ = reading;
        last_sample_ = time;
        while (!steps_.empty() && steps_.front().end <= time - lags.back()) steps_.pop_front();
    }
    /// How late the counter follows the load, as far as that can be told: the lag that explains the
    /// rows best. Boards' counters show what was drawn some time ago.
    [[nodiscard]] Seconds counter_lag() const { return lags[best_lag()]; }

    /// What another engine measured with the same options.
    void add(const StepSweep& other) {
        for (std::size_t c = 0; c < measured_.size(); ++c) {
            Measured& mine = measured_[c];
            const Measured& theirs = other.measured_[c];
            mine.times.add(theirs.times);
            for (std::size_t lag = 0; lag < lags.size(); ++lag)
                mine.energies[lag].add(theirs.energies[lag]);
            mine.idle += theirs.idle;
            mine.largest.prompt_tokens =
                std::max(mine.largest.prompt_tokens, theirs.largest.prompt_tokens);
            mine.largest.sequences = std::max(mine.largest.sequences, theirs.largest.sequences);
            mine.largest.context_tokens =
                std::max(mine.largest.context_tokens, theirs.largest.context_tokens);
        }
        load_.add(other.load_);
    }

    /// The table so far: each clock's rows reach as far as steps were measured at it.
    [[nodiscard]] std::vector<StepRow> rows() const {
        std::vector<StepRow> rows;
        const std::size_t lag = best_lag();
        for (std::size_t c = 0; c < measured_.size(); ++c)
            if (measured_[c].times.rows() > 0 && measured_[c].energies[lag].rows() > 0)
                add_rows(rows, c, lag);
        return rows;
    }
    /// The steps of the time at the top clock, before any block.
    [[nodiscard]] const StepLoad& load() const { return load_; }
    /// Steps and counter rows that were measured at a clock, by its index.
    [[nodiscard]] double steps_at(std::size_t clock) const { return measured_[clock].times.rows(); }
    [[nodiscard]] double rows_at(std::size_t clock) const {
        return measured_[clock].energies.front().rows();
    }

private:
    /// That a counter may follow the load by. NVML's are 4 to 18 ms late on an H100 and H200s, and
    /// show values that are up to 100 ms old (`measure::LateRows`).
    static constexpr std::array lags{Seconds{0},     Seconds{0.01},  Seconds{0.02},
                                     Seconds{0.035}, Seconds{0.05},  Seconds{0.075},
                                     Seconds{0.1},   Seconds{0.125}, Seconds{0.15}};

    struct Longest {
        Seconds time{0};
        std::uint32_t steps = 0;
    };
    struct Measured {
        Measured(const StepBuckets::Edges& grid, std::size_t buckets)
            : times{grid}, energies(lags.size(), detail::StepCellFit{grid}), longest(buckets) {}
        detail::StepCellFit times;
        std::vector<detail::StepCellFit> energies;  ///< by lag
        std::vector<Longest> longest;               ///< by bucket
        StepShape largest{};
        Seconds blocks{0};  ///< time given to it so far
        Seconds idle{0};    ///< in its rows
    };
    struct Step {
        StepShape shape;
        Seconds begin;
        Seconds end;
        bool held;
    };

    static constexpr double margin = 0.97;   ///< of the gap: shapes of one bucket differ
    static constexpr std::uint32_t few = 3;  ///< steps of a bucket that tell how long they take

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
               shape.context_tokens <= grid.context_tokens.back();
    }

    /// The clock of the block that now is in; chosen as it begins.
    std::size_t block_at(Seconds now) {
        if (in_warm_up(now)) return top();
        if (now < block_ends_) return now < block_ends_ - options_.block ? top() : block_;
        if (block_ends_ > Seconds{0} && block_ != top()) measured_[block_].blocks += options_.block;
        block_ = next_block();
        block_ends_ = now + 2 * options_.block;
        return top();
    }

    /// Of the clocks at which the board may wait for prompts, the one that was measured least; high
    /// ones first, since they tell how long steps take below.
    [[nodiscard]] std::size_t next_block() const {
        std::size_t best = top();
        for (std::size_t c = top(); c-- > 0;) {
            if (!may_wait_at(c)) break;
            if (best == top() || measured_[c].blocks < measured_[best].blocks) best = c;
        }
        return best;
    }

    /// The longest that steps of a bucket can take: the top clock's bound holds where no step of
    /// the bucket was measured nearer.
    [[nodiscard]] Seconds bound(std::size_t bucket, std::size_t clock) const {
        Seconds longest{std::numeric_limits<double>::infinity()};
        for (std::size_t c = 0; c < measured_.size(); ++c) {
            const Longest& known = measured_[c].longest[bucket];
            if (known.steps < few) continue;
            const double slower = static_cast<double>(options_.clocks[c].count) /
                                  static_cast<double>(options_.clocks[clock].count);
            longest = std::min(longest, known.time * std::max(1.0, slower));
        }
        return longest;
    }
    [[nodiscard]] bool keeps_gap(StepShape shape, std::size_t clock) const {
        if (clock == top()) return true;
        if (!covered(shape)) return false;
        return shape.sequences == 0 ||
               bound(buckets_.bucket(shape), clock) <= options_.gap * margin;
    }
    /// Whether steps that begin at a clock keep the gap, raised or not. What breaks it at the top
    /// clock, too, has no say.
    [[nodiscard]] bool may_wait_at(std::size_t clock) const {
        for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
            const Longest& fast = measured_[top()].longest[bucket];
            if (fast.steps == 0 || buckets_.corner(bucket).sequences == 0) continue;
            if (fast.time > options_.gap * margin) continue;
            const double slower = static_cast<double>(options_.clocks[top()].count) /
                                  static_cast<double>(options_.clocks[clock].count);
            const Seconds slow = std::min(bound(bucket, clock), fast.time * slower);
            if (std::min(slow, raised_time(slow, fast.time, options_.switch_latency)) >
                options_.gap * margin)
                return false;
        }
        return true;
    }

    /// What the counter grew by, explained by the steps in between.
    void add_row(std::size_t lag, Seconds from, Seconds to, Joules joules) {
        detail::StepCellFit& fit = measured_[asked_].energies[lag];
        from -= lags[lag];
        to -= lags[lag];
        Seconds idle = to - from;
        for (const Step& step : steps_) {
            const Seconds overlap = std::min(step.end, to) - std::max(step.begin, from);
            if (overlap <= Seconds{0}) continue;
            if (!step.held) return fit.drop();
            fit.step(step.shape, overlap / (step.end - step.begin));
            idle -= overlap;
        }
        idle = std::max(idle, Seconds{0});
        if (lag == 0) measured_[asked_].idle += idle;
        fit.idle(idle);
        fit.close(joules.count);
    }

    /// The counter is the same at all clocks.
    [[nodiscard]] std::size_t best_lag() const {
        std::size_t best = 0;
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t lag = 0; lag < lags.size(); ++lag) {
            double rows = 0;
            double unexplained = 0;
            for (const Measured& at : measured_) {
                rows += at.energies[lag].rows();
                unexplained += at.energies[lag].unexplained();
            }
            if (rows == 0 || unexplained / rows >= least) continue;
            best = lag;
            least = unexplained / rows;
        }
        return best;
    }

    void add_rows(std::vector<StepRow>& rows, std::size_t clock, std::size_t lag) const {
        const Measured& at = measured_[clock];
        const auto times = at.times.solve();
        const auto energies = at.energies[lag].solve();
        const auto& grid = options_.grid;
        // Up to the first place that is no smaller than the largest step.
        const auto reach = [](const std::vector<std::uint32_t>& axis, std::uint32_t most) {
            const auto last = std::lower_bound(axis.begin(), axis.end(), most);
            return std::min(static_cast<std::size_t>(last - axis.begin()) + 1, axis.size());
        };
        const auto row = [&](Phase phase, std::uint32_t batch, std::uint32_t context, double time,
                             double joules) {
            if (time > 0 && joules > 0)
                rows.push_back({phase,
                                batch,
                                context,
                                options_.clocks[clock],
                                {Seconds{time}, Joules{joules}}});
        };
        if (at.largest.prompt_tokens > 0)
            for (std::size_t p = 0; p < reach(grid.prompt_tokens, at.largest.prompt_tokens); ++p)
                row(Phase::prefill, 1, grid.prompt_tokens[p], times.prefill(p),
                    energies.prefill(p));
        if (at.largest.sequences > 0)
            for (std::size_t s = 0; s < reach(grid.sequences, at.largest.sequences); ++s)
                for (std::size_t c = 0; c < reach(grid.context_tokens, at.largest.context_tokens);
                     ++c)
                    row(Phase::decode, grid.sequences[s], grid.context_tokens[c],
                        times.decode(s, c), energies.decode(s, c));
        if (at.idle > Seconds{1}) row(Phase::idle, 0, 0, 1, energies.idle());
    }

    StepSweepOptions options_;
    StepBuckets buckets_;
    StepLoad load_;
    std::vector<Measured> measured_;  ///< by clock
    std::optional<Seconds> began_;
    std::size_t asked_ = options_.clocks.size() - 1;
    Seconds steady_from_{0};
    std::size_t block_ = options_.clocks.size() - 1;
    Seconds block_ends_{0};
    std::deque<Step> steps_;
    std::optional<Joules> last_reading_;
    Seconds last_sample_{0};
};

}  // namespace kdvfs::inline v0_3::serve
