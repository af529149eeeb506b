// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/detail/restore/record.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <system_error>

namespace kdvfs::inline v0_3::restore {

/// The states in which a scheduler's prolog found the devices of a job, in a folder that root alone
/// may write: MACHINE/snapshots/DEVICE/record. What root restores after the job is taken from here:
/// a record that the job's user has written says what was touched, never to which value it goes
/// back.
class Snapshots {
public:
    explicit Snapshots(const std::string& machine = RestorePlace::machine_root)
        : root_{machine + "/snapshots"} {}

    /// Keeps a device's state. Replaces an older one.
    /// @param kind of the device's restore script
    /// @throws Error (io) where it cannot be written, (refused) where others may write there
    void keep(const std::string& device, const std::string& kind, const ClockState& state) const {
        const std::string path = root_ + "/" + device;
        for (const std::string& folder : {root_, path}) {
            if (::mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST) continue;
            throw Error{Errc::io,
                        {.action = "make a folder for snapshots",
                         .object = folder,
                         .vendor_words = std::generic_category().message(errno),
                         .remedy = "run as root, after /run/kdvfs was made (prolog.sh does)"}};
        }
        const auto folder = trusted(path);
        if (!folder) reject(path, "it does not belong to root");
        const RestoreRecord record{*folder, {boot_id(), kind, device, 0, 0, {.initial = state}}};
    }

    /// The state that was kept in this boot; nothing where there is none that can be trusted.
    [[nodiscard]] std::optional<ClockState> find(const std::string& device) const {
        const auto folder = trusted(root_ + "/" + device);
        if (!folder) return std::nullopt;
        const auto entry = find_record(*folder, device);
        return entry ? std::optional{entry->history.initial} : std::nullopt;
    }

private:
    static std::optional<RestoreFolder> trusted(const std::string& path) {
        auto folder = RestoreFolder::find(path);
        return folder && folder->owner() == 0 ? std::move(folder) : std::nullopt;
    }

    std::string root_;
};

/// What a record says, as far as root may believe it: where a user has written it, the state to go
/// back to is the snapshot's, else the driver's default; an operating point and a power limit, of
/// which no default is known here, then go back to what the record says.
inline RestoreEntry believed_by_root(RestoreEntry entry, const RestoreFolder& folder,
                                     const Snapshots& snapshots) {
    if (::geteuid() != 0 || folder.owner() == 0) return entry;
    const bool is_clocks = !entry.device.ends_with("-point") && !entry.device.ends_with("-power");
    if (const auto found = snapshots.find(entry.device)) {
        entry.history.initial = *found;
    } else if (is_clocks) {
        entry.history.initial = ClockState{};
    }
    return entry;
}

}  // namespace kdvfs::inline v0_3::restore
