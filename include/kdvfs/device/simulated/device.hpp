// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/device/clock_control.hpp>
#include <kdvfs/device/energy_source.hpp>
#include <kdvfs/device/simulated/board.hpp>
#include <kdvfs/device/simulated/energy_meter.hpp>
#include <kdvfs/device/simulated/event_queue.hpp>
#include <kdvfs/device/simulated/fault_plan.hpp>
#include <kdvfs/device/simulated/operating_point.hpp>
#include <kdvfs/device/simulated/stream.hpp>
#include <kdvfs/device/simulated/switch_model.hpp>
#include <kdvfs/device/stream_runtime.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::simulated {

struct DeviceOptions {
    std::uint64_t seed = 1;                     ///< of the counter's noise
    std::optional<SwitchModel> clock_switch{};  ///< instead of the board's
    std::optional<EnergyCounterTraits> energy_counter{};
    /// Stream time of a marker. 2 us: measured for a one-thread kernel on an H100.
    Duration marker_time = std::chrono::microseconds{2};
    std::size_t stamp_capacity = std::size_t{1} << 16;  ///< the ring that markers push into
};

/// A GPU that is not there: streams, graphs, clocks and an energy counter in virtual time,
/// deterministic by seed. Time passes only in `synchronize` and `advance`; enqueueing takes none.
/// Kernels of several streams share the board: of n that run, each has 1/n of its speed, and the
/// power is their mean. Not thread-safe: one thread plays the host.
///
/// It fulfils all three contracts: `ClockControl`, `EnergySource` and `StreamRuntime`.
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
          meter_{options_.energy_counter.value_or(board_.energy_counter), options_.seed} {
        default_stream_.device_ = this;
    }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    // What a program does with a GPU.

    [[nodiscard]] Stream* create_stream() {
        streams_.push_back(std::make_unique<Stream>());
        streams_.back()->device_ = this;
        return streams_.back().get();
    }
    [[nodiscard]] Event* create_event() {
        events_.push_back(std::make_unique<Event>());
        return events_.back().get();
    }

    void launch(StreamRef stream, const KernelModel& kernel) {
        enqueue(stream, KernelOperation{kernel});
    }
    void launch(StreamRef stream, const Graph& graph) {
        for (const Operation& operation : graph.operations_) enqueue(stream, operation);
    }
    void record(StreamRef stream, Event* event) {
        enqueue(stream, RecordOperation{event, ++event->enqueued_});
    }
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
        Stream& waited = checked(stream);
        run_until([&] { return waited.queue_.empty(); }, TimePoint::max());
    }
    /// Lets virtual time pass until all streams are done.
    void synchronize() {
        run_until([&] { return all_empty(); }, TimePoint::max());
    }
    /// Lets the host do something else for so long.
    void advance(Duration time) {
        const TimePoint until = now_ + time;
        run_until([&] { return now_ == until && schedule_.next() > until; }, until);
    }

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
                    now_,
                    *fault == Fault::vanished ? ReadingStatus::absent : ReadingStatus::failed};
        }
        return meter_.read(now_);
    }
    [[nodiscard]] Duration counter_period() const { return meter_.traits().period; }

    // StreamRuntime

    [[nodiscard]] LaneKey lane_key(StreamRef stream) {
        const Stream& known = checked(stream);
        return {.stream = stream, .capture = known.capture_};
    }
    [[nodiscard]] LevelCell* make_cell() {
        fail_if_struck(Call::make_cell, "map a level cell");
        return &cells_.emplace_back();
    }
    void put_marker(StreamRef stream, const Marker& marker) {
        fail_if_struck(Call::put_marker, "put a marker into a stream");
        enqueue(stream, MarkerOperation{marker});
    }
    std::size_t drain_stamps(std::span<MarkerStamp> out) noexcept {
        const std::size_t count = std::min(out.size(), stamps_.size());
        std::copy_n(stamps_.begin(), count, out.begin());
        stamps_.erase(stamps_.begin(), stamps_.begin() + static_cast<std::ptrdiff_t>(count));
        return count;
    }
    [[nodiscard]] std::uint64_t lost_stamps() const noexcept { return lost_stamps_; }
    [[nodiscard]] TimePoint now() const noexcept { return now_; }
    [[nodiscard]] std::string_view marker_mechanism() const { return "simulated marker kernel"; }

    // What only a simulation knows, and can do.

    [[nodiscard]] const Board& board() const { return board_; }
    [[nodiscard]] Joules true_energy() const { return meter_.truth(); }
    [[nodiscard]] EnergyMeter& meter() { return meter_; }
    [[nodiscard]] FaultPlan& faults() { return faults_; }
    /// The caps that really hold now, which is later than when they were asked for.
    [[nodiscard]] ClockPoint effective_clocks() const { return effective_; }
    [[nodiscard]] const SwitchModel& clock_switch() const { return switch_; }

    /// Somebody else sets the clocks.
    void change_clocks_as_other(ClockState state) { settle(std::move(state)); }
    /// The GPU is reset: all settings fall back to their defaults.
    void reset_to_defaults() { settle(ClockState{}); }

    /// Lets something happen at a moment of virtual time.
    void schedule(TimePoint at, EventQueue::Action action) {
        schedule_.schedule(std::max(at, now_), std::move(action));
    }
    /// Called whenever a marker has written a cell. One listener.
    void on_cell_written(std::function<void()> listener) { cell_written_ = std::move(listener); }

private:
    struct Running {
        Stream* stream;
        KernelModel kernel;
        double remaining;  // share of the work that is left, 1 to 0
        OperatingPoint point;
        TimePoint ends;
    };

    Stream& checked(StreamRef stream) {
        auto* known = stream.as<Stream>();
        if (known == nullptr) return default_stream_;
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
        Stream& queue = checked(stream);
        if (queue.capture_ != 0) {
            queue.recorded_.operations_.push_back(std::move(operation));
        } else {
            queue.queue_.push_back(std::move(operation));
        }
    }

    // Faults.

    std::optional<Fault> struck(Call call) noexcept {
        if (vanished_) return Fault::vanished;
        const auto fault = faults_.strike(call);
        vanished_ = fault == Fault::vanished;
        return fault;
    }

    [[noreturn]] void fail(Fault fault, const std::string& action) const {
        throw Error{errc_of(fault),
                    {.action = action,
                     .object = kdvfs::to_string(info_),
                     .vendor_words = "simulated fault: " + std::string{to_string(fault)},
                     .remedy = "this fault was injected into the simulated GPU"}};
    }

    void fail_if_struck(Call call, const std::string& action) {
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
        const TimePoint holds = now_ + delays.switching_latency;
        if (delays.transition > Duration::zero()) {
            schedule(holds - delays.transition, [=, this] {
                if (change == last_change_) pause();
            });
        }
        schedule(holds, [=, this] {
            if (change == last_change_) hold(setting_.cap);
        });
    }

    void pause() {
        paused_ = true;
        replan();
    }

    void hold(ClockPoint point) {
        paused_ = false;
        effective_ = point;
        for (Running& running : running_) {
            running.point = operate(board_, running.kernel, effective_);
        }
        replan();
    }

    // Time.

    [[nodiscard]] bool all_empty() const {
        return default_stream_.queue_.empty() &&
               std::all_of(streams_.begin(), streams_.end(),
                           [](const auto& stream) { return stream->queue_.empty(); });
    }

    template <class Done>
    void run_until(Done done, TimePoint limit) {
        for (begin_ready(); !done(); begin_ready()) {
            TimePoint next = std::min(limit, schedule_.next());
            for (const Running& running : running_) next = std::min(next, running.ends);
            if (next == TimePoint::max()) {
                throw Error{Errc::timed_out,
                            {.action = "synchronize",
                             .object = kdvfs::to_string(info_),
                             .vendor_words = "a stream waits for an event that never comes",
                             .remedy = "record the event before waiting for it"}};
            }
            pass_to(next);
            end_finished();
            while (schedule_.next() <= now_) schedule_.pop()();
        }
    }

    /// Begins what stands at the front of each stream; what takes no time is done at once.
    void begin_ready() {
        const auto before = running_.size();
        bool again = true;
        while (again) {
            again = begin_front(default_stream_);
            for (const auto& stream : streams_) again = begin_front(*stream) || again;
        }
        if (running_.size() != before) replan();
    }

    /// @returns whether another stream may have become ready by it
    bool begin_front(Stream& stream) {
        bool progress = false;
        while (!stream.queue_.empty() && !stream.busy_) {
            Operation& front = stream.queue_.front();
            if (auto* kernel = std::get_if<KernelOperation>(&front)) {
                stream.busy_ = true;
                running_.push_back({&stream, kernel->kernel, 1.0,
                                    operate(board_, kernel->kernel, effective_), now_});
                return progress;
            }
            if (auto* marker = std::get_if<MarkerOperation>(&front)) {
                stream.busy_ = true;
                schedule(now_ + options_.marker_time,
                         [this, &stream, passed = marker->marker] { pass_marker(stream, passed); });
                return progress;
            }
            if (auto* wait = std::get_if<WaitOperation>(&front)) {
                if (wait->event->reached_ < wait->number) return progress;
            } else if (auto* record = std::get_if<RecordOperation>(&front)) {
                record->event->reached_ = std::max(record->event->reached_, record->number);
                record->event->time_ = now_;
            } else if (auto* callback = std::get_if<CallbackOperation>(&front)) {
                callback->call();
            }
            stream.queue_.pop_front();
            progress = true;
        }
        return progress;
    }

    void pass_marker(Stream& stream, const Marker& marker) {
        stream.busy_ = false;
        stream.queue_.pop_front();
        if (marker.stamped) {
            if (stamps_.size() == options_.stamp_capacity) {
                stamps_.pop_front();
                ++lost_stamps_;
            }
            stamps_.push_back({marker.tag, now_, static_cast<std::uint64_t>(core_cycles_)});
        }
        if (marker.cell == nullptr) return;
        marker.cell->store(marker.word);
        if (cell_written_) cell_written_();
    }

    /// Nothing changes until `next`: power, speed and clock are constant.
    void pass_to(TimePoint next) {
        const Seconds time = next - now_;
        meter_.draw(power(), now_, next);
        core_cycles_ += core_mhz() * 1e6 * time.count();
        if (!paused_) {
            for (Running& running : running_) {
                running.remaining -= time / (running.point.time * sharing());
            }
        }
        now_ = next;
    }

    void end_finished() {
        const auto finished = std::partition(running_.begin(), running_.end(),
                                             [&](const Running& r) { return r.ends > now_; });
        if (finished == running_.end()) return;
        for (auto it = finished; it != running_.end(); ++it) {
            it->stream->busy_ = false;
            it->stream->queue_.pop_front();
        }
        running_.erase(finished, running_.end());
        replan();
    }

    void replan() {
        for (Running& running : running_) {
            const Seconds left = running.point.time * std::max(running.remaining, 0.0) * sharing();
            running.ends = paused_ ? TimePoint::max() : now_ + std::chrono::round<Duration>(left);
        }
    }

    [[nodiscard]] double sharing() const { return static_cast<double>(running_.size()); }

    [[nodiscard]] Watts power() const {
        if (running_.empty() || paused_) return idle_power(board_, effective_);
        Watts sum{};
        for (const Running& running : running_) sum = sum + running.point.power;
        return sum * (1 / sharing());
    }

    [[nodiscard]] double core_mhz() const {
        if (paused_) return 0;
        if (running_.empty()) {
            return operate(board_, KernelModel{}, effective_).core.count;
        }
        double sum = 0;
        for (const Running& running : running_) sum += running.point.core.count;
        return sum / sharing();
    }

    Board board_;
    DeviceOptions options_;
    SwitchModel switch_;
    DeviceInfo info_;
    EnergyMeter meter_;
    FaultPlan faults_;
    EventQueue schedule_;
    Stream default_stream_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::vector<std::unique_ptr<Event>> events_;
    std::deque<LevelCell> cells_;
    std::deque<MarkerStamp> stamps_;
    std::vector<Running> running_;
    std::function<void()> cell_written_;
    ClockState setting_;
    ClockPoint effective_;
    TimePoint now_{};
    double core_cycles_ = 0;
    std::uint64_t last_change_ = 0;
    std::uint64_t captures_ = 0;
    std::uint64_t lost_stamps_ = 0;
    bool paused_ = false;
    bool vanished_ = false;
};

static_assert(ClockControl<Device>);
static_assert(EnergySource<Device>);
static_assert(StreamRuntime<Device>);

}  // namespace kdvfs::simulated
