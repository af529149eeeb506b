// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/device/contracts.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/types.h>

namespace kdvfs::inline v0_3::restore {

/// What a restore record tells of one GPU: typed values, never paths, and never texts that are
/// written anywhere.
struct RestoreEntry {
    std::string boot{};    ///< of which boot of the machine; clocks do not outlive one
    std::string kind{};    ///< how the GPU is driven: "amdgpu" or "nvml"
    std::string device{};  ///< PCI address
    pid_t process = 0;     ///< the owner, as its own PID namespace numbers it
    uid_t user = 0;
    ClockHistory history{};
    std::uint64_t slot = 0;  ///< the number of the slot that was read

    /// Whether there is anything to put back.
    [[nodiscard]] bool has_pending_restore() const {
        return history.written.has_value() || history.uncertain;
    }
};

/// What somebody other than the owner did about a record last.
struct RestoreNote {
    /// How often the clocks were put back under an owner that was stopped.
    std::uint64_t while_stopped = 0;
    pid_t process = 0;    ///< who says so
    std::string words{};  ///< "watching", "restoring", "unfinished, ...", "restored", ...
    /// The slot that it was written about, where it is about what one says.
    std::optional<std::uint64_t> slot{};

    /// Whether the device was being put back, or was left half-way, when a slot was the newest one.
    /// Once the owner has written another it has seen to the device itself.
    [[nodiscard]] bool is_half_way(std::uint64_t newest) const {
        const bool began = words == "restoring" || words.starts_with("unfinished");
        return began && slot.value_or(newest) == newest;
    }
};

/// The kernel's name for this boot.
inline std::string boot_id() {
    std::ifstream file{"/proc/sys/kernel/random/boot_id"};
    std::string id;
    std::getline(file, id);
    return id;
}

/// The text of a record. Four lines of fixed length: a note by others than the owner, two slots
/// that the owner writes in turn (a reader takes the newer one that is whole), and a heartbeat.
/// Text, because its readers are C++ and a POSIX shell, which takes a line of words apart with its
/// builtins. A slot's sequence number stands at both of its ends: it is written last at the end, so
/// a slot that its writer did not finish shows by them, and its checksum tells of any other harm.
namespace record_text {

inline constexpr std::size_t note_size = 192;
inline constexpr std::size_t slot_size = 384;
inline constexpr std::size_t tail_size = 21;  ///< of a slot: its number, once more
inline constexpr std::size_t beat_size = 32;
inline constexpr std::size_t slots_at = note_size;
inline constexpr std::size_t beat_at = slots_at + 2 * slot_size;
inline constexpr std::size_t size = beat_at + beat_size;

/// The CRC that POSIX's cksum prints (polynomial 0x04C11DB7, the length appended).
inline std::uint32_t cksum(std::string_view text) {
    std::uint32_t crc = 0;
    const auto add = [&crc](std::uint32_t byte) {
        crc ^= byte << 24U;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc << 1U) ^ ((crc & 0x8000'0000U) != 0 ? 0x04C1'1DB7U : 0U);
        }
    };
    for (const char c : text) add(static_cast<unsigned char>(c));
    for (std::size_t length = text.size(); length > 0; length >>= 8U) add(length & 0xffU);
    return ~crc;
}

/// A line of this length, its end included.
inline std::string line(std::string text, std::size_t length, char end = '\n') {
    text.resize(length - 1, ' ');
    return text + end;
}

inline std::string trimmed(std::string_view text) {
    const auto end = text.find_last_not_of(" \n");
    return std::string{text.substr(0, end == std::string_view::npos ? 0 : end + 1)};
}

inline std::vector<std::string_view> fields(std::string_view text) {
    std::vector<std::string_view> all;
    while (!text.empty()) {
        const auto end = std::min(text.find(' '), text.size());
        all.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return all;
}

template <class Number>
std::optional<Number> number(std::string_view text, Number most) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc{} && end == text.data() + text.size();
    const bool fits = whole && std::cmp_greater_equal(value, 0) && value <= most;
    return fits ? std::optional{value} : std::nullopt;
}

/// The vendor's word for a mode has spaces at NVIDIA; a field has none.
inline std::string word(std::string mode) {
    std::replace(mode.begin(), mode.end(), ' ', '-');
    return mode;
}

inline bool is_mode(std::string_view text) {
    return !text.empty() && text.size() <= 32 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || c == '_' || c == '-';
    });
}

inline bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= 40 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == ':' || c == '.';
    });
}

inline std::string of(const ClockState& state) {
    const auto clock = [](Megahertz value) { return " " + std::to_string(value.count); };
    return word(state.mode) + clock(state.cap.core) + clock(state.cap.memory) +
           clock(state.floor.core) + clock(state.floor.memory);
}

/// With leading zeros: equal numbers are equal words.
inline std::string numbered(std::uint64_t sequence) {
    const std::string digits = std::to_string(sequence);
    return std::string(tail_size - 1 - digits.size(), '0') + digits;
}

inline std::string of(const RestoreEntry& entry, std::uint64_t sequence) {
    std::string held = "nothing - 0 0 0 0";
    if (entry.history.uncertain) {
        held = "uncertain - 0 0 0 0";
    } else if (entry.history.written) {
        held = "state " + of(*entry.history.written);
    }
    const std::string number = numbered(sequence);
    std::string text = "kdvfs 1 " + number + ' ' + entry.boot + ' ' + entry.kind + ' ' +
                       entry.device + ' ' + std::to_string(entry.process) + ' ' +
                       std::to_string(entry.user) + ' ' + of(entry.history.initial) + ' ' + held;
    text += ' ' + std::to_string(cksum(text));
    return line(std::move(text), slot_size - tail_size, ' ') + number + '\n';
}

inline std::string of(const RestoreNote& note) {
    return line("kdvfs-note " + std::to_string(note.while_stopped) + ' ' +
                    std::to_string(note.process) + ' ' +
                    (note.slot ? '@' + numbered(*note.slot) + ' ' : std::string{}) + note.words,
                note_size);
}

/// Five fields: a mode and four clocks.
inline std::optional<ClockState> state_of(const std::string_view* field) {
    constexpr std::uint32_t highest = 100'000;
    std::array<std::uint32_t, 4> clocks{};
    if (!is_mode(field[0])) return std::nullopt;
    for (std::size_t i = 0; i < clocks.size(); ++i) {
        const auto clock = number<std::uint32_t>(field[i + 1], highest);
        if (!clock) return std::nullopt;
        clocks[i] = *clock;
    }
    ClockState state{{{clocks[0]}, {clocks[1]}}, {{clocks[2]}, {clocks[3]}}, std::string{field[0]}};
    std::replace(state.mode.begin(), state.mode.end(), '-', ' ');
    return state;
}

/// A slot that is whole.
struct Slot {
    std::uint64_t sequence = 0;
    RestoreEntry entry;
};

/// Reads what `of` wrote; nothing for any other text.
inline std::optional<Slot> parse_slot(std::string_view text) {
    if (text.size() != slot_size) return std::nullopt;
    const std::string whole = trimmed(text.substr(0, slot_size - tail_size));
    const std::vector<std::string_view> field = fields(whole);
    if (field.size() != 20 || field[2] != text.substr(slot_size - tail_size, tail_size - 1)) {
        return std::nullopt;
    }
    if (field[0] != "kdvfs" || field[1] != "1") return std::nullopt;
    const std::string_view body{whole.data(), whole.size() - field[19].size() - 1};
    if (field[19] != std::to_string(cksum(body))) return std::nullopt;

    constexpr std::uint32_t any_user = 0xffff'ffffU;
    const auto sequence = number<std::uint64_t>(field[2], UINT64_MAX);
    const auto process = number<pid_t>(field[6], INT32_MAX);
    const auto user = number<std::uint32_t>(field[7], any_user);
    const auto found = state_of(&field[8]);
    const bool named = is_name(field[3]) && is_name(field[4]) && is_name(field[5]);
    if (!sequence || !process || !user || !found || !named) return std::nullopt;
    Slot slot{*sequence,
              {std::string{field[3]},
               std::string{field[4]},
               std::string{field[5]},
               *process,
               *user,
               {.initial = *found}}};
    if (field[13] == "uncertain") {
        slot.entry.history.uncertain = true;
    } else if (field[13] == "state") {
        slot.entry.history.written = state_of(&field[14]);
        if (!slot.entry.history.written) return std::nullopt;
    } else if (field[13] != "nothing") {
        return std::nullopt;
    }
    return slot;
}

/// An empty note where the text is none.
inline RestoreNote parse_note(std::string_view text) {
    const std::string whole = trimmed(text);
    const std::vector<std::string_view> field = fields(whole);
    if (field.size() < 4 || field[0] != "kdvfs-note") return {};
    RestoreNote note{number<std::uint64_t>(field[1], UINT64_MAX).value_or(0),
                     number<pid_t>(field[2], INT32_MAX).value_or(0)};
    std::size_t first_word = 3;
    if (field[3].starts_with('@') && field.size() > 4) {
        note.slot = number<std::uint64_t>(field[3].substr(1), UINT64_MAX);
        first_word = 4;
    }
    note.words = whole.substr(static_cast<std::size_t>(field[first_word].data() - whole.data()));
    return note;
}

/// The newer slot of a whole record that can be read; nothing where neither can.
inline std::optional<RestoreEntry> parse(std::string_view text) {
    if (text.size() < size) return std::nullopt;
    auto first = parse_slot(text.substr(slots_at, slot_size));
    auto second = parse_slot(text.substr(slots_at + slot_size, slot_size));
    if (!first || (second && second->sequence > first->sequence)) first = std::move(second);
    if (!first) return std::nullopt;
    first->entry.slot = first->sequence;
    const RestoreNote note = parse_note(text.substr(0, note_size));
    if (note.is_half_way(first->sequence) && first->entry.has_pending_restore()) {
        first->entry.history.uncertain = true;
        first->entry.history.written.reset();
    }
    return std::move(first->entry);
}

}  // namespace record_text

inline constexpr const char* record_name = "record";

/// What an open record says. Reads with `pread`, so that a file that is cut short meanwhile is an
/// answer, never a signal.
/// @throws Error (refused) where it is no whole record
inline RestoreEntry read_record(int file, const std::string& path) {
    std::array<char, record_text::size> text{};
    const ssize_t count = ::pread(file, text.data(), text.size(), 0);
    if (count < 0) reject(path, std::generic_category().message(errno));
    if (static_cast<std::size_t>(count) < text.size()) reject(path, "it is cut short");
    auto entry = record_text::parse({text.data(), text.size()});
    if (!entry) reject(path, "neither of its two copies is whole");
    return std::move(*entry);
}

/// What the record in a folder says; nothing where there is none of this boot: clocks do not
/// outlive one.
/// @throws Error (refused) where it is not to be trusted: no whole record of this device, or of
/// another owner than its folder
inline std::optional<RestoreEntry> find_record(const RestoreFolder& folder,
                                               const std::string& device) {
    const Descriptor file = folder.open(record_name);
    if (!file.is_open()) return std::nullopt;
    const std::string path = folder.path() + "/" + record_name;
    RestoreEntry entry = read_record(file.get(), path);
    if (entry.device != device) reject(path, "it is of GPU " + entry.device);
    if (entry.boot != boot_id()) return std::nullopt;
    return entry;
}

/// The first line of an open record: what others than its owner have noted; empty where it cannot
/// be read.
inline RestoreNote read_note(int file) {
    std::array<char, record_text::note_size> text{};
    const ssize_t count = ::pread(file, text.data(), text.size(), 0);
    return record_text::parse_note({text.data(), static_cast<std::size_t>(count > 0 ? count : 0)});
}

/// Notes what somebody other than the owner does. A note that cannot be written changes nothing
/// about what is done.
inline void write_note(int file, const RestoreNote& note) noexcept {
    const std::string text = record_text::of(note);
    const ssize_t written = ::pwrite(file, text.data(), text.size(), 0);
    static_cast<void>(written);
}

/// The owner's heartbeat, as text: a sign of life only where it changes.
inline std::string read_beat(int file) {
    std::array<char, record_text::beat_size> text{};
    const ssize_t count = ::pread(file, text.data(), text.size(), record_text::beat_at);
    return {text.data(), static_cast<std::size_t>(count > 0 ? count : 0)};
}

/// The restore record as its owner writes it: a small mapped file, so that a switch of clocks costs
/// a copy of 384 bytes and no system call, and what was written last is there however the process
/// ends. Its space is reserved when it is made. Writing: one thread at a time.
class RestoreRecord {
public:
    /// Replaces the record of a folder, which the caller holds the lock of.
    /// @throws Error (io) where it cannot be made, as in a file system that is full
    RestoreRecord(const RestoreFolder& folder, RestoreEntry entry)
        : folder_{&folder}, entry_{std::move(entry)} {
        folder.remove(fresh_name);
        file_ =
            raised(Descriptor{::openat(folder.descriptor(), fresh_name,
                                       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644)});
        if (!file_.is_open()) fail("make the restore record", errno);
        ::fchmod(file_.get(), 0644);  // whatever the umask: others may see who owns the GPU
        // Without its space the first store into the mapping would be a SIGBUS.
        int error = EINTR;
        while (error == EINTR) error = ::posix_fallocate(file_.get(), 0, record_text::size);
        if (error != 0) {
            folder.remove(fresh_name);
            fail("reserve the space of the restore record", error);
        }
        void* const at =
            ::mmap(nullptr, record_text::size, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
        if (at == MAP_FAILED) fail("map the restore record", errno);
        text_ = static_cast<char*>(at);
        clear_note();
        write();
        write();  // both slots
        beat();
        // It becomes the record only when it is whole.
        if (::renameat(folder.descriptor(), fresh_name, folder.descriptor(), record_name) != 0) {
            fail("name the restore record", errno);
        }
    }

    RestoreRecord(const RestoreRecord&) = delete;
    RestoreRecord& operator=(const RestoreRecord&) = delete;
    ~RestoreRecord() {
        if (text_ != nullptr) ::munmap(text_, record_text::size);
    }

    [[nodiscard]] const RestoreEntry& entry() const noexcept { return entry_; }
    [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
    /// Whether nobody would find it: it was removed, or replaced.
    [[nodiscard]] bool is_removed() const noexcept { return detail::is_removed(file_.get()); }

    /// Over the older of the two slots: a reader finds the newer one whole meanwhile.
    void write(const ClockHistory& history) {
        entry_.history = history;
        write();
    }

    /// Says that the owner is at work. A reader that sees the same twice knows no more than that.
    void beat() noexcept {
        std::array<char, record_text::beat_size> digits{};
        digits.fill(' ');
        std::to_chars(digits.data(), digits.data() + digits.size(), ++beats_);
        digits.back() = '\n';
        std::memcpy(text_ + record_text::beat_at, digits.data(), digits.size());
    }

    /// What others have noted last.
    [[nodiscard]] RestoreNote note() const {
        std::array<char, record_text::note_size> text{};
        std::memcpy(text.data(), text_, text.size());
        return record_text::parse_note({text.data(), text.size()});
    }

    /// Whether others are putting the device back, or have left it half-way, since the last
    /// `write`.
    /// @param note of this record
    [[nodiscard]] bool is_half_way(const RestoreNote& note) const {
        return note.is_half_way(sequence_);
    }

    /// Keeps the count of the restores under a stopped owner, which a new watchdog goes on with.
    void clear_note() {
        const RestoreNote cleared{.while_stopped = note().while_stopped, .words = "none"};
        const std::string text = record_text::of(cleared);
        std::memcpy(text_, text.data(), text.size());
    }

    /// Nothing is owed any more.
    void remove() const noexcept { folder_->remove(record_name); }

private:
    static constexpr const char* fresh_name = "record.new";

    void write() {
        const std::string text = record_text::of(entry_, ++sequence_);
        char* const slot = text_ + record_text::slots_at + (sequence_ % 2) * record_text::slot_size;
        constexpr std::size_t body = record_text::slot_size - record_text::tail_size;
        // In this order, whatever the compiler thinks: a reader comes when this process has ended,
        // which may be between any two stores; and the device is written after the last.
        std::memset(slot + body, '-', record_text::tail_size - 1);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        std::memcpy(slot, text.data(), body);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        std::memcpy(slot + body, text.data() + body, record_text::tail_size);
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }

    [[noreturn]] void fail(std::string action, int error) const {
        if (text_ != nullptr) ::munmap(text_, record_text::size);
        throw Error{
            Errc::io,
            {.action = std::move(action),
             .object = folder_->path(),
             .vendor_words = std::generic_category().message(error),
             .remedy = "see that the folder is this user's own and has a page of space left"}};
    }

    const RestoreFolder* folder_;
    RestoreEntry entry_;
    Descriptor file_;
    char* text_ = nullptr;
    std::uint64_t sequence_ = 0;
    std::uint64_t beats_ = 0;
};

}  // namespace kdvfs::inline v0_3::restore
