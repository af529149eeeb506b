// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/switch_costs.hpp>
#include <kdvfs/units.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/text_options.hpp>

#include <cstdio>
#include <string>
#include <utility>

namespace cli {

/// What is known of a GPU's switches: what the option `--switch-latency` gives, else what has been
/// measured on this machine, else a guess that says that it is one.
/// @throws Error (invalid_input, io)
inline kdvfs::tune::SwitchCosts known_switch_costs(const std::string& option,
                                                   const std::string& gpu) {
    using namespace kdvfs::tune;
    if (!option.empty()) {
        if (const auto latency = parse_duration("--switch-latency", option, ", or a file"))
            return uniform_switch_costs(*latency);
        Input input{option};
        return read_switch_costs(input.stream(), input.name());
    }
    if (const auto measured = find_switch_latencies(gpu)) return read_switch_costs(*measured);
    static bool said = false;  // plans may be made again
    if (!std::exchange(said, true))
        std::fprintf(
            stderr,
            "kdvfs: no switching latency of %s is known, 10 ms are assumed: measure it (kdvfs "
            "measure-latency, once per machine), or give --switch-latency\n",
            gpu.c_str());
    return uniform_switch_costs(kdvfs::Seconds{0.010});
}

}  // namespace cli
