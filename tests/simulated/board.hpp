// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/device/simulated/presets.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace simulated_device {

using namespace kdvfs;
using namespace kdvfs::simulated;
using namespace std::chrono_literals;

inline constexpr ClockPoint half{.core = {850}};  // of the MI210's 1700 MHz

/// Governed by the core clock alone: exactly so long at the highest.
inline KernelModel work(double milliseconds) {
    return {.core_time = Seconds{milliseconds * 1e-3}, .core_energy = {0.1 * milliseconds}};
}

inline DeviceOptions at_once() { return {.clock_switch = uniform_switch(0ns), .marker_time = 2us}; }

inline Seconds since_start(TimePoint time) { return time.time_since_epoch(); }

}  // namespace simulated_device
