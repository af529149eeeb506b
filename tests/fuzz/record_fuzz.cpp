// SPDX-License-Identifier: MIT
#include <kdvfs/detail/restore/record.hpp>
#include <tests/fuzz/fuzz_target.hpp>

/// What a process with privileges reads of a dead one. Sums and sequence numbers that would keep
/// the fuzzer out are made right first.
void fuzzing::fuzz(const std::string& text) {
    namespace record = kdvfs::detail::record_text;
    static_cast<void>(record::parse(text));
    static_cast<void>(record::parse_note(text));
    const std::string number = record::numbered(7);
    const std::string body = "kdvfs 1 " + number + ' ' + text.substr(0, 300);
    const std::string whole = record::line(body + ' ' + std::to_string(record::cksum(body)),
                                           record::slot_size - record::tail_size, ' ') +
                              number + '\n';
    const auto slot = record::parse_slot(whole);
    if (!slot) return;
    const auto again = record::parse_slot(record::of(slot->entry, slot->sequence));
    require(again.has_value(), "an entry survives a round trip");
    require(again->entry.history.initial == slot->entry.history.initial &&
                again->entry.history.written == slot->entry.history.written &&
                again->entry.device == slot->entry.device,
            "with all that it says");
}
