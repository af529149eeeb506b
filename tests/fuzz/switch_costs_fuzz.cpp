// SPDX-License-Identifier: MIT
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/switch_costs.hpp>
#include <tests/fuzz/fuzz_target.hpp>

#include <cmath>
#include <sstream>

/// Measured switching latencies: whatever is asked for, a delay makes sense.
void fuzzing::fuzz(const std::string& text) {
    using namespace kdvfs::tune;
    std::istringstream input{text};
    const SwitchCosts costs = read_switch_costs(input, "input:");
    const kdvfs::ClockPoint points[]{{}, {{900}, {810}}, {{1100}, kdvfs::auto_clock}};
    for (const auto from : points) {
        for (const auto to : points) {
            const SwitchDelay delay = costs.delay(from, to);
            require(std::isfinite(delay.latency.count()) && delay.latency.count() >= 0 &&
                        delay.transition.count() >= 0 && delay.transition <= delay.latency,
                    "a delay is finite, and its transition a part of it");
        }
    }
}
