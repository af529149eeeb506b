// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/plan_fields.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/validation.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/report/energy_chart.hpp>
#include <tools/cli/report/iteration_chart.hpp>
#include <tools/cli/report/pipeline_chart.hpp>
#include <tools/cli/report/profile_chart.hpp>
#include <tools/cli/report/promise_chart.hpp>
#include <tools/cli/report/switch_chart.hpp>
#include <tools/cli/report/trace_chart.hpp>
#include <tools/cli/report_version.hpp>

#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cli::report {

/// A plan file: the plan, and what it says of the other ways to plan.
struct PlanInput {
    kdvfs::tune::Plan plan;
    std::vector<std::pair<kdvfs::tune::Aggregate, kdvfs::tune::Cost>> alternatives;
};

/// What a report is made of, as far as it was given.
struct Inputs {
    std::optional<kdvfs::tune::Profile> profile;
    std::optional<PlanInput> plan;
    std::optional<SegmentsInput> segments;
    std::vector<NamedValidation> validations;
    std::optional<MeasuredEnergy> energy;
    std::optional<TraceContent> trace;
    std::optional<SwitchTable> switches;
    std::optional<Chart> power_profile;
    std::optional<kdvfs::train::PipelineCase> pipeline;
    std::optional<PipelinePlanInput> pipeline_plan;
};

namespace input_parts {

template <class Value>
void take_once(std::optional<Value>& place, Value value, const std::string& what,
               const std::string& file) {
    if (place)
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"make a report", file, "there is another " + what + " already",
                            "give one of each kind; of validations, as many as there are"}};
    place = std::move(value);
}

inline void take_json(Inputs& inputs, const std::string& text, const std::string& file) {
    using namespace kdvfs::tune;
    const nlohmann::json json = kdvfs::tune::parse_json(text, file);
    const auto has = [&](const char* key, bool list) {
        return json.is_object() && json.contains(key) &&
               (list ? json[key].is_array() : json[key].is_object());
    };
    if (json.is_object() && json.value("format", "") == "pipeline-case-1") {
        take_once(inputs.pipeline, kdvfs::train::parse_pipeline_case(text, file), "pipeline", file);
    } else if (has("operations", true) && has("plan", false)) {
        take_once(inputs.pipeline_plan, pipeline_plan(json), "plan of a pipeline", file);
    } else if (has("promised", false)) {
        const std::string name = std::filesystem::path{file}.stem().string();
        inputs.validations.push_back({name, parse_validation(text, file)});
    } else if (has("kernels", true)) {
        take_once(inputs.plan, PlanInput{parse_plan(text, file), parse_alternatives(text, file)},
                  "plan", file);
    } else if (has("segments", true)) {
        take_once(inputs.segments, segments_input(text, json, file), "plan of segments", file);
    } else if (has("rows", true)) {
        refuse_newer_report(json, file);
        take_once(inputs.energy, measured_energy(json), "report", file);
    } else if (has("traceEvents", true)) {
        take_once(inputs.trace, trace_content(json), "trace", file);
    } else if (has("pairs", true)) {
        take_once(inputs.switches, switch_table(json), "table of switches", file);
    } else if (has("profiles", true)) {
        take_once(inputs.power_profile, power_profile_chart(json), "power profile", file);
    } else {
        throw kdvfs::Error{
            kdvfs::Errc::invalid_input,
            {"make a report", file, "this is nothing that kdvfs writes",
             "give a profile (CSV), plans, validations, a report, a trace, switching latencies, "
             "a power profile, or a pipeline and a plan of it (JSON)"}};
    }
}

}  // namespace input_parts

/// Sorts files by what they hold, whatever their names.
/// @throws Error (invalid_input, io) naming the file
inline Inputs read_inputs(const std::vector<std::string>& files) {
    Inputs inputs;
    for (const std::string& file : files) {
        const InputText input = read_input(file);
        const std::size_t first = input.text.find_first_not_of(" \t\r\n");
        try {
            const char begins = first == std::string::npos ? '\0' : input.text[first];
            if (begins == '{' || begins == '[') {
                input_parts::take_json(inputs, input.text, input.name);
            } else {
                std::istringstream stream{input.text};
                input_parts::take_once(inputs.profile,
                                       kdvfs::tune::read_profile(stream, input.name), "profile",
                                       input.name);
            }
        } catch (const nlohmann::json::exception& error) {
            throw kdvfs::Error{
                kdvfs::Errc::invalid_input,
                {"make a report", input.name, error.what(), "give a file as kdvfs wrote it"}};
        }
    }
    const auto require_same_gpu = [](const std::string& gpu, const std::string& other,
                                     const std::string& what) {
        if (gpu == other) return;
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"make a report", gpu, "the " + what + " is of another GPU, " + other,
                            "give files that were made from one profile"}};
    };
    const kdvfs::tune::Plan* const plan = inputs.plan       ? &inputs.plan->plan
                                          : inputs.segments ? &inputs.segments->promise
                                                            : nullptr;
    if (inputs.profile && plan) require_same_gpu(plan->gpu, inputs.profile->gpu(), "profile");
    if (inputs.segments) require_same_gpu(inputs.segments->promise.gpu, plan->gpu, "other plan");
    return inputs;
}

}  // namespace cli::report
