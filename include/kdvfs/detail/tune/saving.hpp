// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/tune/saving.hpp>

namespace kdvfs::inline v0_3::tune {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::string to_string(const Saving& saving) {
    const auto percent = [&](Joules joules) {
        return saving.as_found.count > 0 ? 100 * (joules / saving.as_found) : 0;
    };
    std::string line{to_string(saving.phase)};
    if (!saving.note.empty()) line += " (" + saving.note + ')';
    if (saving.energy)
        line += kdvfs::io::format_text(": saved %.0f J (%.2f %%, 95 %% interval %.2f to %.2f)",
                                       saving.saved.count, saving.saved_pct,
                                       percent(saving.saved_low), percent(saving.saved_high));
    else if (saving.plans > 1 && saving.saved_low != saving.saved_high)
        line += kdvfs::io::format_text(
            ": saved about %.0f J (%.2f %%)%s", saving.saved.count, saving.saved_pct,
            saving.phase == RunPhase::follow ? ", by this plan not known yet" : "");
    else
        line += ": saving not known yet";
    line += kdvfs::io::format_text(", lost %.1f s of %.1f s", saving.lost.count(),
                                   saving.budget.count());
    if (saving.paid_back)
        line += kdvfs::io::format_text(", paid back since %.0f s", saving.paid_back->count());
    if (!saving.by_one_clock) return line;
    line += kdvfs::io::format_text(", of which one clock for all would have saved %.2f %%",
                                   percent(*saving.by_one_clock));
    if (!saving.beyond_one_clock) return line;
    return line + kdvfs::io::format_text(" (the plan uses %.2f to %.2f %% less)",
                                         -saving.beyond_one_clock->high,
                                         -saving.beyond_one_clock->low);
}

#endif

}  // namespace kdvfs::inline v0_3::tune
