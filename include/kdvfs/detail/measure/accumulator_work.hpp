// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/counted_loop.hpp>
#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/energy_sums.hpp>
#include <kdvfs/detail/measure/gap_columns.hpp>
#include <kdvfs/detail/measure/late_rows.hpp>
#include <kdvfs/detail/measure/log_readings.hpp>
#include <kdvfs/detail/measure/merged_columns.hpp>
#include <kdvfs/detail/measure/pooled_kernels.hpp>
#include <kdvfs/detail/measure/possible_power.hpp>
#include <kdvfs/detail/measure/power_windows.hpp>
#include <kdvfs/detail/measure/report_filler.hpp>
#include <kdvfs/detail/measure/row_fit.hpp>
#include <kdvfs/detail/measure/sample_join.hpp>
#include <kdvfs/detail/measure/sensor_finding.hpp>
#include <kdvfs/detail/measure/source_choice.hpp>
#include <kdvfs/detail/measure/unlike_runs.hpp>

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

/// What an accumulator does, and holds.
class EnergyAccumulator::Work {
public:
    Work(const KernelTable& kernels, AccumulatorSettings settings)
        : kernels_{&kernels},
          settings_{settings},
          held_{settings.highest_core},
          join_{settings.capacity, direct_from(settings.counter_period)},
          windows_{settings.highest_power} {
        sums_.keeps_filled = settings.kernels_repeat;
        add_column();  // EnergySums::idle_column
        watch_slow_counter();
    }

    HeldParts add(const KernelInterval& interval) {
        if (waits_for_choice()) finder_.take(interval);
        const HeldParts held = held_.split(interval);
        facts_.of(interval.kernel).add(interval, held);
        join_.add(interval, *this);
        return held;
    }
    void end_enclosing(const KernelInterval& end) { join_.add(end, *this); }
    void add_unmetered(KernelId kernel, std::uint64_t calls = 1) {
        facts_.of(kernel).calls += calls;
    }
    void add(const EnergySample& sample) {
        if (keeps_samples()) {
            log_gain_.take_counter(sample);
            sample_counter(sample);
        }
        use(sample);
    }
    void add(const PowerReading& reading) {
        if (reading.status != ReadingStatus::ok || !std::isfinite(reading.watts.count)) return;
        if (keeps_samples()) {
            for (const EnergySample& end :
                 log_sample_.take(reading.sampled_at, reading.watts.count)) {
                log_gain_.take_power(end);
            }
        }
        use(reading);
    }
    void add(const PowerSample& sample) {
        by_power_ = true;
        for (EnergySample end : windows_.take(sample)) {
            gain_.take_power(end);
            // What the counter had before the choice was made is over.
            end.segment += first_power_segment;
            if (end.at >= join_.walked_to()) join_.add(end, *this);
            logged_to_ = end.at;
        }
    }
    void clocks_applied(TimePoint at, ClockPoint applied) {
        held_.applied(at, applied);
        join_.clocks_applied(at, applied);
    }
    void metering(TimePoint at, bool on) {
        if (!choice_) finder_.metering(at, on);
        join_.metering(at, on);
    }
    void iteration(TimePoint at, IterationMark mark, std::uint64_t number) {
        if (mark == IterationMark::scopes_spoilt) facts_.forget_open();
        join_.iteration(at, mark, number);
    }
    void add_place(std::uint32_t parent, KernelId enclosing) {
        levels_.add_place(parent, enclosing);
    }
    void add_repeated(const RepeatedPower& power) { repeated_.push_back(power); }
    void advance(TimePoint until) {
        if (waits_for_choice()) {
            held_until_ = std::max(held_until_, until);
            if (!finder_.seen_enough() && !join_.fills()) return;
            choose();
        }
        // A log that has ended is not waited for.
        constexpr Duration patience = std::chrono::seconds{5};
        if (choice_ && by_power_) {
            until = std::min(until, std::max(logged_to_, until - patience));
        }
        join_.advance(until, *this);
    }

    [[nodiscard]] std::size_t room() const { return join_.room(); }

    void counter_period(Duration period) {
        settings_.counter_period = period;
        if (by_power_) return;
        join_.direct_from(direct_from(period));
        watch_slow_counter();
    }
    void power_limit(Watts limit) {
        settings_.power_limit = std::max(settings_.power_limit, limit);
    }
    void rests_at(RestRange rests, bool others_may_work) {
        settings_.rests = rests;
        settings_.others_may_work = others_may_work;
    }
    [[nodiscard]] const SourceChoice* source() const { return choice_ ? &*choice_ : nullptr; }

    void fill(Report& report) const;

    [[nodiscard]] EnergySums sums() const;

private:
    static constexpr std::size_t nowhere = ~std::size_t{0};
    static constexpr std::uint32_t first_power_segment = 1U << 31U;

    static Duration direct_from(Duration period) {
        constexpr int periods = 20;  // so that an error of a period at each end is 5 % at most
        return period > Duration::zero() ? periods * period : Duration::max();
    }

    /// A sample or reading, held back or not.
    void use(const EnergySample& sample) {
        if (waits_for_choice()) {
            finder_.take(sample);
        } else if (by_power_) {
            gain_.take_counter(sample);
        } else {
            join_.add(sample, *this);
        }
    }
    void use(const PowerReading& reading) {
        if (!choice_) {
            finder_.take(reading);
        } else if (by_power_) {
            const auto taken = choice_->clock.taken(reading.sampled_at);
            const auto sample = taken ? log_.take(*taken, reading.watts) : std::nullopt;
            if (sample) add(*sample);
        }
    }

    /// Keeps a reading of a fast counter to find its sensor by.
    void sample_counter(const EnergySample& sample) {
        const EnergySample last = std::exchange(last_counter_, sample);
        if (settings_.counter_period <= Duration::zero() ||
            settings_.counter_period >= LateRows::slow) {
            return;
        }
        const Seconds length{sample.at - last.at};
        if (last.at == TimePoint{} || last.segment != sample.segment || length.count() <= 0) return;
        if (!counter_sample_.on()) {
            counter_sample_.begin(std::max(settings_.counter_period, sample.at - last.at));
        }
        counter_sample_.read(sample.at, length, (sample.total - last.total).count / length.count());
    }
    void sample_time(std::size_t column, double seconds) {
        if (!samples_time_) return;
        if (log_sample_.sample().on()) log_sample_.sample().add(column, seconds);
        if (counter_sample_.on()) counter_sample_.add(column, seconds);
    }

    friend class SampleJoin;  // the sink's half
    void passes(TimePoint from, TimePoint to, bool known) {
        second_weighs_ = time_weight_.pass(from, to, row_.empty());
        passed_to_ = to;
        knows_lateness_ = known && late_.on() && from > TimePoint::min();
        if (knows_lateness_) late_.pass(from, to);
        const bool sampled = known && from > TimePoint::min();
        for (SensorSample* each : {&log_sample_.sample(), &counter_sample_}) {
            if (each->on() && sampled) each->pass(from, to);
        }
        samples_time_ = sampled;
    }
    void run(KernelId kernel, TrackId track, ClockPoint applied, std::uint32_t place, Seconds share,
             bool in_row, std::optional<RunPart> part);
    void idle(Seconds time, ClockPoint applied, bool in_row) {
        const auto add = [this] { return add_column(false, true); };
        const bool in_iteration = keeps_samples() && levels_.in_iteration();
        const std::size_t at_clock =
            rest_clocks_.rest(applied, in_iteration, time.count(), in_row, add);
        const std::size_t column =
            keeps_samples() ? gaps_.rest(at_clock, time.count(), in_row, add) : at_clock;
        levels_.idle(column, time.count(), in_row);
        if (knows_lateness_) late_.add(at_clock, time.count());
        room_.rest(time.count());
        sample_time(column, time.count());
        if (in_row) add_time(at_clock, time.count());
    }
    void scope_ended(KernelId kernel, TrackId track, bool whole) {
        if (levels_.any()) levels_.end_run(kernel, track, whole);
    }
    void mark_iteration(IterationMark mark, std::uint64_t number) {
        levels_.mark_iteration(mark, number);
        if (mark == IterationMark::begins) loop_.begins(passed_to_, number);
        if (mark == IterationMark::spoilt) loop_.forget();
    }
    void end_row(double joules, Seconds time, bool metered);
    void break_row(bool impossible) {
        loop_.forget();
        leave_out_row(impossible);
    }
    void leave_out_row(bool impossible);
    void measured_directly(KernelId kernel, ClockPoint applied, CountedJoules counted);

    std::size_t add_column(bool inside = false, bool rests = false);
    std::optional<std::size_t> column_for(KernelId kernel, ClockPoint applied);
    void add_inside(std::size_t column, RunPart part, double seconds);
    void add_time(std::size_t column, double seconds);
    void discard_row();
    void fit_if_full();
    void watch_slow_counter();
    /// Repeated figures say what powers are near, whatever the sensor: it is not sought then.
    [[nodiscard]] bool keeps_samples() const {
        return settings_.sensor_may_lag && !settings_.kernels_repeat;
    }
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
    [[nodiscard]] bool waits_for_choice() const { return !choice_ && finder_.sees_power(); }
    void choose();
    [[nodiscard]] std::vector<double> column_edges() const;
    [[nodiscard]] std::vector<PowerBelief> beliefs() const;
    void note_unrepeated(Report& report) const;
    [[nodiscard]] std::optional<MergedColumns> columns_to_solve() const;
    void merge(const MergedColumns& columns);
    [[nodiscard]] std::vector<std::size_t> whole() const;
    [[nodiscard]] SymmetricMatrix unlike(const RowSums& rows) const;
    [[nodiscard]] RowSums unweighed() const;
    [[nodiscard]] SplitSample split_pool(SensorSample sample, std::vector<std::size_t> whole) const;

    const KernelTable* kernels_;
    AccumulatorSettings settings_;
    HeldClocks held_;
    SampleJoin join_;
    PowerWindows windows_;
    SourceFinder finder_;
    std::optional<SourceChoice> choice_;
    LogMeans log_;
    LogReadings log_sample_;
    SensorSample counter_sample_;  // of a fast one
    EnergySample last_counter_{};
    CounterGain log_gain_;       // by all readings of the log
    bool samples_time_ = false;  // that passes
    TimeWeight time_weight_;
    double second_weighs_ = 1;
    CounterGain gain_;
    TimePoint held_until_ = TimePoint::min();
    TimePoint logged_to_ = TimePoint::min();
    bool by_power_ = false;
    RowSums sums_;                 // of rows that were fitted
    PowerRows waiting_;            // for the fit
    LateRows late_;                // the same rows, of a slow counter
    bool knows_lateness_ = false;  // of what passes
    TimePoint passed_to_{};
    std::vector<PowerRows::Entry> row_;  // under construction, in weighed seconds
    std::vector<double> row_seconds_;    // of its entries
    std::vector<PowerRows::Entry> row_insides_;
    std::vector<std::vector<std::size_t>> insides_;  // columns, by that of the whole
    std::vector<std::size_t> place_;                 // of a column in it
    std::vector<double> column_seconds_;
    KernelColumns columns_;
    std::optional<std::size_t> pool_;  // the column of kernels without one
    PooledKernels pooled_;
    std::vector<std::size_t> whole_;  // what each column became, where some were merged,
    const Work* unmerged_ = nullptr;  // while a report is filled
    double ran_seconds_ = 0;          // of all kernels
    RestingPower resting_;            // at the clock of the idle column
    RestClocks rest_clocks_;
    RoomOfRuns room_;
    GapColumns gaps_;
    std::vector<RepeatedPower> repeated_;
    EnergyLevels levels_;
    CountedLoop loop_;
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

inline void EnergyAccumulator::Work::run(KernelId kernel, TrackId track, ClockPoint applied,
                                         std::uint32_t place, Seconds share, bool in_row,
                                         std::optional<RunPart> part) {
    facts_.of(kernel).applied.add(applied, std::chrono::duration_cast<Duration>(share));
    ran_seconds_ += share.count();
    auto column = columns_.find(kernel, applied);
    if (!column && (in_row || levels_.any())) column = column_for(kernel, applied);
    if (!column) {
        row_overflowed_ = row_overflowed_ || in_row;
        return;
    }
    if (levels_.any()) levels_.run(kernel, track, place, *column, share.count(), in_row);
    if (knows_lateness_) late_.add(*column, share.count());
    const bool pooled = pool_ && *column == *pool_;
    const std::size_t number = pooled ? pooled_.number(kernel, applied) : nowhere;
    sample_time(pooled ? PooledKernels::label(number) : *column, share.count());
    room_.run(*column, share.count());
    gaps_.run(*column, share.count());
    rest_clocks_.run(share.count());
    if (!in_row) return;
    add_time(*column, share.count());
    if (pooled) pooled_.add(number, share.count(), share.count() * second_weighs_);
    if (part) add_inside(*column, *part, share.count());
}

/// A column for a kernel that has none yet: its own, or, where settings say so, the one of all
/// kernels that have too little time to be attributed one by one.
inline std::optional<std::size_t> EnergyAccumulator::Work::column_for(KernelId kernel,
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

/// A run that a power log can see into draws other power in one part than in another, which would
/// pass for the power of its neighbours: a kernel that begins with its loads, a range of unlike
/// kernels. So each part has a power of its own about the mean, and the mean's interval holds what
/// the log does not tell of them.
inline void EnergyAccumulator::Work::add_inside(std::size_t column, RunPart part, double seconds) {
    if (insides_.size() <= column) insides_.resize(column + 1);
    auto& columns = insides_[column];
    if (columns.empty()) {
        const auto needed = static_cast<std::size_t>(part.of);
        if (place_.size() + needed > settings_.most_columns / 2) return;  // kernels come first
        for (std::size_t i = 0; i < needed; ++i) columns.push_back(add_column(true));
    }
    // A run that is much longer or shorter than the first has other parts.
    const auto parts = static_cast<int>(columns.size());
    const int now = (2 * part.index + 1) * parts / (2 * part.of);
    for (int i = 0; i < parts; ++i) {
        const double more = (i == now ? 1.0 : 0.0) - 1.0 / parts;
        const std::size_t inside = columns[static_cast<std::size_t>(i)];
        std::size_t& place = place_[inside];
        if (place == nowhere) {
            place = row_insides_.size();
            row_insides_.push_back({inside, 0});
        }
        row_insides_[place].share += more * seconds * second_weighs_;
    }
}

inline std::size_t EnergyAccumulator::Work::add_column(bool inside, bool rests) {
    sums_.add_column(inside, rests);
    late_.add_column();
    column_seconds_.push_back(0);
    place_.push_back(nowhere);
    return place_.size() - 1;
}

inline void EnergyAccumulator::Work::add_time(std::size_t column, double seconds) {
    if (seconds <= 0) return;
    std::size_t& place = place_[column];
    if (place == nowhere) {
        place = row_.size();
        row_.push_back({column, 0});
        row_seconds_.push_back(0);
    }
    row_[place].share += seconds * second_weighs_;
    row_seconds_[place] += seconds;
}

inline void EnergyAccumulator::Work::end_row(double joules, Seconds time, bool metered) {
    const bool impossible = joules > settings_.highest_power.count * time.count();
    if (impossible) {
        loop_.forget();
    } else {
        loop_.end_row(passed_to_, time, joules);
    }
    if (!metered) {
        outside_joules_ += joules;
        leave_out_row(false);
        return;
    }
    if (impossible) {
        leave_out_row(true);
        return;
    }
    counter_joules_ += joules;
    counted_seconds_ += time.count();
    if (row_overflowed_ || row_.empty()) {
        overflowed_rows_ += row_overflowed_ ? 1 : 0;
        leave_out_row(false);
        return;
    }
    for (std::size_t i = 0; i < row_.size(); ++i) {
        column_seconds_[row_[i].column] += row_seconds_[i];
    }
    const bool rests = std::all_of(row_.begin(), row_.end(), [&](const auto& part) {
        return rest_clocks_.rests_in(part.column);
    });
    resting_.take(joules, time.count(), rests, follows_);
    rest_clocks_.end_row(true);
    pooled_.end_row(time.count(), row_, row_insides_);
    waiting_.push(row_, row_insides_, time.count(), joules, follows_);
    if (late_.on()) {
        late_.end_row(passed_to_ - std::chrono::duration_cast<Duration>(time), passed_to_, joules);
    }
    ++row_count_;
    discard_row();
    follows_ = true;
    fit_if_full();
}

inline void EnergyAccumulator::Work::leave_out_row(bool impossible) {
    refused_rows_ += impossible ? 1 : 0;
    discard_row();
    rest_clocks_.end_row(false);
    follows_ = false;
}

inline void EnergyAccumulator::Work::discard_row() {
    for (const auto* entries : {&row_, &row_insides_}) {
        for (const PowerRows::Entry& entry : *entries) place_[entry.column] = nowhere;
    }
    row_.clear();
    row_insides_.clear();
    row_seconds_.clear();
    pooled_.discard_row();
    row_overflowed_ = false;
}

/// Many rows at a time: enough to know the noise by, and to share the cost of solving.
inline void EnergyAccumulator::Work::fit_if_full() {
    constexpr std::size_t fewest = 4096;
    if (waiting_.size() < std::max(fewest, 8 * place_.size())) return;
    late_.fit();
    RowFit{waiting_, sums_}.add_to(sums_);
    waiting_.clear();
}

inline void EnergyAccumulator::Work::watch_slow_counter() {
    if (late_.on() || settings_.counter_period < LateRows::slow) return;
    if (sums_.rows == 0 && waiting_.size() == 0) {
        late_.begin(sums_, settings_.most_late);
    }
}

/// Takes joules from the better source, and what has been held back from it.
inline void EnergyAccumulator::Work::choose() {
    const SourceFinder held = std::exchange(finder_, {});
    choice_ = held.choose(settings_.counter_period);
    by_power_ = choice_->source == EnergyFrom::power || choice_->source == EnergyFrom::both;
    if (by_power_) {
        late_ = {};
        join_.direct_from(direct_from(choice_->response.window));
        log_ = LogMeans{choice_->response};
        time_weight_ = TimeWeight{choice_->response.memory};
        sums_.change_error = choice_->response.change_error;
        sums_.change_fades = std::max(0.3, choice_->response.kept());
        if (choice_->response.memory > Duration::zero()) {
            join_.parts_from(choice_->response.window / MeterResponse::shows_inside);
        }
    }
    for (const EnergySample& sample : held.counter()) use(sample);
    if (!by_power_) return;
    for (const TimedReading& reading : held.power()) {
        use(PowerReading{{reading.value}, reading.read_at, ReadingStatus::ok});
    }
}

inline void EnergyAccumulator::Work::measured_directly(KernelId kernel, ClockPoint applied,
                                                       CountedJoules counted) {
    const auto column = columns_.find(kernel, applied);
    if (!column) return;
    if (direct_.size() <= *column) direct_.resize(*column + 1);
    direct_[*column] += counted;
}

inline std::vector<double> EnergyAccumulator::Work::column_edges() const {
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

inline std::vector<PowerBelief> EnergyAccumulator::Work::beliefs() const {
    constexpr double half_widths = 1.96;  // a deviation's in a 95 % interval
    std::vector<PowerBelief> beliefs(repeated_.empty() ? 0 : column_seconds_.size());
    for (const auto& [kernel, applied, figure] : repeated_) {
        const auto column = columns_.find(kernel, applied);
        if (!column) continue;
        const double least = 1e-6 * figure.power.count;  // 0 would say that nothing is known
        // By the counter, as repeated kernels are; rows of the power log are to be scaled to it.
        beliefs[*column] = {
            .watts = figure.power.count / gain_.gain(),
            .deviation = std::max(figure.half_width.count / half_widths, least) / gain_.gain()};
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

inline void EnergyAccumulator::Work::note_unrepeated(Report& report) const {
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

inline EnergySums EnergyAccumulator::Work::sums() const {
    RowSums rows = sums_;
    RowFit{waiting_, sums_}.add_to(rows);
    std::vector<CountedJoules> direct = direct_;
    for (CountedJoules& counted : direct) counted.joules *= gain_.gain();
    return {.rows = std::move(rows),
            .late_rows = late_.sums(),
            .sensor_may_lag = settings_.sensor_may_lag,
            .columns = columns_,
            .pool = pool_,
            .pooled = pooled_.times(),
            .column_seconds = column_seconds_,
            .column_edges = column_edges(),
            .repeated = beliefs(),
            .direct = std::move(direct),
            .counter_period =
                choice_ && by_power_ ? choice_->response.window : settings_.counter_period,
            .gain = gain_.gain(),
            .gain_deviation = gain_.deviation(),
            .possible = {resting_.lowest() * gain_.gain(), settings_.power_limit.count,
                         settings_.rests, settings_.others_may_work},
            .room = room_.by_column(),
            .counter = {counter_joules_ * gain_.gain()},
            .outside = {outside_joules_ * gain_.gain()},
            .rests = rest_clocks_.clocks(),
            .counted_time = Seconds{counted_seconds_},
            .row_count = row_count_,
            .by_power = by_power_,
            .refused_rows = refused_rows_ + windows_.implausible(),
            .overflowed_rows = overflowed_rows_,
            .late = join_.late(),
            .overflows = join_.overflows()};
}

/// Takes the powers from readings whose sensor is integrated out: those of the log where it tells
/// kernels apart, else those of a fast counter.
/// @returns a sentence on the source, where that is the log
inline std::optional<std::string> EnergyAccumulator::Work::find_sensor_of(
    EnergySums& sums, std::vector<std::string>& notes) const {
    constexpr double near_limit = 0.85;
    const double limit = settings_.power_limit.count / sums.gain;
    const bool at_limit = sums.rows.power.mean_watts() > near_limit * limit;
    const auto take = [&](SensorFinding&& found, const SensorSample& sample) {
        sums.assumed = std::move(found.assumed);
        sums.rows = std::move(found.rows);
        sums.unlike = std::move(found.unlike);
        sums.late_rows.clear();
        sums.hypotheses = std::move(found.hypotheses);
        sums.sensor = {Seconds{found.likely.delay}, Seconds{found.likely.memory},
                       Seconds{found.likely.window}, Seconds{found.likely.rise}};
        sums.row_count = sample.seen();
        sums.refused_rows += found.left_out;
        if (!at_limit) sums.uneven = found.uneven;  // a limiter changes powers inside runs
        sums.split_gaps(gaps_.gaps());
    };
    // A sensor that is not as it was measured is sought as any other of its family.
    const auto find = [&](const SensorSample& sample, bool counter,
                          const std::optional<MeasuredSensor>& known, double most) {
        const Work& fine = unmerged_ != nullptr ? *unmerged_ : *this;
        std::optional<SplitSample> kernels;
        std::optional<SensorSample> merged;
        if (pool_) {
            kernels = fine.split_pool(counter ? fine.counter_sample_ : fine.log_sample_.sample(),
                                      whole());
            merged = kernels->sample;
            merged->merge({kernels->columns, sums.columns_seen()});
        }
        const SensorSample& own = merged ? *merged : sample;
        const SplitSample* apart = kernels ? &*kernels : nullptr;
        auto found = find_sensor(own, sums.columns_seen(), counter, known, most, apart);
        if (!found || !found->stale) return found;
        notes.emplace_back(
            "the sensor is not as it was measured: measure it again (kdvfs measure-sensor)");
        return find_sensor(own, sums.columns_seen(), counter, {}, most, apart);
    };
    // A counter of 1 ms sees more of a gap than one power: beside work without a scope 81 % of 327
    // kernels were covered (docs/measuring.md).
    const auto judge = [&](const SensorFinding& found, bool counter) {
        sums.wanders = found.wanders;
        const bool fits = found.overcount < SensorFinding::most_overcount;
        if (found.holds(sums.kernel_seconds()) && fits && !counter) return;
        const double most = sums.possible.most_waiting(sums.gain * found.rows.power.mean_watts());
        std::vector<std::size_t> columns;
        for (const KernelGap& gap : sums.all_gaps(gaps_.gaps()))
            if (gap.matters(counted_seconds_)) columns.push_back(gap.column);
        for (const double watts : found.least_watts(columns)) {
            sums.hides_work = sums.hides_work || sums.gain * watts > most;
        }
    };
    if (!repeated_.empty()) return {};
    const double holds = at_limit ? limit : 0;
    const SensorSample& log = log_sample_.sample();
    const std::optional<MeasuredSensor> measured = measured_sensor(log, false);
    const bool is_usual = !measured && is_short_usual_log(log);
    if (by_power_ && is_usual) {
        notes.emplace_back(
            "the power log has few readings: energies are by the usual response of NVIDIA's logs "
            "of 20 ms, and no error of it is in their intervals; run for 20 s or longer");
        return {};
    }
    if (log_sample_.has_clock() && !is_usual) {
        std::optional<SensorFinding> found = find(log, false, measured, holds);
        if (found) judge(*found, false);
        const SourceChoice choice =
            choose_source(found, log_gain_, log.period(), settings_.counter_period);
        if (choice.source != EnergyFrom::counter || by_power_) {
            if (!found || !found->holds(sums.kernel_seconds())) {
                if (!found || !found->usual) return {};
                sums.doubts = std::move(found->hypotheses);
                sums.unlike = std::move(found->unlike);
                return {};
            }
            take(std::move(*found), log);
            if (!by_power_) {
                sums.gain = log_gain_.gain();
                sums.gain_deviation = log_gain_.deviation();
            }
            sums.by_power = true;
            if (choice.source == EnergyFrom::counter) return {};  // said when the log was chosen
            return choice.reason;
        }
    }
    if (by_power_) return {};
    // The limiter's law is not proven for counters: with it and without it, a kernel in forty is
    // far off (docs/measuring.md). A power beyond the limit is refused, however short the runs are,
    // and no kernel is resolved.
    sums.room.assign(sums.columns_seen(), 1);
    std::optional<SensorFinding> found =
        find(counter_sample_, true, measured_sensor(counter_sample_, true), 0);
    if (found) judge(*found, true);
    if (found && found->holds(sums.kernel_seconds())) {
        take(std::move(*found), counter_sample_);
        if (at_limit) {
            notes.emplace_back(
                "the board is at its power limit, which moves the powers of kernels: by a counter, "
                "their intervals are too narrow for that (docs/measuring.md)");
        }
    }
    return {};
}

/// To solve for powers takes the cube of their number. Beyond some hundred, kernels of least time
/// share the column of kernels without one, and parts of their runs have no power of their own.
/// @returns nothing where there are few
inline std::optional<MergedColumns> EnergyAccumulator::Work::columns_to_solve() const {
    constexpr std::size_t most = 256;
    const std::size_t all = place_.size();
    if (all <= most) return {};
    std::vector<std::pair<double, KernelId>> shortest;
    for (const KernelId kernel : columns_.kernels()) {
        double seconds = 0;
        for (const auto& [applied, column] : columns_.of(kernel)) {
            seconds += column_seconds_[column];
        }
        shortest.emplace_back(seconds, kernel);
    }
    std::stable_sort(shortest.begin(), shortest.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    constexpr std::size_t pooled = MergedColumns::left_out - 1;
    std::vector<std::size_t> place(all);
    std::size_t left = pool_ ? all : all + 1;
    for (std::size_t k = 0; k < shortest.size() && left > most; ++k) {
        for (const auto& [applied, column] : columns_.of(shortest[k].second)) {
            place[column] = pooled;
            --left;
            if (column >= insides_.size()) continue;
            for (const std::size_t inside : insides_[column]) {
                place[inside] = MergedColumns::left_out;
                --left;
            }
        }
    }
    std::size_t next = 0;
    for (std::size_t& each : place) {
        if (each == 0) each = next++;
    }
    const std::size_t pool = pool_ ? place[*pool_] : next++;
    std::replace(place.begin(), place.end(), pooled, pool);
    return MergedColumns{std::move(place), next};
}

/// Of all so far, for a report: nothing else can be added then.
inline void EnergyAccumulator::Work::merge(const MergedColumns& columns) {
    const std::size_t pool = pool_ ? columns(*pool_) : columns.columns() - 1;
    pool_ = pool;
    KernelColumns own;
    std::vector<CountedJoules> direct(columns.columns());
    for (const KernelId kernel : columns_.kernels()) {
        for (const auto& [applied, column] : columns_.of(kernel)) {
            if (columns(column) == pool) {
                pooled_.merge(kernel, applied, column_seconds_[column]);
                continue;
            }
            own.insert(kernel, applied, columns(column));
            if (column < direct_.size()) direct[columns(column)] = direct_[column];
        }
    }
    columns_ = std::move(own);
    direct_ = std::move(direct);
    waiting_ = columns.sum(waiting_, sums_.inside);
    sums_ = columns.sum(std::move(sums_));
    late_.merge(columns);
    column_seconds_ = columns.sum(column_seconds_);
    place_.assign(columns.columns(), nowhere);
    room_.merge(columns);
    gaps_.merge(columns);
    rest_clocks_.merge(columns);
    levels_.merge(columns);
}

/// What each column of the kernels' own becomes.
inline std::vector<std::size_t> EnergyAccumulator::Work::whole() const {
    std::vector<std::size_t> all = whole_;
    if (unmerged_ != nullptr) return all;
    for (std::size_t j = 0; j < place_.size(); ++j) all.push_back(j);
    return all;
}

/// Of the errors of columns, as `EnergySums` has it.
/// @param rows that powers are taken from
inline SymmetricMatrix EnergyAccumulator::Work::unlike(const RowSums& rows) const {
    if (!pool_) return {};
    const Work& fine = unmerged_ != nullptr ? *unmerged_ : *this;
    std::optional<ColumnParts> parts;
    if (fine.pool_) parts = fine.pooled_.parts_of(*fine.pool_);
    return errors_of_merging(unmerged_ != nullptr ? fine.unweighed() : rows, whole(), place_.size(),
                             parts);
}

/// Equations of all columns, without a solution.
inline RowSums EnergyAccumulator::Work::unweighed() const {
    RowSums rows = sums_;
    if (sums_.rows > 0) return rows;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
        const auto entries = waiting_.entries(i);
        for (const auto& [a, share] : entries) {
            rows.shares[a] += share;
            rows.level.right[a] += share * waiting_[i].watts;
            for (const auto& [b, other] : entries) {
                if (b <= a) rows.level.gram(a, b) += share * other;
            }
        }
        rows.power.add_power(waiting_[i].watts, 1);
    }
    return rows;
}

/// A column of each kernel that has none.
/// @param whole of the others, as above
inline SplitSample EnergyAccumulator::Work::split_pool(SensorSample sample,
                                                       std::vector<std::size_t> whole) const {
    const std::size_t columns = place_.size();
    sample.relabel([&](const SensorSample::Entry& entry) {
        const bool is_part = entry.column >= PooledKernels::first_label;
        return is_part ? entry.column - PooledKernels::first_label + columns : entry.column;
    });
    if (pool_) whole.resize(columns + pooled_.parts(), whole[*pool_]);
    return {std::move(sample), std::move(whole)};
}

inline void EnergyAccumulator::Work::fill(Report& report) const {
    if (waits_for_choice()) {
        Work chosen = *this;
        chosen.choose();
        chosen.advance(held_until_);
        chosen.fill(report);
        return;
    }
    if (const auto fewer = columns_to_solve()) {
        Work merged = *this;
        merged.merge(*fewer);
        for (std::size_t j = 0; j < place_.size(); ++j) merged.whole_.push_back((*fewer)(j));
        merged.unmerged_ = this;
        merged.fill(report);
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
    sums.unlike = unlike(sums.rows);
    std::vector<std::string> notes;
    const std::optional<std::string> reason = find_sensor_of(sums, notes);
    const bool knows_gaps = !sums.gaps.empty();
    const ReportFiller filler{*kernels_, std::move(sums), settings_.widest_resolved};
    filler.fill(report, facts_.seen());
    note_unrepeated(report);
    report.notes.insert(report.notes.end(), notes.begin(), notes.end());
    if (reason) {
        report.notes.push_back(*reason);
    } else if (choice_) {
        report.notes.push_back(choice_->reason);
    }
    report.levels.clear();
    for (LevelTime& level : levels_.levels()) {
        if (!knows_gaps) {
            gaps_.fold(level.column_seconds);
            for (auto& seconds : level.batches.sums()) gaps_.fold(seconds);
        }
        const bool some = !level.scope && level.some_metered;
        report.levels.push_back(filler.level(std::move(level)));
        if (some) filler.compare(report, report.levels.back(), loop_);
    }
    std::stable_sort(report.levels.begin(), report.levels.end(), [](const auto& a, const auto& b) {
        return a.iteration != b.iteration ? a.iteration : a.counted_time > b.counted_time;
    });
}

KDVFS_INLINE EnergyAccumulator::EnergyAccumulator(const KernelTable& kernels,
                                                  AccumulatorSettings settings)
    : work_{std::make_unique<Work>(kernels, settings)} {}
KDVFS_INLINE EnergyAccumulator::EnergyAccumulator(const EnergyAccumulator& other)
    : work_{std::make_unique<Work>(*other.work_)} {}
KDVFS_INLINE EnergyAccumulator::EnergyAccumulator(EnergyAccumulator&&) noexcept = default;
KDVFS_INLINE EnergyAccumulator& EnergyAccumulator::operator=(EnergyAccumulator other) noexcept {
    work_.swap(other.work_);
    return *this;
}
KDVFS_INLINE EnergyAccumulator::~EnergyAccumulator() = default;
KDVFS_INLINE HeldParts EnergyAccumulator::add(const KernelInterval& interval) {
    return work_->add(interval);
}
KDVFS_INLINE void EnergyAccumulator::end_enclosing(const KernelInterval& end) {
    work_->end_enclosing(end);
}
KDVFS_INLINE void EnergyAccumulator::add_unmetered(KernelId kernel, std::uint64_t calls) {
    work_->add_unmetered(kernel, calls);
}
KDVFS_INLINE void EnergyAccumulator::add(const EnergySample& sample) { work_->add(sample); }
KDVFS_INLINE void EnergyAccumulator::add(const PowerReading& reading) { work_->add(reading); }
KDVFS_INLINE void EnergyAccumulator::add(const PowerSample& sample) { work_->add(sample); }
KDVFS_INLINE void EnergyAccumulator::clocks_applied(TimePoint at, ClockPoint applied) {
    work_->clocks_applied(at, applied);
}
KDVFS_INLINE void EnergyAccumulator::metering(TimePoint at, bool on) { work_->metering(at, on); }
KDVFS_INLINE void EnergyAccumulator::iteration(TimePoint at, IterationMark mark,
                                               std::uint64_t number) {
    work_->iteration(at, mark, number);
}
KDVFS_INLINE void EnergyAccumulator::add_place(std::uint32_t parent, KernelId enclosing) {
    work_->add_place(parent, enclosing);
}
KDVFS_INLINE void EnergyAccumulator::add_repeated(const RepeatedPower& power) {
    work_->add_repeated(power);
}
KDVFS_INLINE void EnergyAccumulator::advance(TimePoint until) { work_->advance(until); }
KDVFS_INLINE std::size_t EnergyAccumulator::room() const { return work_->room(); }
KDVFS_INLINE void EnergyAccumulator::counter_period(Duration period) {
    work_->counter_period(period);
}
KDVFS_INLINE void EnergyAccumulator::power_limit(Watts limit) { work_->power_limit(limit); }
KDVFS_INLINE void EnergyAccumulator::rests_at(RestRange rests, bool others_may_work) {
    work_->rests_at(rests, others_may_work);
}
KDVFS_INLINE const SourceChoice* EnergyAccumulator::source() const { return work_->source(); }
KDVFS_INLINE void EnergyAccumulator::fill(Report& report) const { work_->fill(report); }
KDVFS_INLINE EnergySums EnergyAccumulator::sums() const { return work_->sums(); }

}  // namespace kdvfs::inline v0_3::measure
