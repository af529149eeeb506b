// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/gpu/core.hpp>
#include <kdvfs/device/simulated/device.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

namespace kdvfs::inline v0_3::simulated {

/// Listener, actuator and sampler of a simulated GPU, as events in its virtual time. The listener
/// sees a cell at its next look; the actuator makes one call at a time, and a call waits for at
/// most one counter read.
class EventLoop final : public kdvfs::detail::ControlLoop {
    using Core = kdvfs::detail::GpuCore<Device>;

public:
    EventLoop(Device& device, Core& core) : state_{std::make_shared<State>(device, core)} {
        device.on_cell_written([state = state_] { state->look_soon(state); });
        state_->sample_next(state_);
    }
    ~EventLoop() override { stop(); }

    void wake() noexcept override { state_->look_soon(state_); }

    void sleep_for(Duration time) override { state_->device.advance(time); }

    bool finish() noexcept override {
        stop();
        const auto now = [this] { return state_->device.now(); };
        if (state_->in_flight) {  // its answer was on the way
            state_->core.arbiter().completed(state_->outcome, now());
        }
        // Time stands still here: a device that stays busy is not asked for ever.
        for (int tries = 0; tries < 16; ++tries) {
            const auto command = state_->core.arbiter().next_command(TimePoint::max());
            if (!command) break;
            state_->core.arbiter().completed(execute(state_->device, *command), now());
        }
        state_->core.meter().pump();
        return true;
    }

private:
    /// Shared with the events that are still to come: they find out that the loop has stopped.
    struct State {
        State(Device& its_device, Core& its_core) : device{its_device}, core{its_core} {}

        Device& device;
        Core& core;
        bool stopped = false;
        bool look_scheduled = false;
        bool in_flight = false;
        kdvfs::detail::CommandOutcome outcome{};
        TimePoint bus_free{};

        void look_soon(const std::shared_ptr<State>& self) {
            if (stopped || look_scheduled) return;
            look_scheduled = true;
            const Duration period = core.options().listen_every;
            const TimePoint now = device.now();
            const Duration into =
                period > Duration::zero() ? now.time_since_epoch() % period : Duration::zero();
            const TimePoint next = into == Duration::zero() ? now : now + (period - into);
            device.schedule(next, [self] {
                self->look_scheduled = false;
                if (self->stopped) return;
                self->core.arbiter().listen(self->device.now());
                self->act(self);
            });
        }

        void act(const std::shared_ptr<State>& self) {
            if (stopped || in_flight) return;
            const TimePoint now = device.now();
            if (bus_free > now) {  // a counter read is under way
                device.schedule(bus_free, [self] { self->act(self); });
                return;
            }
            const auto command = core.arbiter().next_command(now);
            if (!command) {
                if (const auto deadline = core.arbiter().next_deadline();
                    deadline && *deadline > now) {
                    wait_until(*deadline, self);
                }
                return;
            }
            in_flight = true;
            outcome = execute(device, *command);
            const Duration cost = command->kind == kdvfs::detail::ClockCommand::Kind::apply
                                      ? device.clock_switch().call_cost
                                      : Duration::zero();
            bus_free = now + cost;
            device.schedule(bus_free, [self] {
                if (self->stopped) return;
                self->in_flight = false;
                self->core.arbiter().completed(self->outcome, self->device.now());
                self->core.meter().pump();
                self->act(self);
            });
        }

        /// The controller wants to be asked again then; earlier wakes make a later one moot.
        void wait_until(TimePoint deadline, const std::shared_ptr<State>& self) {
            if (waiting_for <= deadline && waiting_for > device.now()) return;
            waiting_for = deadline;
            device.schedule(deadline, [self, deadline] {
                if (self->waiting_for == deadline) self->act(self);
            });
        }
        TimePoint waiting_for{};

        /// Four times a second, as the threads do with a real one.
        void read_power_log() {
            constexpr Duration often = std::chrono::milliseconds{250};
            const TimePoint now = device.now();
            if (!device.has_sensors() || now < next_log_look) return;
            next_log_look = now + often;
            const std::vector<PowerReading> samples = device.read_power_samples(logged_to);
            if (samples.empty()) return;
            logged_to = samples.back().sampled_at;
            core.meter().power_logged(samples);
        }
        TimePoint next_log_look{};
        TimePoint logged_to{};

        void look_for_others() {
            if (device.now() < next_process_look) return;
            next_process_look = device.now() + kdvfs::detail::BoardSharing::often;
            core.sharing().take(device.read_other_processes());
        }
        TimePoint next_process_look{};

        void sample_next(const std::shared_ptr<State>& self) {
            const TimePoint due = core.meter().sampling().next_read();
            if (stopped || due == measure::Sampler::never) return;
            device.schedule(due, [self] {
                if (self->stopped) return;
                const TimePoint begin = std::max(self->device.now(), self->bus_free);
                self->bus_free = begin + self->device.meter().traits().read_time;
                self->device.schedule(self->bus_free, [self] {
                    if (self->stopped) return;
                    static_cast<void>(self->core.meter().collect(self->device));
                    self->core.meter().power_limit(self->device.read_power_limit());
                    self->look_for_others();
                    self->core.meter().sampled(self->device.read_energy(), self->device.now());
                    self->read_power_log();
                    if (self->core.meter().sampling().checking()) {
                        self->core.meter().sampling().power_read(self->device.read_power(),
                                                                 self->device.now());
                    }
                    self->sample_next(self);
                });
            });
        }
    };

    void stop() noexcept {
        if (std::exchange(state_->stopped, true)) return;
        state_->device.on_cell_written({});
    }

    std::shared_ptr<State> state_;
};

}  // namespace kdvfs::inline v0_3::simulated
