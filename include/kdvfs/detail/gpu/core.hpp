// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/clock_controller.hpp>
#include <kdvfs/detail/control/followed_plan.hpp>
#include <kdvfs/detail/control/gate.hpp>
#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/control/stream_track.hpp>
#include <kdvfs/detail/gpu/any_runtime.hpp>
#include <kdvfs/detail/gpu/clock_arbiter.hpp>
#include <kdvfs/detail/gpu/follow_tally.hpp>
#include <kdvfs/detail/gpu/meter.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::detail {

/// Adds up the scopes of all tracks and settles, with the controller's counts, what became of each.
class ScopeTally {
public:
    void add(const TrackCounts& track) {
        for (std::size_t i = 0; i < outcomes_.size(); ++i) outcomes_[i] += track.outcomes[i];
        unmetered_ += track.unmetered;
    }

    /// @param controller its counts, taken before those of the tracks
    [[nodiscard]] measure::ScopeCounts counts(const ControllerCounts& controller) const {
        measure::ScopeCounts counts;
        for (const std::uint64_t outcome : outcomes_) counts.scopes += outcome;
        counts.unmetered = unmetered_;
        counts.kept = at(ScopeOutcome::kept);
        counts.stream_elided = at(ScopeOutcome::stream_elided);
        counts.not_worth_it = at(ScopeOutcome::not_worth_it) + controller.overtaken_scopes;
        counts.captured = at(ScopeOutcome::captured);
        counts.followed = at(ScopeOutcome::followed);
        counts.switches = controller.switched_scopes;
        counts.refused = at(ScopeOutcome::refused) + controller.refused_scopes;
        counts.device_elided = at(ScopeOutcome::asked) - controller.switched_scopes -
                               controller.refused_scopes - controller.overtaken_scopes;
        return counts;
    }

private:
    [[nodiscard]] std::uint64_t at(ScopeOutcome outcome) const {
        return outcomes_[static_cast<std::size_t>(outcome)];
    }

    std::array<std::uint64_t, 7> outcomes_{};
    std::uint64_t unmetered_ = 0;
};

/// What drives a GPU object's controller and sampler: threads on real GPUs, the event loop of the
/// simulated one.
class ControlLoop {
public:
    virtual ~ControlLoop() = default;
    /// Something has changed that no marker will tell of.
    virtual void wake() noexcept = 0;
    /// Lets so much of the device's time pass: a thread sleeps, a simulation goes on.
    virtual void sleep_for(Duration time) = 0;
    /// Carries out what the controller still wants, within a deadline of its own, and ends.
    virtual void finish() noexcept = 0;
};

/// What is behind every `Gpu` handle of one device: takes scopes in, drives the clock controller
/// through its control loop, and meters. Thread-safe.
class GpuCore final : public GpuService {
public:
    struct Parts {
        DeviceInfo info{};
        SupportedClocks clocks{};
        std::optional<ClockState> initial{};  ///< nothing: measure only
        std::unique_ptr<AnyRuntime> runtime{};
    };

    GpuCore(Parts parts, GpuOptions options)
        : info_{std::move(parts.info)},
          clocks_{std::move(parts.clocks)},
          options_{options},
          runtime_{std::move(parts.runtime)},
          meter_{options, runtime_->now()},
          driver_{requests_,         tracks_, meter_, to_string(info_), std::move(parts.initial),
                  options.controller} {
        if (options_.controller.verify_every <= Duration::zero()) {
            throw Error{
                Errc::invalid_input,
                {.action = "verify the clocks every " +
                           std::to_string(options_.controller.verify_every.count()) + " ns",
                 .object = to_string(info_),
                 .vendor_words = "",
                 .remedy = "give verify_every a time above 0, an hour if it shall be rare"}};
        }
        const auto highest = [](const ClockDomain& domain) {
            return domain.listed.empty() ? auto_clock : domain.listed.back();
        };
        highest_ = {highest(clocks_.core), highest(clocks_.memory)};
        if (!measure_only()) {
            const TimePoint now = runtime_->now();
            meter_.applied(now, now, driver_.applied(), driver_.applied());  // as it was found
        }
        if (options_.ordering == Ordering::acked) {
            driver_.answer_from(*runtime_, options_.ack_deadline);
        }
    }

    ~GpuCore() override {
        if (forked()) {
            meter_.leave_trace();  // its stream is the parent's
            return;
        }
        shut_down();
        if (const auto error = take_error()) print_unread(*error);
    }

    GpuCore(const GpuCore&) = delete;
    GpuCore& operator=(const GpuCore&) = delete;

    // Scopes.

    ScopeToken enter(StreamRef stream, const ScopeKind& kind) override {
        if (forked()) return {};
        const TrackKey key = runtime_->track_key(stream);
        StreamTrack& track = tracks_.find(key, [this] { return runtime_->make_cell(); });
        const bool metered = kind.metered && meter_.metering();

        const std::lock_guard lock{track.mutex};
        if (kind.plan != nullptr && follow_plan(track, kind)) {
            return enter_followed(track, kind, metered);
        }
        const ScopeOutcome outcome = judge(kind, track);
        const bool asks = outcome == ScopeOutcome::asked || outcome == ScopeOutcome::captured ||
                          outcome == ScopeOutcome::stream_elided;
        const bool rested = track.depth() == 0 || track.word().request() == no_request;
        const TrackStep step = track.enter(asks ? kind.index : no_request);
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
        track.counts.count(outcome);
        if (!metered) track.counts.count_unmetered(kind.number, !track.captured());
        return {&track, step.entry, &kind, metered};
    }

    void leave(const ScopeToken& token) override {
        if (token.track == nullptr || forked()) return;
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
            if (const TrackKey key = runtime_->track_key(track.key().stream); key != track.key()) {
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

    const ScopeKind& kind_of(std::string_view kernel, Variant variant, ClockRequest request,
                             bool metered, FollowedPlan* plan) override {
        if (forked()) return kind_of_no_scope();
        check_clocks(kernel, request);
        const RequestIndex index = request.asks ? requests_.index_of(request.point) : no_request;
        return meter_.kind_of(kernel, variant, request, index, metered, plan);
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
        auto followed = std::make_unique<FollowedPlan>(plan, requests_);
        const std::lock_guard lock{plans_mutex_};
        return *plans_.emplace_back(std::move(followed));
    }

    void unfollow(FollowedPlan& plan) noexcept override {
        if (forked()) return;
        plan.end();
        for (StreamTrack* track : all_tracks()) {
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
        throw Error{
            Errc::invalid_input,
            {.action = "run kernel '" + std::string{kernel} + "' at " + to_string(request.point),
             .object = to_string(info_),
             .vendor_words = "not in the device's list of clocks",
             .remedy = "plan again for this GPU, or pick clocks that `kdvfs info` lists"}};
    }

    void note_kept(std::string_view kernel) override {
        if (!forked()) meter_.note_kept(kernel);
    }

    void protect(StreamRef stream) override {
        if (forked()) return;
        StreamTrack& track =
            tracks_.find(runtime_->track_key(stream), [this] { return runtime_->make_cell(); });
        driver_.protect(track.id(), runtime_->now());
        wake();
    }

    // What the control loop calls.

    [[nodiscard]] ClockArbiter& driver() { return driver_; }
    Meter& meter() { return meter_; }
    [[nodiscard]] AnyRuntime& runtime() { return *runtime_; }
    [[nodiscard]] const DeviceInfo& info() const override { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const override { return clocks_; }
    [[nodiscard]] const GpuOptions& options() const { return options_; }
    /// Whether it has been shut down.
    [[nodiscard]] bool ended() const { return ended_; }
    void drive_with(std::unique_ptr<ControlLoop> loop) { loop_ = std::move(loop); }

    // What users ask, through `Gpu`.

    [[nodiscard]] measure::Report report() override {
        measure::Report report;
        report.device = info_;
        report.measure_only = measure_only();
        if (forked()) {
            report.notes.emplace_back("a forked process measures nothing: ask the one it is of");
            return report;
        }
        meter_.harvest(*runtime_);
        const ControllerCounts controller = driver_.counts();
        report.scopes = tally_tracks().counts(controller);
        report.followed = followed_share();
        meter_.fill(report);
        if (!options_.switch_latency) {
            report.notes.emplace_back(
                "the not_worth_it gate is off: no switching latency is known (measure it with "
                "examples/switch_latency)");
        }
        report.notes.push_back("markers: " + runtime_->marker_mechanism());
        return report;
    }

    measure::SelfCheck self_check() override {
        if (forked() || !loop_ || ended_) {
            throw Error{Errc::invalid_input,
                        {.action = "check the energy counter",
                         .object = to_string(info_),
                         .vendor_words = "the GPU has been closed",
                         .remedy = "open it again"}};
        }
        const std::lock_guard one_at_a_time{checking_};
        loop_->sleep_for(meter_.begin_check(runtime_->now()));
        return meter_.end_check(runtime_->now());
    }

    void check() override {
        if (forked()) return;
        if (const auto error = take_error()) throw Error{*error};
    }

    void rearm() override {
        if (forked()) return;
        driver_.rearm();
        wake();
    }

    void next_iteration() override {
        if (forked()) return;
        begin_plans();
        meter_.next_iteration(*runtime_);
    }
    std::uint32_t begin_iteration(bool metered) override {
        if (forked()) return 0;
        begin_plans();
        return meter_.begin_iteration(*runtime_, metered);
    }
    void keep_record(bool on) override {
        if (!forked()) meter_.keep_record(on);
    }
    [[nodiscard]] measure::MeterRecord take_record() override {
        if (forked()) return {};
        return meter_.take_record(*runtime_);
    }

    void trace_to(std::ostream& out) override {
        if (!forked()) meter_.trace_to(out, info_, runtime_->now());
    }
    void end_trace() override {
        if (!forked()) meter_.end_trace();
    }

    void shut_down() noexcept override {
        if (forked() || !loop_) return;
        const std::lock_guard lock{closing_};  // whoever comes second waits until it is done
        if (ended_.exchange(true)) return;
        driver_.let_go();
        loop_->finish();
    }

    [[nodiscard]] bool measure_only() const override { return driver_.measure_only(); }

private:
    [[nodiscard]] bool forked() const { return fork_generation() != generation_; }

    /// For scopes of a forked child, which do nothing: the tables' locks may be held by nobody.
    static const ScopeKind& kind_of_no_scope() {
        static const ScopeKind kind;
        return kind;
    }

    void wake() {
        if (loop_) loop_->wake();
    }

    /// No track is locked under the table's mutex.
    std::vector<StreamTrack*> all_tracks() {
        std::vector<StreamTrack*> tracks;
        tracks_.for_each([&](StreamTrack& track) { tracks.push_back(&track); });
        return tracks;
    }

    /// Adds up what the tracks have counted.
    ScopeTally tally_tracks() {
        ScopeTally tally;
        for (StreamTrack* track : all_tracks()) {
            const std::lock_guard lock{track->mutex};
            tally.add(track->counts);
            meter_.add_unmetered(track->counts.unmetered_calls);
            track->counts.unmetered_calls.clear();
        }
        return tally;
    }

    // Following a plan.

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
        runtime_->put_marker(key.stream, {.cell = &live.cell()});
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
        const bool armed = driver_.armed();
        const bool asks = armed && follower.conducted() && !plan.given_up();
        const RequestIndex wanted = asks ? plan.request(follower.clock()) : no_request;
        const bool boundary =
            wanted != track.conducted() || (track.has_graphs && asks && follower.jumped());
        const bool ends = track.captured() && follower.at_end();
        const auto count = [&] {
            track.counts.count(!armed             ? ScopeOutcome::refused
                               : track.captured() ? ScopeOutcome::captured
                               : !asks            ? ScopeOutcome::kept
                               : boundary         ? ScopeOutcome::asked
                                                  : ScopeOutcome::followed);
            if (!metered) track.counts.count_unmetered(kind.number, !track.captured());
        };
        if (!boundary && !metered && !ends) {
            count();
            return {};
        }
        TrackStep step = boundary ? track.conduct(wanted) : TrackStep{.word = track.word()};
        const bool pushed = metered || ends;
        if (pushed) step.entry = track.enter(no_request).entry;
        const ScopeKind& shown = metered && asks ? shown_kind(kind, follower) : kind;
        try {
            if (boundary || metered) {
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
        if (boundary) wake();
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
        const ScopeKind& made = meter_.kind_of(
            key.name, key.variant, {.asks = true, .point = plan.track().clocks()[follower.clock()]},
            plan.request(follower.clock()), true);
        kept.store(&made, std::memory_order_release);
        return made;
    }

    /// An iteration begins, for every plan.
    void begin_plans() {
        const std::lock_guard lock{plans_mutex_};
        for (const auto& plan : plans_) {
            if (plan->given_up() || !plan->begin_iteration()) continue;
            keep(Error{Errc::invalid_input,
                       {.action = "follow a plan",
                        .object = to_string(info_),
                        .vendor_words = "under half of its kernels were met in two iterations: it "
                                        "is of another program",
                        .remedy = "the clocks stay on auto; make a plan from this program's own "
                                  "profile"}});
        }
    }

    /// How the plans have been followed; nothing where there is none.
    std::optional<measure::FollowedShare> followed_share() {
        {
            const std::lock_guard lock{plans_mutex_};
            if (plans_.empty()) return std::nullopt;
        }
        FollowTally tally;
        for (StreamTrack* track : all_tracks()) {
            const std::lock_guard lock{track->mutex};
            if (track->follower != nullptr) tally.add(*track->follower);
        }
        return tally.share();
    }

    /// What becomes of a scope, as far as enqueueing can tell.
    ScopeOutcome judge(const ScopeKind& kind, const StreamTrack& track) const {
        if (!kind.request.asks) return ScopeOutcome::kept;
        if (!driver_.armed()) return ScopeOutcome::refused;
        if (track.word().request() == kind.index) return ScopeOutcome::stream_elided;
        if (track.captured()) return ScopeOutcome::captured;
        const auto seen = kind.median_dwell.load(std::memory_order_relaxed);
        GateFacts facts{.switch_latency = options_.switch_latency, .highest = highest_};
        if (seen > 0) {
            facts.dwell = Duration{seen};
        } else if (kind.request.lasts > Duration::zero()) {
            facts.dwell = kind.request.lasts;
        }
        const bool worth =
            worth_switching(kind.request.point, facts, options_.gate).value_or(true) ||
            raises(kind.request.point, track.word().request());
        return worth ? ScopeOutcome::asked : ScopeOutcome::not_worth_it;
    }

    /// Whether a scope asks for no less than what encloses it: then the gate has no say, since a
    /// clock that stays low would slow its kernel down.
    [[nodiscard]] bool raises(ClockPoint point, RequestIndex around) const {
        return around != no_request && higher_cap(point, requests_.point(around)) == point;
    }

    void put(StreamTrack& track, const TrackStep& step, MarkerTag tag, bool timestamped) {
        tag.window = track.captured() ? Meter::in_graph : meter_.window();
        const auto put_marker = [&] {
            runtime_->put_marker(track.key().stream, {&track.cell(), step.word, tag, timestamped});
        };
        if (driver_.answers() && step.changed) {
            driver_.put_and_wait(*runtime_, track, tag.leaving, put_marker);
        } else {
            put_marker();
        }
        track.was_put(step.word);
        if (timestamped && !track.captured()) meter_.expect_timestamp();
        if (options_.ordering == Ordering::host && !track.captured()) {
            runtime_->synchronize(track.key().stream);
        }
    }

    /// A marker could not be put: the runtime refused it, or the scope began live and ends in a
    /// capture, or the other way round. Too early beats never: a live track's last word is
    /// overruled here and now; a captured track, whose graph would leave its level behind at each
    /// replay, loses its vote.
    void give_up(StreamTrack& track, bool metered) {
        if (track.captured()) {
            driver_.withdraw(track, runtime_->now());
        } else {
            track.overrule();
            if (metered) meter_.break_off();
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

    void keep(const Error& error) noexcept {
        const std::lock_guard lock{kept_};
        if (!error_) error_ = error;
    }

    std::optional<Error> take_error() {
        {
            const std::lock_guard lock{kept_};
            if (error_) return std::exchange(error_, std::nullopt);
        }
        return driver_.take_error();
    }

    static void print_unread(const Error& error) noexcept {
        std::fputs("kdvfs: an error that nobody asked for with check(): ", stderr);
        std::fputs(error.what(), stderr);
        std::fputc('\n', stderr);
    }

    DeviceInfo info_;
    SupportedClocks clocks_;
    GpuOptions options_;
    std::unique_ptr<AnyRuntime> runtime_;
    std::uint32_t generation_ = fork_generation();
    ClockPoint highest_{};

    RequestTable requests_;
    TrackTable tracks_;
    Meter meter_;
    std::mutex checking_;
    ClockArbiter driver_;

    std::mutex plans_mutex_;
    std::vector<std::unique_ptr<FollowedPlan>> plans_;

    std::mutex kept_;
    std::optional<Error> error_;

    std::unique_ptr<ControlLoop> loop_;
    std::mutex closing_;
    std::atomic<bool> ended_{false};
};

}  // namespace kdvfs::detail
