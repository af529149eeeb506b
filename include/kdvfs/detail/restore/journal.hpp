// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/detail/restore/private_folder.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

namespace kdvfs::detail {

/// What a journal tells of one device: typed values, never paths or texts to be written somewhere.
struct JournalEntry {
    std::string boot;    ///< of which boot of the machine; clocks do not outlive one
    std::string device;  ///< PCI address
    ClockHistory history{};

    /// Whether there is anything to put back.
    [[nodiscard]] bool owes_restore() const {
        return history.written.has_value() || history.uncertain;
    }
};

/// The kernel's name for this boot.
inline std::string boot_id() {
    std::ifstream file{"/proc/sys/kernel/random/boot_id"};
    std::string id;
    std::getline(file, id);
    return id;
}

namespace journal_text {

inline constexpr std::string_view heading = "kdvfs-journal 1";

inline std::string of(const ClockState& state) {
    std::ostringstream text;
    text << state.mode << ' ' << state.cap.core.count << ' ' << state.cap.memory.count << ' '
         << state.floor.core.count << ' ' << state.floor.memory.count;
    return text.str();
}

inline std::string of(const JournalEntry& entry) {
    std::string held = "nothing";
    if (entry.history.uncertain) {
        held = "uncertain";
    } else if (entry.history.written) {
        held = "state " + of(*entry.history.written);
    }
    return std::string{heading} + "\nboot " + entry.boot + "\ndevice " + entry.device + "\nfound " +
           of(entry.history.initial) + "\nheld " + held + "\n";
}

inline std::optional<ClockState> state(std::istream& text) {
    ClockState state;
    std::uint32_t clocks[4] = {};
    text >> state.mode;
    for (std::uint32_t& clock : clocks) text >> clock;
    const bool is_word = !state.mode.empty() && state.mode.size() <= 32 &&
                         std::all_of(state.mode.begin(), state.mode.end(),
                                     [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
    const bool in_range = std::all_of(std::begin(clocks), std::end(clocks),
                                      [](std::uint32_t clock) { return clock <= 100'000; });
    if (!text || !is_word || !in_range) return std::nullopt;
    state.cap = {{clocks[0]}, {clocks[1]}};
    state.floor = {{clocks[2]}, {clocks[3]}};
    return state;
}

/// Reads what `of` wrote; nothing for any other text.
inline std::optional<JournalEntry> parse(const std::string& text) {
    std::istringstream in{text};
    std::string line;
    std::string key;
    std::string held;
    JournalEntry entry;
    if (!std::getline(in, line) || line != heading) return std::nullopt;
    if (!(in >> key >> entry.boot) || key != "boot") return std::nullopt;
    if (!(in >> key >> entry.device) || key != "device") return std::nullopt;
    if (!(in >> key) || key != "found") return std::nullopt;
    const auto found = state(in);
    if (!found || !(in >> key >> held) || key != "held") return std::nullopt;
    entry.history.initial = *found;
    if (held == "uncertain") {
        entry.history.uncertain = true;
    } else if (held == "state") {
        entry.history.written = state(in);
        if (!entry.history.written) return std::nullopt;
    } else if (held != "nothing") {
        return std::nullopt;
    }
    return entry;
}

}  // namespace journal_text

/// The file that tells what a device's clocks were and what kdvfs made of them, for the case that
/// neither the process nor its guard lives to put them back. One write call per note; to be held
/// together with the device's lock.
class Journal {
public:
    /// @throws Error where the file cannot be made, or is not to be trusted
    Journal(const PrivateFolder& folder, const std::string& device)
        : folder_{&folder}, name_{device + ".journal"} {
        file_ = folder.open(name_, O_RDWR | O_CREAT);
        if (!file_.is_open()) {
            throw Error{Errc::io,
                        {.action = "open the clock journal",
                         .object = folder.path() + "/" + name_,
                         .vendor_words = std::generic_category().message(errno),
                         .remedy = "see that the folder is this user's own and not full"}};
        }
    }

    /// What an earlier owner has left behind; nothing where there is none, it is of another boot,
    /// or it is not understood.
    [[nodiscard]] std::optional<JournalEntry> read() const {
        std::array<char, size> text{};
        const ssize_t count = ::pread(file_.get(), text.data(), text.size(), 0);
        if (count <= 0) return std::nullopt;
        auto entry = journal_text::parse({text.data(), static_cast<std::size_t>(count)});
        if (!entry || entry->boot != boot_id()) return std::nullopt;
        return entry;
    }

    /// @throws Error (io)
    void write(const JournalEntry& entry) const {
        std::string text = journal_text::of(entry);
        text.resize(std::max(text.size(), size), ' ');  // covers whatever stood there before
        if (::pwrite(file_.get(), text.data(), text.size(), 0) !=
            static_cast<ssize_t>(text.size())) {
            throw Error{Errc::io,
                        {.action = "write the clock journal",
                         .object = folder_->path() + "/" + name_,
                         .vendor_words = std::generic_category().message(errno),
                         .remedy = "make room in that file system"}};
        }
    }

    /// Nothing is owed any more.
    void remove() const noexcept { folder_->remove(name_); }

private:
    static constexpr std::size_t size = 512;

    const PrivateFolder* folder_;
    std::string name_;
    Descriptor file_;
};

/// Settles what an earlier owner of a device left undone in this boot, by rule of `decide_restore`.
/// The caller holds the device's lock.
/// @returns what was done
/// @throws Error where the device refuses
template <ClockControl Device>
RestoreDecision settle(const Journal& journal, Device& device) {
    RestoreDecision decision = RestoreDecision::nothing;
    const auto entry = journal.read();
    if (entry && entry->device == device.info().address && entry->owes_restore()) {
        // A device that cannot read its settings back is told what they should be.
        if constexpr (requires { device.adopt(entry->history.written); }) {
            device.adopt(entry->history.written);
        }
        decision = decide_restore(entry->history, device.read_clock_state());
        if (decision == RestoreDecision::write_back) {
            device.restore(entry->history.initial);
            if (const ClockState seen = device.read_clock_state(); seen != entry->history.initial) {
                throw Error{Errc::refused,
                            {.action = "put back the clocks that an earlier process left behind",
                             .object = to_string(device.info()),
                             .vendor_words =
                                 "it reads back " + to_string(seen.cap) + " in mode " + seen.mode,
                             .remedy = "see which other tool governs this GPU's clocks"}};
            }
        }
    }
    journal.remove();
    return decision;
}

}  // namespace kdvfs::detail
