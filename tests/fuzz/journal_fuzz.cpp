// SPDX-License-Identifier: MIT
#include <kdvfs/detail/restore/journal.hpp>
#include <tests/fuzz/fuzz_target.hpp>

/// What a process with privileges reads of a dead one.
void fuzzing::fuzz(const std::string& text) {
    const auto entry = kdvfs::detail::journal_text::parse(text);
    if (!entry) return;
    const std::string written = kdvfs::detail::journal_text::of(*entry);
    const auto again = kdvfs::detail::journal_text::parse(written);
    require(again && kdvfs::detail::journal_text::of(*again) == written,
            "an entry survives a round trip");
    require(again->history.initial == entry->history.initial &&
                again->history.written == entry->history.written,
            "its clocks, too");
}
