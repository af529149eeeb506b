// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/device/simulated/engine.hpp>
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
    /// Prepared operating points 0, 1, ..., of which the first holds: each is a power limit, which
    /// is what the points of real boards are made of. Empty: the GPU has none.
    std::vector<Watts> prepared_points{};
};

/// A GPU that is not there: streams, graphs, clocks and an energy counter in virtual time,
/// deterministic by seed. Time passes only in `synchronize` and `advance`; enqueueing takes none.
/// Not thread-safe: one thread plays the host.
///
/// It fulfils the contracts `ClockControl`, `EnergySource`, `StreamRuntime` and
/// `PowerLimitControl`.
class Device {
public:
    explicit Device(Board board, DeviceOptions options = {})
        : board_{std::move(board)},
          options_{std::move(options)},
          switch_{options_.clock_switch.value_or(switch_model(board_.clock_switch))},
          info_{.name = board_.name,
                .address = "simulated",
                .architecture = board_.architecture,
                .mechanism = "simulated clocks",
                .simulated = true},
          meter_{options_.energy_counter.value_or(board_.energy_counter), options_.seed},
          engine_{board_,
                  meter_,
                  {.marker_time = options_.marker_time,
                   .timestamp_capacity = options_.timestamp_capacity}} {
        default_stream_ = create_stream();
        if (options_.prepared_points.empty()) return;
        for (std::uint32_t i = 0; i < options_.prepared_points.size(); ++i)
            info_.prepared_points.push_back({i});
        switch_to(PreparedPoint{0});
        info_.operating_point = read_operating_point();
    }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    // What a program does with a GPU.

    [[nodiscard]] Stream* create_stream() {
        Stream* stream = engine_.create_stream();
        stream->device_ = this;
        return stream;
    }
    [[nodiscard]] Event* create_event() { return engine_.create_event(); }

    void launch(StreamRef stream, const KernelModel& kernel) {
        enqueue(stream, KernelOperation{kernel});
    }
    void launch(StreamRef stream, const Graph& graph) {
        for (const Operation& operation : graph.operations_) {
            // Each launch records its events anew.
            if (const auto* recorded = std::get_if<RecordOperation>(&operation)) {
                record(stream, recorded->event);
            } else if (const auto* waiting = std::get_if<WaitOperation>(&operation)) {
                wait(stream, waiting->event);
            } else {
                enqueue(stream, operation);
            }
        }
    }
    void record(StreamRef stream, Event* event) {
        const bool live = checked(stream).capture_ == 0;
        if (live) ++event->enqueued_;
        enqueue(stream, RecordOperation{event, event->enqueued_});
    }
    /// Waits for what was recorded last; for nothing if nothing has been.
    void wait(StreamRef stream, Event* event) {
        enqueue(stream, WaitOperation{event, event->enqueued_});
    }
    void call_back(StreamRef stream, std::function<void()> call) {
        enqueue(stream, CallbackOperation{std::move(call)});
    }
    void begin_capture(StreamRef stream) {
        Stream& recorded = checked(stream);
        recorded.capture_ = ++captures_;
        recorded.recorded_ = Graph{};
    }
    [[nodiscard]] Graph end_capture(StreamRef stream) {
        Stream& recorded = checked(stream);
        recorded.capture_ = 0;
        return std::exchange(recorded.recorded_, Graph{});
    }

    /// Lets virtual time pass until everything in a stream is done.
    /// @throws Error (timed_out) if the stream waits for something that never comes
    void synchronize(StreamRef stream) {
        const Stream& waited = checked(stream);
        run_until_done([&] { return Engine::empty(waited); });
    }
    /// Lets virtual time pass until all streams are done.
    void synchronize() {
        run_until_done([&] { return engine_.idle(); });
    }
    /// Lets the host do something else for so long.
    void advance(Duration time) { engine_.run_to(now() + time); }

    // ClockControl

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return board_.clocks; }

    [[nodiscard]] ClockState read_clock_state() {
        fail_if_struck(Call::read_clock_state, "read the clock settings");
        return setting_;
    }

    void apply(ClockPoint point) {
        const std::string action = "set " + kdvfs::to_string(point);
        if (!supports(board_.clocks, point)) {
            throw Error{Errc::invalid_input,
                        {.action = action,
                         .object = kdvfs::to_string(info_),
                         .vendor_words = "not in the device's list",
                         .remedy = "plan with the clocks that supported_clocks() lists"}};
        }
        ClockState wanted = setting_;
        wanted.cap = point;
        wanted.mode = point.is_auto() && wanted.floor.is_auto() ? "auto" : "manual";
        change(Call::apply, action, wanted);
    }

    void restore(const ClockState& state) {
        change(Call::restore, "restore the clock settings", state);
    }

    // EnergySource

    [[nodiscard]] EnergyReading read_energy() noexcept {
        if (const auto fault = struck(Call::read_energy)) {
            return {{},
                    now(),
                    *fault == Fault::vanished ? ReadingStatus::absent : ReadingStatus::failed};
        }
        return meter_.read(now());
    }
    [[nodiscard]] Duration counter_period() const {
        return options_.claimed_counter_period.value_or(meter_.traits().period);
    }

    // PowerSource

    /// Mean over the last period of the energy counter, without its faults.
    [[nodiscard]] PowerReading read_power() noexcept {
        return {meter_.mean_power(), now(), ReadingStatus::ok};
    }

    // StreamRuntime

    [[nodiscard]] TrackKey track_key(StreamRef stream) {
        fail_if_struck(Call::track_key, "tell which track a stream is");
        const Stream& known = checked(stream);
        return {.stream = stream, .capture = known.capture_};
    }
    [[nodiscard]] TrackKey key_now(const TrackKey& before) { return track_key(before.stream); }
    [[nodiscard]] RequestCell* make_cell() {
        fail_if_struck(Call::make_cell, "map a request cell");
        return &cells_.emplace_back();
    }
    void put_marker(StreamRef stream, const Marker& marker) {
        fail_if_struck(Call::put_marker, "put a marker into a stream");
        enqueue(stream, MarkerOperation{marker});
        ++markers_;
    }
    /// How many markers were put into streams and captures.
    [[nodiscard]] std::uint64_t markers() const noexcept { return markers_; }
    [[nodiscard]] std::uint32_t* make_answer_word() { return &cells_.emplace_back().word; }
    void put_wait(StreamRef stream, const std::uint32_t* word, std::uint32_t number) {
        enqueue(stream, AnswerOperation{word, number});
    }
    std::size_t drain_timestamps(std::span<MarkerTimestamp> out) noexcept {
        auto& timestamps = engine_.timestamps();
        const std::size_t count = std::min(out.size(), timestamps.size());
        std::copy_n(timestamps.begin(), count, out.begin());
        timestamps.erase(timestamps.begin(),
                         timestamps.begin() + static_cast<std::ptrdiff_t>(count));
        return count;
    }
    std::size_t collect_timestamps(std::span<MarkerTimestamp> out) noexcept {
        return drain_timestamps(out);
    }
    [[nodiscard]] std::uint64_t lost_timestamps() const noexcept {
        return engine_.lost_timestamps();
    }
    [[nodiscard]] TimePoint now() const noexcept { return engine_.now(); }
    [[nodiscard]] std::string_view marker_mechanism() const { return "simulated marker kernel"; }

    // PowerLimitControl

    [[nodiscard]] Watts read_power_limit() const { return board_.power_cap; }
    void set_power_limit(Watts limit) {
        const PowerRange range = power_limit_range();
        if (!(limit >= range.low && limit <= range.high))
            throw Error{Errc::refused,
                        {.action = "set a power limit of " + std::to_string(limit.count) + " W",
                         .object = kdvfs::to_string(info_),
                         .vendor_words = "not in the board's range",
                         .remedy = "choose a limit that power_limit_range() has"}};
        board_.power_cap = limit;
        engine_.power_cap_changed();
    }
    /// Down to 40 % of what the board comes with: an assumption, between the published 29 % of an
    /// H100 (200 of 700 W) and 57 % of an A40.
    [[nodiscard]] PowerRange power_limit_range() const {
        return {full_power_cap_ * 0.4, full_power_cap_};
    }

    // Prepared operating points; `PreparedPoints` makes them a `PreparedPointControl`.

    [[nodiscard]] PreparedPoint read_prepared_point() const { return prepared_point_; }
    /// "point 1 (420 W)"; empty where there are none.
    [[nodiscard]] std::string read_operating_point() const {
        if (options_.prepared_points.empty()) return {};
        const Watts limit = options_.prepared_points[prepared_point_.number];
        return "point " + std::to_string(prepared_point_.number) + " (" +
               std::to_string(std::lround(limit.count)) + " W)";
    }
    /// At once, for kernels that run, too. @throws Error for a point that there is not, or a limit
    /// out of the board's range
    void switch_to(PreparedPoint point) {
        if (point.number >= options_.prepared_points.size()) {
            throw Error{Errc::invalid_input,
                        {.action = "switch to " + kdvfs::to_string(point),
                         .object = kdvfs::to_string(info_),
                         .vendor_words = "the board has no such point",
                         .remedy = "ask for one of info().prepared_points"}};
        }
        set_power_limit(options_.prepared_points[point.number]);
        prepared_point_ = point;
    }

    // What only a simulation knows, and can do.

    [[nodiscard]] const Board& board() const { return board_; }
    [[nodiscard]] Joules true_energy() const { return meter_.truth(); }
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
    Stream& checked(StreamRef stream) {
        auto* known = stream.as<Stream>();
        if (known == nullptr) return *default_stream_;
        if (known->device_ != this) {
            throw Error{Errc::invalid_input,
                        {.action = "use a stream",
                         .object = kdvfs::to_string(info_),
                         .vendor_words = "the stream belongs to another device",
                         .remedy = "open a Gpu for that device and scope the stream with it"}};
        }
        return *known;
    }

    void enqueue(StreamRef stream, Operation operation) {
        Engine::enqueue(checked(stream), std::move(operation));
    }

    template <class Done>
    void run_until_done(Done done) {
        if (engine_.run_until(done, TimePoint::max())) return;
        throw Error{Errc::timed_out,
                    {.action = "synchronize",
                     .object = kdvfs::to_string(info_),
                     .vendor_words = "a stream waits for an event that never comes",
                     .remedy = "record the event before waiting for it"}};
    }

    // Faults.

    std::optional<Fault> struck(Call call) noexcept {
        if (vanished_) return Fault::vanished;
        const auto fault = faults_.strike(call);
        vanished_ = fault == Fault::vanished;
        return fault;
    }

    [[noreturn]] void fail(Fault fault, std::string_view action) const {
        throw Error{errc_of(fault),
                    {.action = std::string{action},
                     .object = kdvfs::to_string(info_),
                     .vendor_words = "simulated fault: " + std::string{to_string(fault)},
                     .remedy = "this fault was injected into the simulated GPU"}};
    }

    void fail_if_struck(Call call, std::string_view action) {
        if (const auto fault = struck(call)) fail(*fault, action);
    }

    // Clocks.

    void change(Call call, const std::string& action, const ClockState& state) {
        const auto fault = struck(call);
        if (fault == Fault::silent_refusal) return;
        if (!fault) {
            settle(state);
            return;
        }
        if (fault == Fault::half_done) {
            ClockState half = setting_;
            half.mode = "manual";
            settle(half);
        }
        fail(*fault, action);
    }

    /// The setting is there at once; the clocks follow after the switching latency.
    void settle(ClockState state) {
        const ClockPoint from = setting_.cap;
        setting_ = std::move(state);
        if (setting_.cap == from) return;
        const std::uint64_t change = ++last_change_;
        const SwitchDelays delays = switch_.delays(from, setting_.cap);
        const TimePoint holds = now() + delays.switching_latency;
        engine_.resume();  // a change under way is overtaken
        if (delays.transition > Duration::zero()) {
            schedule(holds - delays.transition, [=, this] {
                if (change == last_change_) engine_.pause();
            });
        }
        schedule(holds, [=, this] {
            if (change == last_change_) engine_.hold(setting_.cap);
        });
    }

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
static_assert(PowerLimitControl<Device>);
static_assert(StreamRuntime<Device> && WaitingRuntime<Device>);

}  // namespace kdvfs::inline v0_3::simulated
