// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/units.hpp>

#include <chrono>
#include <cstddef>

namespace kdvfs::inline v0_3::simulated {

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
