// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/acknowledgements.hpp>
#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/control/clock_controller.hpp>
#include <kdvfs/detail/control/stream_track.hpp>
#include <kdvfs/detail/control/votes.hpp>
#include <kdvfs/detail/gpu/any_runtime.hpp>
#include <kdvfs/detail/gpu/meter.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::detail {

/// The clock half of a GPU object: hears what its tracks ask for and lets the controller decide. A
/// control loop asks it what to do next, and tells it what came of that. Thread-safe.
class ClockArbiter {
public:
    /// What a look at all cells found.
    struct Observed {
        bool changed = false;  ///< some cell is not what it was at the last look, or users spoke
        bool at_rest = false;  ///< no cell can change before the next scope is entered
    };

    /// @param tracks and the others by reference must outlive it
    /// @param found nothing: clocks are never set
    ClockArbiter(const RequestTable& requests, TrackTable& tracks, Meter& meter, std::string device,
                 std::optional<ClockState> found, ControllerOptions options)
        : tracks_{tracks},
          meter_{meter},
          measure_only_{!found},
          device_{std::move(device)},
          controller_{requests, device_, found.value_or(ClockState{}), options} {
        armed_ = !measure_only_;
    }

    /// Looks at all cells. Captured tracks never rest: their graphs may be replayed at any time.
    Observed listen(TimePoint now) {
        const std::lock_guard lock{mutex_};
        Observed all{.changed = std::exchange(nudged_, false), .at_rest = true};
        tracks_.for_each([&](StreamTrack& track) {
            if (track.abandoned) return;
            const std::size_t id = track.id().value;
            if (id >= observed_.size()) observed_.resize(id + 1);
            const bool rests = !track.captured() && track.at_rest();  // before the cell is read
            const RequestWord level = track.observed();
            all.at_rest = all.at_rest && rests;
            if (level == observed_[id]) return;
            observed_[id] = level;
            all.changed = true;
            controller_.request_changed(track.id(), level, now, !track.captured());
            if (answers_) answers_->observed(track.id(), now);
        });
        // Here, too: the actuator may be stuck in the very call that is awaited.
        if (answers_ && answers_->owed() && now >= *answers_->due()) answer(now);
        return all;
    }

    [[nodiscard]] std::optional<ClockCommand> next_command(TimePoint now) {
        const std::lock_guard lock{mutex_};
        if (measure_only_) return std::nullopt;
        auto command = controller_.next_command(now);
        if (!command && answers_ && answers_->owed()) answer(now);
        if (command) {
            sent_ = now;
            meter_.asked(now, controller_.asked().value_or(controller_.history().initial.cap));
        }
        return command;
    }

    [[nodiscard]] std::optional<TimePoint> next_deadline() {
        const std::lock_guard lock{mutex_};
        if (measure_only_) return std::nullopt;
        const auto command = controller_.next_deadline();
        const auto answer = answers_ ? answers_->due() : std::nullopt;
        return command && answer ? std::min(command, answer) : (command ? command : answer);
    }

    void completed(const CommandOutcome& outcome, TimePoint now) {
        const std::lock_guard lock{mutex_};
        const ClockPoint before = controller_.applied();
        controller_.completed(outcome, now);
        armed_ = controller_.armed() && !let_go_;
        if (outcome.error) meter_.fault(now, outcome.error->what());
        if (controller_.applied() != before) {
            meter_.applied(sent_, now, before, controller_.applied());
        }
    }

    /// Whether scopes still move the clocks. Free of locks.
    [[nodiscard]] bool armed() const noexcept { return armed_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool measure_only() const noexcept { return measure_only_; }

    /// The track's standing vote for `auto`.
    void protect(TrackId track, TimePoint now) {
        const std::lock_guard lock{mutex_};
        controller_.protect(track, now);
        nudged_ = true;
    }

    /// The track's cell says nothing any more: its vote ends.
    void withdraw(StreamTrack& track, TimePoint now) {
        const std::lock_guard lock{mutex_};
        track.abandoned = true;
        controller_.withdraw(track.id(), now);
        meter_.ignore(track.id());
    }

    /// Lets a disarmed controller work again.
    void rearm() {
        const std::lock_guard lock{mutex_};
        controller_.rearm();
        armed_ = !measure_only_ && !let_go_;
        nudged_ = true;
    }

    /// The found state is wanted, whatever tracks say from here on.
    void let_go() {
        const std::lock_guard lock{mutex_};
        let_go_ = true;
        armed_ = false;
        controller_.let_go();
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

    [[nodiscard]] std::optional<Error> take_error() {
        const std::lock_guard lock{mutex_};
        if (late_answer_) return std::exchange(late_answer_, std::nullopt);
        return controller_.take_error();
    }

    /// From here on streams wait behind their markers.
    /// @throws Error (not_supported) where they cannot
    void answer_from(AnyRuntime& runtime, Duration deadline) {
        answers_.emplace(runtime, deadline);
    }
    [[nodiscard]] bool answers() const noexcept { return answers_.has_value(); }

    /// Puts a marker by `put`, and a wait for the answer to it behind.
    /// @throws Error as `Acknowledgements::expect`, and what `put` and the runtime throw
    template <class Put>
    void put_and_wait(AnyRuntime& runtime, const StreamTrack& track, bool leaving, Put put) {
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
    /// A stream waits, and nothing is to be done now.
    void answer(TimePoint now) {
        const bool late = now >= *answers_->due();
        if (!late && !controller_.settled()) return;
        answers_->answer();
        if (!late || late_answer_ || let_go_) return;
        late_answer_ =
            Error{Errc::timed_out,
                  {.action = "answer a stream",
                   .object = device_,
                   .vendor_words = "the clock was not set within the deadline",
                   .remedy = "the stream went on without; give it a longer ack_deadline"}};
    }

    TrackTable& tracks_;
    Meter& meter_;
    const bool measure_only_;
    const std::string device_;
    std::atomic<bool> armed_{true};

    std::mutex mutex_;
    ClockController controller_;
    std::optional<Acknowledgements> answers_;
    std::optional<Error> late_answer_;
    std::vector<RequestWord> observed_;  // by track
    TimePoint sent_{};
    bool nudged_ = false;  // the controller was told what no cell shows
    bool let_go_ = false;
};

}  // namespace kdvfs::detail
