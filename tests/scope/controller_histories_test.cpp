// SPDX-License-Identifier: MIT
// Thousands of random histories: scopes on several tracks, levels observed late or never, faults at
// every call, external changes, resets, time. What must hold in each of them is simple.
#include <kdvfs/detail/control/clock_controller.hpp>

#include "controlled_board.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <random>

namespace kdvfs {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = kdvfs::detail::ClockCommand::Kind;

class Dice {
public:
    explicit Dice(std::uint64_t seed) : engine_{seed} {}
    std::size_t below(std::size_t sides) { return engine_() % sides; }
    bool one_in(std::size_t sides) { return below(sides) == 0; }
    template <class T, std::size_t Size>
    T pick(const std::array<T, Size>& from) {
        return from[below(Size)];
    }

private:
    std::mt19937_64 engine_;
};

const std::array<ClockState, 4> found_states{
    ClockState{},
    {{.core = 1200_MHz}, {}, "manual"},
    {{1200_MHz, 5000_MHz}, {.core = 300_MHz}, "manual"},
    {{}, {.core = 300_MHz}, "manual"},
};
const std::array<ClockState, 3> external_states{
    ClockState{},  // as after a reset
    {{.core = 911_MHz}, {}, "manual"},
    {{.memory = 2222_MHz}, {}, "manual"},
};
const std::array<ClockPoint, 7> points{
    ClockPoint{},        {.core = 500_MHz},    {.core = 1000_MHz},   {.core = 1500_MHz},
    {500_MHz, 8000_MHz}, {1000_MHz, 5000_MHz}, {.memory = 5000_MHz},
};

/// Makes each kind of call fail now and then: before it has done anything, half-way, afterwards,
/// or without saying so.
void make_unreliable(BoardDouble& board, Dice& dice, std::size_t one_in) {
    constexpr std::array codes{Errc::busy, Errc::io, Errc::refused, Errc::not_supported};
    const auto maybe = [&board, &dice, one_in, codes](bool half_way) {
        return [&board, &dice, one_in, codes, half_way] {
            board.deaf = dice.one_in(4 * one_in);
            board.deaf_to_restore = dice.one_in(4 * one_in);
            if (!dice.one_in(one_in)) return;
            if (half_way && dice.one_in(2)) board.state.cap.memory = 3333_MHz;
            throw board_error(dice.pick(codes));
        };
    };
    board.on_read = maybe(false);
    board.on_apply = board.on_restore = maybe(true);
    board.after_apply = board.after_restore = maybe(true);
}

void make_reliable(BoardDouble& board) {
    board.on_read = board.on_apply = board.on_restore = nullptr;
    board.after_apply = board.after_restore = nullptr;
    board.deaf = board.deaf_to_restore = false;
}

class History {
public:
    explicit History(std::uint64_t seed)
        : dice_{seed},
          faults_{seed % 2 == 1},
          strangers_{seed / 2 % 2 == 1},
          found_{dice_.pick(found_states)},
          options_{
              .may_leave_found_limits = true,
              .lower_after = dice_.pick(std::array<Duration, 2>{Duration{0}, milliseconds{5}})},
          controller_{requests_, "board", found_, options_} {
        board_.state = found_;
        allowed_.push_back(found_);
        for (std::uint32_t id = 0; id < 3; ++id) streams_.emplace_back(id);
    }

    void run() {
        if (faults_) make_unreliable(board_, dice_, 12);
        for (int step = 0; step < 150 && !::testing::Test::HasFailure(); ++step) {
            something_happens();
        }
        make_reliable(board_);
        for (Stream& stream : streams_) {
            while (!stream.entries.empty()) leave(stream, 0);
        }
        come_to_rest();
        if (!faults_ && !strangers_) {
            if (!wanted_) {
                EXPECT_EQ(board_.state, found_);
            }
            EXPECT_EQ(asked().refused, 0U);
        }
        controller_.rearm();  // a restore that failed for good is tried again
        come_to_rest();
        controller_.release();
        wanted_.reset();  // whatever tracks say
        wanted_since_ = now_ - options_.lower_after;
        come_to_rest();
        EXPECT_NE(std::find(allowed_.begin(), allowed_.end(), board_.state), allowed_.end())
            << "kdvfs left " << to_string(board_.state.cap) << " in mode " << board_.state.mode;
        EXPECT_FALSE(controller_.changed());
        EXPECT_EQ(controller_.next_deadline(), std::nullopt);
    }

    [[nodiscard]] std::uint64_t seen() const { return seen_; }
    [[nodiscard]] const kdvfs::detail::ControllerCounts& counts() const {
        return controller_.counts();
    }
    [[nodiscard]] kdvfs::detail::AskedScopes asked() const {
        kdvfs::detail::AskedScopes sum;
        for (const auto& kind : controller_.asked_scopes()) sum += kind;
        return sum;
    }

private:
    struct Stream {
        explicit Stream(std::uint32_t id) : track{TrackId{id}, TrackKey{}, &cell, TrackId{id}} {}
        RequestCell cell;
        kdvfs::detail::StreamTrack track;
        std::vector<std::uint64_t> entries{};
        RequestWord observed{};
        std::uint32_t newest = 0;
        bool is_protected = false;
    };

    void something_happens() {
        Stream& stream = streams_[dice_.below(streams_.size())];
        switch (dice_.below(12)) {
            case 0:
            case 1:
            case 2: enter(stream); break;
            case 3:
            case 4:
                if (!stream.entries.empty()) leave(stream, dice_.below(stream.entries.size()));
                break;
            case 5:
            case 6: listen(); break;
            case 7: ask(); break;
            case 8: answer(); break;
            case 9: pass_time(); break;
            case 10:
                if (strangers_ && dice_.one_in(4)) stranger_comes();
                break;
            default:
                if (dice_.one_in(8)) controller_.rearm();
                if (dice_.one_in(64)) protect(stream);
                break;
        }
    }

    void enter(Stream& stream) {
        if (stream.entries.size() == 4) return;
        const kdvfs::detail::TrackStep step =
            stream.track.enter(requests_.index_of(dice_.pick(points)));
        stream.entries.push_back(step.entry);
        stream.cell.store(step.word);
    }

    static void leave(Stream& stream, std::size_t which) {
        const auto at = stream.entries.begin() + static_cast<std::ptrdiff_t>(which);
        stream.cell.store(stream.track.leave(*at)->word);
        stream.entries.erase(at);
    }

    void listen() {
        for (Stream& stream : streams_) {
            const RequestWord level = stream.cell.load();
            if (level == stream.observed) continue;
            stream.observed = level;
            if (level.request() != no_request && level.ticket() > stream.newest) {
                stream.newest = level.ticket();
                ++seen_;
            }
            controller_.request_changed(stream.track.id(), level, now_,
                                        [](std::uint32_t) { return 0U; });
            note_wanted();
        }
    }

    void protect(Stream& stream) {
        stream.is_protected = true;
        controller_.protect(stream.track.id(), ClockPoint{}, now_);
        note_wanted();
    }

    void note_wanted() {
        std::optional<ClockPoint> wanted;
        const auto vote = [&](ClockPoint point) {
            wanted = wanted ? higher_cap(*wanted, point) : point;
        };
        for (const Stream& stream : streams_) {
            if (stream.observed.request() != no_request)
                vote(requests_.point(stream.observed.request()));
        }
        const auto is_protected = [](const Stream& stream) { return stream.is_protected; };
        if (wanted && std::any_of(streams_.begin(), streams_.end(), is_protected)) vote({});
        if (wanted != wanted_) wanted_since_ = now_;
        wanted_ = wanted;
        ASSERT_EQ(controller_.asked(), wanted_);
    }

    void ask() {
        const auto command = controller_.next_command(now_);
        if (in_flight_) {
            ASSERT_FALSE(command) << "one command at a time";
            ASSERT_FALSE(controller_.next_deadline());
            return;
        }
        in_flight_ = command;
        if (command) return;
        check_deadline();
        if (controller_.armed() && now_ >= limit_switches_from_) check_nothing_is_left_undone();
    }

    /// Whoever sleeps until the deadline misses nothing, and never wakes up for nothing.
    void check_deadline() {
        const auto deadline = controller_.next_deadline();
        kdvfs::detail::ClockController early{controller_};
        if (!deadline) {
            ASSERT_FALSE(early.next_command(now_ + seconds{3600}));
            return;
        }
        ASSERT_GT(*deadline, now_) << "it had nothing to do";
        ASSERT_FALSE(early.next_command(*deadline - Duration{1}));
        ASSERT_TRUE(early.next_command(*deadline));
    }

    void check_nothing_is_left_undone() {
        const ClockPoint wanted = wanted_.value_or(controller_.history().initial.cap);
        const ClockPoint applied = controller_.applied();
        ASSERT_EQ(higher_cap(wanted, applied), applied) << "raising was delayed";
        if (now_ >= wanted_since_ + options_.lower_after) {
            ASSERT_EQ(applied, wanted);
        }
        if (!external_) {
            ASSERT_EQ(board_.state.cap, applied);
        }
    }

    void answer() {
        if (!in_flight_) return;
        const kdvfs::detail::ClockCommand command = *std::exchange(in_flight_, std::nullopt);
        const ClockState before = board_.state;
        const auto outcome = execute(board_, command);
        const bool restored = command.kind == Kind::restore &&
                              outcome.restore == kdvfs::detail::RestoreDecision::write_back;
        ASSERT_FALSE(restored && external_ && !command.history.uncertain)
            << "a external value was overwritten by a restore: " << to_string(before.cap);
        if (command.kind == Kind::apply || restored) external_ = false;
        const bool not_taken =
            command.kind == Kind::apply && outcome.state && outcome.state->cap != command.point;
        if (outcome.error || not_taken) limit_switches_from_ = now_ + milliseconds{16};
        controller_.completed(outcome, now_);
        ASSERT_LE(asked().switched + asked().refused, seen_);
    }

    void pass_time() {
        const auto deadline = controller_.next_deadline();
        if (deadline && dice_.one_in(3)) {
            now_ = std::max(now_, *deadline);
        } else {
            now_ +=
                dice_.one_in(8) ? Duration{seconds{2}} : Duration{microseconds{dice_.below(3000)}};
        }
    }

    void stranger_comes() {
        const ClockState theirs = dice_.pick(external_states);
        if (theirs == controller_.history().written) return;  // nobody could tell
        board_.state = theirs;
        allowed_.push_back(board_.state);
        external_ = true;
    }

    void come_to_rest() {
        listen();
        for (int turn = 0; turn < 200; ++turn) {
            if (::testing::Test::HasFailure()) return;
            answer();
            ask();
            if (in_flight_) continue;
            const auto deadline = controller_.next_deadline();
            const bool due = deadline && *deadline < now_ + milliseconds{100};
            if (!due) return;
            now_ = *deadline;
        }
        ADD_FAILURE() << "it never comes to rest";
    }

    Dice dice_;
    bool faults_;
    bool strangers_;
    ClockState found_;
    ControllerOptions options_;
    kdvfs::detail::RequestTable requests_;
    kdvfs::detail::ClockController controller_;
    BoardDouble board_;
    std::deque<Stream> streams_;
    TimePoint now_{};
    std::optional<kdvfs::detail::ClockCommand> in_flight_;
    std::optional<ClockPoint> wanted_;
    TimePoint wanted_since_{};
    TimePoint limit_switches_from_{};  ///< no back-off is under way from here on
    std::vector<ClockState> allowed_;  ///< what may be left behind: never a cap of kdvfs's own
    bool external_ = false;            ///< the board's state is somebody else's
    std::uint64_t seen_ = 0;
};

TEST(ControllerHistories, KeepTheirPromises) {
    std::uint64_t switched = 0;
    std::uint64_t refused = 0;
    std::uint64_t resets = 0;
    std::uint64_t external = 0;
    std::uint64_t restores = 0;
    for (std::uint64_t seed = 0; seed < 8000; ++seed) {
        History history{seed};
        history.run();
        ASSERT_FALSE(HasFailure()) << "history " << seed;
        switched += history.asked().switched;
        refused += history.asked().refused;
        resets += history.counts().resets;
        external += history.counts().external_changes;
        restores += history.counts().restores;
    }
    // The dice do reach every corner.
    EXPECT_GT(switched, 1000U);
    EXPECT_GT(refused, 1000U);
    EXPECT_GT(resets, 100U);
    EXPECT_GT(external, 100U);
    EXPECT_GT(restores, 1000U);
}

// 10^5 random requests on boards that were found limited, with random limits of the program.
TEST(ControllerHistories, NeverLeaveWhatWasFoundOrAllowed) {
    const std::array<ClockState, 6> found{
        {{{1200_MHz, auto_clock}, {}, "manual"},
         {{1200_MHz, 5000_MHz}, {300_MHz, auto_clock}, "manual"},
         {{auto_clock, auto_clock}, {300_MHz, auto_clock}, "manual"},
         {{auto_clock, 5000_MHz}, {}, "manual"},
         {{}, {}, "low"},
         {{}, {}, "profile_peak"}}};
    std::uint64_t lowered = 0;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
        Dice dice{seed};
        ControllerOptions options;
        if (dice.one_in(2)) options.never_below.core = {static_cast<unsigned>(dice.below(800))};
        if (dice.one_in(2))
            options.never_above.core = {static_cast<unsigned>(800 + dice.below(900))};
        const ClockState start = dice.pick(found);
        ControlledBoard board{{.initial = start, .options = options}};
        int depth = 0;
        for (int step = 0; step < 100; ++step) {
            const ClockPoint point{{static_cast<unsigned>(dice.below(2000))},
                                   {static_cast<unsigned>(dice.below(3) * 4000)}};
            board.enter(0, dice.one_in(4) ? ClockPoint{} : point);
            ++depth;
            for (; depth > 0 && dice.one_in(2); --depth) board.leave(0);
            board.settle();
            const ClockPoint cap = board.state.cap;
            ASSERT_EQ(lowered_to(cap, start.cap), cap)
                << "above what was found: " << to_string(cap);
            if (board.state == start) continue;
            ++lowered;
            ASSERT_FALSE(pins_clocks(start));
            if (cap.core == auto_clock) continue;
            ASSERT_GT(cap.core, start.floor.core);
            ASSERT_GE(cap.core, std::min(options.never_below.core, start.cap.core == auto_clock
                                                                       ? options.never_below.core
                                                                       : start.cap.core));
            if (options.never_above.core != auto_clock) {
                ASSERT_LE(cap.core, options.never_above.core);
            }
        }
        for (; depth > 0; --depth) board.leave(0);
        board.settle();
        ASSERT_EQ(board.state, start);
    }
    EXPECT_GT(lowered, 10'000U);
}

// Where every scope asks for a clock that cannot hold already, none is elided: each is switched
// for, refused, or over before its turn came, whatever goes wrong.
TEST(ControllerHistories, CountEveryScopeExactlyOnce) {
    std::uint64_t switched = 0;
    std::uint64_t refused = 0;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
        Dice dice{seed};
        ControlledBoard board{
            {.initial = dice.pick(found_states), .options = {.may_leave_found_limits = true}}};
        make_unreliable(board, dice, 6);
        std::uint64_t entered = 0;
        for (std::uint32_t n = 1; n <= 20; ++n) {
            if (dice.one_in(3)) board.controller.rearm();
            if (dice.one_in(5)) board.state = dice.pick(external_states);
            board.enter(0, {.core = {n}});
            ++entered;
            const bool long_enough = dice.one_in(4);  // for all back-off
            board.pass(milliseconds{long_enough ? 3000 : 50});
            const std::uint64_t counted =
                board.asked().switched + board.asked().refused + board.asked().overtaken;
            ASSERT_LE(counted, entered) << "history " << seed;
            if (long_enough) {
                ASSERT_EQ(counted, entered) << "history " << seed;
            }
            if (dice.one_in(2)) board.leave(0);
            board.pass(milliseconds{50});
        }
        switched += board.asked().switched;
        refused += board.asked().refused;
    }
    EXPECT_GT(switched, 1000U);
    EXPECT_GT(refused, 1000U);
}

}  // namespace
}  // namespace kdvfs
