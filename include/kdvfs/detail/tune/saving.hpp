// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/tune/saving.hpp>

#include <cstdio>
#include <string>

namespace kdvfs::inline v0_3::tune {

#if KDVFS_DEFINES_ENGINE

KDVFS_INLINE std::string to_string(const Saving& saving) {
    char text[320];
    const auto percent = [&](Joules joules) {
        return saving.saved.count != 0 ? saving.saved_pct * joules.count / saving.saved.count : 0;
    };
    std::string line{to_string(saving.phase)};
    if (!saving.note.empty()) line += " (" + saving.note + ')';
    if (saving.energy) {
        std::snprintf(
            text, sizeof text,
            ": saved %.0f J (%.2f %%, 95 %% interval %.2f to %.2f), lost %.1f s of %.1f s",
            saving.saved.count, saving.saved_pct, percent(saving.saved_low),
            percent(saving.saved_high), saving.lost.count(), saving.budget.count());
    } else {
        std::snprintf(text, sizeof text, ": saving not known yet, lost %.1f s of %.1f s",
                      saving.lost.count(), saving.budget.count());
    }
    line += text;
    if (saving.paid_back) {
        std::snprintf(text, sizeof text, ", paid back since %.0f s", saving.paid_back->count());
        line += text;
    }
    return line;
}

#endif

}  // namespace kdvfs::inline v0_3::tune
