// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/gpu/core.hpp>
#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/device/contracts.hpp>

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace kdvfs::detail {

/// The sides of a real device. All their calls are made by one thread, the actuator; they may
/// block.
template <ClockControl Clocks, EnergySource Readings>
struct DeviceSides {
    std::shared_ptr<Clocks> clocks{};  ///< null: the device is only measured
    std::shared_ptr<Readings> readings{};
};

/// Drives a real GPU by two threads. The *listener* polls the cells and calls nothing that can
/// block; it sleeps while no scope is under way. The *actuator* makes every call of the device:
/// clocks first, counter reads in between, so that a clock write waits for one read at most.
/// Neither calls HIP or CUDA. Both block all signals. A plugin whose code they run stays loaded:
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
        if (state_->asleep.fetch_add(0, std::memory_order_acq_rel) == 0) return;
        {
            const std::lock_guard lock{state_->mutex};
            state_->woken = true;
        }
        state_->listener_wakes.notify_one();
    }

    void sleep_for(Duration time) override { std::this_thread::sleep_for(time); }

    /// Lets the actuator carry out what is still wanted. A device call that does not come back
    /// within two seconds is left to itself: the watchdog restores what it has not.
    bool finish() noexcept override {
        if (!actuator_.joinable()) return !state_->abandoned;
        {
            std::unique_lock lock{state_->mutex};
            state_->stopping = true;
            state_->listener_wakes.notify_one();
            state_->actuator_wakes.notify_one();
        }
        if (listener_.joinable()) listener_.join();
        std::unique_lock lock{state_->mutex};
        const bool done = state_->actuator_done.wait_for(lock, std::chrono::seconds{2},
                                                         [this] { return state_->finished; });
        state_->abandoned = !done;
        state_->actuator_wakes.notify_one();
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
    struct State {
        State(Core& its_core, DeviceSides<Clocks, Readings> its_device)
            : core{its_core},
              device{std::move(its_device)},
              operating_point{core.info().operating_point} {}

        Core& core;
        DeviceSides<Clocks, Readings> device;
        std::string operating_point;  ///< seen last, by the actuator; empty: there are none
        TimePoint next_point_look{};
        std::atomic<Duration::rep> call_since{0};  ///< when the call under way began; 0: none is
        std::atomic<const char*> call_name{""};
        std::mutex mutex;
        std::condition_variable listener_wakes;
        std::condition_variable actuator_wakes;
        std::condition_variable actuator_done;
        std::atomic<int> asleep{0};  ///< 1 while the listener waits to be woken
        bool woken = false;
        bool requests_changed = false;  ///< the actuator has something to look at
        std::atomic<bool> stopping{false};
        bool finished = false;
        bool abandoned = false;  ///< `core` is gone: touch nothing
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

    static void name_thread(const char* name) {
        pthread_setname_np(pthread_self(), name);
        prctl(PR_SET_TIMERSLACK, 1000UL);  // ns; the default of 50 us would double each sleep
    }

    /// Looks often after a change, less and less often while nothing changes, and not at all once
    /// every cell holds what was last put into its stream. A change is seen late by a hundredth of
    /// the quiet before it, or by eight of the shortest pauses, and by 2 ms at most. What changes
    /// often does so again: the pause after a change is a tenth of the last quiet, within bounds.
    static void listen(State& state) {
        name_thread("kdvfs-listen");
        const Duration often =
            std::max<Duration>(state.core.options().listen_every, std::chrono::microseconds{10});
        constexpr Duration longest = std::chrono::milliseconds{2};
        const bool streams_wait = state.core.options().ordering == Ordering::acked;
        Duration pause = often;
        TimePoint changed_at{};
        while (true) {
            const TimePoint now = state.core.runtime().now();
            const ClockArbiter::Look look = state.core.arbiter().listen(now);
            if (look.changed) tell_actuator(state);
            if (streams_wait) {
                pause = often;
            } else if (look.changed) {
                pause = std::clamp((now - changed_at) / 10, often, 4 * often);
                changed_at = now;
            } else {
                const Duration soon = std::min(pause + pause / 4, 8 * often);
                pause = std::max(soon, std::min((now - changed_at) / 100, longest));
            }
            if (look.at_rest && !look.changed) {
                rest(state);
                pause = often;
            }
            if (state.stopping.load(std::memory_order_acquire)) return;
            std::this_thread::sleep_for(pause);
        }
    }

    /// Sleeps until a scope is entered, unless one has been since the last look.
    static void rest(State& state) {
        state.asleep.exchange(1, std::memory_order_acq_rel);
        const ClockArbiter::Look look = state.core.arbiter().listen(state.core.runtime().now());
        if (look.changed) tell_actuator(state);
        {
            std::unique_lock lock{state.mutex};
            if (look.at_rest && !look.changed) {
                state.listener_wakes.wait(lock, [&] { return state.stopping || state.woken; });
            }
            state.woken = false;
        }
        state.asleep.store(0, std::memory_order_relaxed);
    }

    static void tell_actuator(State& state) {
        const std::lock_guard lock{state.mutex};
        state.requests_changed = true;
        state.actuator_wakes.notify_one();
    }

    static void actuate(State& state) {
        name_thread("kdvfs-act");
        std::unique_lock lock{state.mutex};
        while (true) {
            const bool stopping = state.stopping;
            state.requests_changed = false;
            lock.unlock();
            const bool busy = act(state, stopping);
            lock.lock();
            if (state.abandoned) return;
            if (busy) continue;
            if (stopping) {  // a restore that was refused is tried again until nobody waits for it
                const auto due = state.core.arbiter().next_deadline();
                if (!due) break;
                state.actuator_wakes.wait_until(lock, steady(*due),
                                                [&] { return state.abandoned; });
                continue;
            }
            lock.unlock();
            const auto until = next_wake(state);
            lock.lock();
            state.actuator_wakes.wait_until(
                lock, until, [&] { return state.stopping || state.requests_changed; });
        }
        state.finished = true;
        state.actuator_done.notify_one();
    }

    /// One device call, if one is due. @returns whether to look again at once
    static bool act(State& state, bool stopping) {
        const TimePoint now = state.core.runtime().now();
        if (const auto command = state.core.arbiter().next_command(now)) {
            const CommandOutcome outcome = call(state, name_of(command->kind), [&] {
                return execute(*state.device.clocks, *command);
            });
            if (is_abandoned(state)) return false;
            state.core.arbiter().completed(outcome, state.core.runtime().now());
            state.core.meter().pump();
            return true;
        }
        if (stopping) return false;
        watch_operating_point(state, now);
        if (state.core.meter().sampling().next_read() > now) return false;
        const EnergyReading reading = call(state, "read the energy counter",
                                           [&] { return state.device.readings->read_energy(); });
        if (is_abandoned(state)) return false;
        state.core.meter().sampled(reading, state.core.runtime().now());
        if constexpr (PowerSource<Readings>) {
            if (!state.core.meter().sampling().checking()) return true;
            const PowerReading power =
                call(state, "read the power", [&] { return state.device.readings->read_power(); });
            if (is_abandoned(state)) return false;
            state.core.meter().sampling().power_read(power, state.core.runtime().now());
        }
        return true;
    }

    /// Somebody else may switch a device's prepared operating point: said once per switch.
    static void watch_operating_point(State& state, TimePoint now) {
        if constexpr (OperatingPointSource<Readings>) {
            if (state.operating_point.empty() || now < state.next_point_look) return;
            state.next_point_look = now + state.core.options().controller.verify_every;
            const std::string held = call(state, "read the operating point", [&] {
                return state.device.readings->read_operating_point();
            });
            if (is_abandoned(state) || held.empty() || held == state.operating_point) return;
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

    static bool is_abandoned(State& state) {
        const std::lock_guard lock{state.mutex};
        return state.abandoned;
    }

    static std::chrono::steady_clock::time_point next_wake(State& state) {
        TimePoint wake = state.core.runtime().now() + long_wait;
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
    }

    std::shared_ptr<State> state_;
    std::uint32_t generation_ = fork_generation();
    std::thread listener_;
    std::thread actuator_;
};

}  // namespace kdvfs::detail
