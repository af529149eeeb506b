// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/detail/restore/device_lock.hpp>
#include <kdvfs/detail/restore/guard.hpp>
#include <kdvfs/detail/restore/journal.hpp>
#include <kdvfs/detail/restore/private_folder.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace kdvfs::detail {

/// `ClockControl` that outlives its process: holds the device's lock, starts a guard before the
/// first write, and notes for guard and journal what is owed before and after each write. What an
/// earlier owner left behind is settled first.
template <Guardable Device>
class GuardedClocks {
public:
    /// @throws Error (busy) naming the process that drives the device already
    GuardedClocks(Device& device, PrivateFolder folder)
        : device_{device},
          folder_{std::make_unique<PrivateFolder>(std::move(folder))},
          lock_{*folder_, device.info().address} {
        settled_ = settle(Journal{*folder_, device.info().address}, device);
        entry_ = {boot_id(), device.info().address, {.initial = device.read_clock_state()}};
    }

    explicit GuardedClocks(Device& device) : GuardedClocks{device, PrivateFolder::of_this_user()} {}

    GuardedClocks(const GuardedClocks&) = delete;
    GuardedClocks& operator=(const GuardedClocks&) = delete;

    ~GuardedClocks() {
        if (fork_generation() != generation_) return;
        guard_.reset();  // acts, where something is still owed
        if (journal_ && !owes_restore()) journal_->remove();
    }

    [[nodiscard]] const DeviceInfo& info() const { return device_.info(); }
    [[nodiscard]] const SupportedClocks& supported_clocks() const {
        return device_.supported_clocks();
    }
    /// What had to be done for an earlier owner.
    [[nodiscard]] RestoreDecision settled() const noexcept { return settled_; }

    [[nodiscard]] ClockState read_clock_state() {
        ClockState state = device_.read_clock_state();
        if (entry_.history.uncertain) note_held(state);
        return state;
    }

    /// Somebody else has set the clocks since, and nothing of kdvfs's own is left: theirs is the
    /// state that guard and journal put back from here on.
    void will_go_back_to(const ClockState& found) {
        if (found == entry_.history.initial || entry_.history.uncertain) return;
        guard_.reset();  // sees the external state, and leaves it
        entry_.history = {.initial = found};
    }

    void apply(ClockPoint point) {
        note_uncertain();
        device_.apply(point);
    }

    void restore(const ClockState& state) {
        note_uncertain();
        device_.restore(state);
    }

    /// Lets the device find out what it can do, which writes.
    void probe() requires requires(Device& device) { device.probe(); }
    {
        note_uncertain();
        device_.probe();
        static_cast<void>(read_clock_state());
    }

private:
    /// Whether the device still holds what kdvfs wrote, or cannot tell: then the journal stays.
    bool owes_restore() noexcept {
        if (!entry_.owes_restore()) return false;
        try {
            return decide_restore(entry_.history, device_.read_clock_state()) ==
                   RestoreDecision::write_back;
        } catch (const Error&) {
            return true;
        }
    }

    void note_uncertain() {
        if (!guard_) start_guard();
        if (entry_.history.uncertain) return;
        entry_.history.uncertain = true;
        tell("uncertain");
        journal_->write(entry_);
    }

    void note_held(const ClockState& state) {
        entry_.history.uncertain = false;
        entry_.history.written.reset();
        if (state == entry_.history.initial) {
            tell("idle");
        } else {
            entry_.history.written = state;
            tell("held " + device_.guard_words(state));
        }
        journal_->write(entry_);
    }

    /// A guard that has been killed is replaced: it must not cost the device its restore.
    void tell(const std::string& line) {
        try {
            guard_->note(line);
        } catch (const Error&) {
            start_guard();
            guard_->note(line);
        }
    }

    void start_guard() {
        journal_.emplace(*folder_, device_.info().address);
        guard_.emplace(device_.guard_order(entry_.history.initial), lock_.descriptor());
    }

    Device& device_;
    std::unique_ptr<PrivateFolder> folder_;
    DeviceLock lock_;
    RestoreDecision settled_ = RestoreDecision::nothing;
    JournalEntry entry_;
    std::optional<Journal> journal_;
    std::optional<Guard> guard_;
    std::uint32_t generation_ = fork_generation();
};

}  // namespace kdvfs::detail
