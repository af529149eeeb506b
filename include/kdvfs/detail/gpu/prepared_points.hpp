// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// Switches a board's operating point and puts back the one that was found.
class PointSwitch {
public:
    virtual ~PointSwitch() = default;
    /// Switches, and reads back. @throws Error (refused) where the board holds another one then
    virtual void hold(PreparedPoint point) = 0;
    /// What was found before the first switch, unless somebody else has switched since.
    /// @throws Error (external_change) where theirs was left
    virtual void put_back() = 0;
    /// As `DeviceInfo::operating_point`.
    [[nodiscard]] virtual std::string words() = 0;
};

/// By a device's own points.
/// @tparam Owned what drives them: `OwnedClocks`, which has a lock, a record and a watchdog for
///         them, or, for a device that dies with its process, a reference to the points
template <PreparedPointControl Points, class Owned>
class DevicePointSwitch final : public PointSwitch {
public:
    explicit DevicePointSwitch(std::unique_ptr<Points> points)
        : points_{std::move(points)}, owned_{*points_} {
        history_.initial = owned_.read_clock_state();
    }

    void hold(PreparedPoint point) override {
        const ClockState present = owned_.read_clock_state();
        const bool own = history_.uncertain || present == history_.written;
        if (!own) history_ = {.initial = present};
        run({.kind = ClockCommand::Kind::apply,
             .point = {.core = {point.number}},
             .history = history_},
            points_->state_of(point));
    }

    void put_back() override {
        const CommandOutcome outcome =
            run({.kind = ClockCommand::Kind::restore, .history = history_}, std::nullopt);
        const ClockState initial = history_.initial;
        const bool refused =
            outcome.restore == RestoreDecision::write_back && *outcome.state != initial;
        if (refused)
            history_ = {.initial = initial, .written = outcome.state};
        else
            history_ = {.initial = *outcome.state};
        if (outcome.restore == RestoreDecision::leave_external) {
            throw Error{Errc::external_change,
                        {.action = "put back the operating point",
                         .object = to_string(points_->info()),
                         .vendor_words = "somebody has switched it since: it holds " + words(),
                         .remedy = "theirs was left"}};
        }
        require(*outcome.state, initial);
    }

    [[nodiscard]] std::string words() override { return points_->read_operating_point(); }

private:
    CommandOutcome run(const ClockCommand& command, const std::optional<ClockState>& wanted) {
        CommandOutcome outcome = execute(owned_, command);
        if (outcome.error) {
            history_.uncertain = true;  // a write that fails half-way is kdvfs's own doing
            throw Error{*outcome.error};
        }
        if (!wanted) return outcome;
        history_.uncertain = false;
        history_.written = *outcome.state;
        require(*outcome.state, *wanted);
        return outcome;
    }

    void require(const ClockState& held, const ClockState& wanted) {
        if (held == wanted) return;
        throw Error{Errc::refused,
                    {.action = "switch the operating point",
                     .object = to_string(points_->info()),
                     .vendor_words = "written without an error, but it holds " + words(),
                     .remedy = "see which other tool governs this board"}};
    }

    std::unique_ptr<Points> points_;
    Owned owned_;
    ClockHistory history_{};
};

/// Whether a GPU may be asked for a prepared point.
/// @param can_switch whether its points can be switched
/// @throws Error (refused, not_supported, invalid_input) where it may not
inline void check_prepared_point(PreparedPoint point, const DeviceInfo& info, bool measure_only,
                                 bool can_switch) {
    const auto refuse = [&](Errc code, std::string words, std::string remedy) {
        throw Error{code,
                    {.action = "switch to " + to_string(point),
                     .object = to_string(info),
                     .vendor_words = std::move(words),
                     .remedy = std::move(remedy)}};
    };
    const auto& known = info.prepared_points;
    if (measure_only) refuse(Errc::refused, "it is only measured", "open it to set its clocks");
    if (!can_switch || known.empty())
        refuse(Errc::not_supported, "this board has none that can be switched",
               "ask for clocks instead");
    if (std::find(known.begin(), known.end(), point) == known.end())
        refuse(Errc::invalid_input, "the board has no such point",
               "ask for one of info().prepared_points");
}

/// Who asks for which point of a board. The newest request holds; where it ends, the one before
/// it, and where none is left, the point that was found. Thread-safe: switches are made by the
/// threads that ask, one at a time.
class PreparedPointRequests {
public:
    /// @param open makes the switch, at the first request or at `take_over`
    template <class Open>
    explicit PreparedPointRequests(Open open) : open_{std::move(open)} {}

    /// Puts back what an earlier process left behind. What fails is told by the first request.
    void take_over() noexcept {
        try {
            const std::lock_guard lock{switching_};
            switch_ = open_();
        } catch (const std::exception&) {
        }
    }

    /// @returns what `end` takes
    /// @throws Error, the board being back at the point before
    std::uint64_t begin(PreparedPoint point) {
        const std::lock_guard lock{switching_};
        if (ended_) throw closed(point);
        if (!switch_) switch_ = open_();
        try {
            moving([&] { switch_->hold(point); });
        } catch (const Error&) {
            try {
                moving([&] { settle(); });
            } catch (const Error&) {  // the first error says more
            }
            throw;
        }
        requests_.push_back({++last_, point});
        return last_;
    }

    /// Late calls, after `close`, do nothing.
    /// @throws Error where the point before was not taken
    void end(std::uint64_t request) {
        const std::lock_guard lock{switching_};
        const auto found = std::find_if(requests_.begin(), requests_.end(),
                                        [&](const Request& one) { return one.id == request; });
        if (found == requests_.end()) return;
        const bool held = std::next(found) == requests_.end();
        requests_.erase(found);
        if (held && !ended_) moving([&] { settle(); });
    }

    /// Puts back what was found, and lets go of the board. A call of the driver that does not come
    /// back is not waited for: what it owes is the watchdog's when this process has ended.
    std::optional<Error> close() noexcept {
        const std::unique_lock lock{switching_, std::chrono::seconds{2}};
        if (!lock) {
            return Error{Errc::timed_out,
                         {.action = "put back the operating point",
                          .object = "the GPU",
                          .vendor_words = "a switch under way has not come back for 2 s",
                          .remedy = "see the kernel's log for a hanging GPU"}};
        }
        ended_ = true;
        requests_.clear();
        std::optional<Error> error;
        try {
            if (switch_) moving([&] { switch_->put_back(); });
        } catch (const Error& refused) {
            error = refused;
        }
        switch_.reset();  // where something is owed, its watchdog goes on
        open_ = nullptr;  // and with it the device's lock
        return error;
    }

    /// What holds by requests of this process, for who looks whether somebody else switches.
    struct Seen {
        std::uint64_t switches = 0;  ///< odd: one is under way
        std::string words{};         ///< after the last of them
    };
    [[nodiscard]] Seen seen() const {
        const std::lock_guard lock{seeing_};
        return seen_;
    }

private:
    struct Request {
        std::uint64_t id = 0;
        PreparedPoint point{};
    };

    void settle() {
        if (requests_.empty())
            switch_->put_back();
        else
            switch_->hold(requests_.back().point);
    }

    template <class Move>
    void moving(Move move) {
        step({});
        try {
            move();
        } catch (...) {
            step(switch_->words());
            throw;
        }
        step(switch_->words());
    }
    void step(std::string words) {
        const std::lock_guard lock{seeing_};
        ++seen_.switches;
        seen_.words = std::move(words);
    }

    static Error closed(PreparedPoint point) {
        return Error{Errc::invalid_input,
                     {.action = "switch to " + to_string(point),
                      .object = "the GPU",
                      .vendor_words = "it has been closed",
                      .remedy = "open it again"}};
    }

    std::timed_mutex switching_;
    std::function<std::unique_ptr<PointSwitch>()> open_;
    std::unique_ptr<PointSwitch> switch_;
    std::vector<Request> requests_;
    std::uint64_t last_ = 0;
    bool ended_ = false;

    mutable std::mutex seeing_;
    Seen seen_;
};

}  // namespace kdvfs::inline v0_3::detail
