// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/tune/policy_header.hpp>
#include <kdvfs/train/frontier.hpp>
#include <kdvfs/train/plan.hpp>
#include <kdvfs/tune/policy_header.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

/// Frontiers and plans of pipelines as text. Times in seconds, energies in joules, clocks in MHz.
namespace kdvfs::inline v0_3::train {
namespace detail {

inline std::string decimal(Femtojoules number) {
    const bool negative = number < 0;
    std::string digits;
    for (; number != 0; number /= 10) {
        const auto digit = static_cast<int>(number % 10);
        digits.push_back(static_cast<char>('0' + (digit < 0 ? -digit : digit)));
    }
    if (digits.empty()) digits = "0";
    if (negative) digits.push_back('-');
    std::reverse(digits.begin(), digits.end());
    return digits;
}

inline Joules total(const Frontier& frontier, const Corner& corner) {
    return to_joules(corner.effective) + frontier.pipeline().blocking_energy(corner.time());
}

inline nlohmann::ordered_json clock_json(ClockPoint clock) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const Megahertz domain : {clock.core, clock.memory})
        json.push_back(domain == auto_clock ? nlohmann::ordered_json(-1)
                                            : nlohmann::ordered_json(domain.count));
    return json;
}

inline nlohmann::ordered_json operation_json(const PlannedOperation& planned) {
    const PlannedClocks& clocks = planned.clocks;
    nlohmann::ordered_json json{{"stage", clocks.operation.stage},
                                {"op", to_string(clocks.operation.pass)},
                                {"chunk", clocks.operation.chunk},
                                {"microbatch", clocks.operation.microbatch},
                                {"start_s", planned.start.count()},
                                {"duration_s", planned.duration.count()},
                                {"effective_j", planned.effective.count},
                                {"clock_mhz", clock_json(clocks.first)},
                                {"share", clocks.share}};
    if (clocks.second != clocks.first) json["then_clock_mhz"] = clock_json(clocks.second);
    return json;
}

inline nlohmann::ordered_json frontier_json(const Frontier& frontier) {
    return {{"shortest_s", frontier.shortest().count()},
            {"frugal_s", frontier.frugal().count()},
            {"corners", frontier.corners().size()},
            {"gap", frontier.gap()}};
}

}  // namespace detail

/// All corners: `time_s,effective_j,total_j`.
inline std::string to_csv(const Frontier& frontier) {
    std::string text = "time_s,effective_j,total_j\n";
    for (const Corner& corner : frontier.corners())
        text += kdvfs::detail::to_text(corner.time().count()) + ',' +
                kdvfs::detail::to_text(to_joules(corner.effective).count) + ',' +
                kdvfs::detail::to_text(detail::total(frontier, corner).count) + '\n';
    return text;
}

/// All corners, each with its certificate: `primal_fj` and `dual_fj` are whole femtojoules of
/// effective energy, equal where the corner is optimal.
inline std::string to_json(const Frontier& frontier, const std::string& name) {
    nlohmann::ordered_json json{{"case", name}, {"frontier", detail::frontier_json(frontier)}};
    nlohmann::ordered_json corners = nlohmann::ordered_json::array();
    for (const Corner& corner : frontier.corners())
        corners.push_back({{"time_s", corner.time().count()},
                           {"effective_j", to_joules(corner.effective).count},
                           {"total_j", detail::total(frontier, corner).count},
                           {"next_second_costs_w", static_cast<double>(corner.microwatts) * 1e-6},
                           {"primal_fj", detail::decimal(corner.effective)},
                           {"dual_fj", detail::decimal(corner.bound)}});
    json["corners"] = std::move(corners);
    return json.dump(1) + '\n';
}

/// A plan: its totals, and every operation in the order of the stages.
inline std::string to_json(const PipelinePlan& plan, const Frontier& frontier,
                           const std::string& name) {
    nlohmann::ordered_json json{{"case", name},
                                {"frontier", detail::frontier_json(frontier)},
                                {"plan",
                                 {{"time_s", plan.time.count()},
                                  {"makespan_s", plan.makespan.count()},
                                  {"effective_j", plan.effective.count},
                                  {"total_j", plan.total.count},
                                  {"bound_j", plan.bound.count},
                                  {"switches", plan.switches},
                                  {"gap", plan.gap()}}}};
    nlohmann::ordered_json operations = nlohmann::ordered_json::array();
    for (const PlannedOperation& planned : plan.operations)
        operations.push_back(detail::operation_json(planned));
    json["operations"] = std::move(operations);
    for (const PlannedWait& wait : plan.waits)
        json["waits"].push_back({{"before", wait.before},
                                 {"start_s", wait.start.count()},
                                 {"length_s", wait.length.count()},
                                 {"clock_mhz", detail::clock_json(wait.clock)},
                                 {"saved_j", wait.saved.count}});
    return json.dump(1) + '\n';
}

/// The operations of a plan, one a line.
inline std::string to_csv(const PipelinePlan& plan) {
    std::string text =
        "stage,op,chunk,microbatch,start_s,duration_s,effective_j,core_mhz,mem_mhz,share,"
        "then_core_mhz,then_mem_mhz\n";
    for (const PlannedOperation& planned : plan.operations) {
        const PlannedClocks& clocks = planned.clocks;
        const Operation& operation = clocks.operation;
        text += std::to_string(operation.stage) + ',' + std::string{to_string(operation.pass)} +
                ',' + std::to_string(operation.chunk) + ',' + std::to_string(operation.microbatch);
        for (const double number :
             {planned.start.count(), planned.duration.count(), planned.effective.count})
            text += ',' + kdvfs::detail::to_text(number);
        text += ',' + kdvfs::detail::to_csv_field(clocks.first.core) + ',' +
                kdvfs::detail::to_csv_field(clocks.first.memory) + ',' +
                kdvfs::detail::to_text(clocks.share) + ',' +
                kdvfs::detail::to_csv_field(clocks.second.core) + ',' +
                kdvfs::detail::to_csv_field(clocks.second.memory) + '\n';
    }
    return text;
}

/// A plan as a C++ header: `pipeline_plan`, an array of `train::PlannedClocks` in the order of the
/// stages, each stage's as they run.
/// @throws Error (invalid_input) for names that could become anything but names in C++
inline std::string to_header(const PipelinePlan& plan, const tune::HeaderOptions& options) {
    if (!tune::detail::is_namespace_name(options.namespace_name))
        tune::detail::reject_header("namespace \"" + options.namespace_name + '"',
                                    "this is no namespace name");
    if (!tune::detail::is_comment_text(options.input) ||
        !tune::detail::is_comment_text(options.input_hash))
        tune::detail::reject_header("the banner",
                                    "the input's name has characters that are not allowed");
    std::string text = "// Generated by kdvfs, do not edit.\n";
    if (!options.input.empty()) text += "// From: " + options.input + "\n";
    if (!options.input_hash.empty()) text += "// Hash: " + options.input_hash + "\n";
    text += "// Iteration: " + kdvfs::detail::to_text(plan.time.count()) + " s, " +
            kdvfs::detail::to_text(plan.total.count) + " J, " + std::to_string(plan.switches) +
            " switches\n#pragma once\n\n#include <kdvfs/train/plan.hpp>\n\n"
            "#include <array>\n\nnamespace " +
            options.namespace_name +
            " {\n\n// clang-format off\n"
            "inline constexpr std::array<kdvfs::train::PlannedClocks, " +
            std::to_string(plan.operations.size()) + "> pipeline_plan{{\n";
    const auto clock_text = [](ClockPoint clock) {
        return "{" + tune::detail::clock_text(clock.core) + ", " +
               tune::detail::clock_text(clock.memory) + "}";
    };
    for (const PlannedOperation& planned : plan.operations) {
        const PlannedClocks& clocks = planned.clocks;
        const Operation& operation = clocks.operation;
        text += "    {{" + std::to_string(operation.stage) +
                ", kdvfs::train::Pass::" + std::string{to_string(operation.pass)} + ", " +
                std::to_string(operation.chunk) + ", " + std::to_string(operation.microbatch) +
                ", " + std::to_string(operation.curve) + "}, " + clock_text(clocks.first) + ", " +
                kdvfs::detail::to_text(clocks.share) + ", " + clock_text(clocks.second) + "},\n";
    }
    return text + "}};\n// clang-format on\n\n}  // namespace " + options.namespace_name + "\n";
}

}  // namespace kdvfs::inline v0_3::train
