// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/control/clock_controller.hpp>
#include <kdvfs/detail/control/rest_watch.hpp>
#include <kdvfs/detail/control/stream_track.hpp>
#include <kdvfs/detail/control/votes.hpp>
#include <kdvfs/detail/gpu/meter_inputs.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// The answers of `Ordering::acked`: behind each marker that changes a track's request the stream
/// waits until the controller has settled it, or until a deadline. Acknowledgements are numbered,
/// and one track at a time gets them: a wait may hold a hardware queue that other streams need. Not
/// thread-safe: the clock arbiter's lock is held.
class Acknowledgements {
public:
    /// @param word that streams can wait for, valid until the process ends
    Acknowledgements(std::uint32_t* word, Duration deadline) : word_{word}, deadline_{deadline} {}

    /// Before a track's marker is put. @returns the number to wait for behind it
    /// @throws Error (invalid_input) in a capture, (busy) while another track gets answers
    std::uint32_t expect(const StreamTrack& track, bool leaving) {
        if (track.captured()) {
            throw Error{Errc::invalid_input,
                        {.action = "wait for an answer in a capture",
                         .object = "this stream",
                         .vendor_words = "",
                         .remedy = "capture with Ordering::stream: each replay would wait"}};
        }
        if (!leaving && owner_ && *owner_ != track.id() && (asks_ || asked_ != answered_)) {
            throw Error{Errc::busy,
                        {.action = "wait for an answer",
                         .object = "this stream",
                         .vendor_words = "another stream waits for answers",
                         .remedy = "use Ordering::acked on one stream at a time"}};
        }
        owner_ = track.id();
        asks_ = track.word().request() != no_request;
        return ++asked_;
    }
    /// The marker or the wait could not be put after all.
    void give_up() { --asked_; }

    [[nodiscard]] std::uint32_t* word() const { return word_; }

    /// The track's request was seen to change: its stream waits now.
    void observed(TrackId track, TimePoint now) {
        if (!released_ && owner_ == track && asked_ != answered_) waits_since_ = now;
    }

    /// Whether a stream waits now.
    [[nodiscard]] bool pending_restore() const { return waits_since_.has_value(); }
    /// When a stream must not wait any longer.
    [[nodiscard]] std::optional<TimePoint> due() const {
        if (!waits_since_) return std::nullopt;
        return *waits_since_ + deadline_;
    }

    void answer() {
        waits_since_.reset();
        if (!released_) store(++answered_);
    }

    /// No stream waits from here on.
    void release() {
        released_ = true;
        waits_since_.reset();
        store(last_);
    }

private:
    static constexpr std::uint32_t last_ = 0x7fffffffU;  // also where numbers are compared by sign

    void store(std::uint32_t number) {
        std::atomic_ref{*word_}.store(number, std::memory_order_release);
    }

    std::uint32_t* word_;
    Duration deadline_;
    std::optional<TrackId> owner_;
    bool asks_ = false;  // the owner's scopes still do
    std::uint32_t asked_ = 0;
    std::uint32_t answered_ = 0;
    bool released_ = false;  // numbers only grow: what is stored last stays
    std::optional<TimePoint> waits_since_;
};

/// The clock half of a GPU object: observes what its tracks ask for and lets the controller decide.
/// A control loop asks it what to do next, and tells it what came of that. Thread-safe.
class ClockArbiter {
public:
    /// What a look at all cells found.
    struct Look {
        bool changed = false;  ///< some cell is not what it was at the last look, or users spoke
        bool at_rest = false;  ///< no cell can change before the next scope is entered,
        bool graphs = false;   ///< but by graphs: there are some
        bool asks = false;     ///< some cell asks for a clock
        /// Whatever is under way, and whatever graph will be replayed, shows in the cells.
        bool shows = false;
    };

    /// @param tracks and the others by reference must outlive it
    /// @param initial nothing: clocks are never set
    ClockArbiter(const RequestTable& requests, TrackTable& tracks, ClockEvents& events,
                 std::string device, const std::optional<ClockState>& initial,
                 ControllerOptions options)
        : tracks_{tracks},
          events_{events},
          measure_only_{!initial},
          device_{std::move(device)},
          controller_{requests, device_, initial.value_or(ClockState{}), options} {
        armed_ = !measure_only_;
    }

    /// Looks at all cells. Graphs may be replayed at any time: the cells of captured tracks must be
    /// looked at for ever.
    Look listen(TimePoint now) {
        const std::lock_guard lock{mutex_};
        Look all{.changed = std::exchange(nudged_, false), .at_rest = true, .shows = true};
        tracks_.for_each([&](StreamTrack& track) {
            if (track.abandoned) return;
            const std::size_t id = track.id().value;
            if (id >= observed_.size()) observed_.resize(id + 1);
            const bool rests = track.captured() || track.at_rest();  // before the cell is read
            const RequestWord word = track.observed();
            all.at_rest = all.at_rest && rests;
            all.graphs = all.graphs || track.captured();
            all.asks = all.asks || word.request() != no_request;
            all.shows = all.shows && track.shows();
            if (word == observed_[id]) return;
            observed_[id] = word;
            all.changed = true;
            if (track.captured()) {
                controller_.replayed(track.id(), word, now);
            } else {
                controller_.request_changed(track.id(), word, now, [&](std::uint32_t ticket) {
                    return track.kind_of(ticket);
                });
            }
            if (answers_) answers_->observed(track.id(), now);
        });
        if (shield_) look_at_shield(now);
        // Here, too: the actuator may be stuck in the very call that is awaited.
        if (answers_ && answers_->pending_restore() && now >= *answers_->due()) answer(now);
        return all;
    }

    [[nodiscard]] std::optional<ClockCommand> next_command(TimePoint now) {
        const std::lock_guard lock{mutex_};
        if (measure_only_) return std::nullopt;
        if (shield_ && now >= shield_until_) look_at_shield(now);
        if (rest_) look_at_rest(now);
        auto command = controller_.next_command(now);
        if (!command && answers_ && answers_->pending_restore()) answer(now);
        if (command) {
            sent_ = now;
            events_.push({.kind = ClockEvent::Kind::asked,
                          .at = now,
                          .to = controller_.asked().value_or(controller_.history().initial.cap)});
        }
        return command;
    }

    [[nodiscard]] std::optional<TimePoint> next_deadline() {
        const std::lock_guard lock{mutex_};
        if (measure_only_) return std::nullopt;
        std::optional<TimePoint> next = controller_.next_deadline();
        const auto at = [&](TimePoint due) { next = std::min(next.value_or(due), due); };
        if (const auto answer = answers_ ? answers_->due() : std::nullopt) at(*answer);
        if (shield_) at(shield_until_);
        if (const auto due = rest_ ? rest_->due() : std::nullopt) at(*due);
        return next;
    }

    void completed(const CommandOutcome& outcome, TimePoint now) {
        const std::lock_guard lock{mutex_};
        const ClockPoint before = controller_.applied();
        controller_.completed(outcome, now);
        armed_ = controller_.armed() && !released_;
        if (rest_ && !rest_->low() && controller_.settled()) rest_->woke(now);
        if (outcome.error) {
            ClockEvent event{.kind = ClockEvent::Kind::fault, .at = now};
            event.say(outcome.error->what());
            events_.push(event);
        }
        if (controller_.applied() != before) {
            events_.push({.kind = ClockEvent::Kind::applied,
                          .called = sent_,
                          .at = now,
                          .from = before,
                          .to = controller_.applied()});
        }
    }

    /// Whether scopes still move the clocks. Free of locks.
    [[nodiscard]] bool armed() const noexcept { return armed_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool measure_only() const noexcept { return measure_only_; }

    /// Keeps the requests of other tracks from going below `at_least`.
    void protect(StreamTrack& track, ClockPoint at_least, TimePoint now) {
        const std::lock_guard lock{mutex_};
        track.is_protected = true;
        controller_.protect(track.id(), at_least, now);
        nudged_ = true;
    }

    /// Something lowers the clocks from now on. Scopes for the highest ones have put no markers so
    /// far: their vote stands until their streams have passed a marker behind them, or for two
    /// seconds behind the last that was left.
    /// @param but the track that lowers, whose earlier scopes come before that; may be null
    void shield_unmarked(const StreamTrack* but, TimePoint now) {
        const std::lock_guard lock{mutex_};
        bool hidden = tracks_.hides_scopes();
        tracks_.for_each([&](StreamTrack& track) {
            hidden = hidden || (&track != but && track.hides_scopes());
        });
        if (!hidden || shield_ || measure_only_) return;
        shield_ = new_request();
        shield_until_ = now + longest_queue;
        controller_.request(*shield_, ClockPoint{}, now);
        nudged_ = true;
    }

    /// Whether that vote stands.
    [[nodiscard]] bool shielded() {
        const std::lock_guard lock{mutex_};
        return shield_.has_value();
    }

    /// A standing vote that belongs to no track, until `end_request`.
    /// @returns what it is known by
    TrackId begin_request(ClockPoint point, TimePoint now) {
        const std::lock_guard lock{mutex_};
        const TrackId request = new_request();
        controller_.request(request, point, now);
        nudged_ = true;
        return request;
    }
    /// Allocates nothing.
    void change_request(TrackId request, ClockPoint point, TimePoint now) {
        const std::lock_guard lock{mutex_};
        controller_.request(request, point, now);
        nudged_ = true;
    }
    void end_request(TrackId request, TimePoint now) {
        const std::lock_guard lock{mutex_};
        controller_.withdraw(request, now);
        free_requests_.push_back(request);
        nudged_ = true;
    }

    /// From here on the device has a clock for the time without work.
    /// @param latency of a switch, where it is known
    void rest_at(const IdleClock& idle, std::optional<Duration> latency, TimePoint now) {
        const std::lock_guard lock{mutex_};
        rest_.emplace(idle, latency, now);
    }
    /// Work is about to be launched.
    void work_begins(TimePoint now) {
        if (measure_only_) return;
        const std::lock_guard lock{mutex_};
        if (!rest_) return;
        rest_->work_begins(now);
        follow_rest(now);
    }
    /// What came of the clock for the time without work.
    [[nodiscard]] std::optional<measure::IdleClockShare> rested(TimePoint now) {
        const std::lock_guard lock{mutex_};
        return rest_ ? std::optional{rest_->share(now)} : std::nullopt;
    }

    /// Keeps what tracks ask for within other limits from now on.
    void limit(const ControllerOptions& limits, TimePoint now) {
        const std::lock_guard lock{mutex_};
        controller_.limit(limits.never_below, limits.never_above, now);
        nudged_ = true;
    }

    /// The track's cell says nothing any more: its vote ends.
    void withdraw(StreamTrack& track, TimePoint now) {
        const std::lock_guard lock{mutex_};
        track.abandoned = true;
        controller_.withdraw(track.id(), now);
        events_.push({.kind = ClockEvent::Kind::abandoned, .track = track.timestamps()});
    }

    /// Lets a disarmed controller work again.
    void rearm() {
        const std::lock_guard lock{mutex_};
        controller_.rearm();
        armed_ = !measure_only_ && !released_;
        nudged_ = true;
    }

    /// What the process asks for, for another one that drives the device.
    [[nodiscard]] std::optional<ClockPoint> requested(TimePoint now) {
        const std::lock_guard lock{mutex_};
        return controller_.requested(now);
    }
    /// The process drives the device from here on, which holds this state.
    void begin_with(const ClockState& state, TimePoint now) {
        const std::lock_guard lock{mutex_};
        controller_.begin_with(state, now);
        nudged_ = true;
    }

    /// The found state is wanted, whatever tracks say from here on.
    void release() {
        const std::lock_guard lock{mutex_};
        released_ = true;
        armed_ = false;
        controller_.release();
        if (answers_) answers_->release();
    }

    /// The cap that the device was last seen to hold.
    [[nodiscard]] ClockPoint applied() {
        const std::lock_guard lock{mutex_};
        return controller_.applied();
    }

    [[nodiscard]] ControllerCounts counts() {
        const std::lock_guard lock{mutex_};
        return controller_.counts();
    }

    /// What became of the scopes that asked, by scope kind.
    [[nodiscard]] std::vector<AskedScopes> asked_scopes() {
        const std::lock_guard lock{mutex_};
        return controller_.asked_scopes();
    }

    [[nodiscard]] std::optional<Error> take_error() {
        const std::lock_guard lock{mutex_};
        if (late_answer_) return std::exchange(late_answer_, std::nullopt);
        return controller_.take_error();
    }

    /// From here on streams wait behind their markers, for this word.
    void answer_at(std::uint32_t* word, Duration deadline) { answers_.emplace(word, deadline); }
    [[nodiscard]] bool answers() const noexcept { return answers_.has_value(); }

    /// Puts a marker by `put`, and a wait for the answer to it behind.
    /// @throws Error as `Acknowledgements::expect`, and what `put` and the runtime throw
    template <class Runtime, class Put>
    void put_and_wait(Runtime& runtime, const StreamTrack& track, bool leaving, Put put) {
        std::uint32_t number = 0;
        {
            const std::lock_guard lock{mutex_};
            number = answers_->expect(track, leaving);
        }
        try {
            put();
            runtime.put_wait(track.key().stream, answers_->word(), number);
        } catch (...) {
            const std::lock_guard lock{mutex_};
            answers_->give_up();
            throw;
        }
    }

private:
    static constexpr Duration longest_queue = std::chrono::seconds{2};

    TrackId new_request() {
        // Tracks are numbered from 0 upwards, requests from the other end.
        if (free_requests_.empty())
            return {~std::uint32_t{0} - static_cast<std::uint32_t>(requests_++)};
        const TrackId request = free_requests_.back();
        free_requests_.pop_back();
        return request;
    }

    void look_at_shield(TimePoint now) {
        bool hidden = tracks_.hides_scopes();
        bool open = false;
        tracks_.for_each([&](StreamTrack& track) {
            hidden = track.hides_scopes() || hidden;
            open = track.has_unmarked_open() || open;
        });
        if (open) shield_until_ = now + longest_queue;
        if (open || (hidden && now < shield_until_)) return;
        tracks_.hides_no_scopes();
        controller_.withdraw(*shield_, now);
        free_requests_.push_back(*shield_);
        shield_.reset();
    }

    /// Whether all work was seen and is done: no scope is open, each stream is past its last marker
    /// and asks for nothing, and none may have work that no marker shows.
    [[nodiscard]] bool streams_rest() {
        bool any = false;
        bool rest = true;
        tracks_.for_each([&](StreamTrack& track) {
            any = true;
            rest = rest && !track.captured() && !track.is_protected && !track.abandoned &&
                   track.at_rest() && track.observed().request() == no_request;
        });
        return any && rest;
    }
    void look_at_rest(TimePoint now) {
        rest_->look(armed_ && streams_rest(), now);
        follow_rest(now);
    }
    void follow_rest(TimePoint now) {
        if (rest_->low() == rest_request_.has_value()) return;
        if (rest_->low()) {
            rest_request_ = new_request();
            controller_.request(*rest_request_, rest_->clock(), now);
        } else {
            controller_.withdraw(*rest_request_, now);
            free_requests_.push_back(*rest_request_);
            rest_request_.reset();
        }
        nudged_ = true;
    }

    /// A stream waits, and nothing is to be done now.
    void answer(TimePoint now) {
        const bool late = now >= *answers_->due();
        if (!late && !controller_.settled()) return;
        answers_->answer();
        if (!late || late_answer_ || released_) return;
        late_answer_ =
            Error{Errc::timed_out,
                  {.action = "answer a stream",
                   .object = device_,
                   .vendor_words = "the clock was not set within the deadline",
                   .remedy = "the stream went on without; give it a longer ack_deadline"}};
    }

    TrackTable& tracks_;
    ClockEvents& events_;
    const bool measure_only_;
    const std::string device_;
    std::atomic<bool> armed_{true};

    std::mutex mutex_;
    ClockController controller_;
    std::optional<Acknowledgements> answers_;
    std::optional<Error> late_answer_;
    std::vector<RequestWord> observed_;  // by track
    std::size_t requests_ = 0;           // standing at once, at most, so far
    std::vector<TrackId> free_requests_;
    std::optional<TrackId> shield_;  // the vote of scopes without markers
    TimePoint shield_until_{};
    std::optional<RestWatch> rest_;
    std::optional<TrackId> rest_request_;  // while the clock for no work is wanted
    TimePoint sent_{};
    bool nudged_ = false;  // the controller was told what no cell shows
    bool released_ = false;
};

}  // namespace kdvfs::inline v0_3::detail
