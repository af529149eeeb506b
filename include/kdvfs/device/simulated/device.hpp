// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/device/simulated/engine.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::simulated {

/// How long a clock change takes to arrive.
struct SwitchDelays {
    Duration switching_latency{0};  ///< from the call to the new clock; the old one works on
    Duration transition{0};         ///< the end of the latency, in which the GPU pauses
};

/// The one model of a switch: during the switching latency the GPU works on at the old clock,
/// during the transition it pauses, then the new clock holds. A later call overtakes an earlier.
struct SwitchModel {
    Duration call_cost{0};  ///< for how long the setting call keeps its caller
    std::function<SwitchDelays(ClockPoint from, ClockPoint to)> delays =
        [](ClockPoint, ClockPoint) { return SwitchDelays{}; };
};

/// The same delays for every pair of clock points.
inline SwitchModel uniform_switch(Duration switching_latency, Duration transition = {},
                                  Duration call_cost = {}) {
    return {.call_cost = call_cost, .delays = [=](ClockPoint, ClockPoint) {
                return SwitchDelays{switching_latency, transition};
            }};
}

/// A board's own delays.
inline SwitchModel switch_model(const ClockSwitchTraits& traits) {
    return uniform_switch(traits.switching_latency, traits.transition, traits.call_cost);
}

struct DeviceOptions {
    std::uint64_t seed = 1;                     ///< of the counter's noise
    std::optional<SwitchModel> clock_switch{};  ///< instead of the board's
    std::optional<EnergyCounterTraits> energy_counter{};
    /// What `counter_period` says, right or wrong, 0 = unknown; else the truth.
    std::optional<Duration> claimed_counter_period{};
    /// Stream time of a marker. 2 us: measured for a one-thread kernel on an H100.
    Duration marker_time = std::chrono::microseconds{2};
    std::size_t timestamp_capacity = std::size_t{1} << 16;  ///< the ring that markers push into
    /// Sensors between what the board draws and what is read, and a power log, such as
    /// `sensors::h100`. Nothing, the default: the counter shows the load itself, and there is no
    /// log.
    std::optional<Sensors> sensors{};
    /// Prepared operating points 0, 1, ..., of which the first holds: each is a power limit, which
    /// is what the points of real boards are made of. Empty: the GPU has none.
    std::vector<Watts> prepared_points{};
};

/// A GPU that is not there: streams, graphs, clocks and an energy counter in virtual time,
/// deterministic by seed. Time passes only in `synchronize` and `advance`; enqueueing takes none.
/// Not thread-safe: one thread plays the host.
///
/// It fulfils the contracts `ClockControl`, `EnergySource`, `PowerLog`, `StreamRuntime` and
/// `PowerLimitControl`.
class Device {
public:
    explicit Device(Board board, DeviceOptions options = {});
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    // What a program does with a GPU.

    [[nodiscard]] Stream* create_stream();
    [[nodiscard]] Event* create_event() { return engine_.create_event(); }

    /// @throws Error (invalid_input) for a kernel that takes more than 1e6 s at the highest clocks
    void launch(StreamRef stream, const KernelModel& kernel);
    void launch(StreamRef stream, const Graph& graph);
    void record(StreamRef stream, Event* event);
    /// Waits for what was recorded last; for nothing if nothing has been.
    void wait(StreamRef stream, Event* event);
    void call_back(StreamRef stream, std::function<void()> call);
    void begin_capture(StreamRef stream);
    [[nodiscard]] Graph end_capture(StreamRef stream);

    /// Lets virtual time pass until everything in a stream is done.
    /// @throws Error (timed_out) if the stream waits for something that never comes
    void synchronize(StreamRef stream);
    /// Lets virtual time pass until all streams are done.
    void synchronize();
    /// Lets the host do something else for so long.
    void advance(Duration time) { engine_.run_to(now() + time); }

    // ClockControl

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return board_.clocks; }

    [[nodiscard]] ClockState read_clock_state();

    void apply(ClockPoint point);

    void restore(const ClockState& state);

    // EnergySource

    [[nodiscard]] EnergyReading read_energy() noexcept;
    [[nodiscard]] Duration counter_period() const {
        return options_.claimed_counter_period.value_or(meter_.traits().period);
    }

    // PowerSource

    /// Mean over the last period of the energy counter, without its faults.
    [[nodiscard]] PowerReading read_power() noexcept {
        return {meter_.mean_power(), now(), ReadingStatus::ok};
    }

    // PowerLog

    /// Empty unless `DeviceOptions::sensors` has a log.
    [[nodiscard]] std::vector<PowerReading> read_power_samples(TimePoint since) const {
        return meter_.read_log(since, now());
    }
    /// Whether readings differ from the load as those of a real board do.
    [[nodiscard]] bool has_sensors() const { return options_.sensors.has_value(); }

    // StreamRuntime

    [[nodiscard]] TrackKey track_key(StreamRef stream);
    [[nodiscard]] TrackKey key_now(const TrackKey& before) { return track_key(before.stream); }
    [[nodiscard]] RequestCell* make_cell();
    void put_marker(StreamRef stream, const Marker& marker);
    /// How many markers were put into streams and captures.
    [[nodiscard]] std::uint64_t markers() const noexcept { return markers_; }
    [[nodiscard]] std::uint32_t* make_answer_word() { return &cells_.emplace_back().word; }
    void put_wait(StreamRef stream, const std::uint32_t* word, std::uint32_t number);
    std::size_t drain_timestamps(std::span<MarkerTimestamp> out) noexcept;
    std::size_t collect_timestamps(std::span<MarkerTimestamp> out) noexcept {
        return drain_timestamps(out);
    }
    [[nodiscard]] std::uint64_t lost_timestamps() const noexcept {
        return engine_.lost_timestamps();
    }
    [[nodiscard]] TimePoint now() const noexcept { return engine_.now(); }
    [[nodiscard]] std::string_view marker_mechanism() const { return "simulated marker kernel"; }

    // ListsProcesses

    /// Nobody, or the one that `LoadTraits::outside` says of, where the driver shows it.
    [[nodiscard]] OtherProcesses read_other_processes() const {
        const LoadTraits load = options_.sensors ? options_.sensors->load : LoadTraits{};
        if (load.outside.count <= 0) return {.complete = true};
        if (!load.outside_is_listed) return {};
        return {.complete = true, .working = {"a simulated process (2)"}};
    }

    // PowerLimitControl

    [[nodiscard]] Watts read_power_limit() const { return board_.power_cap; }
    void set_power_limit(Watts limit);
    /// Down to 40 % of what the board comes with: an assumption, between the published 29 % of an
    /// H100 (200 of 700 W) and 57 % of an A40.
    [[nodiscard]] PowerRange power_limit_range() const {
        return {full_power_cap_ * 0.4, full_power_cap_};
    }

    // Prepared operating points; `PreparedPoints` makes them a `PreparedPointControl`.

    [[nodiscard]] PreparedPoint read_prepared_point() const { return prepared_point_; }
    /// "point 1 (420 W)"; empty where there are none.
    [[nodiscard]] std::string read_operating_point() const;
    /// At once, for kernels that run, too. @throws Error for a point that there is not, or a limit
    /// out of the board's range
    void switch_to(PreparedPoint point);

    // What only a simulation knows, and can do.

    [[nodiscard]] const Board& board() const { return board_; }
    [[nodiscard]] Joules true_energy() const { return meter_.truth(); }
    /// The chip's temperature: see `Thermal`.
    [[nodiscard]] double celsius() const { return engine_.celsius(); }
    [[nodiscard]] EnergyMeter& meter() { return meter_; }
    [[nodiscard]] FaultPlan& faults() { return faults_; }
    /// The caps that really hold now, which is later than when they were asked for.
    [[nodiscard]] ClockPoint effective_clocks() const { return engine_.caps(); }
    [[nodiscard]] const SwitchModel& clock_switch() const { return switch_; }

    /// Somebody else sets the clocks.
    void change_clocks_as_other(ClockState state) { settle(std::move(state)); }
    /// The GPU is reset: all settings fall back to their defaults.
    void reset_to_defaults() { settle(ClockState{}); }

    /// Lets something happen at a moment of virtual time.
    void schedule(TimePoint at, EventQueue::Action action) {
        engine_.schedule(at, std::move(action));
    }
    /// Called whenever a marker has written a cell. One listener.
    void on_cell_written(std::function<void()> listener) {
        engine_.on_cell_written(std::move(listener));
    }

private:
    Stream& checked(StreamRef stream);

    void enqueue(StreamRef stream, Operation operation);

    void run_until_done(const std::function<bool()>& done);

    // Faults.

    std::optional<Fault> struck(Call call) noexcept;

    [[noreturn]] void fail(Fault fault, std::string_view action) const;

    void fail_if_struck(Call call, std::string_view action) {
        if (const auto fault = struck(call)) fail(*fault, action);
    }

    // Clocks.

    void change(Call call, const std::string& action, const ClockState& state);

    /// The setting is there at once; the clocks follow after the switching latency.
    void settle(ClockState state);

    Board board_;
    Watts full_power_cap_{board_.power_cap};
    DeviceOptions options_;
    SwitchModel switch_;
    DeviceInfo info_;
    EnergyMeter meter_;
    Engine engine_;
    Stream* default_stream_;
    FaultPlan faults_;
    std::deque<RequestCell> cells_;
    ClockState setting_;
    PreparedPoint prepared_point_{};
    std::uint64_t last_change_ = 0;
    std::uint64_t captures_ = 0;
    std::uint64_t markers_ = 0;
    bool vanished_ = false;
};

static_assert(ClockControl<Device>);
static_assert(EnergySource<Device>);
static_assert(PowerSource<Device>);
static_assert(PowerLog<Device>);
static_assert(ListsProcesses<Device>);
static_assert(PowerLimitControl<Device>);
static_assert(StreamRuntime<Device> && WaitingRuntime<Device>);

}  // namespace kdvfs::inline v0_3::simulated

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/device/simulated/device.hpp>
#endif
