// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/measure/gap_columns.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/measure/merged_columns.hpp>
#include <kdvfs/detail/measure/possible_power.hpp>
#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/sample_join.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// The time without a kernel while the device had been written one clock.
struct ClockTime {
    ClockPoint clock;
    std::size_t column = RowSums::idle_column;
    std::size_t gaps = RowSums::idle_column;  ///< column of gaps inside iterations; that: none yet
    bool has_column = false;  ///< of its own, or it is the clock that has the idle one
    double seconds = 0;       ///< under trusted samples, in rows that count
    double in_row = 0;        ///< of the row under way
    double all = 0;           ///< whether counted or not
    double in_gaps = 0;       ///< of it, in gaps inside iterations

    [[nodiscard]] bool has_gaps() const { return gaps != RowSums::idle_column; }
};

/// Which power an idle board draws: the clock that stays decides. The first clock that the board
/// rests at has the idle column, and so have all that it rests at for a moment only; others have a
/// column each. Gaps inside iterations have their own: kernels may run there whose markers are
/// lost. A plan or an idle clock writes few clocks, so they are searched one by one.
class RestClocks {
public:
    void run(double seconds) { all_ += seconds; }
    /// Nothing runs for `seconds`.
    /// @param in_row of a row that may count
    /// @param add    makes a column
    /// @returns the column of that time
    template <class Add>
    std::size_t rest(ClockPoint clock, bool in_iteration, double seconds, bool in_row, Add add) {
        all_ += seconds;
        auto known = std::find_if(clocks_.begin(), clocks_.end(),
                                  [&](const ClockTime& at) { return at.clock == clock; });
        if (known == clocks_.end()) {
            if (clocks_.size() >= most) return RowSums::idle_column;
            clocks_.push_back({.clock = clock, .has_column = clocks_.empty()});
            known = clocks_.end() - 1;
        }
        known->all += seconds;
        if (in_row) known->in_row += seconds;
        if (!known->has_column && known->all > std::max(enough, share * all_)) {
            known->column = add();
            known->has_column = true;
        }
        const bool in_gap = in_iteration && seconds > KernelGap::launch;
        known->in_gaps += in_gap ? seconds : 0;
        if (!known->has_gaps() && known->in_gaps > 10 * KernelGap::launch) known->gaps = add();
        return in_gap && known->has_gaps() ? known->gaps : known->column;
    }
    /// The row has ended. @param counts whether its joules are attributed
    void end_row(bool counts) {
        for (ClockTime& at : clocks_) {
            if (counts) at.seconds += at.in_row;
            at.in_row = 0;
        }
    }
    [[nodiscard]] const std::vector<ClockTime>& clocks() const { return clocks_; }
    void merge(const MergedColumns& columns) {
        for (ClockTime& at : clocks_) {
            at.column = columns(at.column);
            at.gaps = columns(at.gaps);
        }
    }
    /// Whether a column is of time in which nothing runs, at the clock of the idle column.
    [[nodiscard]] bool rests_in(std::size_t column) const {
        return column == RowSums::idle_column ||
               std::any_of(clocks_.begin(), clocks_.end(), [&](const ClockTime& at) {
                   return at.has_column && at.column == RowSums::idle_column && at.gaps == column;
               });
    }

private:
    static constexpr std::size_t most = 8;  // each costs what it takes to know one more power
    static constexpr double enough = 0.02;  // s, before anything is decided
    static constexpr double share = 0.002;  // of all time

    std::vector<ClockTime> clocks_;
    double all_ = 0;  // s
};

/// The standard error of the mean of independent values, of which there are two at least.
[[nodiscard]] inline double standard_error(std::span<const double> values) {
    const auto n = static_cast<double>(values.size());
    double mean = 0;
    for (const double value : values) mean += value / n;
    double square = 0;
    for (const double value : values) square += std::pow(value - mean, 2);
    return std::sqrt(square / (n - 1) / n);
}

/// A sequence in 16 to 31 batches of equal length, which grow with it (batch means; Law, Simulation
/// Modeling and Analysis, 9.5.3): says how well its mean is known where neighbours resemble each
/// other. Constant memory.
/// @tparam Value a number, or numbers by column; what is added may have fewer columns
template <class Value>
class Batches {
public:
    void add(const Value& value) {
        add(open_, value);
        if (++in_batch_ < length_) return;
        sums_.push_back(std::exchange(open_, {}));
        in_batch_ = 0;
        if (sums_.size() <= most) return;
        for (std::size_t i = 0; i < sums_.size() / 2; ++i) {
            Value both = std::move(sums_[2 * i]);
            add(both, sums_[2 * i + 1]);
            sums_[i] = std::move(both);
        }
        sums_.resize(sums_.size() / 2);
        length_ *= 2;
    }
    /// Of each whole batch.
    [[nodiscard]] const std::vector<Value>& sums() const { return sums_; }
    [[nodiscard]] std::vector<Value>& sums() { return sums_; }
    /// Values in each.
    [[nodiscard]] std::uint64_t length() const { return length_; }
    /// Standard error of the mean; 0 where fewer than eight values say nothing of it.
    [[nodiscard]] double standard_error() const {
        return sums_.size() < fewest
                   ? 0
                   : measure::standard_error(sums_) / static_cast<double>(length_);
    }

private:
    static constexpr std::size_t fewest = 8;
    static constexpr std::size_t most = 31;

    static void add(double& to, double value) { to += value; }
    static void add(std::vector<double>& to, const std::vector<double>& values) {
        if (to.size() < values.size()) to.resize(values.size());
        for (std::size_t j = 0; j < values.size(); ++j) to[j] += values[j];
    }

    std::vector<Value> sums_;
    Value open_{};
    std::uint64_t length_ = 1;
    std::uint64_t in_batch_ = 0;
};

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

    /// The kernel that a column belongs to; nothing for idle time and kernels without a column.
    [[nodiscard]] std::optional<KernelId> kernel(std::size_t column) const {
        return column < by_column_.size() ? by_column_[column] : std::nullopt;
    }

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
    std::vector<std::optional<KernelId>> by_column_;
};

/// Time of a kernel under a clock in the column of kernels that have none.
struct PooledTime {
    KernelId kernel;
    ClockPoint applied;
    double seconds = 0;  ///< under trusted samples
};

/// All that attribution needs to know of a stretch of work, however long it was.
struct EnergySums {
    static constexpr std::size_t idle_column = RowSums::idle_column;

    RowSums rows;  ///< a column per (kernel, applied clock); column 0 is idle
    /// The same rows, each time as if a slow counter followed the load in another way (`LateRows`).
    std::vector<RowSums> late_rows;
    bool sensor_may_lag = false;  ///< by anything, as on real boards
    /// What hypotheses of the sensor say of the powers, as likely as each other; empty where the
    /// sensor was not sought. `assumed` is what the one that the rows rest on says by the same
    /// rows.
    std::vector<NormalSums> hypotheses{};
    NormalSums assumed{};
    /// The same where the rows rest on NVIDIA's log instead: how far that may be off.
    std::vector<NormalSums> doubts{};
    std::optional<FoundSensor> sensor{};
    KernelColumns columns;
    std::optional<std::size_t> pool;     ///< the column of kernels that have none of their own
    std::vector<PooledTime> pooled{};    ///< whose time it has; first calls of others, too
    std::vector<double> column_seconds;  ///< by column, under trusted samples
    std::vector<KernelGap> gaps{};       ///< idle time whose column is not that of its clock
    /// Gaps between kernels draw more than a board that waits, and either the rows have no power of
    /// theirs, or the sensor that was found makes up for what runs in them.
    bool hides_work = false;
    double wanders = 0;                ///< W, of the rows, as `SensorFinding` has it
    SymmetricMatrix unlike{};          ///< W^2, likewise
    double uneven = 0;                 ///< of the mean power, as `SensorFinding` has it
    std::vector<double> column_edges;  ///< of them, those at runs' ends that markers take
    /// By column, W; a width of 0 where the kernel was not repeated. May be shorter.
    std::vector<PowerBelief> repeated;
    std::vector<CountedJoules> direct;  ///< by column, of long scopes; may be shorter
    Duration counter_period{0};
    /// The counter's joules over those of the rows, where these are of a power log, and its
    /// relative standard error. All joules below are the counter's; the rows' powers are not.
    double gain = 1;
    double gain_deviation = 0;

    PossiblePower possible{};    ///< by the counter
    std::vector<double> room{};  ///< of each column beyond the limit, as `RoomOfRuns` has it

    Joules counter;                  ///< trusted joules of the metered time
    Joules outside;                  ///< trusted joules of the rest
    std::vector<ClockTime> rests{};  ///< idle time by clock, gaps included
    Seconds counted_time{0};         ///< metered time under trusted samples

    std::uint64_t row_count = 0;        ///< metered counter intervals that were fitted
    bool by_power = false;              ///< they come from samples of the power
    std::uint64_t refused_rows = 0;     ///< whose reading is impossible
    std::uint64_t overflowed_rows = 0;  ///< with kernels beyond the last column
    std::uint64_t late = 0;  ///< intervals and samples after their time was joined, or no numbers
    std::uint64_t overflows = 0;  ///< times that buffers were full

    [[nodiscard]] std::size_t columns_seen() const { return column_seconds.size(); }
    [[nodiscard]] double seconds(std::size_t column) const { return column_seconds[column]; }
    /// Whether it ran under a clock at which it has no column of its own.
    [[nodiscard]] bool is_pooled(KernelId kernel) const {
        return std::any_of(pooled.begin(), pooled.end(), [&](const PooledTime& each) {
            return each.kernel == kernel && !columns.find(kernel, each.applied);
        });
    }
    /// First calls before a kernel had a column are its own, and not of the pool.
    [[nodiscard]] std::vector<double> seconds_of(KernelId kernel) const {
        std::vector<double> seconds(columns_seen());
        for (const auto& [applied, column] : columns.of(kernel)) {
            seconds[column] = this->seconds(column);
        }
        for (const PooledTime& each : pooled) {
            if (each.kernel != kernel) continue;
            if (const auto column = columns.find(kernel, each.applied)) {
                seconds[*column] += each.seconds;
            }
        }
        return seconds;
    }
    /// Of the pool's column, less first calls of kernels that have a column.
    /// @pre pool
    [[nodiscard]] std::vector<double> seconds_of_pool() const {
        std::vector<double> seconds(columns_seen());
        seconds[*pool] = this->seconds(*pool);
        for (const PooledTime& each : pooled) {
            if (const auto column = columns.find(each.kernel, each.applied)) {
                seconds[*column] -= each.seconds;
            }
        }
        return seconds;
    }
    /// Takes gaps out of the columns of their clocks, into their own.
    void split_gaps(std::vector<KernelGap> own) {
        for (KernelGap& gap : own) {
            gap.seconds = std::min(gap.seconds, column_seconds[gap.rest]);
            column_seconds[gap.column] = gap.seconds;
            column_seconds[gap.rest] -= gap.seconds;
        }
        gaps = std::move(own);
    }
    /// Gaps that have a column each, and others inside iterations.
    [[nodiscard]] std::vector<KernelGap> all_gaps(std::vector<KernelGap> own) const {
        for (const ClockTime& at : rests) {
            if (at.has_gaps()) own.push_back({at.gaps, at.column, idle_column, seconds(at.gaps)});
        }
        return own;
    }
    /// Of columns in which nothing runs; 0 of others.
    [[nodiscard]] std::vector<double> idle_seconds() const {
        std::vector<double> idle(columns_seen());
        idle[idle_column] = seconds(idle_column);
        for (const ClockTime& at : rests) idle[at.column] = seconds(at.column);
        for (const KernelGap& gap : all_gaps(gaps)) idle[gap.column] = seconds(gap.column);
        return idle;
    }
    /// Of all others.
    [[nodiscard]] std::vector<double> kernel_seconds() const {
        std::vector<double> found = column_seconds;
        const std::vector<double> idle = idle_seconds();
        for (std::size_t j = 0; j < found.size(); ++j) found[j] -= idle[j];
        return found;
    }
    /// Of the idle time at a clock: its column's, and that of gaps at it.
    [[nodiscard]] std::vector<double> seconds_of(const ClockTime& at) const {
        std::vector<double> found(columns_seen());
        if (!at.has_column) return found;
        found[at.column] = seconds(at.column);
        for (const KernelGap& gap : all_gaps(gaps))
            if (gap.rest == at.column || (at.has_gaps() && gap.rest == at.gaps))
                found[gap.column] = seconds(gap.column);
        // The idle column has clocks without a column, too, and others' time before they had one.
        const double all = std::accumulate(found.begin(), found.end(), 0.0);
        for (double& each : found) each *= all > 0 ? at.seconds / all : 0;
        return found;
    }
    /// How far a column's watts lie beyond what is possible; 0 inside.
    [[nodiscard]] double beyond(std::size_t column, double watts) const {
        // What it draws at rest at a lower clock, only that rest says.
        const bool lower = std::any_of(rests.begin(), rests.end(), [&](const ClockTime& at) {
            return at.column == column && column != idle_column;
        });
        if (lower && watts >= 0) return std::max(possible.beyond(watts, 0), 0.0);
        return possible.beyond(watts,
                               column < room.size() ? room[column] : PossiblePower::most_room);
    }
    /// Whether the power wanders by more than boards do while the same runs. Recordings of
    /// three boards below their limit wander by at most 0.30 % of their power.
    [[nodiscard]] bool power_wanders() const {
        constexpr double boards = 0.015;
        return wanders > boards * rows.power.mean_watts();
    }
    /// Whether powers change so much inside runs or gaps that no sensor can be found by them: on
    /// beds whose powers rise by a fifth in a run, 46 % of resolved kernels were covered.
    [[nodiscard]] bool too_uneven() const {
        constexpr double most = 0.1;
        return uneven > most;
    }
    /// Whether something beside this program draws power.
    [[nodiscard]] bool has_outside_load() const {
        return power_wanders() || possible.rests_too_high();
    }
    /// Standard deviation of a row's power from what the columns explain.
    [[nodiscard]] Watts scatter() const {
        return {rows.rows > 0 ? std::sqrt(rows.scatter / rows.rows) : 0};
    }
    [[nodiscard]] Watts mean_power() const { return counter / counted_time; }
};

/// The time of one level, iteration or enclosing scope, by what ran in it; shared by 1/n among
/// overlapping kernels.
struct LevelTime {
    std::optional<KernelId> scope{};  ///< nothing: the iteration
    std::uint64_t runs = 0;           ///< that have ended; the time is theirs
    double counted_seconds = 0;       ///< under trusted samples
    Batches<double> run_seconds{};    ///< of the runs
    /// How much runs differ: their times by column. Of iterations alone.
    Batches<std::vector<double>> batches{};
    bool some_metered = false;             ///< iterations were left out between the runs
    std::vector<double> column_seconds{};  ///< by column, whether under trusted samples or not

    void add(std::size_t column, double seconds, bool counted) {
        if (column_seconds.size() <= column) column_seconds.resize(column + 1);
        column_seconds[column] += seconds;
        if (counted) counted_seconds += seconds;
    }
};

/// Sums up how long each kernel ran within each scope that encloses others, and within iterations.
/// A moment counts once in each scope that encloses it, however often that scope encloses itself;
/// a run's time counts once the run has ended, as the run does, so that joules a run are those of
/// whole ones wherever the walk stops; what runs on one track is of no run on another. Not
/// thread-safe.
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

    /// @param number of the iteration that begins, in order; 0: not known
    void mark_iteration(IterationMark mark, std::uint64_t number = 0) {
        if (mark == IterationMark::scopes_spoilt) {
            for (std::size_t i = iteration + 1; i < levels_.size(); ++i) levels_[i].forget_runs();
            return;
        }
        Level& all = levels_[iteration];
        if (mark == IterationMark::begins) {
            const bool next = number > 0 && number == number_ + 1;
            if (has_paused_ && !next) all.ended.some_metered = true;
            number_ = number;
        }
        has_paused_ = mark == IterationMark::ends;
        all.end_run(every_track, in_iteration_ && mark != IterationMark::spoilt);
        in_iteration_ = mark == IterationMark::begins;
    }

    [[nodiscard]] bool in_iteration() const { return in_iteration_; }
    /// Any level may have some of a kernel's time.
    [[nodiscard]] bool any() const { return in_iteration_ || levels_.size() > 1; }
    /// A kernel at `place` of a track ran for `seconds`, whose joules are under `column`.
    void run(KernelId kernel, TrackId track, std::uint32_t place, std::size_t column,
             double seconds, bool counted) {
        const std::size_t own = kernel.value < by_kernel_.size() ? by_kernel_[kernel.value] : none;
        const std::vector<std::size_t>& around = places_[place < places_.size() ? place : 0];
        for (const std::size_t level : around) {
            levels_[level].going_on(track).add(column, seconds, counted);
        }
        if (own != none && std::find(around.begin(), around.end(), own) == around.end()) {
            levels_[own].going_on(track).add(column, seconds, counted);
        }
        add_to_iteration(column, seconds, counted);
    }
    /// A run of `kernel` is over. @param whole all of it was metered; else it is no run
    void end_run(KernelId kernel, TrackId track, bool whole) {
        if (kernel.value >= by_kernel_.size() || by_kernel_[kernel.value] == none) return;
        levels_[by_kernel_[kernel.value]].end_run(track, whole);
    }
    /// No kernel ran for `seconds`.
    void idle(std::size_t column, double seconds, bool counted) {
        add_to_iteration(column, seconds, counted);
    }

    void merge(const MergedColumns& columns) {
        for (Level& level : levels_) {
            std::vector<double>& ended = level.ended.column_seconds;
            ended = columns.sum(ended);
            for (std::vector<double>& batch : level.ended.batches.sums())
                batch = columns.sum(batch);
            for (OpenRun& run : level.open)
                run.time.column_seconds = columns.sum(run.time.column_seconds);
        }
    }
    /// The iteration, where one has ended, then the enclosing scopes.
    [[nodiscard]] std::vector<LevelTime> levels() const {
        std::vector<LevelTime> found;
        for (std::size_t i = 0; i < levels_.size(); ++i) {
            if (i != iteration || levels_[i].ended.runs > 0) found.push_back(levels_[i].ended);
        }
        return found;
    }

private:
    static constexpr std::size_t iteration = 0;
    static constexpr std::size_t none = ~std::size_t{0};
    static constexpr TrackId every_track{~std::uint32_t{0}};

    /// The time of a run that has not ended. Used again for the next one, of any track.
    struct OpenRun {
        std::optional<TrackId> track{};
        LevelTime time{};
    };
    struct Level {
        LevelTime ended{};
        std::vector<OpenRun> open{};

        LevelTime& going_on(TrackId track) {
            auto found = find(track);
            if (found == open.end()) found = find(std::nullopt);
            if (found == open.end()) found = open.insert(found, OpenRun{});
            found->track = track;
            return found->time;
        }
        void end_run(TrackId track, bool whole) {
            if (whole) add_run(going_on(track));
            if (const auto found = find(track); found != open.end()) forget(*found);
        }
        void forget_runs() {
            for (OpenRun& run : open) forget(run);
        }

    private:
        std::vector<OpenRun>::iterator find(std::optional<TrackId> track) {
            return std::find_if(open.begin(), open.end(),
                                [&](const OpenRun& run) { return run.track == track; });
        }
        void add_run(const LevelTime& run) {
            const std::vector<double>& seconds = run.column_seconds;
            ++ended.runs;
            ended.counted_seconds += run.counted_seconds;
            ended.run_seconds.add(std::accumulate(seconds.begin(), seconds.end(), 0.0));
            if (!ended.scope) ended.batches.add(seconds);
            for (std::size_t j = 0; j < seconds.size(); ++j) ended.add(j, seconds[j], false);
        }
        static void forget(OpenRun& run) {
            run.track.reset();
            run.time.counted_seconds = 0;
            std::fill(run.time.column_seconds.begin(), run.time.column_seconds.end(), 0.0);
        }
    };

    void add_to_iteration(std::size_t column, double seconds, bool counted) {
        if (in_iteration_) levels_[iteration].going_on(every_track).add(column, seconds, counted);
    }

    std::size_t level_of(KernelId scope) {
        if (by_kernel_.size() <= scope.value) by_kernel_.resize(scope.value + std::size_t{1}, none);
        std::size_t& level = by_kernel_[scope.value];
        if (level == none) {
            level = levels_.size();
            levels_.emplace_back().ended.scope = scope;
        }
        return level;
    }

    std::vector<Level> levels_{1};
    std::vector<std::size_t> by_kernel_;                // the level of an enclosing scope
    std::vector<std::vector<std::size_t>> places_{{}};  // the levels around each place
    bool in_iteration_ = false;
    bool has_paused_ = false;   // with the last iteration that ended
    std::uint64_t number_ = 0;  // of the last iteration that began
};

}  // namespace kdvfs::inline v0_3::measure
