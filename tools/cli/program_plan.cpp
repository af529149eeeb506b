// SPDX-License-Identifier: MIT
//
// A translation unit of its own: planners take long to compile.
#include <tools/cli/program_plan.hpp>

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/plan_table_text.hpp>
#include <kdvfs/detail/tune/ranks.hpp>
#include <kdvfs/detail/tune/shrunk_costs.hpp>
#include <kdvfs/detail/tune/trace_planner.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/policy_header.hpp>
#include <kdvfs/tune/segments.hpp>
#include <tools/cli/known_switch_costs.hpp>

#include <algorithm>
#include <filesystem>

namespace cli {

void PlanCorrection::apply(kdvfs::tune::CostTable& table) const {
    for (kdvfs::tune::KernelCosts& kernel : table.kernels)
        for (std::size_t p = 0; p < kernel.points.size(); ++p) {
            if (p == kernel.baseline) continue;
            kernel.points[p].cost.time *= time;
            kernel.points[p].cost.energy = kernel.points[p].cost.energy * energy;
        }
}

void PlanCorrection::apply(kdvfs::tune::SwitchCosts& costs) const {
    if (per_switch <= kdvfs::Seconds{0}) return;
    costs.asking += per_switch;
    costs.paused_power = power;
}

kdvfs::tune::CostTable PlanningOptions::costs(const kdvfs::tune::Profile& profile) const {
    // One short kernel whose energy is not resolved at a clock would keep the clock from all.
    kdvfs::tune::CostTable table =
        kdvfs::tune::shrunk_costs(kdvfs::tune::with_likely_energies(profile));
    exclude(table, excluded);
    correction.apply(table);
    return table;
}

namespace {

/// How to plan for iterations that are not alike. A clock for each kernel is paid for at each
/// launch: it is taken only where the latency of a switch is a small part of the shortest launch
/// whose clock is not the baseline's.
kdvfs::tune::Aggregate aggregate_without_sequence(const kdvfs::tune::Plans& plans,
                                                  const kdvfs::tune::SwitchCosts& costs) {
    using namespace kdvfs::tune;
    constexpr double small_part = 0.01;
    for (const PlannedKernel& kernel : plans.global.kernels)
        for (const PlannedKernel& other : plans.global.kernels) {
            if (kernel.clock == other.clock) continue;
            const kdvfs::Seconds latency = costs.delay(other.clock, kernel.clock).latency;
            if (latency + costs.asking > small_part * kernel.expected.time)
                return Aggregate::single;
        }
    return Aggregate::global;
}

struct PlanFiles {
    std::string json;
    std::string header;
};

PlanFiles plan_files(const kdvfs::tune::RankProfile& measured, const PlanningOptions& planning) {
    using namespace kdvfs::tune;
    const CostTable table = planning.costs(measured.profile);
    const HeaderOptions header{"kdvfs_policies", "Policies", "profile.csv",
                               kdvfs::io::content_hash(kdvfs::tune::to_csv(measured.profile))};
    SwitchCosts costs = known_switch_costs(planning.switch_latency, table.gpu);
    planning.correction.apply(costs);
    if (measured.sequence.launches.empty() && measured.trace.iterations.empty()) {
        const Plans plans = make_plans(table, planning.objective);
        const Aggregate by = aggregate_without_sequence(plans, costs);
        return {to_json(plans, by), to_policy_header(plans[by], header)};
    }
    SegmentOptions options;
    options.worthwhile_pct = simplest_within_pct;
    SegmentPlan plan =
        plan_program(table, measured.sequence, measured.trace, costs, planning.objective, options);
    plan.sequence.profile_hash = header.input_hash;
    return {to_json(plan), to_segment_header(plan, header)};
}

/// Unequal ranks wait for the slowest; their energies add.
void add(Promise& promise, const std::string& text, const std::string& name) {
    using namespace kdvfs::tune;
    const bool segments = has_sequence(text, name);
    const Plan plan = segments ? parse_promise(text, name) : parse_plan(text, name);
    if (segments) promise.segments += parse_sequence(text, name).boundaries.size();
    if (promise.plans++ == 0) {
        promise.plan = plan;
        return;
    }
    promise.plan.baseline = {std::max(promise.plan.baseline.time, plan.baseline.time),
                             promise.plan.baseline.energy + plan.baseline.energy};
    promise.plan.expected = {std::max(promise.plan.expected.time, plan.expected.time),
                             promise.plan.expected.energy + plan.expected.energy};
}

}  // namespace

Promise make_plan(const TuningFolder& folder, const PlanningOptions& planning) {
    using namespace kdvfs::tune;
    const auto ranks = read_rank_profiles(folder.file("profile.csv"));
    const auto groups = equal_ranks(ranks);
    for (const auto& group : groups) {
        const RankProfile merged = ranks.size() == 1 ? ranks.front() : merge_ranks(ranks, group);
        const PlanFiles files = plan_files(merged, planning);
        for (const std::size_t member : group) {
            const bool shared = groups.size() == 1;
            const auto named = [&](const char* name) {
                const std::filesystem::path file{name};
                return shared ? file.string() : rank_path(file, *ranks[member].rank).string();
            };
            folder.write(named("policies.hpp"), files.header);
            folder.write(named("plan.json"), files.json);  // last: says that both are there
            if (shared) break;
        }
    }
    Promise promise;
    std::string all;
    for (const std::filesystem::path& path : folder.ranked("plan.json")) {
        namespace fs = std::filesystem;
        fs::permissions(path, fs::perms::group_write | fs::perms::others_write,
                        fs::perm_options::remove);  // or no program may trust it
        const std::string text = read_trusted_file(path);
        all += text;
        add(promise, text, path.string());
    }
    promise.hash = kdvfs::io::content_hash(all);
    return promise;
}

}  // namespace cli
