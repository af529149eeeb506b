// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/detail/restore/record.hpp>
#include <kdvfs/detail/restore/vote_slots.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace kdvfs::inline v0_3::restore {

/// Clocks that several processes use at once: one drives them (`OwnedClocks`), the others vote, and
/// the highest vote wins. What a voter applies is only noted; its vote is what its tracks request
/// (`vote`). When the driver ends, its clocks are put back first; then a voter drives
/// (`take_over`). One thread at a time, but for `drives` and `may_be_free`.
template <Restorable Device>
class SharedClocks {
public:
    /// @throws Error (busy) where another process drives the device and there is no folder to vote
    ///         in; else as `OwnedClocks`
    explicit SharedClocks(Device& device) : device_{device} {
        try {
            own_.emplace(device);
            drives_ = true;
        } catch (const Error& error) {
            if (error.code() != Errc::busy) throw;
            driver_ = error;
        }
        const RestorePlace place = place_of(device);
        folder_ = VoteFolder::path_of(place);
        lock_ = place.lock;
        if (drives_) return;
        auto folder = VoteFolder::find(folder_);
        if (!folder) throw Error{*driver_};
        slot_.emplace(std::move(*folder));
        found_ = found_by_driver(place);
    }
    SharedClocks(const SharedClocks&) = delete;
    SharedClocks& operator=(const SharedClocks&) = delete;

    /// Whether this process drives the device. Callable at any time.
    [[nodiscard]] bool drives() const noexcept { return drives_.load(std::memory_order_acquire); }
    /// Why it does not: who did when it was opened.
    [[nodiscard]] const std::optional<Error>& driver() const noexcept { return driver_; }
    /// Where votes are, and the lock of whoever drives.
    [[nodiscard]] const std::string& vote_folder() const noexcept { return folder_; }
    [[nodiscard]] const std::string& lock() const noexcept { return lock_; }

    /// What this process requests, of all its tracks.
    void vote(const std::optional<ClockPoint>& request) noexcept {
        if (slot_) slot_->request(request);
    }

    /// The driver seems to have ended. Callable at any time.
    void may_be_free() noexcept { free_.store(true, std::memory_order_release); }
    /// Drives from here on, where the driver has ended and nobody else was first: what it left is
    /// put back before this returns.
    /// @returns whether it does since this call
    /// @throws Error where the device cannot be driven by this process; it goes on voting, and does
    ///         not try again for a second, then for twice as long each time
    bool take_over() {
        if (!slot_ || !free_.exchange(false, std::memory_order_acq_rel)) return false;
        // An attempt opens and closes the lock, which looks like the end of another driver.
        if (Clock::now() < next_attempt_) return false;
        try {
            own_.emplace(device_, place_of(device_),
                         DeviceLock::Patience{.at_least = std::chrono::milliseconds{20},
                                              .for_watchdog = std::chrono::milliseconds{20}});
            if constexpr (ProbedControl<Device>) own_->probe();
        } catch (const Error& error) {
            own_.reset();
            if (error.code() == Errc::busy) return false;
            next_attempt_ = Clock::now() + pause_;
            pause_ = std::min<Clock::duration>(2 * pause_, std::chrono::minutes{1});
            throw;
        }
        voted_.reset();
        drives_ = true;
        slot_.reset();  // which whoever watches the folder sees
        return true;
    }

    [[nodiscard]] const DeviceInfo& info() const { return device_.info(); }
    [[nodiscard]] const SupportedClocks& supported_clocks() const {
        return device_.supported_clocks();
    }
    [[nodiscard]] RestoreDecision settled() const noexcept {
        return own_ ? own_->settled() : RestoreDecision::nothing;
    }
    [[nodiscard]] pid_t watchdog() const { return own_ ? own_->watchdog() : 0; }
    [[nodiscard]] std::string describe() const {
        if (own_) return own_->describe();
        return "another process drives (" + driver_->text().vendor_words + "): votes in " + folder_;
    }

    [[nodiscard]] ClockState read_clock_state() {
        return own_ ? own_->read_clock_state() : voted_.value_or(found_);
    }
    void will_go_back_to(const ClockState& found) {
        if (own_) own_->will_go_back_to(found);
    }
    void apply(ClockPoint point) {
        if (own_) return own_->apply(point);
        voted_ = ClockState{.cap = point, .floor = {}, .mode = "voted"};
    }
    void restore(const ClockState& state) {
        if (own_) return own_->restore(state);
        voted_.reset();
    }
    void probe() requires ProbedControl<Device> {
        if (own_) own_->probe();
    }

private:
    using Clock = std::chrono::steady_clock;

    static RestorePlace place_of(const Device& device) {
        return RestorePlace::of_this_process(device.info().address, settings_file_of(device));
    }

    /// What the driver goes back to, where its record may be read.
    static ClockState found_by_driver(const RestorePlace& place) {
        const std::string device = place.folder.path().substr(place.folder.path().rfind('/') + 1);
        const std::string shared = place.lock.substr(0, place.lock.rfind('/')) + "/" + device;
        try {
            if (const auto folder = RestoreFolder::find(shared)) {
                if (const auto record = find_record(*folder, device))
                    return record->history.initial;
            }
        } catch (const Error&) {  // it will be seen when this process drives
        }
        return {};
    }

    Device& device_;
    std::optional<OwnedClocks<Device>> own_;
    std::optional<VoteSlot> slot_;
    std::optional<Error> driver_;
    std::string folder_;
    std::string lock_;
    ClockState found_{};                ///< while it votes
    std::optional<ClockState> voted_;   ///< what was applied last, while it votes
    Clock::time_point next_attempt_{};  ///< to take over
    Clock::duration pause_ = std::chrono::seconds{1};
    std::atomic<bool> drives_{false};
    std::atomic<bool> free_{false};
};

}  // namespace kdvfs::inline v0_3::restore

namespace kdvfs::inline v0_3::detail {

using restore::SharedClocks;

/// Clocks that other processes may drive or vote for, as `SharedClocks`.
template <class Clocks>
concept SharedControl = ClockControl<Clocks> &&
    requires(Clocks& clocks, const std::optional<ClockPoint>& request) {
    clocks.vote(request);
    { clocks.take_over() } -> std::same_as<bool>;
    clocks.may_be_free();
    { clocks.drives() } -> std::same_as<bool>;
    { clocks.vote_folder() } -> std::same_as<const std::string&>;
    { clocks.lock() } -> std::same_as<const std::string&>;
};

}  // namespace kdvfs::inline v0_3::detail
