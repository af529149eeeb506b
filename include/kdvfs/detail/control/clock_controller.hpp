// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/control/votes.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/units.hpp>

#include <gsl/assert>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// What became of the scopes that asked.
struct AskedScopes {
    std::uint64_t observed = 0;   ///< seen asking, by a look at their track's cell
    std::uint64_t missed = 0;     ///< came and went between two looks
    std::uint64_t switched = 0;   ///< the device was changed for them
    std::uint64_t refused = 0;    ///< the device refused the change
    std::uint64_t overtaken = 0;  ///< were over before their turn came
    std::uint64_t redundant = 0;  ///< the verified state already held

    AskedScopes& operator+=(const AskedScopes& other) {
        observed += other.observed;
        missed += other.missed;
        switched += other.switched;
        refused += other.refused;
        overtaken += other.overtaken;
        redundant += other.redundant;
        return *this;
    }
};

/// What a `ClockController` has done to its device.
struct ControllerCounts {
    std::uint64_t writes = 0;    ///< clock points written
    std::uint64_t restores = 0;  ///< times the initial state was put back
    std::uint64_t retries = 0;
    /// Times the device had fallen back: to its defaults, as by a GPU reset, or to what was found,
    /// as where the watchdog put it back while the process was stopped.
    std::uint64_t resets = 0;
    std::uint64_t external_changes = 0;  ///< times somebody else had changed the clocks
};

}  // namespace kdvfs::inline v0_3::detail

/// What a device that answers without an error may still have done wrong.
namespace kdvfs::inline v0_3::detail::clock_errors {

inline std::string held(const ClockState& state) {
    return to_string(state.cap) + " in mode " + state.mode;
}

inline Error not_taken(const std::string& device, ClockPoint point, const ClockState& state) {
    return Error{Errc::refused,
                 {.action = "set " + to_string(point),
                  .object = device,
                  .vendor_words = "it reads back " + to_string(state.cap),
                  .remedy = "the driver accepted the call but not the clock: check that no other "
                            "tool governs this GPU, then call rearm()"}};
}

inline Error not_restored(const std::string& device, const ClockState& state) {
    return Error{Errc::refused,
                 {.action = "restore the clock settings",
                  .object = device,
                  .vendor_words = "it reads back " + held(state),
                  .remedy = "the driver accepted the call and changed nothing: see which other "
                            "tool governs this GPU's clocks"}};
}

inline Error taken_over(const std::string& device, const ClockState& state) {
    return Error{Errc::external_change,
                 {.action = "keep the clocks",
                  .object = device,
                  .vendor_words = "it now holds " + held(state),
                  .remedy = "somebody else has set them: theirs stay; call rearm() to take them "
                            "over again"}};
}

}  // namespace kdvfs::inline v0_3::detail::clock_errors

namespace kdvfs::inline v0_3::detail {

/// Turns the requests of all tracks into commands for one device: a pure state machine. Requests,
/// answers and the time go in, commands come out, one at a time; who drives it (threads on real
/// GPUs, the event loop on the simulated one) decides when. Not thread-safe.
///
/// The highest request wins, `auto` being highest of all; when no track asks, the device goes back
/// to the state in which it was at first touch. Raising is immediate, lowering may be held back.
class ClockController {
public:
    ClockController(const RequestTable& requests, std::string device, ClockState initial,
                    ControllerOptions options)
        : votes_{requests},
          device_{std::move(device)},
          options_{options},
          history_{.initial = std::move(initial)} {}

    // What happens.

    /// The listener saw a track's cell change.
    /// @param kind_of what scope kind a ticket of this track was given to; kinds are counted apart
    template <class KindOf>
    void request_changed(TrackId track, RequestWord word, TimePoint now, KindOf kind_of) {
        const TrackVotes::Look look = votes_.observe(track, word, now);
        const std::uint32_t first = word.ticket() - look.missed + (look.entered ? 0 : 1);
        for (std::uint32_t i = 0; i < look.missed; ++i) ++of(kind_of(first + i)).missed;
        if (look.entered) {
            const std::uint32_t kind = kind_of(word.ticket());
            ++of(kind).observed;
            if (armed_) {
                fresh_scopes_.push_back(kind);
            } else {
                ++of(kind).refused;
            }
        }
        note_target(now);
    }
    /// The same for a captured track, whose replays are not scopes of their own.
    void replayed(TrackId track, RequestWord word, TimePoint now) {
        static_cast<void>(votes_.observe(track, word, now));
        note_target(now);
    }

    /// Sets a lower bound for what other tracks request.
    void protect(TrackId track, ClockPoint at_least, TimePoint now) {
        votes_.protect(track, at_least);
        note_target(now);
    }
    /// Sets a request that holds without scopes until it is withdrawn.
    void request(TrackId track, ClockPoint point, TimePoint now) {
        votes_.request(track, point);
        note_target(now);
    }

    /// A track that will not be observed again: its vote ends.
    void withdraw(TrackId track, TimePoint now) {
        votes_.withdraw(track);
        note_target(now);
    }

    /// The answer to the command that `next_command` gave last.
    void completed(const CommandOutcome& outcome, TimePoint now) {
        Expects(in_flight_);
        const ClockCommand command = *std::exchange(in_flight_, std::nullopt);
        if (outcome.error) {
            const bool wrote = command.kind == ClockCommand::Kind::apply ||
                               outcome.restore == RestoreDecision::write_back;
            history_.uncertain = history_.uncertain || wrote;
            failed(command, *outcome.error, now);
            return;
        }
        last_read_ = now;
        const unsigned attempts = std::exchange(attempts_, 0);
        switch (command.kind) {
            case ClockCommand::Kind::apply:
                applied(command.point, *outcome.state, now, attempts);
                break;
            case ClockCommand::Kind::restore: restored(outcome, now, attempts); break;
            case ClockCommand::Kind::verify: verified(*outcome.state); break;
        }
    }

    /// Keeps what tracks ask for within other limits from now on.
    void limit(ClockPoint never_below, ClockPoint never_above, TimePoint now) {
        options_.never_below = never_below;
        options_.never_above = never_above;
        note_target(now);
    }

    /// The process drives the device from here on, which it did not before: what was written so
    /// far never reached it.
    void begin_with(const ClockState& state, TimePoint now) {
        forget_writes();
        restore_due_ = false;
        last_read_ = now;
        found(state);
    }

    /// Lets a disarmed controller work again, at the user's word.
    void rearm() {
        armed_ = true;
        restore_failed_ = false;
        attempts_ = 0;
        not_before_ = {};
    }

    // What is wanted.

    /// @returns the next thing to do to the device, or nothing while there is none, or while the
    ///          answer to the last one is still out
    std::optional<ClockCommand> next_command(TimePoint now) {
        if (next_change_ && now >= *next_change_) note_target(now);
        if (in_flight_ || now < not_before_) return std::nullopt;
        if (restore_due_) return send_restore();
        if (!armed_) return std::nullopt;
        const auto next = due_target(now);
        if (holds(next)) {
            if (next == target_) settle(fresh_scopes_, &AskedScopes::redundant);
            if (!next) forget_writes();  // nothing asks, and it is as it was found
            if (changed() && now >= last_read_ + options_.verify_every) {
                return send({.kind = ClockCommand::Kind::verify});
            }
            return std::nullopt;
        }
        // Between touches the device is not watched. What somebody has set meanwhile is the state
        // to go back to, so a long rest ends with a look.
        if (!changed() && now >= last_read_ + options_.verify_every) {
            return send({.kind = ClockCommand::Kind::verify});
        }
        if (!next) return send_restore();
        in_flight_scopes_.insert(in_flight_scopes_.end(), fresh_scopes_.begin(),
                                 fresh_scopes_.end());
        fresh_scopes_.clear();
        ++counts_.writes;
        return send({.kind = ClockCommand::Kind::apply, .point = *next, .history = history_});
    }

    /// When `next_command` must be asked again even if nothing happens; nothing = no need to.
    [[nodiscard]] std::optional<TimePoint> next_deadline() const {
        if (in_flight_) return std::nullopt;
        if (restore_due_) return not_before_;
        if (!armed_) return std::nullopt;
        std::optional<TimePoint> due;
        const auto at = [&](TimePoint moment) {
            due = std::min(due.value_or(TimePoint::max()), std::max(not_before_, moment));
        };
        if (!holds(target_)) {
            const bool waits =
                !history_.uncertain && lowers(target_) && !lifts(target_) && !released_;
            at(waits ? target_since_ + options_.lower_after : TimePoint{});
        }
        if (changed()) at(last_read_ + options_.verify_every);
        if (next_change_) at(*next_change_);
        return due;
    }

    /// Asks for the found state whatever tracks say from here on: the end of the GPU object.
    void release() {
        released_ = true;
        target_.reset();
        restore_due_ = changed();
        not_before_ = {};
    }

    // What is known.

    /// What the tracks ask for; nothing = the state in which the device was found.
    [[nodiscard]] std::optional<ClockPoint> asked() const { return target_; }
    /// What the tracks ask for, within the program's limits; nothing = none asks.
    [[nodiscard]] std::optional<ClockPoint> requested(TimePoint now) const {
        const auto asked = released_ ? std::nullopt : votes_.winner(now);
        if (!asked) return std::nullopt;
        return lowered_to(raised_to(*asked, options_.never_below), options_.never_above);
    }
    /// Whether the device holds what is asked for, or will not be brought to.
    [[nodiscard]] bool settled() const { return !in_flight_ && (!armed_ || holds(target_)); }
    /// The cap that the device was last seen to hold.
    [[nodiscard]] ClockPoint applied() const { return holds_.value_or(history_.initial.cap); }
    /// Whether kdvfs has changed the device and not yet put it back.
    [[nodiscard]] bool changed() const { return history_.written || history_.uncertain; }
    /// Whether the controller still drives the device; a permanent error disarms it.
    [[nodiscard]] bool armed() const { return armed_; }
    [[nodiscard]] const ClockHistory& history() const { return history_; }
    [[nodiscard]] const ControllerCounts& counts() const { return counts_; }
    /// What became of the scopes that asked, by scope kind.
    [[nodiscard]] const std::vector<AskedScopes>& asked_scopes() const { return asked_; }
    /// The first error since it was last taken.
    [[nodiscard]] std::optional<Error> take_error() { return std::exchange(error_, std::nullopt); }

private:
    /// Four times longer each, up to a million times the first.
    static constexpr Duration::rep back_off(unsigned attempt) {
        return Duration::rep{1} << std::min(2 * attempt, 20U);
    }

    static bool is_transient(Errc code) {
        return code == Errc::busy || code == Errc::timed_out || code == Errc::io;
    }

    AskedScopes& of(std::uint32_t kind) {
        if (asked_.size() <= kind) asked_.resize(kind + std::size_t{1});
        return asked_[kind];
    }

    void settle(std::vector<std::uint32_t>& scopes, std::uint64_t AskedScopes::*outcome) {
        for (const std::uint32_t kind : scopes) ++(of(kind).*outcome);
        scopes.clear();
    }

    void note_target(TimePoint now) {
        const auto target = wanted(now);
        next_change_ = votes_.next_change(now);
        if (target == target_) return;
        target_ = target;
        target_since_ = now;
    }

    /// What tracks ask for, within the limits of the program, of the site and of what was found;
    /// nothing = as found.
    [[nodiscard]] std::optional<ClockPoint> wanted(TimePoint now) const {
        const auto asked = requested(now);
        if (!asked) return std::nullopt;
        const ClockPoint point = *asked;
        const ClockState& found = history_.initial;
        if (options_.may_leave_found_limits || found == ClockState{}) return point;
        if (pins_clocks(found)) return std::nullopt;
        const ClockPoint within = lowered_to(raised_above(point, found.floor), found.cap);
        return within == found.cap ? std::nullopt : std::optional{within};
    }
    /// A range reaches to its cap from below it: at the floor itself there would be none.
    static ClockPoint raised_above(ClockPoint point, ClockPoint floor) {
        const auto raise = [](Megahertz clock, Megahertz least) {
            const bool is_below = clock != auto_clock && least != auto_clock && clock <= least;
            return is_below ? Megahertz{least.count + 1} : clock;
        };
        return {raise(point.core, floor.core), raise(point.memory, floor.memory)};
    }

    [[nodiscard]] bool holds(std::optional<ClockPoint> target) const {
        if (history_.uncertain) return false;
        if (target == holds_) return true;
        // Where the device was found on auto, "auto" and "as found" are one and the same, unless it
        // tells them apart.
        const ClockPoint found_or_auto{};
        return history_.initial == ClockState{} &&
               history_.written.value_or(history_.initial) == history_.initial &&
               target.value_or(found_or_auto).is_auto() && holds_.value_or(found_or_auto).is_auto();
    }

    /// Whether the target caps a domain harder than it is now.
    [[nodiscard]] bool lowers(std::optional<ClockPoint> target) const {
        const ClockPoint next = target.value_or(history_.initial.cap);
        return higher_cap(next, applied()) != next;
    }
    /// Whether the target frees a domain.
    [[nodiscard]] bool lifts(std::optional<ClockPoint> target) const {
        return higher_cap(target.value_or(history_.initial.cap), applied()) != applied();
    }

    /// What the device is to hold now: the target, or, while lowering is held back, as much of it
    /// as raises.
    [[nodiscard]] std::optional<ClockPoint> due_target(TimePoint now) const {
        if (released_ || !lowers(target_) || now >= target_since_ + options_.lower_after) {
            return target_;
        }
        if (!lifts(target_)) return holds_;
        return higher_cap(target_.value_or(history_.initial.cap), applied());
    }

    ClockCommand send(ClockCommand command) {
        in_flight_ = command;
        return command;
    }
    ClockCommand send_restore() {
        settle(fresh_scopes_, &AskedScopes::overtaken);
        return send({.kind = ClockCommand::Kind::restore, .history = history_});
    }

    void applied(ClockPoint point, const ClockState& state, TimePoint now, unsigned attempts) {
        const bool put_back = state.cap != point && state == history_.initial;
        if (put_back && attempts < options_.retries) {
            // The process may have been stopped between its write and this look. A device that
            // takes no clock looks the same: it is the same at the next attempts, too.
            displaced(state);
            fresh_scopes_.insert(fresh_scopes_.begin(), in_flight_scopes_.begin(),
                                 in_flight_scopes_.end());
            in_flight_scopes_.clear();
            try_again(now, attempts);
            return;
        }
        history_.written = state;
        history_.uncertain = false;
        if (state.cap != point) {
            history_.uncertain = true;
            disarm(clock_errors::not_taken(device_, point, state));
            return;
        }
        holds_ = point;
        settle(in_flight_scopes_, &AskedScopes::switched);
    }

    void restored(const CommandOutcome& outcome, TimePoint now, unsigned attempts) {
        const ClockState& state = *outcome.state;
        if (outcome.restore == RestoreDecision::leave_external) {
            restore_due_ = false;
            displaced(state);
            return;
        }
        if (outcome.restore == RestoreDecision::write_back) {
            if (state != history_.initial) {
                history_.uncertain = true;
                attempts_ = attempts;  // a silent refusal is a failed attempt, too
                failed({.kind = ClockCommand::Kind::restore},
                       clock_errors::not_restored(device_, state), now, released_);
                return;
            }
            ++counts_.restores;
        }
        restore_due_ = false;
        settle(in_flight_scopes_, &AskedScopes::refused);  // retried until too late
        forget_writes();
    }

    void verified(const ClockState& state) {
        if (!changed()) {
            if (state == history_.initial) return;
            ++counts_.external_changes;
            found(state);
            return;
        }
        if (history_.written != state) displaced(state);
    }

    /// The device holds neither what kdvfs wrote nor what was found: that is the state to go back
    /// to from here on.
    void displaced(const ClockState& state) {
        // A reset, or put back while this process was stopped: ask again.
        if (state == ClockState{} || state == history_.initial) {
            ++counts_.resets;
            forget_writes();
            found(state);
        } else {
            taken_over(state);
        }
    }

    void taken_over(const ClockState& external) {
        ++counts_.external_changes;
        forget_writes();
        found(external);
        disarm(clock_errors::taken_over(device_, external));
    }

    /// @param last_chance there is no later: what may be in vain is tried again, too
    void failed(const ClockCommand& command, const Error& error, TimePoint now,
                bool last_chance = false) {
        const bool transient = is_transient(error.code());
        const bool pending_restore = transient && command.kind == ClockCommand::Kind::restore;
        if (pending_restore || ((last_chance || transient) && attempts_ < options_.retries)) {
            // A restore that is owed is tried for as long as it takes, though not in silence.
            if (attempts_ == options_.retries && !error_) error_ = error;
            try_again(now, attempts_);
            return;
        }
        if (error.code() == Errc::vanished) forget_writes();
        if (command.kind == ClockCommand::Kind::restore) forget_restore();
        disarm(error);
    }

    /// @param attempts that failed before the last one
    void try_again(TimePoint now, unsigned attempts) {
        const Duration pause = options_.first_retry_after * back_off(attempts);
        not_before_ = now + std::min<Duration>(pause, std::chrono::seconds{1});
        attempts_ = attempts + 1;
        ++counts_.retries;
    }

    /// Stops driving the device after a permanent error; puts it back if that can still be done.
    void disarm(const Error& error) {
        armed_ = false;
        settle(in_flight_scopes_, &AskedScopes::refused);
        settle(fresh_scopes_, &AskedScopes::refused);
        restore_due_ = changed() && !restore_failed_;
        attempts_ = 0;
        not_before_ = {};
        if (!error_) error_ = error;
    }

    /// The state to go back to from here on, which limits what is asked for.
    void found(const ClockState& state) {
        history_.initial = state;
        target_ = wanted(last_read_);
    }

    void forget_writes() {
        history_.written.reset();
        history_.uncertain = false;
        holds_.reset();
    }

    void forget_restore() {
        restore_due_ = false;
        restore_failed_ = true;
    }

    TrackVotes votes_;
    std::string device_;
    ControllerOptions options_;
    ClockHistory history_;
    std::optional<ClockPoint> target_;  // nothing = as found
    std::optional<ClockPoint> holds_;   // nothing = as found
    std::optional<ClockCommand> in_flight_;
    std::optional<Error> error_;
    ControllerCounts counts_;
    std::optional<TimePoint> next_change_;  // of what tracks ask for, by itself
    TimePoint target_since_{};
    TimePoint last_read_{};
    TimePoint not_before_{};
    std::vector<AskedScopes> asked_;               // by scope kind
    std::vector<std::uint32_t> fresh_scopes_;      // kinds of scopes that nothing was sent for yet
    std::vector<std::uint32_t> in_flight_scopes_;  // of those that the command under way is for
    unsigned attempts_ = 0;
    bool armed_ = true;
    bool released_ = false;
    bool restore_due_ = false;
    bool restore_failed_ = false;
};

}  // namespace kdvfs::inline v0_3::detail
