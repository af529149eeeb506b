// SPDX-License-Identifier: MIT
#pragma once

#include "board_double.hpp"

#include <kdvfs/detail/control/clock_controller.hpp>
#include <kdvfs/detail/control/stream_track.hpp>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

namespace kdvfs {

/// A board, the controller that drives it, and the streams that ask: time passes as the test says,
/// every stream runs at once, and every command is answered at once.
class ControlledBoard : public BoardDouble {
public:
    struct Setup {
        ClockState initial{};
        ControllerOptions options{};
    };

    ControlledBoard() : ControlledBoard{Setup{}} {}
    explicit ControlledBoard(const Setup& setup)
        : controller{requests, "board", setup.initial, setup.options}, found_{setup.initial} {
        state = setup.initial;
    }

    /// All scopes are of one kind here.
    static std::uint32_t one_kind(std::uint32_t /*ticket*/) { return 0; }

    /// A scope on a track, entered behind what is open there.
    void enter(std::uint32_t track, ClockPoint point) {
        Stream& stream = streams_.try_emplace(track, track).first->second;
        const kdvfs::detail::TrackStep step = stream.track.enter(requests.index_of(point));
        stream.entries.push_back(step.entry);
        if (step.changed) controller.request_changed(TrackId{track}, step.word, now, one_kind);
    }

    /// Leaves the innermost scope of a track.
    void leave(std::uint32_t track) {
        Stream& stream = streams_.at(track);
        const auto step = stream.track.leave(stream.entries.back());
        stream.entries.pop_back();
        if (step->changed) controller.request_changed(TrackId{track}, step->word, now, one_kind);
    }

    /// Carries out a command of the controller.
    void answer(const kdvfs::detail::ClockCommand& command) {
        controller.completed(execute(*this, command), now);
    }

    /// Does all that is due now.
    void settle() {
        for (int turn = 0; turn < 100; ++turn) {
            const auto command = controller.next_command(now);
            if (!command) return;
            answer(*command);
        }
        throw std::logic_error{"the controller never comes to rest"};
    }

    /// Lets time pass, waking the controller when it wants to be woken and not otherwise.
    void pass(Duration time) {
        const TimePoint end = now + time;
        settle();
        for (int turn = 0; turn < 10'000; ++turn) {
            const auto deadline = controller.next_deadline();
            if (!deadline || *deadline > end) {
                now = end;
                return;
            }
            now = std::max(now, *deadline);
            settle();
        }
        throw std::logic_error{"the controller's deadlines never end"};
    }

    [[nodiscard]] std::size_t writes() const {
        return static_cast<std::size_t>(std::count_if(
            calls.begin(), calls.end(), [](const auto& call) { return call != "read"; }));
    }
    [[nodiscard]] const kdvfs::detail::ControllerCounts& counts() const {
        return controller.counts();
    }
    /// What became of the scopes that asked.
    [[nodiscard]] kdvfs::detail::AskedScopes asked() const {
        kdvfs::detail::AskedScopes sum;
        for (const auto& kind : controller.asked_scopes()) sum += kind;
        return sum;
    }
    [[nodiscard]] const ClockState& found() const { return found_; }

    kdvfs::detail::RequestTable requests;
    kdvfs::detail::ClockController controller;
    TimePoint now{};

private:
    struct Stream {
        explicit Stream(std::uint32_t id) : track{TrackId{id}, TrackKey{}, &cell, TrackId{id}} {}
        RequestCell cell;
        kdvfs::detail::StreamTrack track;
        std::vector<std::uint64_t> entries{};
    };

    ClockState found_;
    std::map<std::uint32_t, Stream> streams_;
};

}  // namespace kdvfs
