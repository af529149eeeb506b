// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/gate.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/gpu/meter_inputs.hpp>
#include <kdvfs/detail/gpu/scope_gate.hpp>
#include <kdvfs/detail/gpu/scope_kinds.hpp>
#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/measure/repetition.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/trace.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/report.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// A runtime whose timestamps are taken by the library's own thread alone, never by one that
/// launches. They come late, each stream's by itself: `earliest_to_come` says how late.
template <class Runtime>
concept CollectedBeside = CollectsTimestamps<Runtime> && Runtime::collected_beside;

/// The measuring half of a GPU object: turns timestamps into intervals and samples into energies,
/// learns how long scopes last, and writes trace and record. Timestamps are taken in by the thread
/// that reads the counter where that needs no call of the runtime, else by launching threads; both
/// only ever try its lock. Thread-safe.
class Meter {
public:
    /// All but the options by reference; they must outlive it.
    Meter(const GpuOptions& options, const ScopeKinds& kinds, ScopeGate& gate,
          MeteringWindows& windows, ClockEvents& events, TimePoint start)
        : gate_{gate},
          windows_{windows},
          sampling_{options.sampler, start},
          events_{events},
          active_at_{start},
          kinds_{&kinds},
          accumulator_{kinds.kernels(), options.accumulator},
          counter_period_{options.sampler.limits.period},
          repeat_{options.repeat} {}

    [[nodiscard]] CounterSampling& sampling() { return sampling_; }

    /// A read of the counter has come back.
    void sampled(const EnergyReading& reading, TimePoint now) {
        const ReadingStatus status = sampling_.sampled(reading, now);
        if (status != ReadingStatus::ok && status != ReadingStatus::unchanged) {
            ClockEvent event{.kind = ClockEvent::Kind::fault, .at = now};
            event.say(std::string{"energy counter: "}.append(to_string(status)));
            events_.push(event);
        }
        new_samples_.store(true, std::memory_order_release);
        pump();
    }

    /// The power log has been read.
    void power_logged(std::span<const PowerReading> samples) {
        sampling_.power_logged(samples);
        new_samples_.store(true, std::memory_order_release);
        pump();
    }

    /// The board's power limit as it holds now; 0: unknown. For one thread, the actuator.
    void power_limit(Watts limit) {
        if (limit.count > power_limit_.load(std::memory_order_relaxed)) {
            power_limit_.store(limit.count, std::memory_order_relaxed);
        }
    }

    /// Lets the counter rest once nothing has happened for a second, and reads it again from the
    /// moment on that something does. For one thread, the actuator.
    /// @param streams_rest no scope is under way, as far as the cells show
    /// @param shows        and all that is under way would show there
    /// @param changes      how often the cells have changed
    void rest_where_idle(bool streams_rest, bool shows, std::uint64_t changes, TimePoint now) {
        const std::uint64_t activity = windows_.activity() + changes;
        const bool all_in = windows_.expected() <= taken_in_.load(std::memory_order_relaxed);
        const bool idle = streams_rest && (shows || all_in) && activity == activity_ &&
                          !watched_.load(std::memory_order_relaxed) && !sampling_.checking();
        activity_ = activity;
        if (!idle) active_at_ = now;
        const bool rests = now - active_at_ >= std::chrono::seconds{1};
        if (rests == windows_.counter_rests()) return;
        windows_.let_counter_rest(rests);
        sampling_.rest(rests, now);
    }

    /// Takes in events and samples, unless the meter is busy: then whoever has it does, or the
    /// next.
    void pump() {
        if (!events_.any() && !new_samples_.load(std::memory_order_acquire)) return;
        const std::unique_lock lock{mutex_, std::try_to_lock};
        if (lock) ingest(false);
    }

    /// The next iteration begins.
    template <class Runtime>
    void next_iteration(Runtime& runtime) {
        static_cast<void>(begin_iteration(runtime, windows_.next_is_metered()));
    }
    /// The same, metered or not as the caller says. Never waits: where the meter is busy (a report
    /// is made, a sample comes in), what the markers have left behind waits for the next time.
    /// @param own as `MeteringWindows::begin` has it
    /// @returns the window of this iteration's timestamps
    template <class Runtime>
    std::uint32_t begin_iteration(Runtime& runtime, bool metered, bool own = false) {
        if constexpr (CollectedBeside<Runtime>) {
            windows_.begin(metered, own);
            return windows_.window();
        }
        const std::unique_lock lock{mutex_, std::try_to_lock};
        if (solves_beside_) {
            if (lock) take_some(runtime);
            windows_.begin(metered, own);
            return windows_.window();
        }
        const bool free = lock && ingest(false);
        const TimePoint before = free ? drain(runtime) : TimePoint{};
        windows_.begin(metered, own);
        if (free) join_until(before);
        return windows_.window();
    }
    /// From now on a thread of the library's own attributes what has been taken in. Launching
    /// threads never do, and take in a few timestamps at a time: none stands still for longer than
    /// that takes.
    void solve_beside() { solves_beside_ = true; }

    // Repeating in place: one kernel at a time, whose timestamps and samples are kept apart.

    /// The streams' work so far is over. What follows is none of the program's own: from the first
    /// repetition on, what kernels compute is garbage, which draws other power.
    template <class Runtime>
    void begin_repeat(Runtime& runtime, KernelId kernel) {
        const std::lock_guard lock{mutex_};
        const TimePoint now = drain(runtime);
        if (!std::exchange(garbage_, true)) {
            in_iteration_ = false;
            mark_iteration(now, measure::IterationMark::spoilt);
            mark_metering(now, false);
        }
        repetition_.emplace(kernel, now);
        watched_ = true;
    }
    /// What the samples of the repetition say so far, while its scope is open.
    [[nodiscard]] measure::RepeatedFigure repeated_so_far() {
        const std::lock_guard lock{mutex_};
        ingest(true);
        repeated_under_ = applied_;
        return repetition_->figure();
    }
    /// @param calls of the work; 0: it failed, and nothing is kept
    /// @param ended when the last call had
    template <class Runtime>
    void end_repeat(Runtime& runtime, std::uint64_t calls, TimePoint ended) {
        const std::lock_guard lock{mutex_};
        drain(runtime);
        measure::RepeatedFigure figure = repetition_->figure();
        figure.calls = calls;
        figure.time = ended - repetition_->began();
        if (calls > 0 && figure.power.count > 0) {
            const measure::RepeatedPower power{repetition_->kernel(), repeated_under_, figure};
            accumulator_.add_repeated(power);
            if (record_) record_->add(record_->repeated, power);
        }
        repetition_.reset();
        watched_ = record_ || trace_;
    }

    void keep_record(bool on) {
        const std::lock_guard lock{mutex_};
        record_ = on ? std::make_unique<measure::MeterRecord>() : nullptr;
        watched_ = record_ || trace_ || repetition_;
    }
    /// What has been kept since the last call; nothing unless `keep_record` is on.
    template <class Runtime>
    measure::MeterRecord take_record(Runtime& runtime) {
        const std::lock_guard lock{mutex_};
        ingest(true);
        const TimePoint before = drain(runtime);
        if (solves_beside_) {
            close_window();
        } else {
            join_until(before);
        }
        if (!record_) return {};
        for (std::uint32_t i = 0; i < kinds_->kernels().size(); ++i) {
            record_->kernels.push_back(kinds_->kernels().key(KernelId{i}));
        }
        record_->power_limit = {power_limit_.load(std::memory_order_relaxed)};
        return std::exchange(*record_, {});
    }

    /// Takes in the timestamps that have arrived, for the thread of the library's own: calls
    /// nothing of the runtime, and leaves it to whoever has the meter where that is busy.
    /// @returns whether any have arrived, or may have
    template <class Runtime>
    bool collect(Runtime& runtime) {
        if constexpr (CollectsTimestamps<Runtime>) {
            const std::unique_lock lock{mutex_, std::try_to_lock};
            if (!lock || !ingest(false)) return true;
            const std::uint64_t before = arrived_;
            drain(runtime, [&](auto out) { return runtime.collect_timestamps(out); });
            // An iteration that begins later may end the metering at the last timestamp.
            advance(last_timestamp_);
            return arrived_ != before;
        }
        return false;
    }

    /// Timestamps that have been taken in or lost.
    [[nodiscard]] std::uint64_t taken_in() const {
        return taken_in_.load(std::memory_order_relaxed);
    }

    /// Takes in what markers have left behind since the last time.
    template <class Runtime>
    void harvest(Runtime& runtime) {
        const std::lock_guard lock{mutex_};
        ingest(true);
        join_until(drain(runtime));
    }
    /// The same on a launching thread, unless the meter is busy.
    template <class Runtime>
    void try_harvest(Runtime& runtime) {
        if constexpr (CollectedBeside<Runtime>) return;
        const std::unique_lock lock{mutex_, std::try_to_lock};
        if (!lock) return;
        if (solves_beside_) return take_some(runtime);
        if (!ingest(false)) return;
        static_cast<void>(drain(runtime));
        advance(last_timestamp_);
    }

    /// What the counter has counted so far: its first and last sample, where nothing is unknown in
    /// between.
    [[nodiscard]] std::optional<std::pair<measure::EnergySample, measure::EnergySample>> counted() {
        const std::lock_guard lock{mutex_};
        ingest(true);
        if (!first_sample_ || first_sample_->segment != last_sample_->segment) return {};
        return std::pair{*first_sample_, *last_sample_};
    }

    /// Calls that left no interval.
    void add_unmetered(KernelId kernel, std::uint64_t calls) {
        const std::lock_guard lock{mutex_};
        accumulator_.add_unmetered(kernel, calls);
    }

    /// Attributes a copy of what has been taken in: nobody waits for the solution.
    /// @param rests, @param others_may_work as `AccumulatorSettings` has them
    void fill(measure::Report& report, measure::RestRange rests, bool others_may_work) {
        const auto copy = [this] {
            const std::lock_guard lock{mutex_};
            return std::make_unique<measure::EnergyAccumulator>(accumulator_);
        };
        const auto accumulator = copy();
        accumulator->power_limit({power_limit_.load(std::memory_order_relaxed)});
        accumulator->rests_at(rests, others_may_work);
        accumulator->fill(report);
        const std::lock_guard lock{mutex_};
        for (const KernelId kernel : kinds_->kept()) {
            measure::ReportRow row;
            row.kernel = kinds_->kernels().key(kernel);
            row.kept = true;
            report.rows.push_back(std::move(row));
        }
        add_notes(report);
    }

    /// Writes what happens from now on as Chrome trace events. `out` must outlive the trace.
    void trace_to(std::ostream& out, const DeviceInfo& info, TimePoint now, ClockPoint highest) {
        {
            std::unique_ptr<measure::TraceFile>
                before;  // ends first: it may write to the same stream
            const std::lock_guard lock{mutex_};
            before.swap(trace_);
        }
        auto trace = std::make_unique<measure::TraceFile>(out, info, now, highest);
        const std::lock_guard lock{mutex_};
        trace_ = std::move(trace);
        watched_ = true;
    }
    /// Lets the trace be, unfinished: it is another process's.
    void leave_trace() noexcept { static_cast<void>(trace_.release()); }
    /// Ends the trace, written or not.
    void drop_trace() noexcept {
        try {
            end_trace();
        } catch (const std::exception&) {  // nobody is left to be told
        }
    }
    /// Ends the trace. @throws Error if it could not be written
    void end_trace() {
        std::unique_ptr<measure::TraceFile> trace;
        {
            const std::lock_guard lock{mutex_};
            ingest(true);
            trace = std::move(trace_);
            watched_ = record_ || repetition_;
        }
        if (trace) trace->close();
    }

private:
    /// That a launching thread takes in at once: some tens of microseconds.
    static constexpr std::size_t few_timestamps = 128;

    static std::string milliseconds(Duration time) {
        const auto tenths = (time.count() + 50'000) / 100'000;
        return std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10) + " ms";
    }

    void add_notes(measure::Report& report) const {
        if (const auto period = sampling_.found_period()) {
            report.notes.push_back("the energy counter was found to be updated every " +
                                   milliseconds(*period));
        }
        const auto checked = sampling_.checked();
        if (checked && checked->power_window) {
            report.notes.push_back("power readings were found to be means over " +
                                   milliseconds(*checked->power_window));
        }
        if (checked && !checked->passed) {
            report.notes.push_back(
                "the self-check refused the energy counter, rely on no joules: " + checked->reason);
        }
        if (garbage_) {
            report.notes.emplace_back(
                "joules are of the time before kernels were repeated in place; calls and times are "
                "of the whole run");
        } else if (repeat_.on) {
            report.notes.push_back(
                "no kernel was repeated in place: none that can be was launched " +
                milliseconds(repeat_.after) + " after the first, or later (RepeatOptions::after)");
        }
        if (const measure::CounterFaults faults = sampling_.faults(); faults.sum() > 0) {
            report.notes.push_back("the energy counter: " + to_string(faults) +
                                   "; what they hide is in no kernel's joules");
        }
        if (lost_ > 0) {
            report.notes.push_back(
                std::to_string(lost_) +
                " marker timestamps were overwritten before they were read, or could not be taken "
                "(as beside another profiler): what ran then is unknown, and in no kernel's or "
                "idle energy; meter fewer iterations");
        }
        add_note_of_cut(report);
        if (const std::uint64_t lost = events_.lost(); lost > 0) {
            report.notes.push_back(std::to_string(lost) +
                                   " clock events were lost: call next_iteration() more often; "
                                   "joules may be counted at the wrong clock");
        }
    }

    /// Names the scopes that were open while metering began or ended.
    void add_note_of_cut(measure::Report& report) const {
        constexpr std::size_t most = 8;
        std::set<KernelId> cut;
        for (std::size_t i = 1; i < builder_.places().size(); ++i) {
            const KernelId enclosing = kinds_->at(builder_.places()[i].enclosing).kernel;
            if (cut_.count(enclosing) > 0) cut.insert(enclosing);
        }
        if (cut.empty()) return;
        std::string names;
        std::size_t named = 0;
        for (const KernelId kernel : cut) {
            if (++named > most) break;
            names += ' ' + to_string(kinds_->kernels().key(kernel));
        }
        if (cut.size() > most) names += " and " + std::to_string(cut.size() - most) + " more";
        report.notes.push_back(
            "runs of these scopes that were not metered as a whole have no energy:" + names +
            "; meter every iteration (GpuOptions::meter_every = 1, kdvfs run --meter 1)");
    }

    /// What a launching thread does where a thread of the library's own does the rest.
    template <class Runtime>
    void take_some(Runtime& runtime) {
        if (accumulator_.room() <= 2 * few_timestamps || !take_events(false)) return;
        drain(
            runtime, [&](auto out) { return runtime.drain_timestamps(out); }, few_timestamps);
    }

    /// @returns false where somebody was at them who is not waited for
    bool take_events(bool waits) {
        if (!events_.any()) return true;
        if (!events_.take(taken_events_, waits)) return false;
        for (const ClockEvent& event : taken_events_) take(event);
        return true;
    }

    /// Events first: samples and intervals are judged under the clocks that they tell of.
    /// @returns false where somebody was at them who is not waited for
    bool ingest(bool waits) {
        if (!take_events(waits)) return false;
        if (!new_samples_.exchange(false, std::memory_order_acq_rel)) return true;
        std::optional<Duration> period;
        if (!sampling_.take_samples(samples_, power_, period, waits)) {
            new_samples_.store(true, std::memory_order_release);
            return false;
        }
        if (period && *period != counter_period_) {
            counter_period_ = *period;
            accumulator_.counter_period(counter_period_);
        }
        for (const measure::EnergySample& sample : samples_) take(sample);
        for (const PowerReading& reading : power_) {
            accumulator_.add(reading);
            if (record_) record_->add(reading);
        }
        return true;
    }

    void take(const ClockEvent& event) {
        switch (event.kind) {
            case ClockEvent::Kind::asked:
                if (trace_) trace_->writer().clock_asked(event.at, event.to);
                break;
            case ClockEvent::Kind::applied:
                applied_ = event.to;
                gate_.applied(event.to, event.at);
                accumulator_.clocks_applied(event.at, event.to);
                if (record_) record_->add(measure::ClockChange{event.at, event.to});
                if (!trace_) break;
                trace_->writer().clock_applied(event.at, event.to);
                trace_->writer().clock_switch(event.called, event.at, event.from, event.to);
                break;
            case ClockEvent::Kind::fault:
                if (trace_) trace_->writer().fault(event.at, event.words.data());
                break;
            case ClockEvent::Kind::abandoned:
                ignored_.insert(event.track);
                forget_open();
                break;
        }
    }

    void take(const measure::EnergySample& sample) {
        if (repetition_) repetition_->take(sample);
        accumulator_.add(sample);
        if (record_) record_->add(sample);
        if (trace_ && last_sample_ && last_sample_->segment == sample.segment &&
            sample.at > last_sample_->at) {
            trace_->writer().power(sample.at, (sample.total - last_sample_->total) /
                                                  Seconds{sample.at - last_sample_->at});
        }
        if (!first_sample_) first_sample_ = sample;
        last_sample_ = sample;
    }

    /// @returns a moment before which no more timestamps will come
    template <class Runtime>
    TimePoint drain(Runtime& runtime) {
        return drain(runtime, [&](auto out) { return runtime.drain_timestamps(out); });
    }
    /// @param move moves out timestamps, as `drain_timestamps`
    /// @param most timestamps, or a few more
    template <class Runtime, class Move>
    TimePoint drain(Runtime& runtime, Move move, std::size_t most = ~std::size_t{0}) {
        const TimePoint before = runtime.now();
        std::array<MarkerTimestamp, few_timestamps> timestamps;
        for (std::size_t taken = 0; taken < most;) {
            // What is lost by now lies before what is drained next.
            if (const auto lost = runtime.lost_timestamps(); lost != lost_) {
                lost_ = lost;
                forget_open();
                timed_.forget_open();
                after_loss_ = true;
            }
            const std::size_t count = move(std::span{timestamps});
            if (count == 0) break;
            for (std::size_t i = 0; i < count; ++i) take(timestamps[i]);
            arrived_ += count;
            taken += count;
        }
        if constexpr (CollectedBeside<Runtime>) earliest_to_come_ = runtime.earliest_to_come();
        taken_in_.store(drained_ + lost_, std::memory_order_relaxed);
        return before;
    }

    void take(const MarkerTimestamp& timestamp) {
        const std::uint32_t window = timestamp.tag.window;
        if (window != MeteringWindows::in_graph) ++drained_;
        if (window == MeteringWindows::for_gate) {
            timed_.take(timestamp, [this](const measure::IntervalBuilder::Stretch& stretch) {
                learn(kinds_->at(stretch.tag.scope_kind), stretch);
            });
            return;
        }
        if (ignored_.count({timestamp.tag.track}) > 0) return;
        const bool in_graph = window == MeteringWindows::in_graph;
        // A scope that was entered in a metered iteration may be left in another.
        if (in_graph || MeteringWindows::is_metered(window)) take_metered(timestamp);
        builder_.take(timestamp, windows_.stretch_of(window),
                      [this](const auto& stretch) { take_stretch(stretch); });
    }
    /// What a timestamp says beside its scope.
    void take_metered(const MarkerTimestamp& timestamp) {
        const std::uint32_t window = timestamp.tag.window;
        const std::uint32_t current = windows_.window();
        if (window != MeteringWindows::in_graph && window != seen_window_) {
            begin_window(window, timestamp.time);
        } else if (window == MeteringWindows::in_graph && seen_window_ == closed_window_ &&
                   MeteringWindows::is_metered(current)) {
            begin_window(current, timestamp.time);  // there may be nothing but graphs
        }
        if (std::exchange(after_loss_, false)) leave_out_lost_time(timestamp.time);
        if (std::exchange(scopes_spoilt_, false)) {
            mark_iteration(std::max(timestamp.time, last_timestamp_),
                           measure::IterationMark::scopes_spoilt);
        }
        if (window != MeteringWindows::in_graph) begin_iterations(timestamp.time);
        last_timestamp_ = std::max(last_timestamp_, timestamp.time);
    }

    void mark_metering(TimePoint at, bool on) {
        accumulator_.metering(at, on);
        if (record_) record_->add(record_->metering, std::pair{at, on});
    }
    void mark_iteration(TimePoint at, measure::IterationMark mark, std::uint64_t number = 0) {
        accumulator_.iteration(at, mark, number);
        if (record_) record_->add(record_->iterations, std::pair{at, mark});
    }

    /// What ran between the last timestamp and this one is not known: that time is not metered, so
    /// that its energy is neither a kernel's nor idle.
    void leave_out_lost_time(TimePoint now) {
        if (garbage_ || seen_window_ == closed_window_) return;
        mark_metering(last_timestamp_, false);
        mark_metering(std::max(now, last_timestamp_), true);
        if (!std::exchange(in_iteration_, false)) return;
        mark_iteration(last_timestamp_, measure::IterationMark::spoilt);
        awaits_iteration_ = true;
    }

    void begin_window(std::uint32_t window, TimePoint now) {
        if (!garbage_) {
            mark_metering(last_timestamp_, false);
            mark_metering(now, true);
        }
        seen_window_ = window;
        forget_broken(window);
    }

    /// The iteration of this timestamp begins, if it is its first.
    void begin_iterations(TimePoint now) {
        const auto [any, metered, number] = windows_.begun_before(drained_ + lost_);
        if (garbage_ || ((in_iteration_ || awaits_iteration_) && !any)) return;
        awaits_iteration_ = false;
        // What ran before the first call of next_iteration() is no iteration.
        const bool first = any && !std::exchange(has_begun_, true);
        if (in_iteration_ && (first || !metered)) end_iteration(first);
        mark_iteration(now, measure::IterationMark::begins, number);
        in_iteration_ = true;
    }
    /// At its last timestamp. @param spoilt it was none that counts
    void end_iteration(bool spoilt) {
        mark_iteration(last_timestamp_,
                       spoilt ? measure::IterationMark::spoilt : measure::IterationMark::ends);
    }

    void forget_broken(std::uint32_t window) {
        const std::uint32_t broken = windows_.broken_at();
        if (broken == forgotten_ || broken > window) return;
        forget_open();
        forgotten_ = broken;
    }

    /// The ends of scopes that are open do not come, or not as such: what has run in them so far is
    /// of no whole run. The next timestamp says so, behind all that has ended.
    void forget_open() {
        builder_.forget_open();
        scopes_spoilt_ = true;
    }

    void take_stretch(const measure::IntervalBuilder::Stretch& stretch) {
        const ScopeKind& kind = kinds_->at(stretch.tag.scope_kind);
        if (repetition_) return repetition_->take(kind.kernel, stretch);
        const KernelInterval interval{.kernel = kind.kernel,
                                      .track = {stretch.tag.track},
                                      .asked = kind.request.point,
                                      .start = kind.encloses ? stretch.end : stretch.start,
                                      .end = stretch.end,
                                      .core_cycles = stretch.core_cycles,
                                      .ends_scope = stretch.dwell.has_value(),
                                      .place = stretch.place,
                                      .whole = stretch.whole};
        if (interval.ends_scope && !interval.whole) cut_.insert(interval.kernel);
        for (std::size_t i = places_resolved_; i < builder_.places().size(); ++i) {
            const auto& [parent, enclosing] = builder_.places()[i];
            const KernelId kernel = kinds_->at(enclosing).kernel;
            accumulator_.add_place(parent, kernel);
            if (record_) record_->add(record_->places, std::pair{parent, kernel});
        }
        places_resolved_ = builder_.places().size();
        measure::HeldParts held;
        if (kind.encloses) {
            if (interval.ends_scope) {
                accumulator_.end_enclosing(interval);
                if (record_) record_->add(interval);
            }
        } else {
            held = accumulator_.add(interval);
            if (record_) record_->add(measure::MeteredRun{interval, stretch.tag.window});
        }
        learn(kind, stretch);
        if (!trace_) return;
        const KernelKey& key = kinds_->kernels().key(kind.kernel);
        if (interval.end > interval.start) trace_->writer().kernel(interval, key);
        TimePoint begins = interval.start;
        for (const measure::HeldParts::Part& part : held.all()) {
            trace_->writer().clock_held(begins, part.clock);
            begins += part.time;
        }
        if (stretch.dwell) {
            trace_->writer().scope(interval.track, key, stretch.end - *stretch.dwell, stretch.end);
        }
    }

    /// For the gate.
    void learn(const ScopeKind& kind, const measure::IntervalBuilder::Stretch& stretch) {
        if (!stretch.dwell) return;
        if (*stretch.dwell == stretch.end - stretch.start) {
            gate_.ran(kind, stretch.start, stretch.end, stretch.core_cycles);
        }
        if (dwells_.size() <= kind.number) dwells_.resize(kind.number + std::size_t{1});
        dwells_[kind.number].add(stretch.dwell->count());
        kind.median_dwell.store(dwells_[kind.number].median(), std::memory_order_relaxed);
    }

    /// Ends the metering where all that was metered has been taken in.
    /// @returns whether all has been that was announced
    bool close_window() {
        const bool all_in = drained_ + lost_ >= windows_.expected();
        if (all_in) forget_broken(windows_.window());
        // The next one may be metered, too: what ran in between was not.
        if (all_in && seen_window_ != closed_window_ &&
            seen_window_ < windows_.stretch_of(windows_.window())) {
            mark_metering(last_timestamp_, false);
            if (std::exchange(in_iteration_, false)) end_iteration(!has_begun_);
            closed_window_ = seen_window_;
        }
        return all_in;
    }
    /// Joins intervals and samples as far as nothing earlier can come any more.
    void join_until(TimePoint now) { advance(close_window() ? now : last_timestamp_); }

    /// Joins up to `until`, or to the oldest open scope, the last sample or what a stream waits for
    /// where that is earlier.
    void advance(TimePoint until) {
        until = std::min(until, earliest_to_come_);
        if (const auto open = builder_.oldest_open()) until = std::min(until, *open);
        if (last_sample_) until = std::min(until, last_sample_->at);
        accumulator_.advance(until);
    }

    ScopeGate& gate_;
    MeteringWindows& windows_;
    CounterSampling sampling_;
    ClockEvents& events_;
    std::atomic<bool> new_samples_{false};
    std::atomic<bool> watched_{false};  ///< a trace, a record or a repetition wants all samples
    std::atomic<std::uint64_t> taken_in_{0};  ///< timestamps
    std::uint64_t activity_ = 0;              ///< the actuator's
    TimePoint active_at_{};                   ///< the actuator's
    std::atomic<double> power_limit_{0};      ///< W, the highest that held
    const ScopeKinds* kinds_;

    std::mutex mutex_;
    measure::EnergyAccumulator accumulator_;
    measure::IntervalBuilder builder_;
    measure::IntervalBuilder timed_;    ///< scopes that are timed for the gate alone
    std::vector<MovingMedian> dwells_;  ///< by scope kind
    std::set<TrackId> ignored_;
    std::set<KernelId> cut_;  ///< of whose scopes not all was metered
    std::vector<ClockEvent> taken_events_;
    std::vector<measure::EnergySample> samples_;
    std::vector<PowerReading> power_;
    std::optional<measure::EnergySample> first_sample_;
    std::optional<measure::EnergySample> last_sample_;
    std::unique_ptr<measure::TraceFile> trace_;
    std::unique_ptr<measure::MeterRecord> record_;
    Duration counter_period_;
    TimePoint last_timestamp_{};
    TimePoint earliest_to_come_ = TimePoint::max();  ///< that was asked for last
    std::uint64_t drained_ = 0;                      ///< timestamps of scopes outside of graphs
    std::uint64_t arrived_ = 0;                      ///< all timestamps
    std::atomic<bool> solves_beside_{false};
    std::size_t places_resolved_ = 1;
    bool in_iteration_ = false;
    bool has_begun_ = false;         ///< an iteration, by a timestamp behind its begin
    bool awaits_iteration_ = false;  ///< the rest of one is left out
    bool after_loss_ = false;        ///< timestamps were lost before the next one
    bool scopes_spoilt_ = false;     ///< those that were open before the next one
    bool garbage_ = false;           ///< kernels have been repeated: what they compute is
    const RepeatOptions repeat_;
    std::optional<measure::Repetition> repetition_;
    ClockPoint applied_{};
    ClockPoint repeated_under_{};
    std::uint64_t lost_ = 0;
    std::uint32_t seen_window_ = 1;
    std::uint32_t forgotten_ = 0;
    std::uint32_t closed_window_ = ~std::uint32_t{0};
};

}  // namespace kdvfs::inline v0_3::detail
