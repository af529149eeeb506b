// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/serve/pool.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// What planners of pools read and write. In:
/// `{"gpus": N, "idle_gpu_w": W (0), "classes": [{"name", "load_rps", "first_token_ms", "gap_ms",`
/// `"overflow_pool": NAME (none), "profile": [{"parallelism", "core_mhz", "load_rps", "power_w",`
/// `"first_token_ms", "gap_ms"}]}]}`; a clock of -1 is auto. Out:
/// `{"feasible", "reason", "gpus", "power_w", "pools": [{"class", "serves": [NAME], "load_rps",`
/// `"gpus", "power_w", "instances": [{"parallelism", "count", "core_mhz", "load_rps"}]}]}`, where
/// `reason` is there only if it is not feasible, and the `load_rps` of an instance is the load up
/// to which it was measured to keep its targets.
namespace kdvfs::inline v0_3::serve {

/// A question to `plan_cluster`.
struct ClusterQuestion {
    std::vector<ServiceClass> classes{};
    std::uint32_t gpus = 0;
    Watts idle_gpu{0};
};

namespace detail {

/// Takes fields out of parsed JSON, and names the one that is wrong.
class PoolFields {
public:
    PoolFields(const nlohmann::json& json, std::string file, std::string place)
        : json_{json}, file_{std::move(file)}, place_{std::move(place)} {
        if (!json_.is_object()) fail(place_, "it is no object");
    }

    [[noreturn]] void fail(const std::string& field, const std::string& why) const {
        throw Error{Errc::invalid_input,
                    {"read a description of pools", file_, field + ": " + why, "fix that field"}};
    }
    [[nodiscard]] double number(const std::string& name) const {
        const auto field = json_.find(name);
        if (field == json_.end()) fail(place_ + name, "it is missing");
        if (!field->is_number()) fail(place_ + name, "it is no number");
        const double value = field->get<double>();
        if (!std::isfinite(value)) fail(place_ + name, "it is not finite");
        return value;
    }
    [[nodiscard]] double number(const std::string& name, double otherwise) const {
        return json_.contains(name) ? number(name) : otherwise;
    }
    [[nodiscard]] std::uint32_t count(const std::string& name) const {
        const double value = number(name);
        if (value != std::floor(value) || value < 0 || value > 1e6)
            fail(place_ + name, "it is no whole number from 0 to 1000000");
        return static_cast<std::uint32_t>(value);
    }
    [[nodiscard]] Megahertz clock(const std::string& name) const {
        if (number(name) == -1) return auto_clock;
        const std::uint32_t megahertz = count(name);
        if (megahertz == 0) fail(place_ + name, "it is no clock in MHz; -1 is auto");
        return Megahertz{megahertz};
    }
    [[nodiscard]] Seconds milliseconds(const std::string& name) const {
        return Seconds{number(name) * 1e-3};
    }
    [[nodiscard]] std::string text(const std::string& name) const {
        const auto field = json_.find(name);
        if (field == json_.end() || !field->is_string()) fail(place_ + name, "it is no text");
        return field->get<std::string>();
    }
    /// The objects of an array.
    [[nodiscard]] std::vector<PoolFields> objects(const std::string& name) const {
        const auto field = json_.find(name);
        if (field == json_.end() || !field->is_array()) fail(place_ + name, "it is no array");
        std::vector<PoolFields> result;
        for (std::size_t i = 0; i < field->size(); ++i)
            result.emplace_back((*field)[i], file_, place_ + name + '[' + std::to_string(i) + "].");
        return result;
    }
    [[nodiscard]] bool has(const std::string& name) const {
        return json_.contains(name) && !json_.at(name).is_null();
    }

private:
    const nlohmann::json& json_;
    std::string file_;
    std::string place_;
};

inline InstancePoint parse_point(const PoolFields& fields) {
    InstancePoint point;
    point.parallelism = fields.count("parallelism");
    point.clock = fields.clock("core_mhz");
    point.load = fields.number("load_rps");
    point.power = {fields.number("power_w")};
    point.first_token = fields.milliseconds("first_token_ms");
    point.gap = fields.milliseconds("gap_ms");
    return point;
}

inline ServiceClass parse_class(const PoolFields& fields) {
    ServiceClass service;
    service.name = fields.text("name");
    service.load = fields.number("load_rps");
    service.first_token = fields.milliseconds("first_token_ms");
    service.gap = fields.milliseconds("gap_ms");
    for (const PoolFields& point : fields.objects("profile"))
        service.profile.push_back(parse_point(point));
    return service;
}

inline std::optional<std::size_t> index_of(const std::vector<ServiceClass>& classes,
                                           const std::string& name) {
    for (std::size_t c = 0; c < classes.size(); ++c)
        if (classes[c].name == name) return c;
    return std::nullopt;
}

inline nlohmann::ordered_json pool_json(const std::vector<ServiceClass>& classes,
                                        const ClusterPool& pool) {
    nlohmann::ordered_json json{{"class", classes[pool.owner].name}};
    json["serves"] = nlohmann::ordered_json::array();
    double load = 0;
    for (const std::size_t served : pool.serves) {
        json["serves"].push_back(classes[served].name);
        load += classes[served].load;
    }
    json["load_rps"] = load;
    json["gpus"] = pool.plan.gpus;
    json["power_w"] = pool.plan.power.count;
    json["instances"] = nlohmann::ordered_json::array();
    for (const InstanceGroup& group : pool.plan.groups) {
        nlohmann::ordered_json clock = -1;
        if (group.point.clock != auto_clock) clock = group.point.clock.count;
        json["instances"].push_back({{"parallelism", group.point.parallelism},
                                     {"count", group.count},
                                     {"core_mhz", clock},
                                     {"load_rps", group.point.load}});
    }
    return json;
}

}  // namespace detail

/// @throws Error (invalid_input) naming the file and the field
inline ClusterQuestion parse_cluster_question(const std::string& text, const std::string& file) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded())
        throw Error{
            Errc::invalid_input,
            {"read a description of pools", file, "it is no JSON", "check that the file is whole"}};
    const detail::PoolFields fields{json, file, ""};
    ClusterQuestion question;
    question.gpus = fields.count("gpus");
    question.idle_gpu = {fields.number("idle_gpu_w", 0)};
    const auto classes = fields.objects("classes");
    for (const auto& service : classes) {
        question.classes.push_back(detail::parse_class(service));
        const std::string& name = question.classes.back().name;
        if (detail::index_of(question.classes, name) != question.classes.size() - 1)
            service.fail("classes", "the name '" + name + "' is there twice");
    }
    for (std::size_t c = 0; c < classes.size(); ++c) {
        const char* const key =
            classes[c].has("overflow_pool") ? "overflow_pool" : "spills_to";  // earlier name
        if (!classes[c].has(key)) continue;
        const std::string name = classes[c].text(key);
        question.classes[c].overflow_pool = detail::index_of(question.classes, name);
        if (!question.classes[c].overflow_pool)
            classes[c].fail(key, "there is no class '" + name + "'");
    }
    return question;
}

inline std::string to_json(const ClusterQuestion& question, const ClusterPlan& plan) {
    nlohmann::ordered_json json{{"feasible", plan.refused.empty()}};
    if (!plan.refused.empty()) json["reason"] = plan.refused;
    json["gpus"] = plan.gpus;
    json["power_w"] = plan.power.count;
    json["pools"] = nlohmann::ordered_json::array();
    for (const ClusterPool& pool : plan.pools)
        json["pools"].push_back(detail::pool_json(question.classes, pool));
    return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace kdvfs::inline v0_3::serve
