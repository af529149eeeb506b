// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::simulated {

/// Core voltage against core clock, in units of the lowest voltage: flat below the first knot,
/// linear between knots, the last slope continued above the last one. The flat part is why a
/// compute-bound kernel has a most efficient clock (arXiv 2211.07260, "going green").
/// Knots ascend in clock and do not descend in voltage.
struct VoltageCurve {
    struct Knot {
        double core_mhz = 0;
        double relative_volts = 1;
    };

    std::vector<Knot> knots;

    /// The voltage at a clock, at least 1; 1 everywhere for a curve without knots.
    [[nodiscard]] double at(double core_mhz) const {
        if (knots.empty() || core_mhz <= knots.front().core_mhz) return 1;
        std::size_t upper = 1;
        while (upper + 1 < knots.size() && knots[upper].core_mhz < core_mhz) ++upper;
        if (upper >= knots.size()) return knots.front().relative_volts;
        const Knot& low = knots[upper - 1];
        const Knot& high = knots[upper];
        const double slope =
            (high.relative_volts - low.relative_volts) / (high.core_mhz - low.core_mhz);
        return low.relative_volts + slope * (core_mhz - low.core_mhz);
    }
};

/// One clock that the memory can run at, and what comes with it.
struct MemoryState {
    Megahertz clock{};
    /// Bandwidth per memory clock against the board's highest state: bandwidth at this state is
    /// `efficiency * clock / highest clock` of the highest state's.
    double efficiency = 1;
    /// Drawn by memory and its controller as soon as the clock runs, whatever kernels do.
    Watts power{};
    /// The highest core clock that this state allows; `auto_clock` = the board's own maximum.
    Megahertz core_limit = auto_clock;
};

/// Extra core voltage, relative like `VoltageCurve`, while the memory clock is left to the board:
/// `rise * ((core - onset) / span)^exponent` above the onset. Zero on boards that show no such
/// thing.
struct AutoMemoryVoltage {
    double onset_mhz = 0;
    double span_mhz = 1;
    double rise = 0;
    double exponent = 1;
};

/// Power of the core that does not depend on work: leakage `watts * v^exponent`, and the clock
/// tree and idle pipelines `watts_per_ghz * f * v^2`, v being relative volts.
struct CoreOverhead {
    Watts leakage{};
    double leakage_exponent = 2;
    double clock_tree_watts_per_ghz = 0;
};

/// How leakage follows the temperature of the chip, which follows the power drawn.
struct Thermal {
    double leakage_per_kelvin = 0;  ///< d ln(leakage) / dT
    double given_at_celsius = 60;   ///< where `CoreOverhead::leakage` is given
    double coolant_celsius = 30;    ///< of the chip at no power
    double kelvin_per_watt = 0;     ///< in steady state
    /// With which the temperature follows; 0, the default: it stays at `given_at_celsius`.
    Duration time_constant{0};
};

/// What a board can do at most and what it costs; used to describe a kernel by its FLOPs and
/// bytes (`roofline`), not needed for kernels that were fitted.
struct Throughput {
    double matrix_flops_per_cycle = 0;      ///< dense, 16-bit inputs, all units together
    double vector_flops_per_cycle = 0;      ///< 32-bit, all units together
    double cache_bytes_per_cycle = 0;       ///< last cache before memory to the cores
    double memory_bytes_per_second = 0;     ///< at the highest memory state
    double matrix_picojoules_per_flop = 0;  ///< at relative voltage 1
    double vector_picojoules_per_flop = 0;  ///< at relative voltage 1
    double cache_picojoules_per_byte = 0;   ///< at relative voltage 1
    double memory_picojoules_per_byte = 0;
    Seconds launch_overhead{0};  ///< of a kernel's time, at any clock
};

/// How the energy counter of a board behaves unless a test says otherwise.
struct EnergyCounterTraits {
    Duration period{0};     ///< between two samples
    Joules quantum{};       ///< the counter's step
    Joules noise{};         ///< standard deviation of one sample's error
    Duration read_time{0};  ///< that one read takes on the host
};

/// How a clock switch behaves unless a test says otherwise.
struct ClockSwitchTraits {
    Duration call_cost{0};          ///< the setting call, on the host
    Duration switching_latency{0};  ///< from the call's effect on the driver to the new clock
    Duration transition{0};         ///< part of the latency in which the core pauses
};

/// A simulated GPU as constants: what clocks hold, how long a kernel takes and what it draws.
/// Constants are those of a warm board; `at_temperature` has those of another one.
struct Board {
    std::string name;
    std::string architecture;  ///< what `ByArch` matches: "gfx90a", "sm_86"
    /// How far the figures of this board are off where that was measured, in words. "Held out"
    /// are points that nothing was fitted to (docs/fit.md).
    std::string accuracy{};
    SupportedClocks clocks{};  ///< what may be asked for; what holds is found by `operate`

    Megahertz core_min{};  ///< below this the firmware does not go, not even for the power cap
    Megahertz core_max{};  ///< above this the firmware does not go, whatever is asked for
    Megahertz idle_core = auto_clock;  ///< falls to this without work; auto = stays up
    /// The memory state without work: the highest not above this; auto = as under load.
    Megahertz idle_memory = auto_clock;
    /// Core clock at which kernels' core times are given.
    Megahertz reference_core{};
    /// Ascending, never empty; the last is what the board picks, and where kernels' memory times
    /// are given.
    std::vector<MemoryState> memory_states;

    VoltageCurve voltage{};
    AutoMemoryVoltage auto_memory_voltage{};
    CoreOverhead core_overhead{};
    Watts static_power{};  ///< board, fans, regulators, idle memory
    Watts power_cap{};     ///< the firmware lowers the core clock to stay below
    /// How fast it does (`device::PowerLimiter::rate`, per second), so that it is the mean power
    /// that stays below; 0 = at once, so that no kernel ever draws more.
    double limiter_rate = 0;
    /// How far the core clock stays below a requested limit: it holds
    /// `limit * (1 - limit_droop * power / power_cap)`.
    double limit_droop = 0;
    /// The memory clock is at most this while the power limit lowers the core; auto = as before.
    Megahertz limited_memory = auto_clock;
    Thermal thermal{};

    Throughput throughput{};
    EnergyCounterTraits energy_counter{};
    ClockSwitchTraits clock_switch{};
};

/// The calls of a simulated device that can be made to go wrong.
enum class Call { apply, read_clock_state, restore, read_energy, track_key, put_marker, make_cell };

/// How a call goes wrong.
enum class Fault {
    refused,        ///< no permission; nothing is changed
    half_done,      ///< a setter's: refused after a change, since AMD's are not atomic
    busy,           ///< comes back with "busy"; nothing is changed
    vanished,       ///< the device is gone, for this and every later call
    silent_refusal  ///< a setter's: reports success and changes nothing; others are refused
};

constexpr std::string_view to_string(Fault fault) {
    switch (fault) {
        case Fault::refused: return "refused";
        case Fault::half_done: return "refused half-way";
        case Fault::busy: return "busy";
        case Fault::vanished: return "device vanished";
        case Fault::silent_refusal: return "silently refused";
    }
    return "unknown";
}

constexpr Errc errc_of(Fault fault) {
    switch (fault) {
        case Fault::busy: return Errc::busy;
        case Fault::vanished: return Errc::vanished;
        case Fault::refused:
        case Fault::half_done:
        case Fault::silent_refusal: break;
    }
    return Errc::refused;
}

/// Faults that wait for their call. Deterministic: they strike by count, not by chance.
class FaultPlan {
public:
    static constexpr std::uint64_t always = ~std::uint64_t{0};

    /// Lets `times` calls fail after the next `after` calls of that kind have gone well.
    void inject(Call call, Fault fault, std::uint64_t after = 0, std::uint64_t times = 1) {
        waiting_.push_back({call, fault, after, times});
    }

    void clear() { waiting_.clear(); }

    /// The fault that strikes this call, if one does.
    std::optional<Fault> strike(Call call) {
        for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
            if (it->call != call) continue;
            if (it->after > 0) {
                --it->after;
                continue;
            }
            const Fault fault = it->fault;
            if (it->times != always && --it->times == 0) waiting_.erase(it);
            return fault;
        }
        return std::nullopt;
    }

private:
    struct Waiting {
        Call call;
        Fault fault;
        std::uint64_t after;
        std::uint64_t times;
    };

    std::list<Waiting> waiting_;
};

/// How what a sensor shows differs from what the board draws; all zero, the default: not at all.
struct SensorTraits {
    Duration delay{0};   ///< from the moment that a reading shows to the reading; not negative
    Duration memory{0};  ///< time constant of a filter of first order
    Duration clock_offset{0};  ///< timestamps are late by so much; negative: early
    double drift = 0;          ///< and by so many seconds more each second
};

/// A power log as NVML keeps one.
struct PowerLogTraits {
    Duration period{0};  ///< between two readings; 0: there is no log
    Duration window{0};  ///< readings are means over so long, of the period or more; 0: no means
    Watts noise{};       ///< standard deviation of a reading
    SensorTraits sensor{};
    std::size_t kept = 1024;  ///< readings that the driver keeps
};

/// How what the board draws differs from what its kernels do at the operating point.
struct LoadTraits {
    Duration rise{0};   ///< time constant with which the power follows a change
    double spread = 0;  ///< of a kernel's power from call to call, relative
    Watts outside{};    ///< that another process draws, in half of the time
    /// Mean time between its beginnings; 0: it never rests.
    Duration outside_every = std::chrono::seconds{2};
    bool outside_is_listed = false;  ///< the driver shows that process
};

/// A board's sensors, and the load that they show: what a real board has, and a simulated one only
/// where it is asked for (`DeviceOptions::sensors`).
struct Sensors {
    PowerLogTraits log{};
    SensorTraits counter{};
    LoadTraits load{};
};

/// Sensors by family of boards. What is published or recorded is a range; these are inside of it.
/// Rise and spread of calls are assumptions.
namespace sensors {

inline constexpr LoadTraits usual_load{.rise = std::chrono::microseconds{500}, .spread = 0.02};

/// NVIDIA H100: a log of 20 ms with a memory (bench/results: 2.25 to 3.5 ms late, memory of 12 to
/// 19 ms), and a counter that adds it up.
inline constexpr Sensors h100{
    .log = {.period = std::chrono::milliseconds{20},
            .noise = {3},
            .sensor = {.delay = std::chrono::microseconds{3000},
                       .memory = std::chrono::milliseconds{14}}},
    .counter = {.delay = std::chrono::microseconds{3000}, .memory = std::chrono::milliseconds{14}},
    .load = usual_load};
/// NVIDIA A100, and H100 by its mean power: 25 of every 100 ms are seen (arXiv 2312.02741).
inline constexpr Sensors a100{.log = {.period = std::chrono::milliseconds{100},
                                      .window = std::chrono::milliseconds{25},
                                      .noise = {3}},
                              .load = usual_load};
/// NVIDIA RTX: means of a second, every 100 ms (arXiv 2312.02741).
inline constexpr Sensors rtx{.log = {.period = std::chrono::milliseconds{100},
                                     .window = std::chrono::seconds{1},
                                     .noise = {3}},
                             .load = usual_load};
/// AMD Instinct: no log; the accumulator has its own timestamps, and reading it takes 0.9 to 2.1 ms
/// (AMD's test of amdgpu's metrics). Its lag is not published: 1 ms is an assumption.
inline constexpr Sensors instinct{.counter = {.delay = std::chrono::milliseconds{1}},
                                  .load = usual_load};

}  // namespace sensors

}  // namespace kdvfs::inline v0_3::simulated
