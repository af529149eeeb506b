// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/pipeline_case.hpp>

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/train/case_fields.hpp>
#include <kdvfs/detail/train/schedules.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/train/pipeline_shape.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::train {

namespace detail {

/// Reads a case; errors name the file and the field.
class CaseReader : private CaseFields {
public:
    explicit CaseReader(std::string file) : CaseFields{std::move(file)} {}

    [[nodiscard]] PipelineCase read(std::string_view text) {
        const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
        if (json.is_discarded() || !json.is_object())
            reject("it is no JSON object", "check that the file is whole; JSON has no NaN");
        if (const std::string format = string(json, "format"); format != "pipeline-case-1")
            reject("its format is \"" + format + "\", and this version reads pipeline-case-1",
                   format.starts_with("pipeline-case-") ? "use a newer kdvfs"
                                                        : "docs/training.md has the schema");
        read_shape(json);
        blocking_ = Watts{number(json, "blocking_power_w")};
        read_waiting(json);
        const bool convex = json.contains("curves") && json["curves"] == "convex";
        read_profiles(array(json, "profiles"), convex ? Shape::convex : Shape::measured);
        PipelineCase read{json.contains("name") ? string(json, "name") : file(), pipeline(json)};
        read.pipeline.waiting = waiting_;
        return read;
    }

private:
    void read_shape(const Json& json) {
        const Schedule named = schedule(string(json, "schedule"));
        is_listed_ = named == Schedule::graph && !json.contains("order");
        if (json.contains("order")) {
            std::string text;
            for (const Json& stage : array(json, "order")) {
                if (!stage.is_string()) reject_field("order", "a list of texts, one of each stage");
                text += stage.get<std::string>() + '\n';
            }
            shape_ = parse_schedule(text);
        }
        const std::uint32_t stages = whole(json, "stages");
        if (json.contains("order") && stages != shape_.stages)
            reject_field("order", "a text of each stage");
        shape_.schedule = json.contains("order") ? Schedule::graph : named;
        shape_.stages = stages;
        if (json.contains("chunks")) shape_.chunks = whole(json, "chunks");
        if (json.contains("placement")) shape_.placement = placement(string(json, "placement"));
        read_links(json);
        if (json.contains("activations"))
            shape_.activations = communication(json["activations"], "activations");
        if (json.contains("gradients"))
            shape_.gradients = communication(json["gradients"], "gradients");
        if (json.contains("before")) shape_.before = once(json, "before");
        if (json.contains("after")) shape_.after = once(json, "after");
        if (json.contains("reduction")) read_reduction(json["reduction"]);
        if (is_listed_) return;
        if (!json.contains("order")) shape_.microbatches = whole(json, "microbatches");
        check_shape(shape_);
    }

    [[nodiscard]] std::vector<StageOperation> once(const Json& json, const char* field) const {
        std::vector<StageOperation> all;
        for (const Json& each : array(json, field)) {
            if (!each.is_object()) reject_field(field, "a list of objects");
            StageOperation operation{pass(string(each, "op")), {}, false};
            if (each.contains("stages"))
                for (const Json& stage : array(each, "stages"))
                    operation.stages.push_back(whole({{"stages", stage}}, "stages"));
            operation.together = each.contains("together") && each["together"] == true;
            all.push_back(std::move(operation));
        }
        return all;
    }

    /// One for all stages, or a list of one for each.
    void read_reduction(const Json& json) {
        if (!json.is_object()) reject_field("reduction", "an object");
        if (json.contains("buckets")) shape_.reduction.buckets = whole(json, "buckets");
        std::vector<Seconds>& time = shape_.reduction.time;
        if (json.contains("stages"))
            for (const Json& each : array(json, "stages"))
                time.push_back(communication(each, "reduction"));
        else
            time.assign(shape_.stages, communication(json, "reduction"));
    }

    /// The least power of waits is that of the curves.
    void read_waiting(const Json& json) {
        waiting_.above = blocking_;
        if (!json.contains("waiting_power_w")) return;
        for (const Json& point : array(json, "waiting_power_w")) {
            const bool is_pair = point.is_array() && point.size() == 2 && point[0].is_number() &&
                                 point[1].is_number();
            const double clock = is_pair ? point[0].get<double>() : 0;
            const double watts = is_pair ? point[1].get<double>() : -1;
            if (!(clock >= 1 && clock <= 100'000 && watts >= 0 && watts <= 1e5))
                reject_field("waiting_power_w", "a list of [MHz, watts]");
            waiting_.points.push_back(
                {Megahertz{static_cast<std::uint32_t>(std::lround(clock))}, Watts{watts}});
        }
        std::sort(waiting_.points.begin(), waiting_.points.end(),
                  [](const auto& a, const auto& b) { return a.core < b.core; });
        if (const auto lowest = waiting_.lowest()) blocking_ = lowest->power;
    }

    void read_profiles(const Json& profiles, Shape shape) {
        for (const Json& profile : profiles) {
            if (!profile.is_object()) reject_field("profiles", "a list of objects");
            std::uint32_t stage = whole(profile, "stage");
            const Pass kind = pass(string(profile, "op"));
            std::uint32_t first = 0;
            std::uint32_t last = shape_.chunks;
            if (profile.contains("chunk")) {
                first = whole(profile, "chunk");
                last = first + 1;
            } else if (stage >= shape_.stages && shape_.stages > 0) {
                first = stage / shape_.stages;
                last = first + 1;
                stage %= shape_.stages;
            }
            const std::string name =
                "stage " + std::to_string(stage) + ", " + std::string{to_string(kind)};
            if (stage >= shape_.stages || last > shape_.chunks)
                reject("it has a profile of " + name + ", chunk " + std::to_string(first) +
                           ", which the pipeline has not",
                       "count stages and chunks from 0");
            std::vector<CurvePoint> measured = points(array(profile, "points"), name);
            Shape its = measured.size() == 1 ? Shape::constant : shape;
            if (profile.contains("collectives") &&
                add_collectives(array(profile, "collectives"), measured) && its == Shape::convex)
                its = Shape::measured;
            curves_.emplace_back(name, std::move(measured), blocking_, its);
            for (std::uint32_t chunk = first; chunk < last; ++chunk)
                add(stage, kind, chunk, profile.contains("chunk") || first > 0);
        }
    }

    /// A profile of one chunk comes before one of all chunks.
    void add(std::uint32_t stage, Pass kind, std::uint32_t chunk, bool exact) {
        const auto index = static_cast<std::uint32_t>(curves_.size() - 1);
        const auto [at, is_new] = curve_of_.try_emplace({stage, kind, chunk}, index);
        if (is_new) {
            if (exact) exact_.emplace_back(stage, kind, chunk);
            return;
        }
        const std::tuple key{stage, kind, chunk};
        const bool was_exact = std::find(exact_.begin(), exact_.end(), key) != exact_.end();
        if (was_exact == exact)
            reject("it has two profiles of " + curves_.back().name(), "remove one of them");
        if (!exact) return;
        at->second = index;
        exact_.push_back(key);
    }

    [[nodiscard]] std::vector<CurvePoint> points(const Json& list, const std::string& name) const {
        std::vector<CurvePoint> all;
        for (const Json& point : list) {
            const bool is_triple = point.is_array() && point.size() == 3 &&
                                   std::all_of(point.begin(), point.end(),
                                               [](const Json& n) { return n.is_number(); });
            if (!is_triple)
                reject("a point of " + name + " is not [MHz, seconds, joules]",
                       "give three numbers; JSON has no NaN");
            const double clock = point[0].get<double>();
            if (!(clock >= 1 && clock <= 100'000))
                reject("a clock of " + name + " is not from 1 to 100000 MHz", "give it in MHz");
            all.push_back({{Megahertz{static_cast<std::uint32_t>(std::lround(clock))}, auto_clock},
                           Seconds{point[1].get<double>()},
                           Joules{point[2].get<double>()}});
        }
        return all;
    }

    /// Adds what ranks of a stage communicate within an operation (tensor, sequence and expert
    /// parallelism). What is overlapped goes on beside the computation, one after the other: an
    /// operation that computes for a shorter time waits for it.
    /// @returns whether any is overlapped
    [[nodiscard]] bool add_collectives(const Json& collectives,
                                       std::vector<CurvePoint>& measured) const {
        Seconds waited{};
        Seconds beside{};
        Joules energy{};
        for (const Json& each : collectives) {
            const Seconds time = communication(each, "collectives");
            const Watts power =
                each.contains("power_w") ? Watts{number(each, "power_w")} : blocking_;
            if (each.contains("overlapped") && each["overlapped"] == true) {
                beside += time;
            } else {
                waited += time;
                energy += power * time;
            }
        }
        for (CurvePoint& point : measured) {
            const Seconds idle = std::max(beside - point.time, Seconds{});
            point.time += waited + idle;
            point.energy += energy + blocking_ * idle;
        }
        return beside > Seconds{};
    }

    [[nodiscard]] Pipeline pipeline(const Json& json) {
        if (!is_listed_) return make_pipeline(shape_, curve_of_, std::move(curves_), blocking_);
        std::vector<std::vector<Operation>> stages(shape_.stages);
        std::vector<std::vector<std::uint32_t>> listed(shape_.stages);
        const Json& operations = array(json, "operations");
        for (std::uint32_t i = 0; i < operations.size(); ++i) {
            if (!operations[i].is_object()) reject_field("operations", "a list of objects");
            Operation operation{whole(operations[i], "stage"), pass(string(operations[i], "op")), 0,
                                whole(operations[i], "microbatch"), 0};
            if (operations[i].contains("chunk")) operation.chunk = whole(operations[i], "chunk");
            if (operation.pass == Pass::forward_backward) {
                operation.over_microbatch = whole(operations[i], "over_microbatch");
                if (operations[i].contains("over_chunk"))
                    operation.over_chunk = whole(operations[i], "over_chunk");
            }
            const auto curve = curve_of_.find({operation.stage, operation.pass, operation.chunk});
            if (curve == curve_of_.end())
                reject("it has no profile of the " + to_string(operation), "profile it, too");
            operation.curve = curve->second;
            stages[operation.stage].push_back(operation);
            listed[operation.stage].push_back(i);
        }
        return make_graph(stages, dependencies(json, listed, operations.size()), std::move(curves_),
                          blocking_);
    }

    /// Operations are listed in any order of stages, but numbered stage by stage.
    [[nodiscard]] std::vector<Dependency> dependencies(
        const Json& json, const std::vector<std::vector<std::uint32_t>>& listed,
        std::size_t count) const {
        std::vector<std::uint32_t> number(count);
        std::uint32_t next = 0;
        for (const auto& stage : listed)
            for (const std::uint32_t i : stage) number[i] = next++;
        std::vector<Dependency> all;
        for (const Json& pair : array(json, "dependencies")) {
            const bool is_pair = pair.is_array() && (pair.size() == 2 || pair.size() == 3) &&
                                 pair[0].is_number_unsigned() && pair[1].is_number_unsigned() &&
                                 pair[0].get<std::uint64_t>() < count &&
                                 pair[1].get<std::uint64_t>() < count;
            if (!is_pair) reject_field("dependencies", "a list of pairs of operations");
            all.push_back({number[pair[0].get<std::size_t>()], number[pair[1].get<std::size_t>()],
                           pair.size() == 3 ? communication(pair[2], "dependencies") : Seconds{}});
        }
        return all;
    }

    PipelineShape shape_{};
    bool is_listed_ = false;  ///< operations and dependencies are
    Watts blocking_{};
    WaitingPower waiting_;
    std::vector<Curve> curves_;
    CurveIndex curve_of_;
    std::vector<std::tuple<std::uint32_t, Pass, std::uint32_t>> exact_;
};

}  // namespace detail

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE PipelineCase parse_pipeline_case(std::string_view text, const std::string& file) {
    return kdvfs::detail::naming_file(file, [&] { return detail::CaseReader{file}.read(text); });
}

KDVFS_INLINE PipelineCase read_pipeline_case(const std::filesystem::path& path) {
    std::ifstream input{path, std::ios::binary};
    const std::string text{std::istreambuf_iterator<char>{input}, {}};
    if (!input || input.bad())
        throw Error{Errc::io,
                    {"read a pipeline case", path.string(), "the file cannot be read",
                     "check its name and permissions"}};
    return parse_pipeline_case(text, path.string());
}

KDVFS_INLINE std::string to_case_text(const Pipeline& pipeline, const std::string& name) {
    using Json = nlohmann::ordered_json;
    const auto described = [](const Operation& operation) {
        return Json{{"stage", operation.stage},
                    {"op", to_string(operation.pass)},
                    {"chunk", operation.chunk}};
    };
    // What the schedule's name does not say is written out.
    const bool is_graph =
        pipeline.schedule == Schedule::graph ||
        std::any_of(pipeline.operations.begin(), pipeline.operations.end(),
                    [](const Operation& o) { return o.pass >= Pass::forward_backward; }) ||
        std::any_of(pipeline.dependencies.begin(), pipeline.dependencies.end(),
                    [](const Dependency& d) { return d.time > Seconds{}; });
    Json profiles = Json::array();
    Json operations = Json::array();
    std::vector<std::tuple<std::uint32_t, Pass, std::uint32_t>> written;
    for (const Operation& operation : pipeline.operations) {
        operations.push_back(described(operation));
        operations.back()["microbatch"] = operation.microbatch;
        if (operation.pass == Pass::forward_backward) {
            operations.back()["over_chunk"] = operation.over_chunk;
            operations.back()["over_microbatch"] = operation.over_microbatch;
        }
        const std::tuple key{operation.stage, operation.pass, operation.chunk};
        if (std::find(written.begin(), written.end(), key) != written.end()) continue;
        written.push_back(key);
        Json points = Json::array();
        for (const CurvePoint& point : pipeline.curves[operation.curve].points())
            points.push_back({point.clock.core.count, point.time.count(), point.energy.count});
        profiles.push_back(described(operation));
        profiles.back()["points"] = std::move(points);
    }
    Json json{{"format", "pipeline-case-1"},
              {"name", name},
              {"curves", "measured"},
              {"schedule", to_string(is_graph ? Schedule::graph : pipeline.schedule)},
              {"stages", pipeline.stages},
              {"chunks", pipeline.chunks},
              {"microbatches", pipeline.microbatches},
              {"blocking_power_w",
               (pipeline.waiting.points.empty() ? pipeline.blocking_power : pipeline.waiting.above)
                   .count},
              {"profiles", std::move(profiles)}};
    for (const WaitingPower::Point& point : pipeline.waiting.points)
        json["waiting_power_w"].push_back({point.core.count, point.power.count});
    if (is_graph) {
        json["operations"] = std::move(operations);
        Json dependencies = Json::array();
        for (const Dependency& d : pipeline.dependencies) {
            const auto stage = [&](std::uint32_t i) { return pipeline.operations[i].stage; };
            const bool is_order = d.first + 1 == d.then && stage(d.first) == stage(d.then);
            if (is_order && d.time == Seconds{}) continue;
            dependencies.push_back({d.first, d.then});
            if (d.time > Seconds{}) dependencies.back().push_back({{"time_s", d.time.count()}});
        }
        json["dependencies"] = std::move(dependencies);
    }
    return json.dump(1) + '\n';
}

#endif

}  // namespace kdvfs::inline v0_3::train
