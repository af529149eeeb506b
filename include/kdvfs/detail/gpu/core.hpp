// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/stream_track.hpp>
#include <kdvfs/detail/control/votes.hpp>
#include <kdvfs/detail/gpu/board_sharing.hpp>
#include <kdvfs/detail/gpu/clock_arbiter.hpp>
#include <kdvfs/detail/gpu/late_streams.hpp>
#include <kdvfs/detail/gpu/merged_options.hpp>
#include <kdvfs/detail/gpu/meter.hpp>
#include <kdvfs/detail/gpu/prepared_points.hpp>
#include <kdvfs/detail/gpu/reference_meter.hpp>
#include <kdvfs/detail/gpu/repeater.hpp>
#include <kdvfs/detail/gpu/report_notes.hpp>
#include <kdvfs/detail/gpu/scope_gate.hpp>
#include <kdvfs/detail/gpu/scope_kinds.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/gpu/stream_scopes.hpp>
#include <kdvfs/detail/gpu/timestamp_collector.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/report.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace kdvfs::inline v0_3::detail {

/// What a GPU object is made of.
template <StreamRuntime Runtime>
struct GpuParts {
    DeviceInfo info{};
    SupportedClocks clocks{};
    std::optional<ClockState> initial{};  ///< nothing: measure only
    std::shared_ptr<Runtime> runtime{};
    std::unique_ptr<PreparedPointRequests> points{};  ///< null: none can be switched
};

/// What is behind every `Gpu` handle of one device: takes scopes in, asks for their clocks, and
/// meters. Scopes that outlive it find it ended (see `retire`). Thread-safe.
template <StreamRuntime Runtime>
class GpuCore final : public GpuService {
public:
    GpuCore(GpuParts<Runtime> parts, const GpuOptions& options)
        : info_{std::move(parts.info)},
          clocks_{std::move(parts.clocks)},
          options_{checked(options, info_, highest(clocks_.core))},
          runtime_{std::move(parts.runtime)},
          points_{std::move(parts.points)},
          gate_{options_, {highest(clocks_.core), highest(clocks_.memory)}},
          windows_{options_.meter_every},
          meter_{
              std::make_unique<Meter>(options_, kinds_, gate_, windows_, events_, runtime_->now())},
          arbiter_{requests_,
                   tracks_,
                   events_,
                   to_string(info_),
                   std::move(parts.initial),
                   on_listed_clocks(options_.controller, clocks_)},
          scopes_{{.runtime = *runtime_,
                   .info = info_,
                   .options = options_,
                   .gate = gate_,
                   .requests = requests_,
                   .tracks = tracks_,
                   .kinds = kinds_,
                   .windows = windows_,
                   .arbiter = arbiter_}},
          repeater_{{.runtime = *runtime_,
                     .info = info_,
                     .options = options_.repeat,
                     .kinds = kinds_,
                     .scopes = scopes_}} {
        if (!measure_only()) {
            const TimePoint now = runtime_->now();
            const ClockPoint initial = arbiter_.applied();
            events_.push({.kind = ClockEvent::Kind::applied,
                          .called = now,
                          .at = now,
                          .from = initial,
                          .to = initial});
            meter_->pump();
        }
        if (!measure_only() && options_.idle_clock.clock) check_listed(*options_.idle_clock.clock);
        repeats_ = options_.repeat.on;
        if (asked_to_repeat() && !repeats_) refuse_to_repeat();
        if (options_.reference)
            reference_.emplace(*options_.reference, [this] { return runtime_->now(); });
        if (options_.ordering == Ordering::acked) {
            arbiter_.answer_at(answer_word(), options_.ack_deadline);
        }
    }

    ~GpuCore() override {
        if (!in_forked_child()) {
            shut_down();
        } else if (meter_) {
            meter_->leave_trace();  // its stream is the parent's
            static_cast<void>(meter_.release());
        }
    }

    GpuCore(const GpuCore&) = delete;
    GpuCore& operator=(const GpuCore&) = delete;

    // Scopes. Each is a copy that does nothing in a forked child, and finds the object ended after
    // `shut_down`.

    ScopeToken enter(StreamRef stream, const ScopeKind& kind) override {
        if (is_retired()) return {};
        collector_.where_full(*runtime_, windows_, *meter_);
        if (gate_.awaits_time(kind)) collector_.while_awaited(*runtime_, windows_, *meter_);
        return scopes_.enter(stream, kind);
    }
    ScopeToken enter_holding(StreamRef stream, const ScopeKind& kind) override {
        return is_retired() ? ScopeToken{} : scopes_.enter_holding(stream, kind);
    }
    void end_holding(bool by_plans) noexcept override {
        if (!is_retired()) scopes_.end_holding(by_plans);
    }
    void leave(const ScopeToken& token) override {
        if (token.track != nullptr && !is_retired()) scopes_.leave(token);
    }
    void leave_noexcept(const ScopeToken& token) noexcept override {
        try {
            leave(token);
        } catch (const Error& error) {
            keep(error);
        } catch (const std::exception& error) {
            keep(Error{Errc::io,
                       {.action = "leave a scope",
                        .object = to_string(info_),
                        .vendor_words = error.what(),
                        .remedy = "check what the stream runs"}});
        }
    }

    void repeat(StreamRef stream, const std::function<const ScopeKind*()>& kind,
                const std::function<void()>& work) override {
        if (!is_retired()) repeater_.repeat(*meter_, stream, kind, work, [this] { work_begins(); });
    }

    const ScopeKind& kind_of(std::string_view kernel, Variant variant, ClockRequest request,
                             bool metered, FollowedPlan* plan) override {
        check_clocks(kernel, request);
        const RequestIndex index =
            request.asks ? requests_.index_of_timed({request.point, request.after, request.then})
                         : no_request;
        return kinds_.find(kernel, variant, request, index, metered, plan);
    }

    const ScopeKind& enclosing_kind(std::string_view name) override {
        return kinds_.find(name, {}, {}, no_request, true, nullptr, true);
    }
    void leave_unmarked(const ScopeToken& token) noexcept override {
        if (token.track != nullptr && !is_retired()) scopes_.leave_unmarked(token);
    }

    FollowedPlan& follow(const PlannedSequence& plan) override {
        if (!plan.gpu.empty() && plan.gpu != gpu_name(info_)) {
            throw Error{Errc::invalid_input,
                        {.action = "follow a plan",
                         .object = to_string(info_),
                         .vendor_words = "the plan is for another GPU, " + plan.gpu,
                         .remedy = "make a plan from a profile of this GPU"}};
        }
        for (const PlannedSequence::Boundary& boundary : plan.boundaries) {
            check_clocks("in the plan's segments", {.asks = true, .point = boundary.clock});
        }
        for (const PlannedSequence::Kernel& kernel : plan.kernels) {
            check_clocks(to_string(kernel.key), kernel.own);
        }
        return scopes_.follow(plan);
    }
    void unfollow(FollowedPlan& plan) noexcept override { scopes_.unfollow(plan); }

    void check_clocks(std::string_view kernel, const ClockRequest& request) const override {
        if (!request.asks || measure_only()) return;
        if (request.after > Duration{0})
            check_clocks(kernel, {.asks = true, .point = request.then});
        if (supports(clocks_, request.point)) return;
        throw unlisted("run kernel '" + std::string{kernel} + "' at " + to_string(request.point));
    }

    void note_kept(std::string_view kernel) override { kinds_.note_kept(kernel); }
    void note_bound(std::string_view kernel) override { kinds_.note_bound(kernel); }

    void protect(StreamRef stream, ClockPoint at_least) override {
        const LockedTrack found =
            tracks_.find(runtime_->track_key(stream), [this] { return runtime_->make_cell(); });
        arbiter_.protect(found.track, at_least, runtime_->now());
        wake();
    }

    TrackId begin_request(ClockPoint point) override {
        check_listed(point);
        scopes_.note_lowering(nullptr, point);
        const TrackId request = arbiter_.begin_request(point, runtime_->now());
        wake_unless_retired();
        return request;
    }
    void change_request(TrackId request, ClockPoint point) override {
        check_listed(point);
        scopes_.note_lowering(nullptr, point);
        arbiter_.change_request(request, point, runtime_->now());
        wake_unless_retired();
    }
    void end_request(TrackId request) noexcept override {
        arbiter_.end_request(request, runtime_->now());
        wake_unless_retired();
    }

    std::uint64_t begin_request(PreparedPoint point) override {
        check_prepared_point(point, info_, measure_only(), points_ != nullptr);
        return points_->begin(point);
    }
    void end_point_request(std::uint64_t request) override {
        if (points_) points_->end(request);
    }
    void end_point_request_noexcept(std::uint64_t request) noexcept override {
        try {
            end_point_request(request);
        } catch (const Error& error) {
            keep(error);
        }
    }
    /// What holds by requests for points.
    [[nodiscard]] PreparedPointRequests::Seen points_seen() const {
        return points_ ? points_->seen() : PreparedPointRequests::Seen{};
    }

    void open_again(const GpuOptions& options,
                    const std::function<std::shared_ptr<AnyStreams>()>& bring) override {
        if (measure_only() && options.on_refused == OnRefused::fail) {
            throw Error{Errc::refused,
                        {.action = "open the GPU a second time in this process",
                         .object = to_string(info_),
                         .vendor_words = "it is only measured: " + info_.mechanism,
                         .remedy = "close it first, or open it with OnRefused::measure_only"}};
        }
        const std::lock_guard lock{opening_again_};
        merged_ = merged_options(merged_.value_or(options_),
                                 checked(options, info_, highest(clocks_.core)), to_string(info_));
        if constexpr (TakesMarkerKernels<Runtime>) runtime_->look_for_marker_kernel();
        if constexpr (std::is_same_v<Runtime, LateStreams>) {
            if (bring) runtime_->bring(bring);
        }
        windows_.meter_every(merged_->meter_every);
        arbiter_.limit(on_listed_clocks(merged_->controller, clocks_), runtime_->now());
        scopes_.note_lowering(nullptr, merged_->controller.never_above);
        wake_unless_retired();
    }

    // What the control loop calls.

    [[nodiscard]] ClockArbiter& arbiter() { return arbiter_; }
    [[nodiscard]] Meter& meter() { return *meter_; }
    [[nodiscard]] BoardSharing& sharing() { return sharing_; }
    [[nodiscard]] bool counter_rests() const { return windows_.counter_rests(); }
    /// How many timestamps live streams have been asked for.
    [[nodiscard]] std::uint64_t expected_timestamps() const { return windows_.expected(); }
    [[nodiscard]] Runtime& runtime() { return *runtime_; }
    [[nodiscard]] const GpuOptions& options() const { return options_; }
    void drive_with(std::unique_ptr<ControlLoop> loop) {
        loop_ = std::move(loop);
        scopes_.drive_with(*loop_);
        if (CollectsTimestamps<Runtime> && !info_.simulated) meter_->solve_beside();
    }
    /// Another process works on the device, too, which may lower its clocks.
    void note_shared() {
        if (!sharing_.add_voter()) return;
        const auto& core = clocks_.core.listed;
        if (!core.empty()) scopes_.note_lowering(nullptr, {.core = core.front()});
    }
    /// An error for `check()`, unless it has one already.
    void keep(const Error& error) noexcept {
        const std::lock_guard lock{kept_};
        if (!error_) error_ = error;
    }

    // What users ask, through `Gpu`.

    [[nodiscard]] const DeviceInfo& info() const override { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const override { return clocks_; }
    [[nodiscard]] bool ended() const override { return ended_; }
    [[nodiscard]] bool measure_only() const override { return arbiter_.measure_only(); }
    [[nodiscard]] Duration sample_period() const override {
        return std::max(options_.sampler.period, options_.sampler.limits.period);
    }

    [[nodiscard]] std::optional<measure::FollowedShare> followed() const override {
        return scopes_.followed();
    }
    [[nodiscard]] measure::Report report() override {
        measure::Report report;
        report.device = info_;
        report.measure_only = measure_only();
        meter_->harvest(*runtime_);
        ScopeAccounts accounts{kinds_, arbiter_.asked_scopes()};
        accounts.add(tracks_, [this](KernelId kernel, std::uint64_t calls) {
            meter_->add_unmetered(kernel, calls);
        });
        meter_->fill(report, measure::rest_of(info_.name), sharing_.is_unknown());
        if (reference_) reference_->add_to(report, [this] { return meter_->counted(); });
        accounts.fill(report);
        sharing_.judge(report);
        report.scopes.writes = arbiter_.counts().writes;
        report.followed = scopes_.followed();
        report.idle_clock = arbiter_.rested(runtime_->now());
        add_gate_notes(report, gate_);
        if (report.scopes.scopes > 0) add_unseen(report, accounts.never_entered());
        if (!info_.simulated && !measure_only()) {
            report.notes.emplace_back(
                "applied is the driver's own word; that a clock ran is shown by held alone");
        }
        if (!info_.simulated) add_sensor_note(report);
        if (const auto point = points_seen(); point.switches > 0) {
            report.device.operating_point = point.words;
            report.notes.emplace_back(
                "this program has switched operating points: a figure here is over all of them");
        }
        if (refused_to_repeat_) {
            report.notes.push_back("KDVFS_MODE=repeat was ignored: " + std::string{may_not_repeat});
        }
        if (!info_.energy.empty()) report.notes.push_back("energy is " + info_.energy);
        report.notes.push_back("markers: " + std::string{runtime_->marker_mechanism()});
        if (loop_ && loop_->shares_one_core()) {
            report.notes.emplace_back(
                "this process may run on one core only, which the threads that drive the GPU take "
                "time from: give it two (srun --cpus-per-task=2, mpirun --map-by slot:pe=2)");
        }
        if (const auto stalled = stalled_call()) report.notes.emplace_back(stalled->what());
        return report;
    }

    measure::SelfCheck self_check() override {
        if (!loop_ || ended_) {
            throw Error{Errc::invalid_input,
                        {.action = "check the energy counter",
                         .object = to_string(info_),
                         .vendor_words = "the GPU has been closed",
                         .remedy = "open it again"}};
        }
        const std::lock_guard one_at_a_time{checking_};
        const Duration long_enough = meter_->sampling().begin_check(runtime_->now());
        work_begins();
        if (!options_.reference) {
            loop_->sleep_for(long_enough);
            return meter_->sampling().end_check(runtime_->now());
        }
        // Sensors of ten readings a second are to say something, too.
        constexpr Duration for_sensors = std::chrono::seconds{2};
        const auto begin = reference_->read();
        loop_->sleep_for(std::max(long_enough, for_sensors));
        const auto end = reference_->read();
        return meter_->sampling().end_check(
            runtime_->now(), std::pair{options_.reference->name,
                                       (end.joules - begin.joules) / Seconds{end.at - begin.at}});
    }

    void check() override {
        if (const auto error = take_error()) throw Error{*error};
        if (const auto stalled = stalled_call()) throw Error{*stalled};
    }

    void rearm() override {
        arbiter_.rearm();
        wake();
    }

    void next_iteration() override {
        begin_plans();
        meter_->next_iteration(*runtime_);
        work_begins();
    }
    std::uint32_t begin_iteration(bool metered) override { return begin(metered, false); }
    std::uint32_t begin_window() override { return begin(true, true); }
    void keep_record(bool on) override {
        if (in_forked_child()) return;
        meter_->keep_record(on);
        work_begins();
    }
    [[nodiscard]] measure::MeterRecord take_record() override {
        measure::MeterRecord record = meter_->take_record(*runtime_);
        if (sharing_.shared()) {  // joules of all processes are no kernel's
            record.samples.clear();
            record.power.clear();
        }
        return record;
    }

    [[nodiscard]] TimePoint now() const override { return runtime_->now(); }
    void trace_to(std::ostream& out) override {
        meter_->trace_to(out, info_, runtime_->now(),
                         {highest(clocks_.core), highest(clocks_.memory)});
        work_begins();
    }
    void end_trace() override { meter_->end_trace(); }

    void shut_down() noexcept override {
        if (in_forked_child()) return;
        const std::lock_guard lock{closing_};  // whoever comes second waits until it is done
        if (ended_.exchange(true)) return;
        if (loop_) {  // else its threads could not be started
            arbiter_.release();
            repeater_.say_end();
            finished_ = loop_->finish();
        }
        if (!points_) return;
        if (const auto error = points_->close()) keep(*error);
    }

    /// The last handle is gone. What late scopes may still touch stays, the loop that they wake
    /// among it; the rest goes, unless a device call that has not come back will yet ask for it.
    void retire() noexcept {
        shut_down();
        if (in_forked_child()) return;
        retired_ = true;
        if (loop_ && !finished_) {
            meter_->drop_trace();  // its stream may go now
            return;
        }
        meter_.reset();
        events_.end();
    }

    [[nodiscard]] std::optional<Error> take_error() noexcept override {
        if (in_forked_child()) return std::nullopt;  // its threads' locks are held by nobody here
        {
            const std::lock_guard lock{kept_};
            if (error_) return std::exchange(error_, std::nullopt);
        }
        return arbiter_.take_error();
    }

private:
    void refuse_to_repeat() {
        refused_to_repeat_ = true;
        std::fprintf(stderr, "kdvfs: KDVFS_MODE=repeat is ignored: %s\n", may_not_repeat);
    }
    [[nodiscard]] std::uint32_t* answer_word() {
        if constexpr (WaitingRuntime<Runtime>) {
            return runtime_->make_answer_word();
        } else {
            throw Error{Errc::not_supported,
                        {.action = "let a stream wait for an answer",
                         .object = to_string(info_),
                         .vendor_words = "its streams cannot wait",
                         .remedy = "use Ordering::stream"}};
        }
    }

    void wake() {
        if (loop_) loop_->wake();
    }
    void work_begins() {
        if (loop_) loop_->work_begins();
    }

    void wake_unless_retired() {
        if (!retired_.load(std::memory_order_relaxed)) wake();
    }

    [[nodiscard]] Error unlisted(std::string action) const {
        return Error{Errc::invalid_input,
                     {.action = std::move(action),
                      .object = to_string(info_),
                      .vendor_words = "not in the device's list of clocks",
                      .remedy = "plan again for this GPU, or pick clocks that `kdvfs info` lists"}};
    }
    void check_listed(ClockPoint point) const {
        if (!measure_only() && !supports(clocks_, point))
            throw unlisted("request " + to_string(point));
    }

    [[nodiscard]] std::optional<Error> stalled_call() {
        return loop_ ? loop_->stalled_call() : std::nullopt;
    }

    std::uint32_t begin(bool metered, bool own_window) {
        begin_plans();
        const std::uint32_t window = meter_->begin_iteration(*runtime_, metered, own_window);
        work_begins();
        return window;
    }
    /// The next iteration of the plans that are followed.
    void begin_plans() {
        if (!scopes_.begin_iteration()) return;
        keep(
            Error{Errc::invalid_input,
                  {.action = "follow a plan",
                   .object = to_string(info_),
                   .vendor_words = "under half of its kernels were met in two iterations: it is of "
                                   "another program",
                   .remedy = "the clocks stay on auto; make a plan from this program's own "
                             "profile"}});
    }

    /// The last handle is gone, or this is a copy in a forked child: nothing is to be done.
    [[nodiscard]] bool is_retired() const {
        return retired_.load(std::memory_order_relaxed) || in_forked_child();
    }
    [[nodiscard]] bool in_forked_child() const { return fork_generation() != generation_; }

    const DeviceInfo info_;
    const SupportedClocks clocks_;
    const GpuOptions options_;
    std::shared_ptr<Runtime> runtime_;
    std::unique_ptr<PreparedPointRequests> points_;
    const std::uint32_t generation_ = fork_generation();
    bool refused_to_repeat_ = false;
    BoardSharing sharing_;

    RequestTable requests_;
    TrackTable tracks_;
    ScopeKinds kinds_;
    ScopeGate gate_;
    MeteringWindows windows_;
    ClockEvents events_;
    std::unique_ptr<Meter> meter_;
    ClockArbiter arbiter_;
    StreamScopes<Runtime> scopes_;
    Repeater<Runtime> repeater_;

    TimestampCollector<Runtime> collector_;
    std::mutex opening_again_;
    std::optional<GpuOptions> merged_;  ///< of all openings; nothing: of the first alone
    std::mutex checking_;
    std::optional<ReferenceMeter> reference_;
    std::mutex kept_;
    std::optional<Error> error_;

    std::unique_ptr<ControlLoop> loop_;
    std::mutex closing_;
    bool finished_ = false;
    std::atomic<bool> ended_{false};    ///< the clocks are back: scopes are refused
    std::atomic<bool> retired_{false};  ///< the last handle is gone: scopes do nothing
};

}  // namespace kdvfs::inline v0_3::detail
