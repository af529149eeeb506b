// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/energy_sums.hpp>
#include <kdvfs/detail/measure/gap_columns.hpp>
#include <kdvfs/detail/measure/held_clocks.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/measure/late_rows.hpp>
#include <kdvfs/detail/measure/log_readings.hpp>
#include <kdvfs/detail/measure/log_rows.hpp>
#include <kdvfs/detail/measure/possible_power.hpp>
#include <kdvfs/detail/measure/power_rows.hpp>
#include <kdvfs/detail/measure/report_filler.hpp>
#include <kdvfs/detail/measure/rest_clocks.hpp>
#include <kdvfs/detail/measure/row_fit.hpp>
#include <kdvfs/detail/measure/sample_join.hpp>
#include <kdvfs/detail/measure/sensor_finding.hpp>
#include <kdvfs/detail/measure/source_choice.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/settings.hpp>
#include <kdvfs/report.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// Adds up calls, times and clocks per kernel, and attributes the counter's joules to kernels by
/// streaming least squares: one unknown power per (kernel, applied clock), one for idle. Intervals,
/// samples and clock changes may come late and interleaved; they are joined when `advance` says
/// that nothing earlier is missing. Constant memory. Not thread-safe.
class EnergyAccumulator {
public:
    /// `kernels` must outlive the accumulator.
    explicit EnergyAccumulator(const KernelTable& kernels, AccumulatorSettings settings = {})
        : kernels_{&kernels},
          settings_{settings},
          held_{settings.highest_core},
          join_{settings.capacity, direct_from(settings.counter_period)},
          log_{settings.kernels_repeat ? 4.0 : 1.0} {
        sums_.keeps_filled = settings.kernels_repeat;
        add_column();  // EnergySums::idle_column
        watch_slow_counter();
    }

    /// One metered scope. Intervals of one or several tracks, in any order.
    /// @returns the clocks that held, by the changes that have been given so far
    HeldParts add(const KernelInterval& interval) {
        const HeldParts held = held_.split(interval);
        facts_.of(interval.kernel).add(interval, held);
        join_.add(interval, *this);
        return held;
    }
    /// A scope that only encloses others has ended: a level without work, hence without a row, of
    /// its own.
    /// @param end an interval without time
    void end_enclosing(const KernelInterval& end) { join_.add(end, *this); }
    /// Scopes that were not metered: counted only.
    void add_unmetered(KernelId kernel, std::uint64_t calls = 1) {
        facts_.of(kernel).calls += calls;
    }
    /// The next sample of the counter, in order of time.
    void add(const EnergySample& sample) {
        gain_.take_counter(sample);
        if (keeps_counter()) sample_counter(sample);
        counter_moves_ = counter_moves_ || sample.total.count != first_counter_;
        if (!counts_) first_counter_ = sample.total.count;
        counts_ = true;
        if (waits_for_log()) {
            held_back_.push_back(sample);
        } else if (!by_log_) {
            join_.add(sample, *this);
        }
    }
    /// The next sample of the power log, in order of time. The counter's are held back for some
    /// seconds, until the log shows how often it is read: the finer of the two ends rows.
    void add(const PowerReading& reading) {
        if (reading.status != ReadingStatus::ok || !std::isfinite(reading.watts.count)) return;
        if (reading.watts.count < 0 || reading.watts > settings_.highest_power) {
            ++refused_rows_;
            return;
        }
        const bool waited = waits_for_log() || log_.empty();
        const auto ends = log_.take(reading.sampled_at, reading.watts.count);
        if (waited && log_.has_clock()) choose_rows();
        for (EnergySample end : ends) {
            gain_.take_power(end);
            end.segment += first_power_segment;  // what the counter had before is over
            if (by_log_ && end.at >= join_.walked_to()) join_.add(end, *this);
            logged_to_ = end.at;
        }
    }
    /// From `at` on the device held these caps. In order of time.
    void clocks_applied(TimePoint at, ClockPoint applied) {
        held_.applied(at, applied);
        join_.clocks_applied(at, applied);
    }
    /// From `at` on every scope is metered, or not. In order of time; metered at the start.
    /// Joules of unmetered time are kept apart (`EnergyTotals::outside`).
    void metering(TimePoint at, bool on) { join_.metering(at, on); }
    /// What iterations do at `at`. In order of time.
    void iteration(TimePoint at, IterationMark mark) { join_.iteration(at, mark); }
    /// Intervals at the next place, counted from 1, lie directly in a scope of `enclosing` at
    /// `parent`.
    void add_place(std::uint32_t parent, KernelId enclosing) {
        levels_.add_place(parent, enclosing);
    }
    /// What a kernel drew while it was repeated under a clock: what its power is expected to be
    /// near.
    void add_repeated(const RepeatedPower& power) { repeated_.push_back(power); }
    /// Promises that every interval which began before `until` has been added, and every sample
    /// and change; joins them up to there.
    void advance(TimePoint until) {
        if (waits_for_log()) {
            held_until_ = std::max(held_until_, until);
            if (!join_.fills()) return;
            choose_rows();
        }
        // A log that has ended is not waited for.
        constexpr Duration patience = std::chrono::seconds{5};
        if (by_log_) {
            until = std::min(until, std::max(logged_to_, until - patience));
        }
        join_.advance(until, *this);
    }

    /// How many intervals can be added before some have to be attributed.
    [[nodiscard]] std::size_t room() const { return join_.room(); }

    /// The device's counter turned out to be updated so often.
    void counter_period(Duration period) {
        settings_.counter_period = period;
        if (by_log_) return;
        join_.direct_from(direct_from(period));
        watch_slow_counter();
    }
    /// The board's power limit, where it has changed; the highest one counts.
    void power_limit(Watts limit) {
        settings_.power_limit = std::max(settings_.power_limit, limit);
    }
    /// Boards of its kind draw so much at rest, and others may or may not work on it.
    void rests_at(RestRange rests, bool others_may_work) {
        settings_.rests = rests;
        settings_.others_may_work = others_may_work;
    }
    /// Fills rows, groups and totals, and appends notes; leaves the rest of the report alone.
    void fill(Report& report) const;

    /// The sums so far, for other ways to attribute.
    [[nodiscard]] EnergySums sums() const;

private:
    static constexpr std::size_t nowhere = ~std::size_t{0};
    static constexpr std::uint32_t first_power_segment = 1U << 31U;

    static Duration direct_from(Duration period) {
        constexpr int periods = 20;  // so that an error of a period at each end is 5 % at most
        return period > Duration::zero() ? periods * period : Duration::max();
    }

    /// Whether the log has not yet shown how often it is read.
    [[nodiscard]] bool waits_for_log() const {
        return !log_.empty() && !log_.has_clock() && !chosen_;
    }
    /// Rows end at the readings of the log where these are clearly finer than the counter's moves.
    void choose_rows();
    /// Whether the counter's sensor may have to be found: of a fast one, or of one beside a log.
    [[nodiscard]] bool keeps_counter() const {
        if (!settings_.sensor_may_lag) return false;
        const bool fast = settings_.counter_period > Duration::zero() &&
                          settings_.counter_period < LateRows::slow;
        return !log_.empty() || (fast && !settings_.kernels_repeat);
    }
    /// Keeps a reading of a counter to find its sensor by.
    void sample_counter(const EnergySample& sample) {
        const EnergySample last = std::exchange(last_counter_, sample);
        const Seconds length{sample.at - last.at};
        if (last.at == TimePoint{} || last.segment != sample.segment || length.count() <= 0) return;
        if (!counter_sample_.on()) {
            counter_sample_.begin(std::max(settings_.counter_period, sample.at - last.at));
        }
        counter_sample_.read(sample.at, length, (sample.total - last.total).count / length.count());
    }
    void sample_time(std::size_t column, double seconds) {
        if (!samples_time_) return;
        if (log_.sample().on()) log_.sample().add(column, seconds);
        if (counter_sample_.on()) counter_sample_.add(column, seconds);
    }

    friend class SampleJoin;  // the sink's half
    void passes(TimePoint from, TimePoint to, bool known) {
        passed_to_ = to;
        knows_lateness_ = known && late_.on() && from > TimePoint::min();
        if (knows_lateness_) late_.pass(from, to);
        const bool sampled = known && from > TimePoint::min();
        for (SensorSample* each : {&log_.sample(), &counter_sample_}) {
            if (each->on() && sampled) each->pass(from, to);
        }
        samples_time_ = sampled;
    }
    void run(KernelId kernel, ClockPoint applied, std::uint32_t place, Seconds share, bool in_row);
    void idle(Seconds time, ClockPoint applied, bool in_row) {
        const auto add = [this] { return add_column(true); };
        const std::size_t at_clock = rest_clocks_.rest(applied, time.count(), in_row, add);
        const std::size_t column =
            finds_gaps() ? gaps_.rest(at_clock, time.count(), in_row, add) : at_clock;
        levels_.idle(column, time.count(), in_row);
        if (knows_lateness_) late_.add(at_clock, time.count());
        room_.rest(time.count());
        sample_time(column, time.count());
        if (in_row) add_time(at_clock, time.count());
    }
    void scope_ended(KernelId kernel) {
        if (levels_.any()) levels_.end_run(kernel);
    }
    void mark_iteration(IterationMark mark) { levels_.mark_iteration(mark); }
    void end_row(double joules, Seconds time, bool metered);
    void break_row(bool impossible);
    void measured_directly(KernelId kernel, ClockPoint applied, CountedJoules counted);

    std::size_t add_column(bool rests = false);
    std::optional<std::size_t> column_for(KernelId kernel, ClockPoint applied);
    void add_time(std::size_t column, double seconds);
    void discard_row();
    void fit_if_full();
    void watch_slow_counter();
    [[nodiscard]] bool finds_gaps() const {
        return settings_.sensor_may_lag && !settings_.kernels_repeat;
    }
    void take_rows(EnergySums& sums, SensorFinding&& found, const SensorSample& sample) const;
    [[nodiscard]] std::optional<std::string> find_sensor_of(EnergySums& sums,
                                                            std::vector<std::string>& notes) const;
    /// What a calibration says of the sensor of a sample; of a log, if it is read as often.
    [[nodiscard]] std::optional<MeasuredSensor> measured_sensor(const SensorSample& sample,
                                                                bool counter) const {
        constexpr double alike = 0.2;  // of the period
        if (!settings_.sensors) return {};
        const auto& sensor = counter ? settings_.sensors->counter : settings_.sensors->log;
        if (!sensor || counter) return sensor;  // any difference of a counter shows its sensor
        const double ratio = Seconds{sensor->period}.count() / std::max(sample.period(), 1e-9);
        return std::abs(ratio - 1) < alike ? sensor : std::nullopt;
    }
    [[nodiscard]] std::vector<double> column_edges() const;
    [[nodiscard]] std::vector<PowerBelief> beliefs(double gain) const;
    void note_unrepeated(Report& report) const;

    const KernelTable* kernels_;
    AccumulatorSettings settings_;
    HeldClocks held_;
    SampleJoin join_;
    LogReadings log_;
    SensorSample counter_sample_;
    EnergySample last_counter_{};
    bool samples_time_ = false;  // that passes
    CounterGain gain_;
    std::vector<EnergySample> held_back_;  // of the counter
    TimePoint held_until_ = TimePoint::min();
    TimePoint logged_to_ = TimePoint::min();
    bool chosen_ = false;  // what ends rows
    bool by_log_ = false;  // its readings end rows
    bool counts_ = false;  // there were samples of the counter
    bool counter_moves_ = false;
    double first_counter_ = 0;     // J
    RowSums sums_;                 // of rows that were fitted
    PowerRows waiting_;            // for the fit
    LateRows late_;                // the same rows, of a slow counter
    bool knows_lateness_ = false;  // of what passes
    TimePoint passed_to_{};
    std::vector<PowerRows::Entry> row_;  // under construction, in seconds
    std::vector<std::size_t> place_;     // of a column in it
    std::vector<double> column_seconds_;
    KernelColumns columns_;
    std::optional<std::size_t> pool_;  // the column of kernels without one
    double ran_seconds_ = 0;           // of all kernels
    RestingPower resting_;             // at the clock of the idle column
    RestClocks rest_clocks_;
    RoomOfRuns room_;
    GapColumns gaps_;
    std::vector<RepeatedPower> repeated_;
    EnergyLevels levels_;
    FactsByKernel facts_;
    std::vector<CountedJoules> direct_;  // by column

    bool row_overflowed_ = false;
    bool follows_ = false;  // the next row begins where the last one ended
    std::uint64_t row_count_ = 0;
    std::uint64_t refused_rows_ = 0;
    double counter_joules_ = 0;
    double outside_joules_ = 0;
    double counted_seconds_ = 0;
    std::uint64_t overflowed_rows_ = 0;
};

inline void EnergyAccumulator::run(KernelId kernel, ClockPoint applied, std::uint32_t place,
                                   Seconds share, bool in_row) {
    facts_.of(kernel).applied.add(applied, std::chrono::duration_cast<Duration>(share));
    ran_seconds_ += share.count();
    auto column = columns_.find(kernel, applied);
    if (!column && (in_row || levels_.any())) column = column_for(kernel, applied);
    if (!column) {
        row_overflowed_ = row_overflowed_ || in_row;
        return;
    }
    if (levels_.any()) levels_.run(kernel, place, *column, share.count(), in_row);
    if (knows_lateness_) late_.add(*column, share.count());
    sample_time(*column, share.count());
    room_.run(*column, share.count());
    gaps_.run(*column, share.count());
    rest_clocks_.run(share.count());
    if (!in_row) return;
    add_time(*column, share.count());
}

/// A column for a kernel that has none yet: its own, or, where settings say so, the one of all
/// kernels that have too little time to be attributed one by one.
inline std::optional<std::size_t> EnergyAccumulator::column_for(KernelId kernel,
                                                                ClockPoint applied) {
    // s; before, any kernel has a large share. Those that are only tried to choose the fastest (by
    // XLA, by cuDNN) run for some milliseconds each, and must not take most columns.
    const double begin = place_.size() < settings_.most_columns / 4 ? 1 : 10;
    const double own = Seconds{facts_.at(kernel).applied.total()}.count();
    const bool full = place_.size() >= settings_.most_columns;
    if (settings_.pool_below > 0 &&
        (full || own < settings_.pool_below * std::max(ran_seconds_, begin))) {
        if (!pool_) pool_ = add_column();
        return pool_;
    }
    if (full) return std::nullopt;
    const std::size_t column = add_column();
    columns_.insert(kernel, applied, column);
    return column;
}

inline std::size_t EnergyAccumulator::add_column(bool rests) {
    sums_.add_column(false, rests);
    late_.add_column();
    column_seconds_.push_back(0);
    place_.push_back(nowhere);
    return place_.size() - 1;
}

inline void EnergyAccumulator::add_time(std::size_t column, double seconds) {
    if (seconds <= 0) return;
    std::size_t& place = place_[column];
    if (place == nowhere) {
        place = row_.size();
        row_.push_back({column, 0});
    }
    row_[place].share += seconds;
}

inline void EnergyAccumulator::end_row(double joules, Seconds time, bool metered) {
    if (!metered) {
        outside_joules_ += joules;
        break_row(false);
        return;
    }
    if (joules > settings_.highest_power.count * time.count()) {
        break_row(true);
        return;
    }
    counter_joules_ += joules;
    counted_seconds_ += time.count();
    if (row_overflowed_ || row_.empty()) {
        overflowed_rows_ += row_overflowed_ ? 1 : 0;
        break_row(false);
        return;
    }
    double busy = 1;
    for (const auto& [column, seconds] : row_) {
        column_seconds_[column] += seconds;
        if (sums_.rests[column] != 0) busy -= seconds / time.count();
    }
    const bool rests = row_.size() == 1 && row_.front().column == EnergySums::idle_column;
    resting_.take(joules, time.count(), rests, follows_);
    rest_clocks_.end_row(true);
    if (by_log_) {
        sums_.power.add_power(joules / time.count(), busy);
    } else {
        waiting_.push(row_, {}, time.count(), joules, follows_);
    }
    if (late_.on()) {
        late_.end_row(passed_to_ - std::chrono::duration_cast<Duration>(time), passed_to_, joules);
    }
    ++row_count_;
    discard_row();
    follows_ = true;
    fit_if_full();
}

inline void EnergyAccumulator::break_row(bool impossible) {
    refused_rows_ += impossible ? 1 : 0;
    discard_row();
    rest_clocks_.end_row(false);
    follows_ = false;
}

inline void EnergyAccumulator::discard_row() {
    for (const PowerRows::Entry& entry : row_) place_[entry.column] = nowhere;
    row_.clear();
    row_overflowed_ = false;
}

/// Many rows at a time: enough to know the noise by, and to share the cost of solving.
inline void EnergyAccumulator::fit_if_full() {
    constexpr std::size_t fewest = 4096;
    if (waiting_.size() < std::max(fewest, 8 * place_.size())) return;
    late_.fit();
    RowFit{waiting_, sums_}.add_to(sums_);
    waiting_.clear();
}

inline void EnergyAccumulator::watch_slow_counter() {
    if (late_.on() || settings_.counter_period < LateRows::slow) return;
    if (sums_.rows == 0 && waiting_.size() == 0) {
        late_.begin(sums_, settings_.most_late);
    }
}

inline void EnergyAccumulator::choose_rows() {
    constexpr double clearly_finer = 2;
    chosen_ = true;
    by_log_ = log_.has_clock() &&
              (!counter_moves_ || settings_.counter_period <= Duration::zero() ||
               Seconds{settings_.counter_period}.count() >= clearly_finer * log_.sample().period());
    const std::vector<EnergySample> held = std::exchange(held_back_, {});
    if (by_log_) {
        late_ = {};
        join_.drop_samples();  // of the counter
        join_.direct_from(
            direct_from(std::chrono::duration_cast<Duration>(Seconds{log_.sample().period()})));
        return;
    }
    for (const EnergySample& sample : held) join_.add(sample, *this);
}

inline void EnergyAccumulator::measured_directly(KernelId kernel, ClockPoint applied,
                                                 CountedJoules counted) {
    const auto column = columns_.find(kernel, applied);
    if (!column) return;
    if (direct_.size() <= *column) direct_.resize(*column + 1);
    direct_[*column] += counted;
}

inline std::vector<double> EnergyAccumulator::column_edges() const {
    // A marker takes 0.9 to 2.1 us of its stream (HARDWARE tables: H100, H200).
    constexpr double marker = 2e-6;
    std::vector<double> edges(column_seconds_.size());
    for (const KernelId kernel : columns_.kernels()) {
        const KernelFacts& facts = facts_.at(kernel);
        const double share = marker * static_cast<double>(facts.metered_calls) /
                             std::max(Seconds{facts.time}.count(), 1e-12);
        for (const auto& [applied, column] : columns_.of(kernel)) {
            edges[column] = std::min(share, 1.0) * column_seconds_[column];
        }
    }
    return edges;
}

inline std::vector<PowerBelief> EnergyAccumulator::beliefs(double gain) const {
    constexpr double half_widths = 1.96;  // a deviation's in a 95 % interval
    std::vector<PowerBelief> beliefs(repeated_.empty() ? 0 : column_seconds_.size());
    for (const auto& [kernel, applied, figure] : repeated_) {
        const auto column = columns_.find(kernel, applied);
        if (!column) continue;
        const double least = 1e-6 * figure.power.count;  // 0 would say that nothing is known
        // By the counter, as repeated kernels are; rows of the power log are to be scaled to it.
        beliefs[*column] = {
            .watts = figure.power.count / gain,
            .deviation = std::max(figure.half_width.count / half_widths, least) / gain};
        const KernelFacts& facts = facts_.at(kernel);
        const double in_place = Seconds{facts.time}.count() * static_cast<double>(figure.calls);
        const double repeated = figure.time.count() * static_cast<double>(facts.metered_calls);
        // Under several clocks only the mean of its times is known.
        if (columns_.of(kernel).size() == 1 && in_place > 0 && repeated > 0) {
            beliefs[*column].longer = repeated / in_place;
        }
    }
    return beliefs;
}

inline void EnergyAccumulator::note_unrepeated(Report& report) const {
    constexpr std::size_t most = 8;  // programs that are attached to have sixty
    std::vector<const ReportRow*> rows;
    for (const ReportRow& row : report.rows) {
        if (!row.repeated && row.metered_calls > 0) rows.push_back(&row);
    }
    if (repeated_.empty() || rows.empty()) return;
    std::stable_sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) {
        return a->counted_time > b->counted_time;
    });
    std::string names;
    for (std::size_t i = 0; i < std::min(rows.size(), most); ++i) {
        names += ' ' + to_string(rows[i]->kernel);
    }
    if (rows.size() > most) {
        names += ", and " + std::to_string(rows.size() - most) + " of less time";
    }
    report.notes.push_back(
        "not repeated, for they are plain scopes, marked as `runs_once` or were not launched "
        "again:" +
        names);
}

inline EnergySums EnergyAccumulator::sums() const {
    RowSums rows = sums_;
    RowFit{waiting_, sums_}.add_to(rows);
    const double gain = by_log_ ? gain_.gain() : 1;
    std::vector<CountedJoules> direct = direct_;
    for (CountedJoules& counted : direct) counted.joules *= gain;
    return {.rows = std::move(rows),
            .late_rows = late_.sums(),
            .sensor_may_lag = settings_.sensor_may_lag,
            .columns = columns_,
            .pool = pool_,
            .column_seconds = column_seconds_,
            .column_edges = column_edges(),
            .repeated = beliefs(gain),
            .direct = std::move(direct),
            .counter_period =
                by_log_ ? std::chrono::duration_cast<Duration>(Seconds{log_.sample().period()})
                        : settings_.counter_period,
            .gain = gain,
            .gain_deviation = by_log_ ? gain_.deviation() : 0,
            .possible = {resting_.lowest() * gain, settings_.power_limit.count, settings_.rests,
                         settings_.others_may_work},
            .room = room_.by_column(),
            .counter = {counter_joules_ * gain},
            .outside = {outside_joules_ * gain},
            .rests = rest_clocks_.clocks(),
            .counted_time = Seconds{counted_seconds_},
            .row_count = row_count_,
            .by_power = by_log_,
            .refused_rows = refused_rows_,
            .overflowed_rows = overflowed_rows_,
            .late = join_.late(),
            .overflows = join_.overflows()};
}

/// Takes powers, and what they are off by where the sensor is another, from a sample.
inline void EnergyAccumulator::take_rows(EnergySums& sums, SensorFinding&& found,
                                         const SensorSample& sample) const {
    const Sensor& sensor = found.usual ? SensorFinding::usual_log : found.likely;
    sums.late_rows.clear();
    sums.row_count = sample.seen();
    sums.sensor = {Seconds{sensor.delay}, Seconds{sensor.memory}, Seconds{sensor.window},
                   Seconds{sensor.rise}};
    const bool holds = found.holds(sums.kernel_seconds());
    if (found.usual && !settings_.kernels_repeat) {
        sums.doubts = std::move(found.hypotheses);
    } else if (holds && !settings_.kernels_repeat) {
        sums.assumed = found.rows.level;
        sums.hypotheses = std::move(found.hypotheses);
    }
    if (holds && !settings_.kernels_repeat) {
        sums.rows = std::move(found.rows);
        sums.split_gaps(gaps_.gaps());
        return;
    }
    // Parts of runs have columns behind all others.
    const LogRows log{sample, sensor, sums_.rests, settings_.most_columns / 2};
    RowSums before;
    before.keeps_filled = settings_.kernels_repeat;
    for (std::size_t j = 0; j < log.columns(); ++j) {
        const bool whole = j < sums_.columns();
        before.add_column(!whole, whole && sums_.rests[j] != 0);
    }
    sums.rows = before;
    RowFit{log.rows(), before}.add_to(sums.rows);
    sums.column_seconds.resize(log.columns());
    sums.column_edges.resize(log.columns());
    sums.assumed.grow(log.columns());
    for (auto* all : {&sums.hypotheses, &sums.doubts}) {
        for (NormalSums& each : *all) each.grow(log.columns());
    }
}

/// Takes the powers from readings whose sensor is integrated out: those of the log where it tells
/// kernels apart, else those of the counter.
/// @returns a sentence on the source, where there is a log
inline std::optional<std::string> EnergyAccumulator::find_sensor_of(
    EnergySums& sums, std::vector<std::string>& notes) const {
    // Repeated figures say what powers are near, whatever the sensor: its likeliest response will
    // do.
    const std::size_t guesses = settings_.kernels_repeat ? 8 : 32;
    // A sensor that is not as it was measured is sought as any other of its family.
    const auto find = [&](const SensorSample& sample, bool counter,
                          const std::optional<MeasuredSensor>& known, double most) {
        auto found = find_sensor(sample, sums.columns_seen(), counter, known, most, guesses);
        if (!found || !found->stale) return found;
        notes.emplace_back(
            "the sensor is not as it was measured: measure it again (kdvfs measure-sensor)");
        return find_sensor(sample, sums.columns_seen(), counter, {}, most, guesses);
    };
    // A counter of 1 ms sees more of a gap than one power: beside work without a scope 81 % of 327
    // kernels were covered (docs/measuring.md).
    const auto judge = [&](const SensorFinding& found, bool counter) {
        if (settings_.kernels_repeat) return;
        sums.wanders = found.wanders;
        const bool fits = found.overcount < SensorFinding::most_overcount;
        if (found.holds(sums.kernel_seconds()) && fits && !counter) return;
        if (gaps_.gaps().empty()) return;
        const double most = sums.possible.most_waiting(sums.gain * found.rows.power.mean_watts());
        std::vector<std::size_t> columns;
        for (const KernelGap& gap : gaps_.gaps()) columns.push_back(gap.column);
        for (const double watts : found.least_watts(columns)) {
            sums.hides_work = sums.hides_work || sums.gain * watts > most;
        }
    };
    constexpr double near_limit = 0.85;
    const double limit = settings_.power_limit.count / sums.gain;
    const bool at_limit =
        !settings_.kernels_repeat && sums.rows.power.mean_watts() > near_limit * limit && limit > 0;
    std::optional<std::string> reason;
    if (log_.has_clock()) {
        const SensorSample& log = log_.sample();
        std::optional<SensorFinding> found =
            find(log, false, measured_sensor(log, false), at_limit ? limit : 0);
        if (found) judge(*found, false);
        const SourceChoice choice =
            choose_source(found, gain_, log.period(), settings_.counter_period);
        reason = choice.reason;
        if (found && choice.source != EnergyFrom::counter) {
            if (!by_log_) {
                sums.gain = gain_.gain();
                sums.gain_deviation = gain_.deviation();
                sums.repeated = beliefs(sums.gain);
            }
            sums.by_power = true;
            take_rows(sums, std::move(*found), log);
            return reason;
        }
    }
    if (by_log_) {
        sums.gain = 1;
        sums.gain_deviation = 0;
        sums.repeated = beliefs(1);
        sums.by_power = false;
    }
    if (!keeps_counter()) return reason;
    // The limiter's law is not proven for counters: with it and without it, a kernel in forty is
    // far off (docs/measuring.md). A power beyond the limit is refused, however short the runs are,
    // and no kernel is resolved.
    sums.room.assign(sums.columns_seen(), 1);
    std::optional<SensorFinding> found =
        find(counter_sample_, true, measured_sensor(counter_sample_, true), 0);
    if (found) judge(*found, true);
    if (found && (by_log_ || found->holds(sums.kernel_seconds()))) {
        take_rows(sums, std::move(*found), counter_sample_);
        if (at_limit) {
            notes.emplace_back(
                "the board is at its power limit, which moves the powers of kernels: by a counter, "
                "their intervals are too narrow for that (docs/measuring.md)");
        }
    }
    return reason;
}

inline void EnergyAccumulator::fill(Report& report) const {
    if (waits_for_log()) {
        EnergyAccumulator chosen = *this;
        chosen.choose_rows();
        chosen.advance(held_until_);
        chosen.fill(report);
        return;
    }
    report.rows.clear();
    for (const KernelId kernel : facts_.seen()) {
        ReportRow& row = report.rows.emplace_back();
        row.kernel = kernels_->key(kernel);
        facts_.at(kernel).fill(row);
        for (const RepeatedPower& known : repeated_) {
            if (known.kernel == kernel) row.repeated = known.figure;
        }
    }
    EnergySums sums = this->sums();
    std::vector<std::string> notes;
    const std::optional<std::string> reason = find_sensor_of(sums, notes);
    const bool knows_gaps = !sums.gaps.empty();
    const ReportFiller filler{*kernels_, std::move(sums), settings_.widest_resolved};
    filler.fill(report, facts_.seen());
    note_unrepeated(report);
    report.notes.insert(report.notes.end(), notes.begin(), notes.end());
    if (reason) report.notes.push_back(*reason);
    report.levels.clear();
    for (LevelTime& level : levels_.levels()) {
        if (!knows_gaps) gaps_.fold(level.column_seconds);
        report.levels.push_back(filler.level(std::move(level)));
    }
    std::stable_sort(report.levels.begin(), report.levels.end(), [](const auto& a, const auto& b) {
        return a.iteration != b.iteration ? a.iteration : a.counted_time > b.counted_time;
    });
}

}  // namespace kdvfs::inline v0_3::measure
