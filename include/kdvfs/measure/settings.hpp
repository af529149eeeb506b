// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/measure/sensor_calibration.hpp>
#include <kdvfs/units.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

/// The settings and plain results of measuring, without its engine.
namespace kdvfs::inline v0_3::measure {

/// What is believed of a counter before it is read.
struct CounterLimits {
    /// More than this is `implausible`. Twice the largest board of HARDWARE tables (750 W) and a
    /// half more, so that only nonsense is refused.
    Watts highest_power{2000};
    /// Time between two samples of the counter; 0 where unknown.
    Duration period{0};
    /// A counter that stands still for this long, and for 10 periods, is `frozen`.
    Duration patience = std::chrono::milliseconds{500};
    /// Where the counter starts again from zero; 0 where unknown.
    Joules wraps_at{0};
};

/// How a counter is sampled.
struct SamplerSettings {
    /// Time between two reads; 0 = at the counter's own rate (`limits.period`).
    Duration period = std::chrono::milliseconds{10};
    /// The same while no scope has been entered and no iteration begun for a second: then there is
    /// nothing to be told apart, and whoever reads keeps the board and a core awake. What a report
    /// says of such time may be as old.
    Duration resting_period = std::chrono::seconds{10};
    /// Samples kept until they are taken; the oldest give way, and are counted.
    std::size_t capacity = 4096;
    CounterLimits limits{};
};

/// What boards of a kind draw while nothing runs on them; 0: unknown.
struct RestRange {
    Watts least{0};
    Watts most{0};
};

/// How intervals and samples become energies.
struct AccumulatorSettings {
    Duration counter_period{0};      ///< of the device's counter; 0 where unknown
    std::size_t capacity = 1 << 16;  ///< intervals, and samples, that may wait for each other
    /// (kernel, clock) pairs with time of their own; later ones have none. A report solves for the
    /// powers of some 250 of most time, all others are attributed together.
    std::size_t most_columns = 1024;
    /// Kernels below this share of all kernels' time are attributed together, and so are those
    /// beyond `most_columns`; 0: each on its own, and those beyond are not told.
    double pool_below = 0;
    double widest_resolved = 0.10;        ///< a half-width beyond this share is `unresolved`
    Megahertz highest_core = auto_clock;  ///< that the device lists; `auto_clock` where unknown
    bool kernels_repeat = false;  ///< figures of repeated kernels will come (`add_repeated`)
    /// How readings follow the load is not known, as on real boards: it is found with the powers,
    /// of a power log and of a counter that moves faster than every 80 ms (docs/measuring.md). Else
    /// a counter is taken at its timestamps, a log as `SourceFinder` has it.
    bool sensor_may_lag = false;
    /// A slow counter is taken to follow the load by any time up to this; NVML's do by 4 to 18 ms.
    Duration most_late = std::chrono::milliseconds{30};
    /// What is known of the sensors beforehand. Where a `Gpu` is opened: nothing, what `kdvfs
    /// measure-sensor` has kept of the board on this machine; `SensorCalibration{}`, not even that.
    std::optional<SensorCalibration> sensors{};
    /// More is no power of a board: the reading is refused.
    Watts highest_power = CounterLimits{}.highest_power;
    /// The board's power limit: a kernel whose power lies beyond it is not resolved. 0: unknown.
    Watts power_limit{0};
    /// What boards of this kind draw at rest, their clocks up.
    RestRange rests{};
    /// Nobody shows who else works on the board: where it rests at more than that, somebody does,
    /// and no kernel is resolved; what it rests at beyond the least is in the intervals.
    bool others_may_work = false;
};

/// What became of a self-check.
struct SelfCheck {
    bool passed = false;
    std::string reason;                ///< why it did not pass, or what could not be compared
    Watts counted{0};                  ///< mean power by the energy counter
    std::optional<Watts> drawn{};      ///< mean power by the power readings
    std::optional<Watts> reference{};  ///< by `GpuOptions::reference`, where it names a sensor
    /// What the power readings are means over, where the power changed enough to tell.
    std::optional<Duration> power_window{};
};

/// A sensor outside the GPU that counts joules, to hold the board's own counter against: all else
/// that kdvfs says of joules is relative to the board's sensor.
struct ReferenceSensor {
    std::string name;
    /// Joules since any origin, which only grow. May take milliseconds; called on the user's
    /// threads alone, one at a time. @throws Error where it cannot be read
    std::function<Joules()> read;
};

}  // namespace kdvfs::inline v0_3::measure
