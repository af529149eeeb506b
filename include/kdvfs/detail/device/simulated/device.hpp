// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/device.hpp>

#include <cstddef>
#include <variant>

namespace kdvfs::inline v0_3::simulated {

KDVFS_INLINE Device::Device(Board board, DeviceOptions options)
    : board_{std::move(board)},
      options_{std::move(options)},
      switch_{options_.clock_switch.value_or(switch_model(board_.clock_switch))},
      info_{.name = board_.name,
            .address = "simulated",
            .architecture = board_.architecture,
            .mechanism = "simulated clocks",
            .simulated = true},
      meter_{options_.energy_counter.value_or(board_.energy_counter), options_.seed,
             options_.sensors},
      engine_{board_,
              meter_,
              {.marker_time = options_.marker_time,
               .timestamp_capacity = options_.timestamp_capacity,
               .spread = options_.sensors ? options_.sensors->load.spread : 0,
               .seed = options_.seed}} {
    default_stream_ = create_stream();
    if (options_.prepared_points.empty()) return;
    for (std::uint32_t i = 0; i < options_.prepared_points.size(); ++i)
        info_.prepared_points.push_back({i});
    switch_to(PreparedPoint{0});
    info_.operating_point = read_operating_point();
}

KDVFS_INLINE Stream* Device::create_stream() {
    Stream* stream = engine_.create_stream();
    stream->device_ = this;
    return stream;
}

KDVFS_INLINE void Device::launch(StreamRef stream, const KernelModel& kernel) {
    // At the lowest clocks it takes some hundred times as long; the clock ends after 292 years.
    constexpr Seconds longest{1e6};
    if (!(kernel.core_time + kernel.memory_time + kernel.fixed_time <= longest)) {
        throw Error{Errc::invalid_input,
                    {.action = "launch a simulated kernel",
                     .object = "its work",
                     .vendor_words = "it would take more than 1e6 s",
                     .remedy = "give the FLOPs and bytes of one launch"}};
    }
    enqueue(stream, KernelOperation{kernel});
}

KDVFS_INLINE void Device::launch(StreamRef stream, const Graph& graph) {
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

KDVFS_INLINE void Device::record(StreamRef stream, Event* event) {
    const bool live = checked(stream).capture_ == 0;
    if (live) ++event->enqueued_;
    enqueue(stream, RecordOperation{event, event->enqueued_});
}

KDVFS_INLINE void Device::wait(StreamRef stream, Event* event) {
    enqueue(stream, WaitOperation{event, event->enqueued_});
}

KDVFS_INLINE void Device::call_back(StreamRef stream, std::function<void()> call) {
    enqueue(stream, CallbackOperation{std::move(call)});
}

KDVFS_INLINE void Device::begin_capture(StreamRef stream) {
    Stream& recorded = checked(stream);
    recorded.capture_ = ++captures_;
    recorded.recorded_ = Graph{};
}

KDVFS_INLINE Graph Device::end_capture(StreamRef stream) {
    Stream& recorded = checked(stream);
    recorded.capture_ = 0;
    return std::exchange(recorded.recorded_, Graph{});
}

KDVFS_INLINE void Device::synchronize(StreamRef stream) {
    const Stream& waited = checked(stream);
    run_until_done([&] { return Engine::empty(waited); });
}

KDVFS_INLINE void Device::synchronize() {
    run_until_done([&] { return engine_.idle(); });
}

KDVFS_INLINE ClockState Device::read_clock_state() {
    fail_if_struck(Call::read_clock_state, "read the clock settings");
    return setting_;
}

KDVFS_INLINE void Device::apply(ClockPoint point) {
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

KDVFS_INLINE void Device::restore(const ClockState& state) {
    change(Call::restore, "restore the clock settings", state);
}

KDVFS_INLINE EnergyReading Device::read_energy() noexcept {
    if (const auto fault = struck(Call::read_energy)) {
        return {
            {}, now(), *fault == Fault::vanished ? ReadingStatus::absent : ReadingStatus::failed};
    }
    return meter_.read(now());
}

KDVFS_INLINE TrackKey Device::track_key(StreamRef stream) {
    fail_if_struck(Call::track_key, "find which track a stream is");
    const Stream& known = checked(stream);
    return {.stream = stream, .capture = known.capture_};
}

KDVFS_INLINE RequestCell* Device::make_cell() {
    fail_if_struck(Call::make_cell, "map a request cell");
    return &cells_.emplace_back();
}

KDVFS_INLINE void Device::put_marker(StreamRef stream, const Marker& marker) {
    fail_if_struck(Call::put_marker, "put a marker into a stream");
    enqueue(stream, MarkerOperation{marker});
    ++markers_;
}

KDVFS_INLINE void Device::put_wait(StreamRef stream, const std::uint32_t* word,
                                   std::uint32_t number) {
    enqueue(stream, AnswerOperation{word, number});
}

KDVFS_INLINE std::size_t Device::drain_timestamps(std::span<MarkerTimestamp> out) noexcept {
    auto& timestamps = engine_.timestamps();
    const std::size_t count = std::min(out.size(), timestamps.size());
    std::copy_n(timestamps.begin(), count, out.begin());
    timestamps.erase(timestamps.begin(), timestamps.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
}

KDVFS_INLINE void Device::set_power_limit(Watts limit) {
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

KDVFS_INLINE std::string Device::read_operating_point() const {
    if (options_.prepared_points.empty()) return {};
    const Watts limit = options_.prepared_points[prepared_point_.number];
    return "point " + std::to_string(prepared_point_.number) + " (" +
           std::to_string(std::lround(limit.count)) + " W)";
}

KDVFS_INLINE void Device::switch_to(PreparedPoint point) {
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

KDVFS_INLINE Stream& Device::checked(StreamRef stream) {
    auto* known = stream.as<Stream>();
    // One thread plays the host: its own default stream is the one.
    if (known == nullptr || stream == StreamRef::per_thread()) return *default_stream_;
    if (known->device_ != this) {
        throw Error{Errc::invalid_input,
                    {.action = "use a stream",
                     .object = kdvfs::to_string(info_),
                     .vendor_words = "the stream belongs to another device",
                     .remedy = "open a Gpu for that device and scope the stream with it"}};
    }
    return *known;
}

KDVFS_INLINE void Device::enqueue(StreamRef stream, Operation operation) {
    Engine::enqueue(checked(stream), std::move(operation));
}

KDVFS_INLINE std::optional<Fault> Device::struck(Call call) noexcept {
    if (vanished_) return Fault::vanished;
    const auto fault = faults_.strike(call);
    vanished_ = fault == Fault::vanished;
    return fault;
}

KDVFS_INLINE void Device::fail(Fault fault, std::string_view action) const {
    throw Error{errc_of(fault),
                {.action = std::string{action},
                 .object = kdvfs::to_string(info_),
                 .vendor_words = "simulated fault: " + std::string{to_string(fault)},
                 .remedy = "this fault was injected into the simulated GPU"}};
}

KDVFS_INLINE void Device::change(Call call, const std::string& action, const ClockState& state) {
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

KDVFS_INLINE void Device::settle(ClockState state) {
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

KDVFS_INLINE void Device::run_until_done(const std::function<bool()>& done) {
    if (engine_.run_until(done, TimePoint::max())) return;
    throw Error{Errc::timed_out,
                {.action = "synchronize",
                 .object = kdvfs::to_string(info_),
                 .vendor_words = "a stream waits for an event that never comes",
                 .remedy = "record the event before waiting for it"}};
}

}  // namespace kdvfs::inline v0_3::simulated
