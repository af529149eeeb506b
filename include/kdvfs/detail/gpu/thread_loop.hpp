// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/gpu/core.hpp>
#include <kdvfs/detail/gpu/vote_watch.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/detail/restore/shared_clocks.hpp>
#include <kdvfs/device/contracts.hpp>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::detail {

/// The sides of a real device. All their calls are made by one thread, the actuator; they may
/// block.
template <ClockControl Clocks, EnergySource Readings>
struct DeviceSides {
    std::shared_ptr<Clocks> clocks{};  ///< null: the device is only measured
    std::shared_ptr<Readings> readings{};
};

/// Lets one thread sleep until somebody wakes it, who takes no lock for that: a launch that wakes
/// the listener waits for no thread that stands still.
class WakeUp {
public:
    void wake() noexcept {
        if (woken_.exchange(1, std::memory_order_acq_rel) != 0) return;
        ::syscall(SYS_futex, &woken_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }

    /// For one thread. @returns whether it has been woken since the last call
    bool wait_until(std::chrono::steady_clock::time_point until) noexcept {
        while (woken_.exchange(0, std::memory_order_acq_rel) == 0) {
            const Duration left = until - std::chrono::steady_clock::now();
            if (left <= Duration::zero()) return false;
            const timespec time{left / std::chrono::seconds{1},
                                (left % std::chrono::seconds{1}).count()};
            ::syscall(SYS_futex, &woken_, FUTEX_WAIT_PRIVATE, 0, &time, nullptr, 0);
        }
        return true;
    }

private:
    std::atomic<std::uint32_t> woken_{0};
    static_assert(sizeof(woken_) == sizeof(std::uint32_t) && decltype(woken_)::is_always_lock_free);
};

/// Drives a real GPU by three threads. The *listener* polls the cells and calls nothing that can
/// block; it sleeps while no scope is under way, and beside graphs, which may be replayed at any
/// time, it looks less and less often. The *actuator* makes every call of the device: clocks first,
/// counter reads in between, so that a clock write waits for one read at most.
/// The *collector* takes in the markers' timestamps where these lie in mapped memory, and solves.
/// None calls HIP or CUDA. All block all signals. A plugin whose code they run stays loaded:
/// its clocks go back when its last handle is gone, at the latest at the end of the process.
template <class Core, ClockControl Clocks, EnergySource Readings>
class ThreadLoop final : public ControlLoop {
public:
    /// `core` must outlive the threads: it is retired, never freed, once they have run.
    /// @throws Error (io) where no thread can be started
    ThreadLoop(Core& core, DeviceSides<Clocks, Readings> device)
        : state_{std::make_shared<State>(core, std::move(device))} {
        keep_loaded(reinterpret_cast<const void*>(&listen));
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            actuator_ = std::thread{[state = state_] { actuate(*state); }};
            listener_ = std::thread{[state = state_] { listen(*state); }};
            collector_ = std::thread{[state = state_] { collect(*state); }};
            watch_votes();
        } catch (const std::system_error& error) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            static_cast<void>(finish());
            throw Error{Errc::io,
                        {.action = "start the threads that drive the clocks",
                         .object = to_string(core.info()),
                         .vendor_words = error.what(),
                         .remedy = "see the limits on processes and threads (ulimit -u)"}};
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    ~ThreadLoop() override {
        if (fork_generation() != generation_) {
            forget();
            return;
        }
        static_cast<void>(finish());
    }

    void wake() noexcept override {
        // Of this and the listener's exchange in `rest` one comes first: either the listener sees
        // the scope that was entered before, or this sees that the listener is asleep.
        if (state_->asleep.fetch_add(0, std::memory_order_acq_rel) == awake) return;
        state_->listener_wakes.wake();
    }

    void work_begins() noexcept override {
        if (state_->asleep.load(std::memory_order_relaxed) == beside_graphs) {
            state_->listener_wakes.wake();
        }
        if (state_->core.counter_rests()) state_->actuator_wakes.wake();
    }

    [[nodiscard]] bool shares_one_core() const override { return state_->shares_one_core; }

    void sleep_for(Duration time) override { std::this_thread::sleep_for(time); }

    /// Lets the actuator carry out what is still wanted. Where that takes longer than two seconds,
    /// as while a device call does not come back, it goes on by itself: it puts the clocks back and
    /// lets go of the device when it can. If the process ends before, the watchdog does it.
    bool finish() noexcept override {
        if (!actuator_.joinable()) return !state_->abandoned;
        votes_.reset();
        state_->stopping = true;
        state_->listener_wakes.wake();
        state_->actuator_wakes.wake();
        state_->collector_wakes.wake();
        if (listener_.joinable()) listener_.join();
        if (collector_.joinable()) collector_.join();
        std::unique_lock lock{state_->mutex};
        const bool done = state_->actuator_done.wait_for(lock, std::chrono::seconds{2},
                                                         [this] { return state_->finished; });
        state_->abandoned = !done;
        lock.unlock();
        if (done) {
            actuator_.join();
            state_->device = {};  // lets go of the device, its lock and its watchdog
        } else {
            actuator_.detach();
        }
        return done;
    }

    [[nodiscard]] std::optional<Error> stalled_call() override {
        const Duration::rep since = state_->call_since.load(std::memory_order_acquire);
        if (since == 0) return std::nullopt;
        const Duration waited = state_->core.runtime().now().time_since_epoch() - Duration{since};
        if (waited < std::chrono::seconds{1}) return std::nullopt;
        return Error{Errc::timed_out,
                     {.action = state_->call_name.load(std::memory_order_acquire),
                      .object = to_string(state_->core.info()),
                      .vendor_words = "the driver's call has not come back for " +
                                      std::to_string(waited / std::chrono::milliseconds{1}) + " ms",
                      .remedy = "clocks stay as they are until it does: see the kernel's log for a "
                                "reset or a hanging GPU"}};
    }

private:
    // How the listener sleeps.
    static constexpr int awake = 0;
    static constexpr int without_graphs = 1;  ///< until it is woken
    static constexpr int beside_graphs = 2;   ///< for a while

    struct State {
        State(Core& its_core, DeviceSides<Clocks, Readings> its_device)
            : core{its_core},
              device{std::move(its_device)},
              operating_point{core.info().operating_point} {}

        Core& core;
        DeviceSides<Clocks, Readings> device;
        std::string operating_point;     ///< seen last, by the actuator; empty: there are none
        std::uint64_t own_switches = 0;  ///< of points, when it was seen
        TimePoint next_point_look{};
        TimePoint next_log_look{};
        TimePoint next_limit_look{};
        TimePoint next_process_look{};
        TimePoint logged_to{};                     ///< the last power sample's time
        std::atomic<Duration::rep> call_since{0};  ///< when the call under way began; 0: none is
        std::atomic<const char*> call_name{""};
        WakeUp listener_wakes;
        WakeUp actuator_wakes;
        WakeUp collector_wakes;
        std::atomic<int> asleep{awake};           ///< whether the listener waits to be woken
        std::atomic<bool> shows{true};            ///< `ClockArbiter::Look::shows`, of the last look
        std::atomic<std::uint64_t> shown_for{0};  ///< timestamps that were expected at that look
        std::atomic<std::uint64_t> changes{0};    ///< looks that found something changed
        std::atomic<bool> stopping{false};
        std::atomic<bool> shares_one_core{false};  ///< and may run nowhere else
        std::mutex mutex;                          ///< for the end alone
        std::condition_variable actuator_done;
        bool finished = false;   ///< under `mutex`
        bool abandoned = false;  ///< under `mutex`: nobody waits any more
    };

    /// One call of the device, under its name while it lasts.
    template <class Call>
    static auto call(State& state, const char* name, Call make) {
        state.call_name.store(name, std::memory_order_release);
        state.call_since.store(state.core.runtime().now().time_since_epoch().count(),
                               std::memory_order_release);
        auto result = make();
        state.call_since.store(0, std::memory_order_release);
        return result;
    }

    static const char* name_of(ClockCommand::Kind kind) {
        switch (kind) {
            case ClockCommand::Kind::apply: return "set the clocks";
            case ClockCommand::Kind::restore: return "restore the clocks";
            case ClockCommand::Kind::verify: return "read the clocks back";
        }
        return "drive the clocks";
    }

    /// Stands for "no deadline": far enough, and safe to hand to a condition variable.
    static constexpr Duration long_wait = std::chrono::hours{1};

    static std::chrono::steady_clock::time_point steady(TimePoint at) {
        return std::chrono::steady_clock::time_point{at.time_since_epoch()};
    }

    static void begin_thread(State& state, const char* name) {
        pthread_setname_np(pthread_self(), name);
        prctl(PR_SET_TIMERSLACK, 1000UL);  // ns; the default of 50 us would double each sleep
        leave_single_core(state);
    }

    /// mpirun binds each rank to one core: there these threads would take their time from the one
    /// that launches and waits, which made a step of examples/gpt_pipeline on an H100 5.9 % longer
    /// (bench/results/h100/binding). They go wherever the process's cpuset lets them.
    static void leave_single_core(State& state) {
        cpu_set_t cores;
        if (sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) != 1) return;
        cpu_set_t all;
        std::memset(&all, 0xff, sizeof all);
        sched_setaffinity(0, sizeof all, &all);
        if (sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1) {
            state.shares_one_core = true;
        }
    }

    /// Looks often after a change, less and less often while nothing changes, and not at all once
    /// every cell holds what was last put into its stream. A change is seen late by a hundredth of
    /// the quiet before it, or by eight of the shortest pauses, and by 2 ms at most; where nothing
    /// asks, and only the replay of a graph can change that, by 200 ms at most. What changes often
    /// does so again: the pause after a change is a third of the last quiet, within bounds.
    static void listen(State& state) {
        begin_thread(state, "kdvfs-listen");
        const Duration often =
            std::max<Duration>(state.core.options().listen_every, std::chrono::microseconds{10});
        constexpr Duration longest = std::chrono::milliseconds{2};
        constexpr Duration longest_at_rest = std::chrono::milliseconds{200};
        const bool streams_wait = state.core.options().ordering == Ordering::acked;
        Duration pause = often;
        TimePoint changed_at = state.core.runtime().now();
        while (true) {
            const TimePoint now = state.core.runtime().now();
            const ClockArbiter::Look look = look_at(state, now);
            if (streams_wait) {
                pause = often;
            } else if (look.changed) {
                pause = std::clamp((now - changed_at) / 3, often, 6 * often);
                changed_at = now;
            } else {
                const Duration soon = std::min(pause + pause / 2, 8 * often);
                const Duration most = look.at_rest && !look.asks ? longest_at_rest : longest;
                pause = std::max(soon, std::min((now - changed_at) / 100, most));
            }
            if (look.at_rest && !look.changed && (!look.graphs || pause > longest)) {
                const bool woken = rest(state, look.graphs ? beside_graphs : without_graphs,
                                        look.graphs ? pause : long_wait);
                if (state.stopping.load(std::memory_order_acquire)) return;
                if (woken) pause = often;
                if (woken && look.graphs) changed_at = state.core.runtime().now();
                continue;
            }
            if (state.stopping.load(std::memory_order_acquire)) return;
            state.listener_wakes.wait_until(std::chrono::steady_clock::now() + pause);
        }
    }

    static ClockArbiter::Look look_at(State& state, TimePoint now) {
        const std::uint64_t expected = state.core.expected_timestamps();
        const ClockArbiter::Look look = state.core.arbiter().listen(now);
        state.shows.store(look.shows, std::memory_order_relaxed);
        state.shown_for.store(expected, std::memory_order_relaxed);
        if (look.changed) {
            state.changes.fetch_add(1, std::memory_order_relaxed);
            state.actuator_wakes.wake();
        }
        return look;
    }

    /// Sleeps for a while, or until a scope is entered, unless one has been since the last look.
    /// @returns whether something has happened
    static bool rest(State& state, int how, Duration time) {
        state.asleep.exchange(how, std::memory_order_acq_rel);
        const ClockArbiter::Look look = look_at(state, state.core.runtime().now());
        const bool woken = !look.at_rest || look.changed || state.stopping ||
                           state.listener_wakes.wait_until(std::chrono::steady_clock::now() + time);
        state.asleep.store(awake, std::memory_order_relaxed);
        return woken;
    }

    /// Takes in timestamps, and with them solves what has been metered: neither launches nor clocks
    /// wait for that. The ring has room for more than a second of 20,000 scopes a second.
    static void collect(State& state) {
        begin_thread(state, "kdvfs-collect");
        constexpr Duration pause = std::chrono::milliseconds{50};
        constexpr Duration pause_at_rest = std::chrono::milliseconds{500};
        while (!state.stopping.load(std::memory_order_acquire)) {
            const bool any = state.core.meter().collect(state.core.runtime());
            state.collector_wakes.wait_until(std::chrono::steady_clock::now() +
                                             (any ? pause : pause_at_rest));
        }
    }

    static void actuate(State& state) {
        begin_thread(state, "kdvfs-act");
        while (true) {
            const bool stopping = state.stopping.load(std::memory_order_acquire);
            const bool busy = act(state, stopping);
            if (busy) continue;
            if (stopping) {  // a restore that was refused is tried again until it works
                const auto due = state.core.arbiter().next_deadline();
                if (!due) break;
                state.actuator_wakes.wait_until(steady(*due));
            } else {
                state.actuator_wakes.wait_until(next_wake(state));
            }
        }
        bool abandoned = false;
        {
            const std::lock_guard lock{state.mutex};
            state.finished = true;
            abandoned = state.abandoned;
            state.actuator_done.notify_one();
        }
        if (abandoned) state.device = {};
    }

    /// What other processes want of the same clocks.
    void watch_votes() {
        if constexpr (SharedControl<Clocks>) {
            if (!state_->device.clocks) return;
            State* const state = state_.get();  // which outlives the watch
            const auto request = std::make_shared<std::optional<TrackId>>();
            VoteWatch::Listener listener;
            listener.drives = [state] { return state->device.clocks->drives(); };
            listener.accepts = [state](ClockPoint point) {
                return supports(state->core.supported_clocks(), point);
            };
            listener.highest = [state, request](const std::optional<ClockPoint>& point) {
                if (!point) {
                    state->core.end_request(**request);
                    request->reset();
                } else if (*request) {
                    state->core.change_request(**request, *point);
                } else {
                    *request = state->core.begin_request(*point);
                }
                state->actuator_wakes.wake();
            };
            listener.shared = [state] { state->core.note_shared(); };
            listener.driver_ended = [state] {
                state->device.clocks->may_be_free();
                state->actuator_wakes.wake();
            };
            listener.refused = [state](const std::string& slot) {
                state->core.keep(Error{
                    Errc::invalid_input,
                    {.action = "read another process's vote",
                     .object = slot,
                     .vendor_words = "it is no vote, or for clocks that the GPU does not list",
                     .remedy = "it was ignored: see which program has the file open"}});
            };
            if (!listener.drives()) state->core.note_shared();
            votes_ = std::make_unique<VoteWatch>(state->device.clocks->vote_folder(),
                                                 state->device.clocks->lock(), std::move(listener));
        }
    }

    /// Votes, where another process drives the clocks; drives them, where that has ended.
    static void share(State& state) {
        if constexpr (SharedControl<Clocks>) {
            if (!state.device.clocks) return;
            state.device.clocks->vote(state.core.arbiter().requested(state.core.runtime().now()));
            try {
                if (!call(state, "take over the clocks",
                          [&] { return state.device.clocks->take_over(); })) {
                    return;
                }
                state.core.arbiter().begin_with(state.device.clocks->read_clock_state(),
                                                state.core.runtime().now());
            } catch (const Error& error) {
                state.call_since.store(0, std::memory_order_release);
                state.core.keep(error);
            }
        }
    }

    /// One device call, if one is due. @returns whether to look again at once
    static bool act(State& state, bool stopping) {
        if (!stopping) share(state);
        const TimePoint now = state.core.runtime().now();
        if (const auto command = state.core.arbiter().next_command(now)) {
            const CommandOutcome outcome = call(state, name_of(command->kind), [&] {
                return execute(*state.device.clocks, *command);
            });
            state.core.arbiter().completed(outcome, state.core.runtime().now());
            state.core.meter().pump();
            return true;
        }
        if (stopping) return false;
        watch_operating_point(state, now);
        if (state.core.meter().sampling().next_read() > now) return false;
        const EnergyReading reading = call(state, "read the energy counter",
                                           [&] { return state.device.readings->read_energy(); });
        state.core.meter().sampled(reading, state.core.runtime().now());
        read_power_log(state, now);
        read_power_limit(state, now);
        look_for_others(state, now);
        if constexpr (PowerSource<Readings>) {
            if (!state.core.meter().sampling().checking()) return true;
            const PowerReading power =
                call(state, "read the power", [&] { return state.device.readings->read_power(); });
            state.core.meter().sampling().power_read(power, state.core.runtime().now());
        }
        return true;
    }

    /// The driver keeps the samples of seconds: a look now and then finds them all.
    static void read_power_log(State& state, TimePoint now) {
        if constexpr (PowerLog<Readings>) {
            constexpr Duration often = std::chrono::milliseconds{250};
            if (now < state.next_log_look) return;
            if (state.logged_to == TimePoint{}) state.logged_to = now;
            state.next_log_look = now + often;
            try {
                const std::vector<PowerReading> samples = call(
                    state, "read the power samples",
                    [&] { return state.device.readings->read_power_samples(state.logged_to); });
                if (samples.empty()) return;
                state.logged_to = samples.back().sampled_at;
                state.core.meter().power_logged(samples);
            } catch (const Error&) {  // then the counter must do; asked again, seldom
                state.call_since.store(0, std::memory_order_release);
                state.next_log_look = now + 40 * often;
            }
        }
    }

    /// The limit may be changed while the program runs: by `train::PowerLimit`, or by somebody
    /// else.
    static void read_power_limit(State& state, TimePoint now) {
        if constexpr (ShowsPowerLimit<Readings>) {
            if (now < state.next_limit_look) return;
            state.next_limit_look = now + std::chrono::seconds{1};
            state.core.meter().power_limit(call(state, "read the power limit", [&] {
                return std::as_const(*state.device.readings).read_power_limit();
            }));
        }
    }

    /// Other processes may begin to work on the board at any time.
    static void look_for_others(State& state, TimePoint now) {
        if constexpr (ListsProcesses<Readings>) {
            if (now < state.next_process_look) return;
            state.next_process_look = now + BoardSharing::often;
            state.core.sharing().take(call(state, "list the processes on the board", [&] {
                return state.device.readings->read_other_processes();
            }));
        }
    }

    /// Somebody else may switch a device's prepared operating point: said once per switch.
    static void watch_operating_point(State& state, TimePoint now) {
        if constexpr (OperatingPointSource<Readings>) {
            if (state.operating_point.empty() || now < state.next_point_look) return;
            state.next_point_look = now + state.core.options().controller.verify_every;
            const auto own = state.core.points_seen();
            if (own.switches % 2 != 0) return;  // one is under way
            if (own.switches != state.own_switches && !own.words.empty()) {
                state.own_switches = own.switches;
                state.operating_point = own.words;
            }
            const std::string held = call(state, "read the operating point", [&] {
                return state.device.readings->read_operating_point();
            });
            if (held.empty() || held == state.operating_point) return;
            if (state.core.points_seen().switches != own.switches) return;
            state.core.keep(
                Error{Errc::external_change,
                      {.action = "measure at one operating point",
                       .object = to_string(state.core.info()),
                       .vendor_words =
                           "somebody has switched it from " + state.operating_point + " to " + held,
                       .remedy = "switch it back, or measure and plan anew at this one"}});
            state.operating_point = held;
        }
    }

    static std::chrono::steady_clock::time_point next_wake(State& state) {
        const TimePoint now = state.core.runtime().now();
        // A scope that asks for nothing wakes nobody: the last look may not have seen it.
        const bool shows =
            state.shows.load(std::memory_order_relaxed) &&
            state.shown_for.load(std::memory_order_relaxed) == state.core.expected_timestamps();
        state.core.meter().rest_where_idle(state.asleep.load(std::memory_order_relaxed) != awake,
                                           shows, state.changes.load(std::memory_order_relaxed),
                                           now);
        TimePoint wake = now + long_wait;
        if (const auto deadline = state.core.arbiter().next_deadline())
            wake = std::min(wake, *deadline);
        if (!state.operating_point.empty()) wake = std::min(wake, state.next_point_look);
        return steady(std::min(wake, state.core.meter().sampling().next_read()));
    }

    /// In a forked child there are no threads to join, and the locks may be held by nobody: what
    /// the parent had is left as it is.
    void forget() noexcept {
        new std::shared_ptr<State>(state_);
        new std::thread(std::move(listener_));
        new std::thread(std::move(actuator_));
        new std::thread(std::move(collector_));
        static_cast<void>(votes_.release());
    }

    std::shared_ptr<State> state_;
    std::uint32_t generation_ = fork_generation();
    std::thread listener_;
    std::thread actuator_;
    std::thread collector_;
    std::unique_ptr<VoteWatch> votes_;
};

}  // namespace kdvfs::inline v0_3::detail
