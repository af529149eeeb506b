// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_iteration/fit_figures.hpp>
#include <examples/gpt3_iteration/outcome.hpp>

#include <kdvfs/detail/tune/plan_fields.hpp>
#include <kdvfs/tune/plan_file.hpp>

#include <nlohmann/json.hpp>

#include <string>

/// `summary.json`: percentages are against auto, negative = saved.
namespace gpt3 {

using Json = nlohmann::ordered_json;

inline Json to_json(const kdvfs::tune::Cost& cost, const kdvfs::tune::Cost& baseline) {
    return {{"time_pct", kdvfs::tune::time_percent(cost, baseline)},
            {"energy_pct", kdvfs::tune::energy_percent(cost, baseline)}};
}

inline Json to_json(const kdvfs::tune::Plan& plan) { return to_json(plan.expected, plan.baseline); }

inline Json to_json(const PlansByObjective& plans, kdvfs::tune::Aggregate aggregate) {
    return {{"waste", gpt3::to_json(plans.waste[aggregate])},
            {"edp", gpt3::to_json(plans.edp[aggregate])}};
}

inline Json to_json(const LiveRun& run, const kdvfs::tune::Cost& baseline) {
    const kdvfs::measure::ScopeCounts& scopes = run.report.scopes;
    Json json{{"switch_latency_s", kdvfs::Seconds{run.switch_latency}.count()}};
    json.update(to_json(run.cost, baseline));
    json["scopes"] = scopes.scopes;
    json["switches"] = scopes.switches;
    json["redundant"] =
        scopes.stream_redundant + scopes.device_redundant + scopes.missed + scopes.pending;
    json["not_worth_it"] =
        scopes.not_worth_it + scopes.overtaken;  // beforehand, or as it turned out
    json["missed"] = scopes.missed;
    json["overtaken"] = scopes.overtaken;
    json["refused"] = scopes.refused;
    return json;
}

inline Json to_json(const FollowedRun& followed, const kdvfs::tune::Cost& baseline) {
    Json json = to_json(followed.run, baseline);
    json["promised_time_pct"] = followed.plan.time_pct();
    json["promised_energy_pct"] = followed.plan.energy_pct();
    json["gap_pct"] = followed.plan.gap_pct;
    json["segments"] = followed.plan.segments.size();
    json["followed_pct"] = followed.followed_pct();
    return json;
}

inline Json fit_json(const Case& job) {
    const FitErrors errors = fit_errors(job.board, job.kernels);
    return {{"parameters", fit_parameters},
            {"data_points", fit_data_points},
            {"measurements", fit_measurements},
            {"rms_time_pct", errors.rms_time_pct()},
            {"rms_energy_pct", errors.rms_energy_pct()}};
}

inline Json published_json(const PublishedOutcome& published) {
    using kdvfs::tune::Aggregate;
    Json json{{"points", to_json(published.points, Aggregate::global)},
              {"passes", to_json(published.passes, Aggregate::per_group)}};
    json["passes"]["waste_at_0.1_pct"] = gpt3::to_json(published.passes_relaxed);
    return json;
}

inline Json to_json(const BoardSaving& saving) {
    Json json{{"name", saving.name},
              {"bound_pct", saving.bound_pct},
              {"best_static_pct", saving.best_static_pct},
              {"kernels_pct", saving.kernels_pct}};
    json["accuracy"] = saving.accuracy;
    if (saving.fitted)
        json["error_pct"] = held_out_energy_error_pct;
    else
        json["assumption"] = {{"kernels_pct_least", saving.least_pct},
                              {"kernels_pct_most", saving.most_pct}};
    return json;
}

inline Json to_json(const PassErrors& errors) {
    return {{"points", errors.points},
            {"rms_time_pct", errors.time_pct},
            {"rms_energy_pct", errors.energy_pct}};
}

inline Json to_json(const PaperFigures& figures) {
    Json json{{"passes",
               {{"fast_memory", gpt3::to_json(figures.fast_memory)},
                {"all", gpt3::to_json(figures.all)}}}};
    for (const FrontierPoint& point : figures.frontier)
        json["frontier"].push_back({{"bound_pct", point.bound_pct},
                                    {"local", gpt3::to_json(point.local)},
                                    {"global", gpt3::to_json(point.global)}});
    for (const ScaledIteration& size : figures.scaled)
        json[size.split > 1 ? "tensor_parallel" : "batch"]
            [std::to_string(size.split > 1 ? size.split : size.batch)] =
                gpt3::to_json(size.planned, size.found);
    return json;
}

inline Json summary(const Case& job, const Outcome& outcome) {
    using kdvfs::tune::Aggregate;
    Json json{
        {"gpu", job.board.name},
        {"simulated", true},
        {"prediction", !job.fitted},
        {"baseline",
         {{"time_s", outcome.baseline.time.count()}, {"energy_j", outcome.baseline.energy.count}}}};
    for (const Aggregate aggregate :
         {Aggregate::single, Aggregate::per_group, Aggregate::local, Aggregate::global}) {
        const bool by_pass = aggregate == Aggregate::per_group;  // the groups are the passes
        json[by_pass ? "pass" : std::string{to_string(aggregate)}] =
            to_json(outcome.plans, aggregate);
    }
    const kdvfs::tune::Plan& single = outcome.plans.waste.single;
    json["best_static"] =
        kdvfs::tune::static_json(single.kernels.front().clock, single.expected, single.baseline);
    json["boards"] = Json::array();
    for (const BoardSaving& saving : outcome.boards) json["boards"].push_back(to_json(saving));
    if (job.fitted) json["fit"] = fit_json(job);
    if (outcome.paper) json["paper"] = gpt3::to_json(*outcome.paper);
    json["published"] = published_json(outcome.published);
    for (const LiveRun& run : outcome.live) json["live"].push_back(to_json(run, outcome.baseline));
    for (const FollowedRun& run : outcome.live_followed)
        json["live_followed"].push_back(to_json(run, outcome.baseline));
    const ScopeCosts& costs = outcome.costs;
    json["scope_costs"] = {
        {"metered_time_pct", kdvfs::tune::time_percent(costs.metered, costs.unscoped)},
        {"metered_energy_pct", kdvfs::tune::energy_percent(costs.metered, costs.unscoped)},
        {"unmetered_time_pct", kdvfs::tune::time_percent(costs.unmetered, costs.unscoped)},
        {"unmetered_energy_pct", kdvfs::tune::energy_percent(costs.unmetered, costs.unscoped)},
        {"nothing_to_gain", costs.says_so}};
    return json;
}

}  // namespace gpt3
