// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/policy_header.hpp>
#include <kdvfs/tune/profile.hpp>

#include <chrono>
#include <string>

namespace gpt3 {

/// The plan as `policies.hpp`, saying which measurements it was made from.
inline std::string generate_policies(const kdvfs::tune::Profile& profile,
                                     const kdvfs::tune::Plan& plan) {
    return kdvfs::tune::to_policy_header(
        plan, {.namespace_name = "gpt3",
               .input = "the sweep of examples/gpt3_iteration, on a " + profile.gpu(),
               .input_hash = kdvfs::io::content_hash(kdvfs::tune::to_csv(profile))});
}

/// The plan as data, for registries that obey one at run time.
inline kdvfs::PlanTable to_plan_table(const kdvfs::tune::Plan& plan) {
    kdvfs::PlanTable table;
    for (const kdvfs::tune::PlannedKernel& kernel : plan.kernels) {
        table.set(kernel.key, {.asks = true,
                               .point = kernel.clock,
                               .lasts = std::chrono::round<kdvfs::Duration>(kernel.expected.time)});
    }
    return table;
}

}  // namespace gpt3
