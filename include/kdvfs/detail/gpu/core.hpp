// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/followed_plan.hpp>
#include <kdvfs/detail/control/gate.hpp>
#include <kdvfs/detail/control/stream_track.hpp>
#include <kdvfs/detail/control/votes.hpp>
#include <kdvfs/detail/gpu/clock_arbiter.hpp>
#include <kdvfs/detail/gpu/followed_plans.hpp>
#include <kdvfs/detail/gpu/meter.hpp>
#include <kdvfs/detail/gpu/scope_kinds.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/io/descriptor.hpp>
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
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::detail {

/// What drives a GPU object's controller and sampler: threads on real GPUs, the event loop of the
/// simulated one.
class ControlLoop {
public:
    virtual ~ControlLoop() = default;
    /// Something has changed that no marker will tell of.
    virtual void wake() noexcept = 0;
    /// Work begins of which no marker tells at once: a graph may be launched, and what the counter
    /// says is wanted.
    virtual void work_begins() noexcept {}
    /// Lets so much of the device's time go by: a thread sleeps, a simulation goes on.
    virtual void sleep_for(Duration time) = 0;
    /// Carries out what the controller still wants, within a deadline of its own, and ends.
    /// @returns whether it is over; false where a device call did not come back
    virtual bool finish() noexcept = 0;
    /// The device call that has not come back for a second or more, if there is one.
    [[nodiscard]] virtual std::optional<Error> stalled_call() { return std::nullopt; }
};

/// What a GPU object is made of.
template <StreamRuntime Runtime>
struct GpuParts {
    DeviceInfo info{};
    SupportedClocks clocks{};
    std::optional<ClockState> initial{};  ///< nothing: measure only
    std::shared_ptr<Runtime> runtime{};
};

/// What is behind every `Gpu` handle of one device: takes scopes in, asks for their clocks, and
/// meters. Scopes that outlive it find it ended (see `retire`). Thread-safe.
template <StreamRuntime Runtime>
class GpuCore final : public GpuService {
public:
    GpuCore(GpuParts<Runtime> parts, GpuOptions options)
        : info_{std::move(parts.info)},
          clocks_{std::move(parts.clocks)},
          options_{checked(options, info_)},
          runtime_{std::move(parts.runtime)},
          windows_{options_.meter_every},
          meter_{std::make_unique<Meter>(options_, kinds_, windows_, events_, runtime_->now())},
          arbiter_{requests_,          tracks_, events_, to_string(info_), std::move(parts.initial),
                   options_.controller} {
        const auto highest = [](const ClockDomain& domain) {
            return domain.listed.empty() ? auto_clock : domain.listed.back();
        };
        highest_ = {highest(clocks_.core), highest(clocks_.memory)};
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
        repeats_ = options_.repeat.on;
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
        if (retired_.load(std::memory_order_relaxed) || in_forked_child()) return {};
        const TrackKey key = runtime_->track_key(stream);
        StreamTrack& track = tracks_.find(key, [this] { return runtime_->make_cell(); });
        const bool metered = kind.metered && windows_.metering();

        const std::lock_guard lock{track.mutex};
        if (kind.plan != nullptr && follow_plan(track, kind)) {
            return enter_followed(track, kind, metered);
        }
        const ScopeOutcome outcome = judge(kind, track);
        const bool asks = outcome == ScopeOutcome::asked || outcome == ScopeOutcome::captured ||
                          outcome == ScopeOutcome::stream_elided;
        const bool rested = track.depth() == 0 || track.word().request() == no_request;
        const TrackStep step = track.enter(asks ? kind.index : no_request, kind.number);
        if (step.changed || metered) {
            try {
                put(track, step, {track.id().value, kind.number, false}, metered);
            } catch (...) {
                track.leave(step.entry);
                give_up(track, metered);
                throw;
            }
        }
        if (rested && step.changed) wake();
        track.counts.count(kind.number, outcome);
        if (!metered) track.counts.count_unmetered(kind.number, !track.captured());
        return {&track, step.entry, &kind, metered};
    }

    ScopeToken enter_holding(StreamRef stream, const ScopeKind& kind) override {
        if (retired_.load(std::memory_order_relaxed) || in_forked_child()) return {};
        const TrackKey key = runtime_->track_key(stream);
        StreamTrack& track = tracks_.find(key, [this] { return runtime_->make_cell(); });
        const std::lock_guard lock{track.mutex};
        if (track.captured()) {
            throw Error{Errc::not_supported,
                        {.action = "hold a clock beyond a scope in a capture",
                         .object = to_string(info_),
                         .vendor_words = "each replay would leave its request behind",
                         .remedy = "put the scope around the launch of the graph"}};
        }
        const bool armed = arbiter_.armed();
        const bool asks = armed && kind.request.asks;
        const RequestIndex wanted = asks ? kind.index : no_request;
        const bool boundary = wanted != track.conducted();
        const ScopeOutcome outcome = !armed     ? disarmed_outcome()
                                     : !asks    ? ScopeOutcome::kept
                                     : boundary ? ScopeOutcome::asked
                                                : ScopeOutcome::followed;
        return enter_conducted(track, kind, kind, boundary ? std::optional{wanted} : std::nullopt,
                               outcome, kind.metered && windows_.metering());
    }

    void end_holding() noexcept override {
        for (StreamTrack* track : tracks_.all()) {
            const std::lock_guard lock{track->mutex};
            if (track->follower != nullptr || track->conducted() == no_request) continue;
            track->conduct(no_request);
            track->overrule();
        }
        wake_unless_retired();
    }

    void leave(const ScopeToken& token) override {
        if (token.track == nullptr || retired_.load(std::memory_order_relaxed) ||
            in_forked_child()) {
            return;
        }
        StreamTrack& track = *token.track;
        const std::lock_guard lock{track.mutex};
        auto step = track.leave(token.entry);
        if (!step) return;
        if (token.ends_plan) {
            const TrackStep end = track.conduct(no_request);
            step->word = end.word;
            step->changed = step->changed || end.changed;
        }
        try {
            if (const TrackKey key = runtime_->key_now(track.key()); key != track.key()) {
                throw straddled(track, key);
            }
            if (!step->changed && !token.metered) return;
            put(track, *step, {track.id().value, token.kind->number, true}, token.metered);
            if (track.captured() && track.follower != nullptr) track.end_with_last_word();
        } catch (...) {
            give_up(track, token.metered);
            throw;
        }
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

    /// One kernel at a time; a launch within repeated work is none of its own.
    void repeat(StreamRef stream, const ScopeKind& kind,
                const std::function<void()>& work) override {
        static thread_local bool within = false;
        if (within || retired_.load(std::memory_order_relaxed) || in_forked_child()) return;
        if (runtime_->track_key(stream).capture != 0) return;
        const std::lock_guard one_at_a_time{repeating_};
        if (!repeated_.insert(kind.number).second) return;
        const ScopedFlag inside{within};
        runtime_->synchronize(stream);
        meter_->begin_repeat(*runtime_, kind.kernel);
        std::uint64_t calls = 0;
        try {
            calls = repeat_until_told(stream, kind, work);
        } catch (const std::exception& error) {
            meter_->end_repeat(*runtime_, 0);
            throw Error{Errc::io,
                        {.action = "repeat kernel '" +
                                   to_string(kinds_.kernels().key(kind.kernel)) + "' in place",
                         .object = to_string(info_),
                         .vendor_words = error.what(),
                         .remedy = "if it must not run twice, let its type say `static constexpr "
                                   "bool runs_once = true;`"}};
        }
        meter_->end_repeat(*runtime_, calls);
    }

    const ScopeKind& kind_of(std::string_view kernel, Variant variant, ClockRequest request,
                             bool metered, FollowedPlan* plan) override {
        check_clocks(kernel, request);
        const RequestIndex index = request.asks ? requests_.index_of(request.point) : no_request;
        return kinds_.find(kernel, variant, request, index, metered, plan);
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
        return plans_.add(plan, requests_);
    }

    void unfollow(FollowedPlan& plan) noexcept override {
        plan.end();
        for (StreamTrack* track : tracks_.all()) {
            const std::lock_guard lock{track->mutex};
            if (track->follower == nullptr || &track->follower->plan() != &plan) continue;
            if (track->conducted() == no_request || track->captured()) continue;
            track->conduct(no_request);
            track->overrule();
        }
        wake();
    }

    void check_clocks(std::string_view kernel, const ClockRequest& request) const override {
        if (!request.asks || measure_only() || supports(clocks_, request.point)) return;
        throw unlisted("run kernel '" + std::string{kernel} + "' at " + to_string(request.point));
    }

    void note_kept(std::string_view kernel) override { kinds_.note_kept(kernel); }

    void protect(StreamRef stream, ClockPoint at_least) override {
        StreamTrack& track =
            tracks_.find(runtime_->track_key(stream), [this] { return runtime_->make_cell(); });
        arbiter_.protect(track, at_least, runtime_->now());
        wake();
    }

    TrackId begin_request(ClockPoint point) override {
        check_listed(point);
        const TrackId request = arbiter_.begin_request(point, runtime_->now());
        wake_unless_retired();
        return request;
    }
    void change_request(TrackId request, ClockPoint point) override {
        check_listed(point);
        arbiter_.change_request(request, point, runtime_->now());
        wake_unless_retired();
    }
    void end_request(TrackId request) noexcept override {
        arbiter_.end_request(request, runtime_->now());
        wake_unless_retired();
    }

    // What the control loop calls.

    [[nodiscard]] ClockArbiter& arbiter() { return arbiter_; }
    [[nodiscard]] Meter& meter() { return *meter_; }
    [[nodiscard]] bool counter_rests() const { return windows_.counter_rests(); }
    /// How many timestamps live streams have been asked for.
    [[nodiscard]] std::uint64_t expected_timestamps() const { return windows_.expected(); }
    [[nodiscard]] Runtime& runtime() { return *runtime_; }
    [[nodiscard]] const GpuOptions& options() const { return options_; }
    void drive_with(std::unique_ptr<ControlLoop> loop) { loop_ = std::move(loop); }
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

    [[nodiscard]] measure::Report report() override {
        measure::Report report;
        report.device = info_;
        report.measure_only = measure_only();
        meter_->harvest(*runtime_);
        ScopeAccounts accounts{kinds_, arbiter_.asked_scopes()};
        accounts.add(tracks_, [this](KernelId kernel, std::uint64_t calls) {
            meter_->add_unmetered(kernel, calls);
        });
        meter_->fill(report);
        accounts.fill(report);
        report.scopes.writes = arbiter_.counts().writes;
        report.followed = plans_.share(tracks_);
        if (!options_.switch_latency) {
            report.notes.emplace_back(
                "the not_worth_it gate is off: no switching latency is known (measure it with "
                "examples/switch_latency)");
        }
        if (!info_.simulated && !measure_only()) {
            report.notes.emplace_back(
                "applied is the driver's own word; that a clock ran is shown by held alone");
        }
        if (!info_.energy.empty()) report.notes.push_back("energy is " + info_.energy);
        report.notes.push_back("markers: " + std::string{runtime_->marker_mechanism()});
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
        loop_->sleep_for(long_enough);
        return meter_->sampling().end_check(runtime_->now());
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
    std::uint32_t begin_iteration(bool metered) override {
        begin_plans();
        const std::uint32_t window = meter_->begin_iteration(*runtime_, metered);
        work_begins();
        return window;
    }
    void keep_record(bool on) override {
        meter_->keep_record(on);
        work_begins();
    }
    [[nodiscard]] measure::MeterRecord take_record() override {
        return meter_->take_record(*runtime_);
    }

    [[nodiscard]] TimePoint now() const override { return runtime_->now(); }
    void trace_to(std::ostream& out) override {
        meter_->trace_to(out, info_, runtime_->now());
        work_begins();
    }
    void end_trace() override { meter_->end_trace(); }

    void shut_down() noexcept override {
        if (!loop_ || in_forked_child()) return;
        const std::lock_guard lock{closing_};  // whoever comes second waits until it is done
        if (ended_.exchange(true)) return;
        arbiter_.let_go();
        finished_ = loop_->finish();
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
    static GpuOptions checked(GpuOptions options, const DeviceInfo& info) {
        const char* mode = std::getenv("KDVFS_MODE");
        if (mode != nullptr && std::string_view{mode} == "repeat") options.repeat.on = true;
        // "Never" may be said by the longest time there is, which nothing could be added to.
        constexpr Duration longest = std::chrono::hours{24 * 365};
        for (Duration* time : {&options.controller.verify_every, &options.controller.lower_after,
                               &options.ack_deadline, &options.listen_every,
                               &options.sampler.period, &options.sampler.resting_period}) {
            *time = std::min(*time, longest);
        }
        // Each further try waits four times longer, up to a million times.
        options.controller.first_retry_after =
            std::min<Duration>(options.controller.first_retry_after, std::chrono::seconds{1});
        if (options.controller.verify_every > Duration::zero()) return options;
        throw Error{Errc::invalid_input,
                    {.action = "verify the clocks every " +
                               std::to_string(options.controller.verify_every.count()) + " ns",
                     .object = to_string(info),
                     .vendor_words = "",
                     .remedy = "give verify_every a time above 0, an hour if it shall be rare"}};
    }

    struct ScopedFlag {
        explicit ScopedFlag(bool& raised) : flag{raised} { flag = true; }
        ~ScopedFlag() { flag = false; }
        ScopedFlag(const ScopedFlag&) = delete;
        ScopedFlag& operator=(const ScopedFlag&) = delete;
        bool& flag;
    };

    /// @returns how often it was called
    std::uint64_t repeat_until_told(StreamRef stream, const ScopeKind& kind,
                                    const std::function<void()>& work) {
        constexpr Duration batch = std::chrono::milliseconds{20};
        constexpr std::uint64_t most = 1000;  // in the stream's queue
        const TimePoint began = runtime_->now();
        const ScopeToken token = enter(stream, kind);
        std::uint64_t calls = 0;
        try {
            for (std::uint64_t size = 1;;) {
                const TimePoint before = runtime_->now();
                for (std::uint64_t i = 0; i < size; ++i) work();
                runtime_->synchronize(stream);
                calls += size;
                const TimePoint now = runtime_->now();
                if (now - before < batch) size = std::min(2 * size, most);
                if (now - began < options_.repeat.at_least) continue;
                const measure::RepeatedFigure found = meter_->repeated_so_far();
                const bool told =
                    found.power.count > 0 &&
                    found.half_width.count <= options_.repeat.widest * found.power.count;
                if (told || now - began >= options_.repeat.at_most) break;
            }
        } catch (...) {
            leave_noexcept(token);
            throw;
        }
        leave(token);
        runtime_->synchronize(stream);
        return calls;
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

    // Following a plan. Tracks are locked.

    /// Tells the track's follower of a launch. @returns whether the plan speaks for the scope
    bool follow_plan(StreamTrack& track, const ScopeKind& kind) {
        if (track.follower == nullptr || &track.follower->plan() != kind.plan) {
            track.follower = std::make_unique<TrackFollower>(*kind.plan);
            if (track.captured()) begin_capture(track);
        }
        const bool conducted = track.follower->launched(kind.plan_kernel);
        return conducted || track.conducted() != no_request || kind.plan->given_up();
    }

    /// The stream's live segment ends here, and wherever the graph will be launched.
    void begin_capture(StreamTrack& captured) {
        TrackKey key = captured.key();
        key.capture = 0;
        StreamTrack& live = tracks_.find(key, [this] { return runtime_->make_cell(); });
        const std::lock_guard lock{live.mutex};
        if (live.follower == nullptr || &live.follower->plan() != &captured.follower->plan())
            return;
        captured.follower->go_on_from(*live.follower);
        if (!live.follower->conducted()) return;
        runtime_->put_marker(key.stream, {.cell = &live.cell(), .captured = true});
        live.has_graphs = true;
        live.conduct(no_request);
        live.overrule();
        wake();
    }

    /// Enters a scope that the plan speaks for: it asks for nothing itself, and puts a marker only
    /// at a boundary, or where it is metered.
    ScopeToken enter_followed(StreamTrack& track, const ScopeKind& kind, bool metered) {
        const TrackFollower& follower = *track.follower;
        const FollowedPlan& plan = follower.plan();
        const bool armed = arbiter_.armed();
        const bool asks = armed && follower.conducted() && !plan.given_up();
        const RequestIndex wanted = asks ? plan.request(follower.clock()) : no_request;
        const bool boundary =
            wanted != track.conducted() || (track.has_graphs && asks && follower.jumped());
        const bool ends = track.captured() && follower.at_end();
        const ScopeOutcome outcome = !armed             ? disarmed_outcome()
                                     : track.captured() ? ScopeOutcome::captured
                                     : !asks            ? ScopeOutcome::kept
                                     : boundary         ? ScopeOutcome::asked
                                                        : ScopeOutcome::followed;
        const ScopeKind& shown = metered && asks ? shown_kind(kind, follower) : kind;
        return enter_conducted(track, kind, shown, boundary ? std::optional{wanted} : std::nullopt,
                               outcome, metered, ends);
    }

    /// Enters a scope for which the track's outermost request speaks.
    /// @param shown   what a metered interval is counted under
    /// @param wanted  the new outermost request, where it changes here
    /// @param ends    a plan ends with the scope
    ScopeToken enter_conducted(StreamTrack& track, const ScopeKind& kind, const ScopeKind& shown,
                               std::optional<RequestIndex> wanted, ScopeOutcome outcome,
                               bool metered, bool ends = false) {
        const auto count = [&] {
            track.counts.count(kind.number, outcome);
            if (!metered) track.counts.count_unmetered(kind.number, !track.captured());
        };
        if (!wanted && !metered && !ends) {
            count();
            return {};
        }
        TrackStep step =
            wanted ? track.conduct(*wanted, kind.number) : TrackStep{.word = track.word()};
        const bool pushed = metered || ends;
        if (pushed) step.entry = track.enter(no_request).entry;
        try {
            if (wanted || metered) {
                put(track, step, {track.id().value, shown.number, false}, metered);
            }
        } catch (...) {
            if (pushed) track.leave(step.entry);
            track.conduct(no_request);
            give_up(track, metered);
            throw;
        }
        count();
        // Whatever comes behind the capture's last scope cannot be told of its end.
        if (track.captured()) track.end_with_last_word();
        if (wanted) wake();
        if (!pushed) return {};
        return {&track, step.entry, &shown, metered, ends};
    }

    /// The kind of a metered scope: that of its kernel at the clock that the plan asks for.
    const ScopeKind& shown_kind(const ScopeKind& kind, const TrackFollower& follower) {
        if (kind.plan_kernel == not_in_plan) return kind;
        FollowedPlan& plan = follower.plan();
        auto& kept = plan.kind(kind.plan_kernel, follower.clock());
        if (const ScopeKind* known = kept.load(std::memory_order_acquire)) return *known;
        const KernelKey& key = plan.key(kind.plan_kernel);
        const ScopeKind& made = kinds_.find(
            key.name, key.variant, {.asks = true, .point = plan.track().clocks()[follower.clock()]},
            plan.request(follower.clock()), true);
        kept.store(&made, std::memory_order_release);
        return made;
    }

    void begin_plans() {
        if (!plans_.begin_iteration()) return;
        keep(
            Error{Errc::invalid_input,
                  {.action = "follow a plan",
                   .object = to_string(info_),
                   .vendor_words = "under half of its kernels were met in two iterations: it is of "
                                   "another program",
                   .remedy = "the clocks stay on auto; make a plan from this program's own "
                             "profile"}});
    }

    // Scopes by themselves.

    [[nodiscard]] ScopeOutcome disarmed_outcome() const {
        return measure_only() ? ScopeOutcome::measured : ScopeOutcome::refused;
    }

    /// What becomes of a scope, as far as enqueueing can tell. The track is locked.
    ScopeOutcome judge(const ScopeKind& kind, StreamTrack& track) {
        if (!kind.request.asks) return ScopeOutcome::kept;
        if (!arbiter_.armed()) return disarmed_outcome();
        if (track.word().request() == kind.index) return ScopeOutcome::stream_elided;
        if (track.captured()) return ScopeOutcome::captured;
        if (!options_.switch_latency) return ScopeOutcome::asked;
        const auto seen = kind.median_dwell.load(std::memory_order_relaxed);
        GateFacts facts{.switch_latency = options_.switch_latency, .highest = highest_};
        if (seen > 0) {
            facts.dwell = Duration{seen};
        } else if (kind.request.lasts > Duration::zero()) {
            facts.dwell = kind.request.lasts;
        }
        const auto refusal = gate_refusal(kind.request.point, facts, options_.gate);
        if (!refusal || raises(kind.request.point, track.word().request())) {
            return ScopeOutcome::asked;
        }
        track.counts.of(kind.number).refusal = refusal;
        return ScopeOutcome::not_worth_it;
    }

    /// Whether a scope asks for no less than what encloses it: then the gate has no say, since a
    /// clock that stays low would slow its kernel down.
    [[nodiscard]] bool raises(ClockPoint point, RequestIndex around) const {
        return around != no_request && higher_cap(point, requests_.point(around)) == point;
    }

    void put(StreamTrack& track, const TrackStep& step, MarkerTag tag, bool timestamped) {
        tag.window = track.captured() ? MeteringWindows::in_graph : windows_.window();
        const auto put_marker = [&] {
            runtime_->put_marker(track.key().stream,
                                 {&track.cell(), step.word, tag, timestamped, track.captured()});
            track.was_put(step.word);  // whatever fails from here on
        };
        put_marker_or_wait(track, step, tag, put_marker);
        if (timestamped && !track.captured()) {
            windows_.expect_timestamp();
            if (windows_.counter_rests()) work_begins();
        }
        if (options_.ordering == Ordering::host && !track.captured()) {
            runtime_->synchronize(track.key().stream);
        }
    }

    template <class Put>
    void put_marker_or_wait(const StreamTrack& track, const TrackStep& step, const MarkerTag& tag,
                            Put put_marker) {
        if constexpr (WaitingRuntime<Runtime>) {
            if (arbiter_.answers() && step.changed) {
                arbiter_.put_and_wait(*runtime_, track, tag.leaving, put_marker);
                return;
            }
        }
        put_marker();
    }

    /// A marker could not be put: the runtime refused it, or the scope began live and ends in a
    /// capture, or the other way round. Better too early than never: a live track's last word is
    /// overruled here and now; a captured track, whose graph would leave its request behind at each
    /// replay, loses its vote.
    void give_up(StreamTrack& track, bool metered) {
        if (track.captured()) {
            arbiter_.withdraw(track, runtime_->now());
        } else {
            track.overrule();
            if (metered) windows_.break_off();
        }
        wake();
    }

    [[nodiscard]] Error straddled(const StreamTrack& track, const TrackKey& now) const {
        if (now.thread != track.key().thread) {
            return Error{Errc::invalid_input,
                         {.action = "leave a scope on another thread",
                          .object = to_string(info_),
                          .vendor_words = "its stream is the default stream of the thread that "
                                          "entered it",
                          .remedy = "leave it where it was entered, or use a stream of your own"}};
        }
        return Error{Errc::invalid_input,
                     {.action = std::string{"leave a scope that "} +
                                (track.captured() ? "began inside a capture and ends outside"
                                                  : "began before a capture and ends inside"),
                      .object = to_string(info_),
                      .vendor_words = "",
                      .remedy = "open and close the scope on the same side of the capture's begin "
                                "and end"}};
    }

    [[nodiscard]] bool in_forked_child() const { return fork_generation() != generation_; }

    const DeviceInfo info_;
    const SupportedClocks clocks_;
    const GpuOptions options_;
    std::shared_ptr<Runtime> runtime_;
    const std::uint32_t generation_ = fork_generation();
    ClockPoint highest_{};

    RequestTable requests_;
    TrackTable tracks_;
    ScopeKinds kinds_;
    FollowedPlans plans_;
    MeteringWindows windows_;
    ClockEvents events_;
    std::unique_ptr<Meter> meter_;
    ClockArbiter arbiter_;

    std::mutex checking_;
    std::mutex repeating_;
    std::set<std::uint32_t> repeated_;  ///< scope kinds: a kernel, a variant and its clock each
    std::mutex kept_;
    std::optional<Error> error_;

    std::unique_ptr<ControlLoop> loop_;
    std::mutex closing_;
    bool finished_ = false;
    std::atomic<bool> ended_{false};    ///< the clocks are back: scopes are refused
    std::atomic<bool> retired_{false};  ///< the last handle is gone: scopes do nothing
};

}  // namespace kdvfs::detail
