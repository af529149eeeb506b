// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/detail/restore/record_text.hpp>

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>

namespace kdvfs::detail {

inline constexpr const char* record_name = "record";

/// What an open record says. Reads with `pread`, so that a file that is cut short meanwhile is an
/// answer, never a signal.
/// @throws Error (refused) where it is no whole record
inline RestoreEntry read_record(int file, const std::string& path) {
    std::array<char, record_text::size> text{};
    const ssize_t count = ::pread(file, text.data(), text.size(), 0);
    if (count < 0) mistrust(path, std::generic_category().message(errno));
    if (static_cast<std::size_t>(count) < text.size()) mistrust(path, "it is cut short");
    auto entry = record_text::parse({text.data(), text.size()});
    if (!entry) mistrust(path, "neither of its two copies is whole");
    return std::move(*entry);
}

/// What the record in a folder says; nothing where there is none.
/// @throws Error (refused) where it is not to be trusted: no whole record of this boot and of this
/// device, or of another owner than its folder
inline std::optional<RestoreEntry> find_record(const RestoreFolder& folder,
                                               const std::string& device) {
    const Descriptor file = folder.open(record_name);
    if (!file.is_open()) return std::nullopt;
    const std::string path = folder.path() + "/" + record_name;
    RestoreEntry entry = read_record(file.get(), path);
    if (entry.device != device) mistrust(path, "it tells of GPU " + entry.device);
    if (entry.boot != boot_id()) mistrust(path, "it is of another boot of this machine");
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
        if (const int error = ::posix_fallocate(file_.get(), 0, record_text::size)) {
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

}  // namespace kdvfs::detail
