// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/followed_plan.hpp>
#include <kdvfs/detail/control/gate.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/gpu/any_runtime.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/energy_accumulator.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/sampler.hpp>
#include <kdvfs/measure/self_check.hpp>
#include <kdvfs/measure/trace.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/report.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::detail {

/// The measuring half of a GPU object: names kernels, turns timestamps into intervals and samples
/// into energies, learns how long scopes last, and writes the trace. Thread-safe; timestamps are
/// harvested on the user's own threads.
class Meter {
public:
    Meter(const GpuOptions& options, TimePoint start)
        : every_{std::max(options.meter_every, 1U)},
          limits_{options.sampler.limits},
          sampler_{options.sampler, start},
          accumulator_{kernels_, options.accumulator} {}

    /// Whether scopes are metered in this iteration.
    [[nodiscard]] bool metering() const { return metering_.load(std::memory_order_relaxed); }
    /// Which metered stretch of iterations this is.
    [[nodiscard]] std::uint32_t window() const { return window_.load(std::memory_order_relaxed); }
    /// The window of timestamps in graphs, which are replayed in any iteration.
    static constexpr std::uint32_t in_graph = 0;
    /// A timestamped marker was put into a stream, not into a graph.
    void expect_timestamp() { expected_.fetch_add(1, std::memory_order_relaxed); }
    /// A scope was entered with a timestamp and will not be left with one: what is open when the
    /// timestamps of the next window come is not paired with them.
    void break_off() { broken_at_ = window_.fetch_add(1) + 1; }
    /// The timestamps of this track make no sense.
    void ignore(TrackId track) {
        const std::lock_guard lock{mutex_};
        ignored_.insert(track);
        builder_.forget_open();
    }

    const ScopeKind& kind_of(std::string_view kernel, Variant variant, ClockRequest request,
                             RequestIndex index, bool metered, FollowedPlan* plan = nullptr) {
        const std::lock_guard lock{mutex_};
        const KernelId id = kernels_.id(kernel, variant);
        const auto [found, is_new] = kind_numbers_.try_emplace(
            std::tuple{id, request.asks, request.point, metered, plan}, kinds_.size());
        if (is_new) {
            ScopeKind& kind = kinds_.emplace_back();
            kind.kernel = id;
            kind.number = static_cast<std::uint32_t>(found->second);
            kind.request = request;
            kind.index = index;
            kind.metered = metered;
            kind.plan = plan;
            if (plan != nullptr) {
                kind.plan_kernel = plan->track().number({std::string{kernel}, variant});
            }
            dwells_.emplace_back();
        }
        return kinds_[found->second];
    }

    /// A kernel whose scopes compile to nothing: the report lists it as kept, not counted.
    void note_kept(std::string_view kernel) {
        const std::lock_guard lock{mutex_};
        kept_.insert(kernels_.id(kernel));
    }

    void next_iteration(AnyRuntime& runtime) {
        const std::lock_guard lock{mutex_};
        begin(runtime, ++iteration_ % every_ == 0);
    }
    /// The same, metered or not as the caller says. @returns the window of this iteration's
    /// timestamps
    std::uint32_t begin_iteration(AnyRuntime& runtime, bool metered) {
        const std::lock_guard lock{mutex_};
        begin(runtime, metered);
        return window();
    }

    void keep_record(bool on) {
        const std::lock_guard lock{mutex_};
        record_ = on ? std::make_unique<measure::MeterRecord>() : nullptr;
    }
    /// What has been kept since the last call; nothing unless `keep_record` is on.
    measure::MeterRecord take_record(AnyRuntime& runtime) {
        const std::lock_guard lock{mutex_};
        join_until(drain(runtime));
        return record_ ? std::exchange(*record_, {}) : measure::MeterRecord{};
    }

    /// Takes in what markers have left behind since the last time.
    void harvest(AnyRuntime& runtime) {
        const std::lock_guard lock{mutex_};
        join_until(drain(runtime));
    }

    /// The sampler's next read is due then.
    [[nodiscard]] TimePoint next_read() {
        const std::lock_guard lock{mutex_};
        return sampler_.next_read();
    }

    /// A read of the counter has come back.
    void sampled(const EnergyReading& reading, TimePoint now) {
        const std::lock_guard lock{mutex_};
        const ReadingStatus status = sampler_.complete(reading, now);
        if (check_) check_->take(reading, now);
        if (sampler_.found_counter_period() && sampler_.counter_period() != limits_.period) {
            limits_.period = sampler_.counter_period();
            accumulator_.counter_period(limits_.period);
        }
        sampler_.take_samples(samples_);
        for (const measure::EnergySample& sample : samples_) {
            accumulator_.add(sample);
            if (record_) record_->add(sample);
            if (trace_ && last_sample_ && last_sample_->segment == sample.segment &&
                sample.at > last_sample_->at) {
                trace_->power(sample.at, (sample.total - last_sample_->total) /
                                             Seconds{sample.at - last_sample_->at});
            }
            last_sample_ = sample;
        }
        if (trace_ && status != ReadingStatus::ok && status != ReadingStatus::unchanged) {
            trace_->fault(now, std::string{"energy counter: "}.append(to_string(status)));
        }
    }

    // The self-check.

    /// Begins to watch the counter beside the power. @returns for how long to go on
    [[nodiscard]] Duration begin_check(TimePoint now) {
        const std::lock_guard lock{mutex_};
        check_.emplace(limits_);
        if (sampler_.last_status() == ReadingStatus::absent) check_->take(EnergyReading{}, now);
        checking_ = true;
        // A counter that fails is asked once a second at least.
        const Duration every = sampler_.last_status() == ReadingStatus::failed
                                   ? std::chrono::seconds{1}
                                   : sampler_.period();
        return measure::SelfCheckRun::shortest + 2 * std::max(every, limits_.period);
    }
    /// Whether power readings are wanted beside the counter's.
    [[nodiscard]] bool checking() const { return checking_; }
    void power_read(const PowerReading& reading, TimePoint now) {
        const std::lock_guard lock{mutex_};
        if (check_ && reading.status == ReadingStatus::ok) check_->take(reading.watts, now);
    }
    [[nodiscard]] measure::SelfCheck end_check(TimePoint now) {
        const std::lock_guard lock{mutex_};
        checking_ = false;
        if (sampler_.last_status() == ReadingStatus::absent) check_->take(EnergyReading{}, now);
        checked_ = check_->result();
        check_.reset();
        return *checked_;
    }

    // The clock's history.

    void asked(TimePoint at, ClockPoint point) {
        const std::lock_guard lock{mutex_};
        if (trace_) trace_->clock_asked(at, point);
    }

    void applied(TimePoint called, TimePoint now, ClockPoint from, ClockPoint to) {
        const std::lock_guard lock{mutex_};
        accumulator_.clocks_applied(now, to);
        if (record_) record_->add(measure::ClockChange{now, to});
        if (!trace_) return;
        trace_->clock_applied(now, to);
        trace_->clock_switch(called, now, from, to);
    }

    void fault(TimePoint at, std::string_view words) {
        const std::lock_guard lock{mutex_};
        if (trace_) trace_->fault(at, words);
    }

    // What came of it.

    /// Calls that left no interval, by scope kind.
    void add_unmetered(std::span<const std::uint64_t> calls) {
        const std::lock_guard lock{mutex_};
        for (std::size_t kind = 0; kind < calls.size(); ++kind) {
            accumulator_.add_unmetered(kinds_[kind].kernel, calls[kind]);
        }
    }

    void fill(measure::Report& report) {
        const std::lock_guard lock{mutex_};
        accumulator_.fill(report);
        for (const KernelId kernel : kept_) {
            measure::ReportRow row;
            row.kernel = kernels_.key(kernel);
            row.kept = true;
            report.rows.push_back(std::move(row));
        }
        if (sampler_.found_counter_period()) {
            report.notes.push_back("the energy counter was found to be updated every " +
                                   milliseconds(sampler_.counter_period()));
        }
        if (checked_ && checked_->power_window) {
            report.notes.push_back("power readings were found to be means over " +
                                   milliseconds(*checked_->power_window));
        }
        if (checked_ && !checked_->passed) {
            report.notes.push_back(
                "the self-check refused the energy counter, believe no joules: " +
                checked_->reason);
        }
        if (const measure::CounterFaults& faults = sampler_.faults(); faults.sum() > 0) {
            report.notes.push_back("the energy counter: " + to_string(faults) +
                                   "; what they hide is in no kernel's joules");
        }
        if (lost_ > 0) {
            report.notes.push_back(
                std::to_string(lost_) +
                " marker timestamps were overwritten before they were read: call "
                "next_iteration() more often, or meter fewer iterations");
        }
    }

    /// Writes what happens from now on as Chrome trace events. `out` must outlive the trace.
    void trace_to(std::ostream& out, const DeviceInfo& info, TimePoint now) {
        const std::lock_guard lock{mutex_};
        trace_ = nullptr;  // the one before ends first: it may write to the same stream
        trace_ = std::make_unique<measure::TraceWriter>(out, info, now);
    }

    /// Lets the trace be, unfinished: it is another process's.
    void leave_trace() noexcept { static_cast<void>(trace_.release()); }

    /// Ends the trace. @throws Error if it could not be written
    void end_trace() {
        const std::lock_guard lock{mutex_};
        if (const auto trace = std::exchange(trace_, nullptr)) trace->close();
    }

private:
    static std::string milliseconds(Duration time) {
        const auto tenths = (time.count() + 50'000) / 100'000;
        return std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10) + " ms";
    }

    void begin(AnyRuntime& runtime, bool metered) {
        const TimePoint before = drain(runtime);
        if (metered && !metering()) window_.fetch_add(1, std::memory_order_relaxed);
        metering_.store(metered, std::memory_order_relaxed);
        join_until(before);
    }

    /// @returns a moment before which no more timestamps will come
    TimePoint drain(AnyRuntime& runtime) {
        const TimePoint before = runtime.now();
        std::array<MarkerTimestamp, 256> timestamps;
        while (true) {
            // What is lost by now lies before what is drained next.
            if (const auto lost = runtime.lost_timestamps(); lost != lost_) {
                lost_ = lost;
                builder_.forget_open();
            }
            const std::size_t count = runtime.drain_timestamps(timestamps);
            if (count == 0) break;
            for (std::size_t i = 0; i < count; ++i) take(timestamps[i]);
        }
        return before;
    }

    void take(const MarkerTimestamp& timestamp) {
        if (timestamp.tag.window != in_graph) ++drained_;
        if (ignored_.count({timestamp.tag.track}) > 0) return;
        if (timestamp.tag.window != in_graph && timestamp.tag.window != seen_window_) {
            begin_window(timestamp.tag.window, timestamp.time);
        } else if (timestamp.tag.window == in_graph && seen_window_ == closed_window_ &&
                   metering()) {
            begin_window(window(), timestamp.time);  // there may be nothing but graphs
        }
        last_timestamp_ = std::max(last_timestamp_, timestamp.time);
        builder_.take(timestamp, [this](const auto& stretch) { take_stretch(stretch); });
    }

    void begin_window(std::uint32_t window, TimePoint now) {
        accumulator_.metering(last_timestamp_, false);
        accumulator_.metering(now, true);
        seen_window_ = window;
        forget_broken(window);
    }

    void forget_broken(std::uint32_t window) {
        const std::uint32_t broken = broken_at_.load(std::memory_order_relaxed);
        if (broken == forgotten_ || broken > window) return;
        builder_.forget_open();
        forgotten_ = broken;
    }

    void take_stretch(const measure::IntervalBuilder::Stretch& stretch) {
        const ScopeKind& kind = kinds_[stretch.tag.scope_kind];
        const KernelInterval interval{.kernel = kind.kernel,
                                      .track = {stretch.tag.track},
                                      .asked = kind.request.point,
                                      .start = stretch.start,
                                      .end = stretch.end,
                                      .core_cycles = stretch.core_cycles,
                                      .ends_scope = stretch.dwell.has_value()};
        accumulator_.add(interval);
        if (record_) record_->add(measure::MeteredRun{interval, stretch.tag.window});
        if (stretch.dwell) {
            auto& dwell = dwells_[stretch.tag.scope_kind];
            dwell.add(stretch.dwell->count());
            kind.median_dwell.store(dwell.median(), std::memory_order_relaxed);
        }
        if (!trace_) return;
        const KernelKey& key = kernels_.key(kind.kernel);
        if (stretch.end > stretch.start) trace_->kernel(interval, key);
        if (stretch.dwell)
            trace_->scope(interval.track, key, stretch.end - *stretch.dwell, stretch.end);
    }

    /// Joins intervals and samples as far as nothing earlier can come any more.
    void join_until(TimePoint now) {
        const bool all_in = drained_ + lost_ >= expected_.load(std::memory_order_relaxed);
        if (all_in) forget_broken(window());
        if (all_in && !metering() && seen_window_ != closed_window_) {
            accumulator_.metering(last_timestamp_, false);
            closed_window_ = seen_window_;
        }
        TimePoint until = all_in ? now : last_timestamp_;
        if (const auto open = builder_.oldest_open()) until = std::min(until, *open);
        if (last_sample_) until = std::min(until, last_sample_->at);
        accumulator_.advance(until);
    }

    std::uint64_t every_;
    std::atomic<bool> metering_{true};
    std::atomic<std::uint32_t> window_{1};
    std::atomic<std::uint32_t> broken_at_{0};
    std::atomic<std::uint64_t> expected_{0};

    std::mutex mutex_;
    measure::KernelTable kernels_;
    std::map<std::tuple<KernelId, bool, ClockPoint, bool, FollowedPlan*>, std::size_t>
        kind_numbers_;
    std::deque<ScopeKind> kinds_;
    std::vector<MovingMedian> dwells_;
    std::set<KernelId> kept_;
    std::set<TrackId> ignored_;
    measure::IntervalBuilder builder_;
    measure::CounterLimits limits_;
    measure::Sampler sampler_;
    std::optional<measure::SelfCheckRun> check_;  ///< while one goes on
    std::optional<measure::SelfCheck> checked_;   ///< the last one
    std::atomic<bool> checking_{false};
    measure::EnergyAccumulator accumulator_;
    std::vector<measure::EnergySample> samples_;
    std::optional<measure::EnergySample> last_sample_;
    std::unique_ptr<measure::TraceWriter> trace_;
    std::unique_ptr<measure::MeterRecord> record_;
    TimePoint last_timestamp_{};
    std::uint64_t drained_ = 0;
    std::uint64_t lost_ = 0;
    std::uint64_t iteration_ = 0;
    std::uint32_t seen_window_ = 1;
    std::uint32_t forgotten_ = 0;
    std::uint32_t closed_window_ = ~std::uint32_t{0};
};

}  // namespace kdvfs::detail
