// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/time.hpp>
#include <kdvfs/measure/energy_accumulator.hpp>
#include <kdvfs/measure/sampler.hpp>
#include <kdvfs/scope/clock_controller.hpp>
#include <kdvfs/scope/gate.hpp>

#include <chrono>
#include <optional>

namespace kdvfs {

/// What `open` does where the clocks cannot be set.
enum class OnRefused {
    fail,          ///< throw, saying why and what to do
    measure_only,  ///< go on without setting clocks, and say so in every report
};

/// When a scope's clock is asked for.
enum class Ordering {
    stream,  ///< when the stream gets there; the host never waits
    host,    ///< the host waits for the stream at each marker: for debugging
    /// As `stream`, and the stream waits until the clock is set: for measuring how long that takes.
    /// One stream at a time, never in a capture; on ROCm a waiting stream may hold up others.
    acked,
};

struct GpuOptions {
    OnRefused on_refused = OnRefused::fail;
    Ordering ordering = Ordering::stream;
    /// How long a stream waits at most, with `Ordering::acked`; then it goes on, and `check()` says
    /// so.
    Duration ack_deadline = std::chrono::milliseconds{100};
    ControllerOptions controller{};
    GateOptions gate{};
    /// From a marker to the clock's effect, where it has been measured; without it the gate is
    /// off, and the report says so.
    std::optional<Duration> switch_latency{};
    /// Every how many iterations scopes are metered; 1 = always.
    unsigned meter_every = 16;
    measure::SamplerSettings sampler{};
    measure::AccumulatorSettings accumulator{};
    /// How often the listener looks at the cells.
    Duration listen_every = std::chrono::microseconds{50};
};

}  // namespace kdvfs
