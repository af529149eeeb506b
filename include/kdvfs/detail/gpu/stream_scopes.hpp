// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/followed_plan.hpp>
#include <kdvfs/detail/control/stream_track.hpp>
#include <kdvfs/detail/gpu/clock_arbiter.hpp>
#include <kdvfs/detail/gpu/followed_plans.hpp>
#include <kdvfs/detail/gpu/meter.hpp>
#include <kdvfs/detail/gpu/scope_gate.hpp>
#include <kdvfs/detail/gpu/scope_kinds.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/report.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace kdvfs::inline v0_3::detail {

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
    /// The process may run on one core only, which whatever drives the device takes time from.
    [[nodiscard]] virtual bool shares_one_core() const { return false; }
    /// Carries out what the controller still wants, within a deadline of its own, and ends.
    /// @returns whether it is over; false where a device call did not come back
    virtual bool finish() noexcept = 0;
    /// The device call that has not come back for a second or more, if there is one.
    [[nodiscard]] virtual std::optional<Error> stalled_call() { return std::nullopt; }
};

/// Scopes on streams: what each asks of its stream's track, by its own policy or by the plan that
/// it follows, and the markers that say so. Thread-safe; locks the track of a scope's stream, and
/// nothing that a control loop holds while it calls a device.
template <StreamRuntime Runtime>
class StreamScopes {
public:
    /// Of the GPU object that the scopes are for; it outlives them.
    struct Surroundings {
        Runtime& runtime;
        const DeviceInfo& info;
        const GpuOptions& options;
        ScopeGate& gate;
        RequestTable& requests;
        TrackTable& tracks;
        ScopeKinds& kinds;
        MeteringWindows& windows;
        ClockArbiter& arbiter;
    };

    explicit StreamScopes(const Surroundings& gpu) : gpu_{gpu} {}

    /// Whom to wake. Before the first scope.
    void drive_with(ControlLoop& loop) {
        loop_ = &loop;
        note_lowering(nullptr, gpu_.options.controller.never_above);
        const IdleClock& idle = gpu_.options.idle_clock;
        if (!idle.clock || gpu_.arbiter.measure_only()) return;
        note_lowering(nullptr, *idle.clock);
        stays_up_ = gpu_.requests.index_of(ClockPoint{});
        gpu_.arbiter.rest_at(idle, gpu_.options.switch_latency, gpu_.runtime.now());
    }

    // Scopes. The caller keeps those out that come when the GPU object has ended.

    /// @throws Error if a marker could not be put; then nothing was entered
    ScopeToken enter(StreamRef stream, const ScopeKind& kind) {
        const LockedTrack found = find_track(gpu_.runtime.track_key(stream));
        StreamTrack& track = found.track;
        const bool metered = kind.metered && gpu_.windows.metering();
        if (kind.plan != nullptr && follow_plan(track, kind)) {
            return enter_followed(track, kind, metered);
        }
        bool tries = false;
        ScopeOutcome outcome = judge(kind, track, tries);
        const bool asks = outcome == ScopeOutcome::asked || outcome == ScopeOutcome::captured ||
                          outcome == ScopeOutcome::stream_redundant;
        const bool judged = outcome == ScopeOutcome::asked || outcome == ScopeOutcome::not_worth_it;
        const bool timed = judged && !metered && (tries || gpu_.gate.wants_time(kind));
        const bool rested = track.depth() == 0 || track.word().request() == no_request;
        // With an idle clock every outermost scope says when it begins and ends.
        const bool marks = !asks && track.depth() == 0 && !track.captured();
        const RequestIndex wanted = asks ? kind.index : marks ? stays_up_ : no_request;
        const TrackStep step = enter_track(track, kind, wanted, outcome);
        if (step.changed || metered || timed) {
            try {
                put(track, step, tag_of(track, kind, false, timed), metered || timed);
            } catch (...) {
                track.leave(step.entry);
                give_up(track, metered);
                throw;
            }
        }
        if (rested && step.changed) wake();
        track.counts.count(kind.number, outcome);
        if (!metered) track.counts.count_unmetered(kind.number, !track.captured());
        return {&track, step.entry, &kind, metered, timed};
    }

    /// As `GpuService::enter_holding`.
    ScopeToken enter_holding(StreamRef stream, const ScopeKind& kind) {
        const LockedTrack found = find_track(gpu_.runtime.track_key(stream));
        StreamTrack& track = found.track;
        if (track.captured()) {
            throw Error{Errc::not_supported,
                        {.action = "hold a clock beyond a scope in a capture",
                         .object = to_string(gpu_.info),
                         .vendor_words = "each replay would leave its request behind",
                         .remedy = "put the scope around the launch of the graph"}};
        }
        const bool armed = gpu_.arbiter.armed();
        const bool asks = armed && kind.request.asks;
        const RequestIndex wanted = asks ? kind.index : no_request;
        const bool boundary = wanted != track.outer_request();
        if (asks) note_lowering(&track, kind.request.point);
        const ScopeOutcome outcome = !armed     ? disarmed_outcome()
                                     : !asks    ? ScopeOutcome::kept
                                     : boundary ? ScopeOutcome::asked
                                                : ScopeOutcome::followed;
        return enter_with_outer_request(track, kind, kind,
                                        boundary ? std::optional{wanted} : std::nullopt, outcome,
                                        kind.metered && gpu_.windows.metering());
    }

    /// As `GpuService::end_holding`.
    void end_holding(bool by_plans) noexcept {
        for (StreamTrack* track : gpu_.tracks.all()) {
            const std::lock_guard lock{track->mutex};
            if (track->outer_request() == no_request || track->captured()) continue;
            if (track->follower != nullptr && !by_plans) continue;
            track->set_outer_request(no_request);
            track->overrule();
        }
        wake();
    }

    /// @param token of a scope that was entered
    /// @throws Error if a marker could not be put, or the scope straddles a capture's begin or end
    void leave(const ScopeToken& token) {
        StreamTrack& track = *token.track;
        const std::lock_guard lock{track.mutex};
        auto step = track.leave(token.entry);
        if (!step) return;
        if (token.ends_plan) {
            const TrackStep end = track.set_outer_request(no_request);
            step->word = end.word;
            step->changed = step->changed || end.changed;
        }
        if (token.rests != no_request && gpu_.arbiter.armed() &&
            track.outer_request() != no_request) {
            const TrackStep rest = track.rest(token.rests);
            step->word = rest.word;
            step->changed = step->changed || rest.changed;
        }
        try {
            if (const TrackKey key = gpu_.runtime.key_now(track.key()); key != track.key()) {
                throw straddled(track, key);
            }
            if (!step->changed && !token.metered && !token.timed) return;
            put(track, *step, tag_of(track, *token.kind, true, token.timed),
                token.metered || token.timed);
            if (track.captured() && track.follower != nullptr) track.end_with_last_word();
        } catch (...) {
            give_up(track, token.metered);
            throw;
        }
    }

    /// As `GpuService::leave_unmarked`.
    void leave_unmarked(const ScopeToken& token) noexcept {
        StreamTrack& track = *token.track;
        const std::lock_guard lock{track.mutex};
        if (track.leave(token.entry)) give_up(track, token.metered);
    }

    // Plans.

    /// A plan that scopes are to follow, its clocks checked. @throws Error as `FollowedPlan`
    FollowedPlan& follow(const PlannedSequence& plan) {
        FollowedPlan& followed = plans_.add(plan, gpu_.requests);
        for (const PlannedSequence::Boundary& boundary : plan.boundaries) {
            note_lowering(nullptr, boundary.clock);
        }
        for (const PlannedSequence::Kernel& kernel : plan.kernels) {
            if (kernel.own.asks) note_lowering(nullptr, kernel.own.point);
        }
        return followed;
    }

    /// Clocks are about to be asked for, or bound what is: where they are the first that lower one,
    /// scopes for the highest clocks put markers from here on.
    /// @param track of the request; null for one without a stream
    void note_lowering(const StreamTrack* track, ClockPoint point) {
        if (!gpu_.gate.begins_lowering(point)) return;
        gpu_.arbiter.shield_unmarked(track, gpu_.runtime.now());
    }

    /// Nothing follows the plan any more: its requests end.
    void unfollow(FollowedPlan& plan) noexcept {
        plan.end();
        for (StreamTrack* track : gpu_.tracks.all()) {
            const std::lock_guard lock{track->mutex};
            if (track->follower == nullptr || &track->follower->plan() != &plan) continue;
            if (track->outer_request() == no_request || track->captured()) continue;
            track->set_outer_request(no_request);
            track->overrule();
        }
        wake();
    }

    /// An iteration begins. @returns whether a plan was just found to be of another program
    bool begin_iteration() noexcept {
        if (stays_up_ != no_request) {
            gpu_.arbiter.work_begins(gpu_.runtime.now());
            wake();
        }
        return plans_.begin_iteration();
    }
    /// How the plans have been followed; nothing where there is none.
    [[nodiscard]] std::optional<measure::FollowedShare> followed() const {
        return plans_.share(gpu_.tracks);
    }

private:
    LockedTrack find_track(const TrackKey& key) {
        return gpu_.tracks.find(key, [this] { return gpu_.runtime.make_cell(); });
    }
    void wake() {
        if (loop_ != nullptr) loop_->wake();
    }

    // Following a plan. Tracks are locked.

    /// Tells the track's follower of a launch. @returns whether the plan speaks for the scope
    bool follow_plan(StreamTrack& track, const ScopeKind& kind) {
        if (track.follower == nullptr || &track.follower->plan() != kind.plan) {
            track.follower = std::make_unique<TrackFollower>(*kind.plan);
            if (track.captured()) begin_capture(track);
        }
        const bool outer_request = track.follower->launched(kind.plan_kernel);
        return outer_request || track.outer_request() != no_request || kind.plan->given_up();
    }

    /// The stream's live segment ends here, and wherever the graph will be launched.
    void begin_capture(StreamTrack& captured) {
        TrackKey key = captured.key();
        key.capture = 0;
        const LockedTrack found = find_track(key);
        StreamTrack& live = found.track;
        if (live.follower == nullptr || &live.follower->plan() != &captured.follower->plan())
            return;
        captured.follower->go_on_from(*live.follower);
        if (!live.follower->outer_request()) return;
        gpu_.runtime.put_marker(key.stream, {.cell = &live.cell(), .captured = true});
        live.has_graphs = true;
        live.set_outer_request(no_request);
        live.overrule();
        wake();
    }

    /// Enters a scope that the plan speaks for: it asks for nothing itself, and puts a marker only
    /// at a boundary, or where it is metered.
    ScopeToken enter_followed(StreamTrack& track, const ScopeKind& kind, bool metered) {
        const TrackFollower& follower = *track.follower;
        const FollowedPlan& plan = follower.plan();
        const bool armed = gpu_.arbiter.armed();
        const bool asks = armed && follower.outer_request() && !plan.given_up();
        const RequestIndex wanted = asks ? plan.request(follower.clock()) : no_request;
        const bool boundary =
            wanted != track.outer_request() || (track.has_graphs && asks && follower.resynced());
        const bool ends = track.captured() && follower.at_end();
        const PlannedRest* rest = asks && !track.captured() ? follower.rest() : nullptr;
        const ScopeOutcome outcome = !armed             ? disarmed_outcome()
                                     : track.captured() ? ScopeOutcome::captured
                                     : !asks            ? ScopeOutcome::kept
                                     : boundary         ? ScopeOutcome::asked
                                                        : ScopeOutcome::followed;
        const ScopeKind& shown = metered && asks ? shown_kind(kind, follower) : kind;
        return enter_with_outer_request(
            track, kind, shown, boundary ? std::optional{wanted} : std::nullopt, outcome, metered,
            ends, rest != nullptr ? plan.request(*rest) : no_request);
    }

    /// Enters a scope for which the track's outermost request speaks.
    /// @param shown   what a metered interval is counted under
    /// @param wanted  the new outermost request, where it changes here
    /// @param ends    a plan ends with the scope
    /// @param rests   what a plan asks for in the gap behind it
    ScopeToken enter_with_outer_request(StreamTrack& track, const ScopeKind& kind,
                                        const ScopeKind& shown, std::optional<RequestIndex> wanted,
                                        ScopeOutcome outcome, bool metered, bool ends = false,
                                        RequestIndex rests = no_request) {
        const auto count = [&] {
            track.counts.count(kind.number, outcome);
            if (!metered) track.counts.count_unmetered(kind.number, !track.captured());
        };
        if (!wanted && !metered && !ends && rests == no_request) {
            count();
            return {};
        }
        if (wanted) mark_open(track);
        TrackStep step = wanted ? track.set_outer_request(*wanted, kind.number)
                                : TrackStep{.word = track.word()};
        const bool pushed = metered || ends || rests != no_request;
        if (pushed) step.entry = track.enter(no_request).entry;
        try {
            if (wanted || metered) {
                put(track, step, tag_of(track, shown, false, false), metered);
            }
        } catch (...) {
            if (pushed) track.leave(step.entry);
            track.set_outer_request(no_request);
            give_up(track, metered);
            throw;
        }
        count();
        // Whatever comes behind the capture's last scope cannot be told of its end.
        if (track.captured()) track.end_with_last_word();
        if (wanted) wake();
        if (!pushed) return {};
        return {&track, step.entry, &shown, metered, false, ends, rests};
    }

    /// The kind of a metered scope: that of its kernel at the clock that the plan asks for.
    const ScopeKind& shown_kind(const ScopeKind& kind, const TrackFollower& follower) {
        if (kind.plan_kernel == not_in_plan) return kind;
        FollowedPlan& plan = follower.plan();
        auto& kept = plan.kind(kind.plan_kernel, follower.clock());
        if (const ScopeKind* known = kept.load(std::memory_order_acquire)) return *known;
        const KernelKey& key = plan.key(kind.plan_kernel);
        const ScopeKind& made = gpu_.kinds.find(
            key.name, key.variant, {.asks = true, .point = plan.track().clocks()[follower.clock()]},
            plan.request(follower.clock()), true);
        kept.store(&made, std::memory_order_release);
        return made;
    }

    // Scopes by themselves.

    [[nodiscard]] ScopeOutcome disarmed_outcome() const {
        return gpu_.arbiter.measure_only() ? ScopeOutcome::measured : ScopeOutcome::refused;
    }

    /// What becomes of a scope, as far as enqueueing can tell. The track is locked.
    /// @param tries set where it is to measure the switching latency
    ScopeOutcome judge(const ScopeKind& kind, StreamTrack& track, bool& tries) {
        if (!kind.request.asks) return ScopeOutcome::kept;
        if (!gpu_.arbiter.armed()) return disarmed_outcome();
        if (track.word().request() == kind.index) return ScopeOutcome::stream_redundant;
        if (track.captured()) {
            const RequestIndex before = track.highest_captured();
            if (before == no_request ||
                higher_cap(kind.request.point, gpu_.requests.point(before)) !=
                    gpu_.requests.point(before)) {
                track.highest_captured(kind.index);
            }
            note_lowering(&track, kind.request.point);
            return ScopeOutcome::captured;
        }
        if (raises(kind.request.point, track.word().request())) return ScopeOutcome::asked;
        const ScopeGate::Verdict verdict = gpu_.gate.judge(kind);
        if (verdict.passes) {
            note_lowering(&track, kind.request.point);
            return ScopeOutcome::asked;
        }
        tries = begins_trial(kind, track);
        if (tries) return ScopeOutcome::asked;
        if (verdict.refusal) track.counts.of(kind.number).refusal = verdict.refusal;
        return ScopeOutcome::not_worth_it;
    }

    /// Whether a scope that was held back is to measure the switching latency. Work of other
    /// streams that no marker shows would keep the clock up: it waits for that.
    bool begins_trial(const ScopeKind& kind, const StreamTrack& track) {
        if (gpu_.gate.latency()) return false;
        const TimePoint now = gpu_.runtime.now();
        if (!gpu_.gate.may_try(kind, now)) return false;
        if (gpu_.gate.prepares_trial()) gpu_.arbiter.shield_unmarked(&track, now);
        return !gpu_.arbiter.shielded() && gpu_.gate.begin_trial(kind, now);
    }

    /// Scopes for the highest clocks put no markers while nothing lowers or bounds them.
    /// @param outcome changed where that is so
    /// @param wanted  what the scope asks for
    TrackStep enter_track(StreamTrack& track, const ScopeKind& kind, RequestIndex wanted,
                          ScopeOutcome& outcome) {
        const RequestWord before = track.word();
        const bool needs_none = outcome == ScopeOutcome::asked && before.request() == no_request &&
                                !gpu_.options.controller.may_leave_found_limits &&
                                !gpu_.gate.lowers(kind.request.point);
        if (needs_none && !gpu_.gate.lowering()) {
            const TrackStep step = track.enter_unmarked(kind.index, kind.number);
            // Whoever lowers a clock first looks for it behind saying so.
            if (!gpu_.gate.lowering()) {
                outcome = ScopeOutcome::stream_redundant;
                return step;
            }
            track.leave(step.entry);
        }
        if (wanted != no_request) mark_open(track);
        TrackStep step = track.enter(wanted, kind.number);
        step.changed = step.word != before;
        return step;
    }
    /// Scopes without markers around the next one say what they ask for from now on.
    void mark_open(StreamTrack& track) {
        track.mark_open([&track](std::uint32_t kind) {
            auto& outcomes = track.counts.of(kind).outcomes;
            --outcomes[static_cast<std::size_t>(ScopeOutcome::stream_redundant)];
            track.counts.count(kind, ScopeOutcome::asked);
        });
    }

    /// Whether a scope asks for no less than what encloses it: then the gate has no say, since a
    /// clock that stays low would slow its kernel down.
    [[nodiscard]] bool raises(ClockPoint point, RequestIndex around) const {
        return around != no_request && higher_cap(point, gpu_.requests.point(around)) == point;
    }

    /// @param timed the timestamp is for the gate alone
    [[nodiscard]] MarkerTag tag_of(const StreamTrack& track, const ScopeKind& kind, bool leaving,
                                   bool timed) const {
        return {.track = track.timestamps().value,
                .scope_kind = kind.number,
                .leaving = leaving,
                .window = timed              ? MeteringWindows::for_gate
                          : track.captured() ? MeteringWindows::in_graph
                                             : gpu_.windows.window()};
    }

    void put(StreamTrack& track, const TrackStep& step, const MarkerTag& tag, bool timestamped) {
        const auto put_marker = [&] {
            gpu_.runtime.put_marker(track.key().stream,
                                    {&track.cell(), step.word, tag, timestamped, track.captured()});
            track.was_put(step.word);  // whatever fails from here on
        };
        // Before the marker is put: whoever collects must not believe that all are in.
        const bool expected = timestamped && !track.captured();
        if (expected) gpu_.windows.expect_timestamp();
        try {
            put_marker_or_wait(track, step, tag, put_marker);
        } catch (...) {
            if (expected) gpu_.windows.expect_no_timestamp();
            throw;
        }
        if (expected) {
            if (gpu_.windows.counter_rests() && loop_ != nullptr) loop_->work_begins();
        }
        if (gpu_.options.ordering == Ordering::host && !track.captured()) {
            gpu_.runtime.synchronize(track.key().stream);
        }
    }

    template <class Put>
    void put_marker_or_wait(const StreamTrack& track, const TrackStep& step, const MarkerTag& tag,
                            Put put_marker) {
        if constexpr (WaitingRuntime<Runtime>) {
            if (gpu_.arbiter.answers() && step.changed) {
                gpu_.arbiter.put_and_wait(gpu_.runtime, track, tag.leaving, put_marker);
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
            gpu_.arbiter.withdraw(track, gpu_.runtime.now());
        } else {
            track.overrule();
            if (metered) gpu_.windows.break_off();
        }
        wake();
    }

    [[nodiscard]] Error straddled(const StreamTrack& track, const TrackKey& now) const {
        if (now.thread != track.key().thread) {
            return Error{Errc::invalid_input,
                         {.action = "leave a scope on another thread",
                          .object = to_string(gpu_.info),
                          .vendor_words = "its stream is the default stream of the thread that "
                                          "entered it",
                          .remedy = "leave it where it was entered, or use a stream of your own"}};
        }
        return Error{Errc::invalid_input,
                     {.action = std::string{"leave a scope that "} +
                                (track.captured() ? "began inside a capture and ends outside"
                                                  : "began before a capture and ends inside"),
                      .object = to_string(gpu_.info),
                      .vendor_words = "",
                      .remedy = "open and close the scope on the same side of the capture's begin "
                                "and end"}};
    }

    const Surroundings gpu_;
    FollowedPlans plans_;
    ControlLoop* loop_ = nullptr;
    RequestIndex stays_up_ = no_request;  // what other scopes ask for where there is an idle clock
};

}  // namespace kdvfs::inline v0_3::detail
