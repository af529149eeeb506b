// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/serve/requests.hpp>
#include <kdvfs/serve/simulated/clock_policies.hpp>
#include <kdvfs/serve/simulated/serving_engine.hpp>
#include <kdvfs/serve/step_plan.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace kdvfs::serve {

/// Boards that serve together: a request goes to the one with the least to do.
struct ClusterOptions {
    std::size_t boards = 4;
    EngineLimits limits{};
    LatencyTargets targets{};
    Seconds switch_latency{0.006};
};

/// Serves a trace in virtual time: one engine a board, each with its own policy, until the last
/// answer has ended on all boards. `load`, if there is one, is told the steps of all boards.
/// @throws Error (invalid_input) without boards, or for steps of unknown cost
template <StepCosts Costs>
ServingCounts serve_trace(const Costs& costs, std::span<const Request> requests,
                          const ClusterOptions& options,
                          const std::function<std::unique_ptr<ClockPolicy>()>& make_policy,
                          StepLoad* load = nullptr) {
    if (options.boards == 0)
        throw Error{Errc::invalid_input, {"serve a trace", "0 boards", "", "give at least one"}};
    std::vector<std::unique_ptr<ClockPolicy>> policies;
    std::deque<ServingEngine<Costs>> engines;
    std::vector<StepLoad> loads;
    for (std::size_t b = 0; b < options.boards && load; ++b) loads.emplace_back(load->buckets());
    for (std::size_t b = 0; b < options.boards; ++b) {
        policies.push_back(make_policy());
        engines.emplace_back(costs, *policies.back(), options.limits, options.targets,
                             options.switch_latency, load ? &loads[b] : nullptr);
    }
    for (const Request& request : requests) {
        for (auto& engine : engines) engine.advance(request.arrival);
        std::min_element(engines.begin(), engines.end(), [](const auto& a, const auto& b) {
            return a.load() < b.load();
        })->submit(request);
    }
    Seconds end{0};
    for (auto& engine : engines) {
        engine.drain();
        end = std::max(end, engine.now());
    }
    ServingCounts total;
    for (auto& engine : engines) {
        engine.advance(end);
        total += engine.counts();
    }
    for (const StepLoad& part : loads) load->add(part);
    return total;
}

}  // namespace kdvfs::serve
