// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/tune/compared_blocks.hpp>
#include <kdvfs/detail/tune/plan_fields.hpp>
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/saving.hpp>
#include <kdvfs/tune/sweep_options.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// What a run has saved, as status files and reports have it: joules and seconds, percent; `null`
/// where it is not known.
inline nlohmann::ordered_json to_json(const Saving& saving) {
    using Json = nlohmann::ordered_json;
    const auto interval = [](const std::optional<PercentInterval>& change) {
        return change ? Json{{"mean", change->mean}, {"low", change->low}, {"high", change->high}}
                      : Json{};
    };
    return {{"phase", std::string{to_string(saving.phase)}},
            {"note", saving.note},
            {"passed_s", saving.passed.count()},
            {"followed_s", saving.followed.count()},
            {"pairs", saving.pairs},
            {"plans", saving.plans},
            {"changes", saving.changes},
            {"energy_change_pct", interval(saving.energy)},
            {"time_change_pct", interval(saving.time)},
            {"energy_beyond_one_clock_pct", interval(saving.beyond_one_clock)},
            {"saved_j", saving.saved.count},
            {"saved_low_j", saving.saved_low.count},
            {"saved_high_j", saving.saved_high.count},
            {"saved_pct", saving.saved_pct},
            {"by_one_clock_j", saving.by_one_clock ? Json(saving.by_one_clock->count) : Json{}},
            {"lost_s", saving.lost.count()},
            {"lost_high_s", saving.lost_high.count()},
            {"budget_s", saving.budget.count()},
            {"paid_back_since_s", saving.paid_back ? Json(saving.paid_back->count()) : Json{}},
            {"text", to_string(saving)}};
}

/// What a session tells whoever has started its program, in the file that the environment variable
/// `KDVFS_STATUS` names: `{"gpu","iterations","grid_points","sample_period_s","measure_only"`
/// `[,"sweep":{...}][,"followed_pct"][,"saving":{...}]`
/// `[,"pairs":[[planned s, planned J, found s, found J of an iteration],...]]}`.
struct SessionStatus {
    std::string gpu;
    std::uint64_t iterations = 0;
    std::size_t grid_points = 0;  ///< clock points that a sweep may measure at
    Duration sample_period{0};    ///< of the energy counter, as it is read
    bool measure_only = false;    ///< the clocks of this GPU cannot be set
    std::optional<SweepProgress> sweep{};
    std::optional<double> followed_pct{};  ///< of the time, where a plan is followed
    std::vector<ComparedPair> pairs{};     ///< of blocks, where a plan is compared
    std::optional<Saving> saving{};        ///< of a program that tunes itself; not read back
};

inline std::string to_json(const SessionStatus& status) {
    nlohmann::ordered_json json{{"gpu", status.gpu},
                                {"iterations", status.iterations},
                                {"grid_points", status.grid_points},
                                {"sample_period_s", Seconds{status.sample_period}.count()},
                                {"measure_only", status.measure_only}};
    if (status.sweep) {
        json["sweep"] = {{"points_measured", status.sweep->points_measured},
                         {"points", status.sweep->points},
                         {"points_given_up", status.sweep->points_given_up},
                         {"blocks_dropped", status.sweep->blocks_dropped},
                         {"iterations", status.sweep->iterations},
                         {"slowdown_pct", status.sweep->slowdown_pct},
                         {"expected_regret_pct", status.sweep->expected_regret_pct},
                         {"done", status.sweep->done}};
    }
    if (status.followed_pct) json["followed_pct"] = *status.followed_pct;
    if (status.saving) json["saving"] = to_json(*status.saving);
    for (const ComparedPair& pair : status.pairs)
        json["pairs"].push_back({pair.planned.time.count(), pair.planned.energy.count,
                                 pair.found.time.count(), pair.found.energy.count});
    return json.dump(2) + '\n';
}

/// Reads what `to_json` writes; errors call the input `file`.
/// @throws Error (invalid_input) naming file and line, or file and field
inline SessionStatus parse_session_status(std::string_view text, const std::string& file) {
    const nlohmann::json json = detail::parse_json(text, file);
    const detail::PlanFields root{json, file, ""};
    const auto flag = [](const detail::PlanFields& fields, const char* field) {
        const nlohmann::json& value = fields.get(field);
        if (!value.is_boolean()) fields.fail(field, "is neither true nor false");
        return value.get<bool>();
    };
    SessionStatus status{
        .gpu = root.text("gpu"),
        .iterations = root.integer("iterations", 0),
        .grid_points = root.integer("grid_points", 0),
        .sample_period = std::chrono::round<Duration>(Seconds{root.number("sample_period_s", 0)}),
        .measure_only = flag(root, "measure_only")};
    if (!is_gpu_name(status.gpu)) root.fail("gpu", "is no GPU's name");
    if (json.contains("followed_pct")) status.followed_pct = root.number("followed_pct", 0);
    if (json.contains("pairs"))
        for (const nlohmann::json& pair : json["pairs"]) {
            const bool is_pair = pair.is_array() && pair.size() == 4 &&
                                 std::all_of(pair.begin(), pair.end(), [](const auto& number) {
                                     return number.is_number() && number.template get<double>() > 0;
                                 });
            if (!is_pair) root.fail("pairs", "is no list of costs");
            status.pairs.push_back(
                {{Seconds{pair[0].get<double>()}, Joules{pair[1].get<double>()}},
                 {Seconds{pair[2].get<double>()}, Joules{pair[3].get<double>()}}});
        }
    if (!json.contains("sweep")) return status;
    const detail::PlanFields sweep = root.object("sweep");
    status.sweep = {.points_measured = sweep.integer("points_measured", 0),
                    .points = sweep.integer("points", 0),
                    .points_given_up = sweep.integer("points_given_up", 0),
                    .blocks_dropped = sweep.integer("blocks_dropped", 0),
                    .iterations = sweep.integer("iterations", 0),
                    .slowdown_pct = sweep.number("slowdown_pct", -1e300),
                    .expected_regret_pct = sweep.number("expected_regret_pct", 0),
                    .done = flag(sweep, "done")};
    return status;
}

}  // namespace kdvfs::inline v0_3::tune
