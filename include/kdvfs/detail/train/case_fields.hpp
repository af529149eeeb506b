// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/train/pipeline_shape.hpp>

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::inline v0_3::train::detail {

/// Reads fields of a pipeline case; errors name the file and the field.
class CaseFields {
protected:
    explicit CaseFields(std::string file) : file_{std::move(file)} {}

    [[nodiscard]] const std::string& file() const { return file_; }

    using Json = nlohmann::json;

    [[noreturn]] void reject(const std::string& why, const std::string& remedy) const {
        throw Error{Errc::invalid_input, {"read a pipeline case", file_, why, remedy}};
    }
    [[noreturn]] void reject_field(const char* field, const std::string& what) const {
        reject(std::string{"its field \""} + field + "\" is not " + what,
               "docs/training.md has the schema");
    }
    [[nodiscard]] const Json& array(const Json& json, const char* field) const {
        if (!json.contains(field) || !json[field].is_array()) reject_field(field, "a list");
        return json[field];
    }
    [[nodiscard]] std::string string(const Json& json, const char* field) const {
        if (!json.contains(field) || !json[field].is_string()) reject_field(field, "a text");
        return json[field].get<std::string>();
    }
    [[nodiscard]] double number(const Json& json, const char* field) const {
        if (!json.contains(field) || !json[field].is_number()) reject_field(field, "a number");
        return json[field].get<double>();
    }
    [[nodiscard]] std::uint32_t whole(const Json& json, const char* field) const {
        const double value = number(json, field);
        if (!(value >= 0 && value <= 1e6) || value != std::floor(value))
            reject_field(field, "a whole number from 0 to 1000000");
        return static_cast<std::uint32_t>(value);
    }

    /// As names are compared: "ZB-H1" is zb_h1.
    static std::string plain(std::string name) {
        for (char& c : name) {
            if (c == '-' || c == ' ') c = '_';
            if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        }
        return name;
    }

    [[nodiscard]] Schedule schedule(const std::string& name) const {
        static constexpr std::pair<std::string_view, Schedule> names[] = {
            {"gpipe", Schedule::gpipe},
            {"1f1b", Schedule::one_f_one_b},
            {"interleaved_1f1b", Schedule::interleaved_1f1b},
            {"interleaved", Schedule::interleaved_1f1b},
            {"zb_h1", Schedule::zb_h1},
            {"zbh1", Schedule::zb_h1},
            {"graph", Schedule::graph}};
        for (const auto& [known, schedule] : names)
            if (plain(name) == known) return schedule;
        reject("its schedule \"" + name + "\" is not known",
               "give gpipe, 1f1b, interleaved_1f1b, zb_h1 or graph");
    }
    [[nodiscard]] Pass pass(const std::string& name) const {
        static constexpr std::pair<std::string_view, Pass> names[] = {
            {"forward", Pass::forward},
            {"backward", Pass::backward},
            {"backward_input", Pass::backward_input},
            {"input", Pass::backward_input},
            {"backward_weight", Pass::backward_weight},
            {"weight", Pass::backward_weight},
            {"forward_backward", Pass::forward_backward},
            {"embedding", Pass::embedding},
            {"collective", Pass::collective},
            {"all_reduce", Pass::collective},
            {"allreduce", Pass::collective},
            {"optimizer", Pass::optimizer},
            {"optimizer_step", Pass::optimizer}};
        for (const auto& [known, pass] : names)
            if (plain(name) == known) return pass;
        reject("its op \"" + name + "\" is not known",
               "give forward, backward, backward_input, backward_weight, forward_backward, "
               "embedding, collective or optimizer");
    }

    [[nodiscard]] Placement placement(const std::string& name) const {
        static constexpr std::pair<std::string_view, Placement> names[] = {
            {"loop", Placement::loop},
            {"v", Placement::v},
            {"both_ends", Placement::both_ends},
            {"dual", Placement::both_ends}};
        for (const auto& [known, placement] : names)
            if (plain(name) == known) return placement;
        reject("its placement \"" + name + "\" is not known", "give loop, v or both_ends");
    }

    [[nodiscard]] Collective collective(const std::string& name) const {
        static constexpr std::pair<std::string_view, Collective> names[] = {
            {"send", Collective::send},
            {"all_reduce", Collective::all_reduce},
            {"allreduce", Collective::all_reduce},
            {"all_gather", Collective::all_gather},
            {"allgather", Collective::all_gather},
            {"reduce_scatter", Collective::reduce_scatter},
            {"all_to_all", Collective::all_to_all},
            {"alltoall", Collective::all_to_all}};
        for (const auto& [known, collective] : names)
            if (plain(name) == known) return collective;
        reject("its kind of collective \"" + name + "\" is not known",
               "give send, all_reduce, all_gather, reduce_scatter or all_to_all");
    }

    void read_links(const Json& json) {
        if (!json.contains("links")) return;
        if (!json["links"].is_object()) reject_field("links", "an object");
        for (const auto& [name, link] : json["links"].items())
            links_[name] = {number(link, "bytes_per_s"),
                            Seconds{link.contains("latency_s") ? number(link, "latency_s") : 0}};
    }

    /// How long a communication takes: its seconds, or those of its bytes over a link.
    [[nodiscard]] Seconds communication(const Json& json, const char* field) const {
        if (!json.is_object()) reject_field(field, "an object with time_s, or bytes and link");
        if (json.contains("time_s")) {
            const double time = number(json, "time_s");
            if (!(time >= 0 && time <= 1000)) reject_field("time_s", "a number from 0 to 1000");
            return Seconds{time};
        }
        const auto link = links_.find(string(json, "link"));
        if (link == links_.end())
            reject("its link \"" + string(json, "link") + "\" is none of its links",
                   "name it in \"links\"");
        const std::uint32_t ranks = json.contains("ranks") ? whole(json, "ranks") : 1;
        const Collective kind =
            json.contains("kind") ? collective(string(json, "kind")) : Collective::send;
        return collective_time(kind, number(json, "bytes"), ranks, link->second);
    }

private:
    std::string file_;
    std::map<std::string, Link> links_;
};

}  // namespace kdvfs::inline v0_3::train::detail
