// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <istream>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// How long a clock change takes to arrive.
struct SwitchDelay {
    Seconds latency{0};     ///< from asking to the new clock; the old one works on
    Seconds transition{0};  ///< the end of the latency, in which the GPU pauses
};

/// What a planner must know about switching: during the latency the GPU works on at the old clock,
/// during its last part it may pause, then the new clock holds.
struct SwitchCosts {
    std::function<SwitchDelay(ClockPoint from, ClockPoint to)> delay = [](ClockPoint, ClockPoint) {
        return SwitchDelay{};
    };
    Watts paused_power{};  ///< drawn in a transition, and while a request is made
    Seconds asking{0};     ///< stream time that a request takes: its markers
    /// Before each launch of the sequence, in which the stream runs none; empty where there is
    /// none.
    std::vector<Seconds> gaps{};
    /// What each launch costs against the mean of its kernel; empty: 1.
    std::vector<double> work{};
};

/// The same latency for every pair.
KDVFS_INLINE SwitchCosts uniform_switch_costs(Seconds latency, Seconds transition = Seconds{0},
                                              Watts paused_power = {});

/// A launch of an iteration, and the clock that is asked for before it.
struct AskedLaunch {
    std::size_t kernel = 0;
    ClockPoint clock;
};

/// What an iteration that repeats costs where each launch asks for a clock of its own, by the same
/// model of a switch; here a request may overtake one that is still on its way, as scopes do. Pure
/// but for `measure(kernel, clock)`, which gives what a launch costs at a clock.
/// @param held the clock that holds before: one iteration of it runs first, and does not count
KDVFS_INLINE Cost
replay_launches(std::span<const AskedLaunch> launches, ClockPoint held, const SwitchCosts& costs,
                const std::function<Cost(std::size_t kernel, ClockPoint clock)>& measure);

/// Measured switching delays. Pairs that the file does not have get the longest that it has.
/// @throws Error (invalid_input) naming file and line
KDVFS_INLINE SwitchCosts read_switch_costs(std::istream& input, const std::string& name);
KDVFS_INLINE SwitchCosts read_switch_costs(const std::filesystem::path& path);

/// Where the switching latencies of a GPU are kept once they have been measured: the user's folder
/// (`$XDG_DATA_HOME/kdvfs`, or `~/.local/share/kdvfs`), then the machine's.
KDVFS_INLINE std::vector<std::filesystem::path> switch_latency_paths(const std::string& gpu);

/// The file of a GPU's switching latencies; nothing where none has been kept.
KDVFS_INLINE std::optional<std::filesystem::path> find_switch_latencies(const std::string& gpu);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/switch_costs.hpp>
#endif
