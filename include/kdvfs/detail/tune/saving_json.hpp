// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/saving.hpp>

#include <nlohmann/json.hpp>

#include <string>

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

}  // namespace kdvfs::inline v0_3::tune
