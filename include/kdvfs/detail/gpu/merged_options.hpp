// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/options.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <string_view>

namespace kdvfs::inline v0_3::detail {

/// @throws Error (invalid_input) where a floor is above its ceiling
inline void check_limits(const ControllerOptions& limits, const std::string& object) {
    const ClockPoint floor = limits.never_below;
    if (raised_to(limits.never_above, floor) == limits.never_above) return;
    throw Error{Errc::invalid_input,
                {.action = "keep clocks within limits",
                 .object = object,
                 .vendor_words = "never below " + to_string(floor) + " and never above " +
                                 to_string(limits.never_above) + " contradict one another",
                 .remedy = "change never_below or never_above, or ask the administrator whose "
                           "limits the report names"}};
}

/// Limits as clocks that a device can be set to, on their inner sides; none where a domain cannot
/// be set, or goes no further by itself. Where no clock lies between the two the ceiling holds.
inline ControllerOptions on_listed_clocks(ControllerOptions limits, const SupportedClocks& clocks) {
    const auto fit = [](const ClockDomain& domain, Megahertz& floor, Megahertz& ceiling) {
        const auto& listed = domain.listed;
        if (listed.empty()) {
            floor = ceiling = auto_clock;
            return;
        }
        if (floor != auto_clock) {
            const auto least = std::lower_bound(listed.begin(), listed.end(), floor);
            if (least == listed.end()) {
                floor = listed.back();
            } else if (least == listed.begin() || !domain.continuous) {
                floor = *least;
            }
        }
        if (ceiling == auto_clock) return;
        const auto above = std::upper_bound(listed.begin(), listed.end(), ceiling);
        if (ceiling > listed.back()) {
            ceiling = auto_clock;
        } else if (above == listed.begin()) {
            ceiling = listed.front();
        } else if (!domain.continuous) {
            ceiling = *std::prev(above);
        }
    };
    fit(clocks.core, limits.never_below.core, limits.never_above.core);
    fit(clocks.memory, limits.never_below.memory, limits.never_above.memory);
    return limits;
}

/// The highest clock of a domain; auto where none is listed.
inline Megahertz highest(const ClockDomain& domain) {
    return domain.listed.empty() ? auto_clock : domain.listed.back();
}

/// Whether the environment asks for kernels to be repeated.
inline bool asked_to_repeat() { return environment("KDVFS_MODE") == "repeat"; }

inline constexpr const char* may_not_repeat =
    "this program does not allow its kernels to be executed more often than it asks for "
    "(GpuOptions::may_repeat); `kdvfs run --repeat` allows it for programs it attaches to";

/// Options as a GPU goes by them: bounded, and with what the environment asks for.
/// @throws Error (invalid_input) for options that make no sense
inline GpuOptions checked(GpuOptions options, const DeviceInfo& info, Megahertz highest) {
    options.accumulator.highest_core = highest;
    if (asked_to_repeat() && options.may_repeat) options.repeat.on = true;
    if (options.repeat.on) {
        options.meter_every = 1;
        options.accumulator.kernels_repeat = true;
    }
    // "Never" may be said by the longest time there is, which nothing could be added to.
    constexpr Duration longest = std::chrono::hours{24 * 365};
    for (Duration* time :
         {&options.controller.verify_every, &options.controller.lower_after, &options.ack_deadline,
          &options.listen_every, &options.sampler.period, &options.sampler.resting_period,
          &options.repeat.after, &options.idle_clock.after}) {
        *time = std::min(*time, longest);
    }
    // Each further try waits four times longer, up to a million times.
    options.controller.first_retry_after =
        std::min<Duration>(options.controller.first_retry_after, std::chrono::seconds{1});
    check_limits(options.controller, to_string(info));
    if (!(options.idle_clock.tolerated_loss >= 1e-4 && options.idle_clock.tolerated_loss <= 1))
        throw Error{Errc::invalid_input,
                    {.action = "lower the clock without work",
                     .object = to_string(info),
                     .vendor_words =
                         "a tolerated loss of " + std::to_string(options.idle_clock.tolerated_loss),
                     .remedy = "give idle_clock.tolerated_loss from 0.0001 to 1"}};
    if (options.controller.verify_every > Duration::zero()) return options;
    throw Error{Errc::invalid_input,
                {.action = "verify the clocks every " +
                           std::to_string(options.controller.verify_every.count()) + " ns",
                 .object = to_string(info),
                 .vendor_words = "",
                 .remedy = "give verify_every a time above 0, an hour if it shall be rare"}};
}

/// The options of a GPU that the process opens a second time: the stricter of both floors, ceilings
/// and metering rates. What can only be said when a GPU is opened first must be left as it is, or
/// be said alike.
/// @param first   what the GPU has
/// @param later   of the second opening
/// @param object  the GPU, for the error
/// @throws Error (invalid_input) naming the option that contradicts
inline GpuOptions merged_options(const GpuOptions& first, const GpuOptions& later,
                                 const std::string& object) {
    const auto contradicts = [&](std::string_view option) {
        return Error{Errc::invalid_input,
                     {.action = "open the GPU a second time in this process",
                      .object = object,
                      .vendor_words = "GpuOptions::" + std::string{option} +
                                      " is another than where it was opened first",
                      .remedy = "give it where the GPU is opened first, or leave it out here"}};
    };
    const GpuOptions unsaid;
    const auto agree = [&](std::string_view name, const auto& get) {
        if (get(later) != get(unsaid) && get(later) != get(first)) throw contradicts(name);
    };
    agree("share_clocks", [](const GpuOptions& all) { return all.share_clocks; });
    agree("clock_path", [](const GpuOptions& all) { return all.clock_path; });
    agree("ordering", [](const GpuOptions& all) { return all.ordering; });
    agree("ack_deadline", [](const GpuOptions& all) { return all.ack_deadline; });
    agree("controller.lower_after",
          [](const GpuOptions& all) { return all.controller.lower_after; });
    agree("controller.verify_every",
          [](const GpuOptions& all) { return all.controller.verify_every; });
    agree("controller.may_leave_found_limits",
          [](const GpuOptions& all) { return all.controller.may_leave_found_limits; });
    agree("controller.retries", [](const GpuOptions& all) { return all.controller.retries; });
    agree("controller.first_retry_after",
          [](const GpuOptions& all) { return all.controller.first_retry_after; });
    agree("gate.tolerated_loss", [](const GpuOptions& all) { return all.gate.tolerated_loss; });
    agree("gate.least_latencies", [](const GpuOptions& all) { return all.gate.least_latencies; });
    agree("switch_latency", [](const GpuOptions& all) { return all.switch_latency; });
    agree("idle_clock.clock", [](const GpuOptions& all) { return all.idle_clock.clock; });
    agree("idle_clock.after", [](const GpuOptions& all) { return all.idle_clock.after; });
    agree("idle_clock.tolerated_loss",
          [](const GpuOptions& all) { return all.idle_clock.tolerated_loss; });
    agree("repeat.on", [](const GpuOptions& all) { return all.repeat.on; });
    agree("reference", [](const GpuOptions& all) {
        return all.reference ? all.reference->name : std::string{};
    });
    agree("sampler.period", [](const GpuOptions& all) { return all.sampler.period; });
    agree("sampler.resting_period",
          [](const GpuOptions& all) { return all.sampler.resting_period; });
    agree("sampler.capacity", [](const GpuOptions& all) { return all.sampler.capacity; });
    agree("accumulator.capacity", [](const GpuOptions& all) { return all.accumulator.capacity; });
    agree("accumulator.most_columns",
          [](const GpuOptions& all) { return all.accumulator.most_columns; });
    agree("accumulator.widest_resolved",
          [](const GpuOptions& all) { return all.accumulator.widest_resolved; });
    agree("accumulator.sensors", [](const GpuOptions& all) { return all.accumulator.sensors; });
    agree("listen_every", [](const GpuOptions& all) { return all.listen_every; });

    GpuOptions both = first;
    both.meter_every = std::min(first.meter_every, later.meter_every);
    ControllerOptions& limits = both.controller;
    limits.never_below = {std::max(limits.never_below.core, later.controller.never_below.core),
                          std::max(limits.never_below.memory, later.controller.never_below.memory)};
    limits.never_above = lowered_to(limits.never_above, later.controller.never_above);
    check_limits(limits, object);
    return both;
}

}  // namespace kdvfs::inline v0_3::detail
