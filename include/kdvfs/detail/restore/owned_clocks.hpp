// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/detail/restore/record.hpp>
#include <kdvfs/detail/restore/snapshot.hpp>
#include <kdvfs/detail/restore/watchdog.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <sys/file.h>

namespace kdvfs::inline v0_3::restore {

/// The right to drive a device's clocks: one process at a time. The lock belongs to an open file,
/// so a watchdog that inherits it holds it until it, too, has ended; whoever gets it knows that
/// neither lives, in whatever PID namespace they did.
class DeviceLock {
public:
    /// How long a lock is waited for: just ended is not yet released, and the watchdog of a process
    /// that has ended may be at work, or be about to.
    struct Patience {
        Duration at_least = std::chrono::milliseconds{300};
        Duration for_watchdog = std::chrono::seconds{2};
    };

    /// @throws Error (busy) naming the process that holds the device, (refused) where the lock is
    /// no plain file
    DeviceLock(const RestorePlace& place, const std::string& device, Patience patience)
        : file_{open(place.lock)} {
        using Clock = std::chrono::steady_clock;
        const auto start = Clock::now();
        while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK && errno != EINTR) cannot(place.lock);
            const auto waited = Clock::now() - start;
            if (waited >= patience.at_least) {
                const Holder holder = holder_of(place, device);
                const bool ends_soon = holder.restoring || holder.owner_is_gone;
                if (!ends_soon || waited >= patience.for_watchdog) throw busy(device, holder);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
        }
    }
    DeviceLock(const RestorePlace& place, const std::string& device)
        : DeviceLock{place, device, Patience{}} {}

    /// Who holds it now, for whoever only looks; nothing where nobody does.
    /// @throws Error (refused) where the lock is no plain file
    static std::optional<std::string> holder(const RestorePlace& place, const std::string& device) {
        const ProcessDescriptor file = open(place.lock);
        if (::flock(file.get(), LOCK_SH | LOCK_NB) == 0) return std::nullopt;  // gone with `file`
        if (errno != EWOULDBLOCK) cannot(place.lock);
        return holder_of(place, device).words;
    }

    [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
    /// Whether its file was removed: whoever opens the device next would lock another.
    [[nodiscard]] bool is_removed() const noexcept { return detail::is_removed(file_.get()); }

    /// For everybody who has inherited it, too.
    void release() noexcept { ::flock(file_.get(), LOCK_UN); }

private:
    struct Holder {
        std::string words = "another process";
        bool restoring = false;
        bool owner_is_gone = false;  ///< or in a PID namespace that this process does not see
    };

    static ProcessDescriptor open(const std::string& path) {
        Descriptor file = raised(
            Descriptor{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)});
        if (!file.is_open()) cannot(path);
        struct stat status {};
        if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
            reject(path, "it is no file");
        }
        return ProcessDescriptor{std::move(file)};
    }

    [[noreturn]] static void cannot(const std::string& path) {
        throw Error{Errc::io,
                    {.action = "take the device's lock",
                     .object = path,
                     .vendor_words = std::generic_category().message(errno),
                     .remedy = "see who made it: it is a plain file that this user may read"}};
    }

    /// As far as the record tells, which may be another's.
    static Holder holder_of(const RestorePlace& place, const std::string& device) {
        Holder holder;
        try {
            const Descriptor file = place.folder.open(record_name);
            const auto entry = file.is_open()
                                   ? std::optional{read_record(file.get(), place.folder.path())}
                                   : std::nullopt;
            if (!entry || entry->device != device) return holder;
            holder.restoring = read_note(file.get()).words == "restoring";
            holder.owner_is_gone = ::kill(entry->process, 0) != 0 && errno == ESRCH;
            holder.words = (holder.restoring ? "the watchdog of process " : "process ") +
                           std::to_string(entry->process) + " of user " +
                           std::to_string(entry->user);
        } catch (const Error&) {  // then it is another process, whichever
        }
        return holder;
    }

    static Error busy(const std::string& device, const Holder& holder) {
        return Error{
            Errc::busy,
            {.action = "take over the clocks",
             .object = device,
             .vendor_words = holder.words + (holder.restoring ? " is still putting its clocks back"
                                                              : " drives them already"),
             .remedy = "end that process, or open the GPU to measure only"}};
    }

    ProcessDescriptor file_;
};

/// Not open where only its owner may write it: what is owed is paid without a note, too.
inline Descriptor record_to_note_in(const RestoreFolder& folder) {
    try {
        return folder.open(record_name, O_RDWR);
    } catch (const Error&) {
        return {};
    }
}

/// Settles what an owner of a device left undone, by rule of `decide_restore`: whatever a record
/// says, nothing is written but a state that the device knows, and only where it holds what the
/// record says kdvfs wrote. The record's note says it while the device is being written, and if
/// that ended half-way, so that the next to settle it does not take what it finds for a stranger's;
/// else the note stays the watchdog's.
/// @param folder that of the record
/// @returns what was done
/// @throws Error where the device refuses
template <ClockControl Device>
RestoreDecision settle(const RestoreFolder& folder, const RestoreEntry& entry, Device& device) {
    if (!entry.has_pending_restore()) return RestoreDecision::nothing;
    // A device that cannot read its settings back is told what they should be.
    if constexpr (AdoptingControl<Device>) {
        device.adopt(entry.history.written);
    }
    const auto decision = decide_restore(entry.history, device.read_clock_state());
    if (decision != RestoreDecision::write_back) return decision;
    const Descriptor record = record_to_note_in(folder);
    RestoreNote before = read_note(record.get());
    RestoreNote mine{before.while_stopped, ::getpid(), "restoring", entry.slot};
    write_note(record.get(), mine);
    try {
        device.restore(entry.history.initial);
        if (const ClockState seen = device.read_clock_state(); seen != entry.history.initial) {
            throw Error{
                Errc::refused,
                {.action = "put back the clocks that an earlier process left behind",
                 .object = to_string(device.info()),
                 .vendor_words = "it reads back " + to_string(seen.cap) + " in mode " + seen.mode,
                 .remedy = "see which other tool governs this GPU's clocks"}};
        }
    } catch (const Error&) {
        mine.words = "unfinished, the device refuses";
        write_note(record.get(), mine);
        throw;
    }
    ++before.while_stopped;
    if (before.is_half_way(entry.slot)) before.words = "watching";
    write_note(record.get(), before);
    return decision;
}

/// What a record that was left in a place says, as `believed_by_root`.
inline RestoreEntry believed(const RestoreEntry& left, const RestorePlace& place) {
    const Snapshots snapshots{place.lock.substr(0, place.lock.rfind('/'))};
    return believed_by_root(left, place.folder, snapshots);
}

/// Where orphans come back to this process, so do dead ones.
inline void reap(pid_t watchdog) noexcept {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{200};
    while (::waitpid(watchdog, nullptr, WNOHANG) == 0 &&
           std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
}

/// A device that looked at opening whether somebody else had set its clocks: who drove it then, by
/// kdvfs, may have let go since. `look_again()` is called once its lock is held.
template <class Device>
concept LooksAgain = requires(Device& device) {
    device.look_again();
};

/// A device that remembers what it wrote, for it cannot read that back. `free_again()` is called
/// once a watchdog or kdvfs-restore has put it back under this process, before or after its last
/// write: it brings the device, and what it remembers, to the found state.
template <class Device>
concept FreesAgain = requires(Device& device) {
    device.free_again();
};

/// `ClockControl` that outlives its process: holds the device's lock, keeps the restore record,
/// which says what is owed before the device is written, and has a watchdog from the first write
/// on. What an earlier owner left behind is settled first. A switch costs two stores into the
/// mapped record, one `poll` and two `fstat`, by the thread that writes the device; the watchdog is
/// told nothing and never waited for, but by the destructor where something is owed, and there not
/// for ever.
///
/// Lock and record are files that somebody may remove while this process runs: one who tidies up
/// /tmp. They are made again before the next write, or when the clocks are read next, which is once
/// a second while one is held. Where another process has taken the device in between,
/// `apply` throws, and `restore` still writes: what the other found may have been this one's clock.
template <Restorable Device>
class OwnedClocks {
public:
    /// @throws Error (busy) naming the process that drives the device already, (refused) where an
    /// earlier record is not to be trusted, (io) where there is no space for one
    OwnedClocks(Device& device, RestorePlace place, DeviceLock::Patience patience = {})
        : device_{device},
          place_{std::make_unique<RestorePlace>(std::move(place))},
          lock_{std::make_unique<DeviceLock>(*place_, device.info().address, patience)} {
        const std::string& address = device.info().address;
        if constexpr (LooksAgain<Device>) device.look_again();
        if (const auto left = find_record(place_->folder, address)) {
            settled_ = settle(place_->folder, believed(*left, *place_), device);
        }
        history_.initial = device.read_clock_state();
        record_ = new_record(*place_);
    }

    explicit OwnedClocks(Device& device)
        : OwnedClocks{device, RestorePlace::of_this_process(device.info().address,
                                                            settings_file_of(device))} {}

    OwnedClocks(const OwnedClocks&) = delete;
    OwnedClocks& operator=(const OwnedClocks&) = delete;

    ~OwnedClocks() {
        if (fork_generation() != generation_) return;
        const bool pending_restore = has_pending_restore();
        const pid_t watchdog = this->watchdog();
        if (!pending_restore) {
            // Said before the lock is let go of: the watchdog reads it, and does nothing.
            write({.initial = history_.initial});
            if (!record_->is_removed()) record_->remove();  // else another's lies there
            lock_->release();
        }
        watchdog_.reset();
        if (pending_restore) wait_for_watchdog(watchdog);
        if (adopts_orphans() && watchdog > 0) reap(watchdog);
    }

    [[nodiscard]] const DeviceInfo& info() const { return device_.info(); }
    [[nodiscard]] const SupportedClocks& supported_clocks() const {
        return device_.supported_clocks();
    }
    /// What had to be done for an earlier owner.
    [[nodiscard]] RestoreDecision settled() const noexcept { return settled_; }
    /// How often the clocks were put back while this process was stopped.
    [[nodiscard]] std::uint64_t restored_while_stopped() const {
        return restored_before_ + record_->note().while_stopped;
    }
    /// The watchdog's process id, in its own PID namespace; 0 while there is none.
    [[nodiscard]] pid_t watchdog() const { return watchdog_ ? watchdog_process_ : 0; }

    /// Who restores, and for whom the lock holds, for `info()`.
    [[nodiscard]] std::string describe() const {
        std::string words = "record in " + place_->words();
        if (const std::string& why = device_.info().restoring; !why.empty()) words += "; " + why;
        if (adopts_orphans()) {
            words +=
                "; the watchdog is a child of this process, which adopts orphans (PID 1 or a "
                "subreaper): a wait for any child does not end before it";
        }
        if (!Watchdog::sees_stops()) {
            words += "; no bash here: a stopped process keeps its clocks";
        }
        return words;
    }

    [[nodiscard]] ClockState read_clock_state() {
        keep_record_noexcept();
        record_->beat();
        const bool needs_watchdog = watchdog_ || history_.written || history_.uncertain;
        if (needs_watchdog && !is_watched()) replace_watchdog_noexcept();
        if constexpr (FreesAgain<Device>) free_if_put_back();
        ClockState state = device_.read_clock_state();
        // As it was found: a reset, or put back while this process was stopped.
        const bool put_back = history_.written && state == history_.initial;
        if (history_.uncertain || put_back) note_held(state);
        return state;
    }

    /// Somebody else has set the clocks since, and nothing of kdvfs's own is left: theirs is the
    /// state that goes back from here on.
    void will_go_back_to(const ClockState& found) {
        if (found == history_.initial || history_.uncertain) return;
        history_ = {.initial = found};
        write(history_);
    }

    /// @throws Error (busy) where lock and record were removed, and another process has taken the
    /// device since; (io) where they cannot be made again; and as the device
    void apply(ClockPoint point) {
        keep_record({});
        if (!is_watched()) start_watchdog();
        note_uncertain();
        device_.apply(point);
    }

    /// What is owed is paid even where no watchdog can be started.
    void restore(const ClockState& state) {
        keep_record_noexcept();
        if (!is_watched()) replace_watchdog_noexcept();
        note_uncertain();
        device_.restore(state);
    }

    /// Lets the device find out what it can do, which writes.
    void probe() requires ProbedControl<Device> {
        start_watchdog();
        note_uncertain();
        device_.probe();
        static_cast<void>(read_clock_state());
        replace_record(*place_);  // the device may be put back in another way from here on
        start_watchdog();
    }

private:
    using Clock = std::chrono::steady_clock;

    [[nodiscard]] std::unique_ptr<RestoreRecord> new_record(const RestorePlace& place) const {
        return std::make_unique<RestoreRecord>(place.folder,
                                               RestoreEntry{.boot = boot_id(),
                                                            .kind = device_.restore_script().kind,
                                                            .device = device_.info().address,
                                                            .process = ::getpid(),
                                                            .user = ::geteuid(),
                                                            .history = history_});
    }

    /// Makes lock and record again where they were removed. Until both are there the ones before
    /// hold on, and the watchdog by them. What another owner has left there meanwhile is settled,
    /// as when a device is opened.
    void keep_record(DeviceLock::Patience patience) {
        const bool lock_is_gone = lock_->is_removed();
        if (!lock_is_gone && !record_->is_removed()) return;
        const std::string& address = device_.info().address;
        auto place = std::make_unique<RestorePlace>(place_->made_again(address));
        std::unique_ptr<DeviceLock> lock;
        if (lock_is_gone || place->lock != place_->lock) {
            lock = std::make_unique<DeviceLock>(*place, address, patience);
            const auto left =
                record_->is_removed() ? find_record(place->folder, address) : std::nullopt;
            if (left && settle(place->folder, believed(*left, *place), device_) ==
                            RestoreDecision::write_back) {
                history_.uncertain = history_.written.has_value();
            }
        }
        replace_record(*place);
        place_ = std::move(place);
        if (lock) lock_ = std::move(lock);
        if (watchdog_) start_watchdog();
    }

    /// The watchdog goes on by the record before until another watches this one.
    void replace_record(const RestorePlace& place) {
        auto before = std::exchange(record_, new_record(place));
        restored_before_ += before->note().while_stopped;
        if (watchdog_ && !watched_) watched_ = std::move(before);
    }

    /// Whether a watchdog lives that reads the present record.
    [[nodiscard]] bool is_watched() const noexcept {
        return !watched_ && watchdog_ && watchdog_->lives();
    }

    /// Into the record, and into an earlier one that the watchdog still reads.
    void write(const ClockHistory& history) {
        record_->write(history);
        if (watched_) watched_->write(history);
    }

    /// Without a wait, and tried again at the next call: `apply` says what is wrong.
    void keep_record_noexcept() noexcept {
        try {
            keep_record({.at_least = {}, .for_watchdog = {}});
        } catch (const std::exception&) {
        }
    }

    /// Whether the device still holds what kdvfs wrote, or cannot tell.
    bool has_pending_restore() noexcept {
        if (!history_.written && !history_.uncertain) return false;
        try {
            return decide_restore(history_, device_.read_clock_state()) ==
                   RestoreDecision::write_back;
        } catch (const std::exception&) {
            return true;
        }
    }

    void note_uncertain() {
        record_->beat();
        if (history_.uncertain) return;
        history_.uncertain = true;
        write(history_);
    }

    /// Where others have put the device back, or have begun to, while this process was stopped.
    void free_if_put_back() {
        const RestoreNote note = record_->note();
        const std::uint64_t restored = restored_before_ + note.while_stopped;
        if (restored == restored_seen_ && !record_->is_half_way(note)) return;
        if (history_.written || history_.uncertain) {
            note_uncertain();
            device_.free_again();
        }
        restored_seen_ = restored;
    }

    void note_held(const ClockState& state) {
        history_.uncertain = false;
        history_.written.reset();
        if (state != history_.initial) history_.written = state;
        write(history_);
    }

    /// Waits until it says that it watches: what cannot run is found out now, not when it is
    /// needed. A watchdog of an earlier record ends only then, and finds nothing to put back.
    /// @throws Error (io)
    void start_watchdog() {
        if (!watched_) watchdog_.reset();  // it has ended
        record_->clear_note();
        auto fresh = std::make_unique<Watchdog>(device_.restore_script(), lock_->descriptor(),
                                                record_->descriptor());
        const auto deadline = Clock::now() + std::chrono::seconds{5};
        while (record_->note().words != "watching") {
            if (!fresh->lives() || Clock::now() >= deadline) {
                throw Error{Errc::io,
                            {.action = "start the watchdog that puts clocks back",
                             .object = to_string(device_.info()),
                             .vendor_words = "the shell ended, or did not begin within 5 s",
                             .remedy = "see that /bin/sh runs, and that /proc is mounted"}};
            }
            std::this_thread::sleep_for(std::chrono::microseconds{200});
        }
        watchdog_process_ = record_->note().process;
        if (watched_) watched_->write({.initial = history_.initial});
        watched_.reset();
        watchdog_ = std::move(fresh);
    }

    /// The record holds without a watchdog, too.
    void replace_watchdog_noexcept() noexcept {
        try {
            start_watchdog();
        } catch (const std::exception&) {  // tried again at the next call
        }
    }

    /// A restore that failed here is now the watchdog's, which tries for minutes. It is given the
    /// time that it takes where nothing is wrong.
    void wait_for_watchdog(pid_t watchdog) const {
        const auto deadline = Clock::now() + std::chrono::seconds{1};
        while (watchdog != 0 && Clock::now() < deadline) {
            const RestoreNote note = record_->note();  // kdvfs-restore may have said something, too
            const bool is_done = note.words != "watching" && note.words != "restoring";
            if (note.process == watchdog && is_done) return;
            std::this_thread::sleep_for(std::chrono::microseconds{500});
        }
    }

    Device& device_;
    std::unique_ptr<RestorePlace> place_;
    std::unique_ptr<DeviceLock> lock_;
    RestoreDecision settled_ = RestoreDecision::nothing;
    ClockHistory history_{};
    std::unique_ptr<RestoreRecord> record_;
    std::unique_ptr<RestoreRecord> watched_;  ///< an earlier one, where the watchdog reads that
    std::unique_ptr<Watchdog> watchdog_;
    pid_t watchdog_process_ = 0;
    std::uint64_t restored_before_ = 0;  ///< while stopped, by notes of earlier records
    std::uint64_t restored_seen_ = 0;    ///< of all
    std::uint32_t generation_ = fork_generation();
};

}  // namespace kdvfs::inline v0_3::restore
