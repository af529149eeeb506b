// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/switch_costs.hpp>

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/solve/multiple_choice.hpp>
#include <kdvfs/detail/tune/csv_fields.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <utility>

namespace kdvfs::inline v0_3::tune {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE SwitchCosts uniform_switch_costs(Seconds latency, Seconds transition,
                                              Watts paused_power) {
    return {[=](ClockPoint, ClockPoint) {
                return SwitchDelay{latency, transition};
            },
            paused_power,
            Seconds{0},
            {},
            {}};
}

KDVFS_INLINE Cost
replay_launches(std::span<const AskedLaunch> launches, ClockPoint held, const SwitchCosts& costs,
                const std::function<Cost(std::size_t kernel, ClockPoint clock)>& measure) {
    ClockPoint asked = held;
    Seconds arrives_after{0};  // where another clock is asked for than held
    Seconds pause{0};
    const auto run_once = [&] {
        Cost sum;
        const auto wait = [&](Seconds time) { sum += {time, costs.paused_power * time}; };
        for (const AskedLaunch& launch : launches) {
            if (launch.clock != asked) {
                asked = launch.clock;
                const SwitchDelay delay = costs.delay(held, asked);
                pause = std::min(delay.transition, delay.latency);
                arrives_after = delay.latency - pause;
                wait(costs.asking);
            }
            const Cost old_clock = measure(launch.kernel, held);
            if (held == asked || old_clock.time <= arrives_after) {
                sum += old_clock;
                arrives_after -= old_clock.time;
                continue;
            }
            const double share = std::max(arrives_after, Seconds{0}) / old_clock.time;
            sum += old_clock * share + measure(launch.kernel, asked) * (1 - share);
            wait(pause);
            held = asked;
        }
        return sum;
    };
    run_once();  // leaves clocks as an iteration finds them
    return run_once();
}

KDVFS_INLINE SwitchCosts read_switch_costs(std::istream& input, const std::string& name) {
    using Pair = std::pair<ClockPoint, ClockPoint>;
    io::CsvReader reader{input, name};
    detail::NamedColumns columns{
        reader, {"from_core_mhz", "from_mem_mhz", "to_core_mhz", "to_mem_mhz", "latency_s"}};
    auto known = std::make_shared<std::map<Pair, SwitchDelay>>();
    SwitchDelay longest;
    const auto clock = [&](const char* column) {
        return detail::parse_clock_field(columns.get(column), column, reader);
    };
    while (columns.next()) {
        const Pair pair{{clock("from_core_mhz"), clock("from_mem_mhz")},
                        {clock("to_core_mhz"), clock("to_mem_mhz")}};
        const SwitchDelay delay{detail::parse_delay(columns, "latency_s", reader),
                                detail::parse_delay(columns, "transition_s", reader)};
        if (delay.transition > delay.latency) reader.fail("the transition outlasts the latency");
        if (!known->try_emplace(pair, delay).second) reader.fail("this pair is there twice");
        if (delay.latency >= longest.latency) longest = delay;
    }
    if (known->empty()) reader.fail("there are no switches");
    SwitchCosts costs;
    costs.delay = [known, longest](ClockPoint from, ClockPoint to) {
        const auto found = known->find({from, to});
        return found == known->end() ? longest : found->second;
    };
    return costs;
}

KDVFS_INLINE SwitchCosts read_switch_costs(const std::filesystem::path& path) {
    std::ifstream input = detail::open_input(path);
    return read_switch_costs(input, path.string());
}

KDVFS_INLINE std::vector<std::filesystem::path> switch_latency_paths(const std::string& gpu) {
    return io::kept_paths("switch_latency", gpu);
}

KDVFS_INLINE std::optional<std::filesystem::path> find_switch_latencies(const std::string& gpu) {
    return io::find_kept(switch_latency_paths(gpu));
}

#endif

}  // namespace kdvfs::inline v0_3::tune
