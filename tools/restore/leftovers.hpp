// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/nvidia/nvml.hpp>
#include <kdvfs/detail/open/site_locks.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <kdvfs/detail/restore/place.hpp>
#include <kdvfs/detail/restore/record.hpp>
#include <kdvfs/detail/restore/snapshot.hpp>
#include <kdvfs/detail/train/owned_power_limit.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace restoring {

using kdvfs::Error;
using kdvfs::restore::RestoreDecision;

/// What is to be restored, and how.
struct Request {
    std::vector<std::string> folders;  ///< in which a folder for each GPU may be
    std::vector<std::string> gpus{};   ///< PCI addresses; none = all
    /// The owner is frozen by a scheduler: it holds the lock, and is not waited for.
    bool suspended = false;
    /// Keep what the boards hold now, for root to restore to after a job.
    bool snapshot = false;
    /// Say what would be restored, and write nothing.
    bool dry_run = false;
};

constexpr std::string_view words_for(RestoreDecision decision) {
    switch (decision) {
        case RestoreDecision::nothing: return "nothing to do";
        case RestoreDecision::write_back: return "restored";
        case RestoreDecision::leave_external: return "changed by someone else since: left";
    }
    return "";
}

/// Where this user's records may be. Root looks into the machine's folder alone: what a user writes
/// into a folder of its own says nothing about GPUs that it was given.
inline std::vector<std::string> usual_folders() {
    std::vector<std::string> folders{kdvfs::restore::RestorePlace::machine_root};
    if (::geteuid() != 0) folders.push_back(kdvfs::restore::RestorePlace::own_root());
    return folders;
}

/// Puts clocks back by what restore records tell, whoever has written them.
class Leftovers {
public:
    explicit Leftovers(Request request) : request_{std::move(request)} {}

    /// @returns whether all is well; what is not is told on the error stream
    bool settle() {
        bool all_is_well = true;
        for (const std::string& gpu : gpus()) {
            try {
                require_address(gpu);
                std::cout << name_of(gpu) << ": " << settle(gpu) << std::endl;
            } catch (const Error& error) {
                std::cerr << "kdvfs-restore: " << error.what() << std::endl;
                // A neighbour who works is no trouble, unless it is this GPU that was meant.
                const bool left = error.code() == kdvfs::Errc::busy && request_.gpus.empty();
                all_is_well = all_is_well && left;
            }
        }
        return all_is_well;
    }

    /// Keeps the states that the boards are in now, for the epilog of a job. Needs root.
    bool keep_snapshots() {
        bool all_is_well = true;
        for (const std::string& gpu : gpus()) {
            try {
                require_address(gpu);
                keep_snapshot(gpu);
                std::cout << name_of(gpu) << ": snapshot kept" << std::endl;
            } catch (const Error& error) {
                std::cerr << "kdvfs-restore: " << error.what() << std::endl;
                all_is_well = false;
            }
        }
        return all_is_well;
    }

private:
    /// Of clocks, operating point and power limit of an AMD board; NVIDIA's have a default.
    void keep_snapshot(const std::string& gpu) const {
        const kdvfs::restore::Snapshots snapshots{request_.folders.front()};
        for (const auto& card : cards_) {
            if (to_string(card.address) != gpu) continue;
            const kdvfs::device::AmdgpuSysfs clocks{card};
            snapshots.keep(gpu, "amdgpu", clocks.read_clock_state());
            const kdvfs::device::amd::PreparedPoints points{card};
            if (!points.prepared_points().empty())
                snapshots.keep(gpu + "-point", "amdgpu-point", points.read_clock_state());
            try {
                kdvfs::device::amd::SysfsPowerLimit limit{card};
                kdvfs::train::LimitAsState state{limit};
                snapshots.keep(gpu + "-power", "amdgpu-power", state.read_clock_state());
            } catch (const Error& error) {  // a second die has no limit of its own
                if (error.code() != kdvfs::Errc::not_supported) throw;
            }
        }
    }

    /// Those that were asked for, else all that there are or that there is a record of.
    std::vector<std::string> gpus() const {
        std::vector<std::string> all = request_.gpus;
        for (std::string& gpu : all) {  // however it is spelled
            if (const auto address = kdvfs::io::parse_pci_address(gpu)) gpu = to_string(*address);
        }
        if (all.empty()) {
            for (const auto& card : cards_) all.push_back(to_string(card.address));
            for (const std::string& folder : request_.folders) {
                for (auto& name : kdvfs::device::amd::names_in(folder)) {
                    name = without_suffix(name);
                    if (kdvfs::io::parse_pci_address(name)) all.push_back(name);
                }
            }
        }
        std::sort(all.begin(), all.end());
        all.erase(std::unique(all.begin(), all.end()), all.end());
        return all;
    }

    static void require_address(const std::string& gpu) {
        if (kdvfs::io::parse_pci_address(gpu)) return;
        throw Error{kdvfs::Errc::invalid_input,
                    {"restore the clocks", gpu, "it is no PCI address", "as in 0000:c1:00.0"}};
    }

    std::string name_of(const std::string& gpu) const {
        for (const auto& card : cards_) {
            if (to_string(card.address) == gpu) return to_string(card);
        }
        return gpu;
    }

    /// A board's power limit and its operating point have records of their own.
    static constexpr std::array<std::string_view, 2> suffixes{"-power", "-point"};
    static std::string_view suffix_of(const std::string& name) {
        for (const std::string_view suffix : suffixes) {
            if (name.ends_with(suffix)) return suffix;
        }
        return {};
    }
    static std::string without_suffix(const std::string& name) {
        return name.substr(0, name.size() - suffix_of(name).size());
    }

    /// What was done about the records of one board.
    struct Outcome {
        RestoreDecision decision = RestoreDecision::nothing;
        std::string said{};
        std::optional<Error> error{};  ///< the first; one that is no neighbour's before one that is
    };

    /// Whatever is wrong with one of the board's records, the others are settled.
    std::string settle(const std::string& gpu) const {
        Outcome outcome;
        settle_records(gpu, outcome);
        for (const std::string_view suffix : suffixes) {
            const std::string other = gpu + std::string{suffix};
            noting_error(outcome, [&] {
                // Nothing beats in these records: that their owner is frozen, and does not work,
                // shows by the one of the clocks, where that is of the same process.
                if (request_.suspended && !have_one_owner(gpu, other))
                    return require_nothing_pending(other);
                settle_records(other, outcome);
            });
        }
        if (outcome.error) throw Error{*outcome.error};
        const bool would = request_.dry_run && outcome.decision == RestoreDecision::write_back;
        return (would ? "would be " : "") + std::string{words_for(outcome.decision)} + outcome.said;
    }

    template <class Act>
    static void noting_error(Outcome& outcome, Act act) {
        try {
            act();
        } catch (const Error& error) {
            if (!outcome.error || outcome.error->code() == kdvfs::Errc::busy) outcome.error = error;
        }
    }

    bool have_one_owner(const std::string& clocks, const std::string& other) const {
        for (const std::string& root : request_.folders) {
            const auto first = kdvfs::restore::RestoreFolder::find(root + "/" + clocks);
            const auto second = kdvfs::restore::RestoreFolder::find(root + "/" + other);
            if (!first || !second) continue;
            const auto one = kdvfs::restore::find_record(*first, clocks);
            const auto two = kdvfs::restore::find_record(*second, other);
            if (one && two) return one->process == two->process && one->user == two->user;
        }
        return false;
    }

    /// Whoever reads "all is well" removes the record. One of root's own, as of a daemon that
    /// limits power, is no job's.
    void require_nothing_pending(const std::string& name) const {
        for (const std::string& root : request_.folders) {
            const auto folder = kdvfs::restore::RestoreFolder::find(root + "/" + name);
            if (!folder || folder->owner() == 0 || !may_settle(*folder)) continue;
            const auto entry = kdvfs::restore::find_record(*folder, name);
            if (!entry || !entry->has_pending_restore()) continue;
            throw Error{kdvfs::Errc::busy,
                        {"restore under a suspended process", name,
                         "nothing shows whether process " + std::to_string(entry->process) +
                             " of user " + std::to_string(entry->user) + " is at work",
                         "end that process, then run this without --suspended"}};
        }
    }

    /// Root settles everybody's records, others their own.
    static bool may_settle(const kdvfs::restore::RestoreFolder& folder) {
        return ::geteuid() == 0 || folder.owner() == ::geteuid();
    }

    /// In each folder.
    void settle_records(const std::string& name, Outcome& outcome) const {
        for (const std::string& root : request_.folders) {
            noting_error(outcome, [&] { settle_record(root, name, outcome); });
        }
    }

    void settle_record(const std::string& root, const std::string& name, Outcome& outcome) const {
        auto folder = kdvfs::restore::RestoreFolder::find(root + "/" + name);
        if (!folder || !may_settle(*folder)) return;
        if (!kdvfs::restore::find_record(*folder, name)) {
            if (!folder->open(kdvfs::restore::record_name).is_open()) return;
            if (!request_.dry_run) folder->remove(kdvfs::restore::record_name);
            outcome.said += request_.dry_run ? " (a record of an earlier boot)"
                                             : " (removed a record of an earlier boot)";
            return;
        }
        outcome.said += words_of_watchdog(*folder);
        const kdvfs::restore::RestorePlace place{std::move(*folder), lock_of(root, name)};
        const kdvfs::restore::Snapshots snapshots{root};
        if (request_.dry_run) return look(place, name, snapshots, outcome);
        const auto done = request_.suspended ? settle_frozen(place, name, snapshots)
                                             : settle(place, name, snapshots);
        outcome.decision = std::max(outcome.decision, done);
    }

    static std::string lock_of(const std::string& root, const std::string& name) {
        using kdvfs::restore::RestorePlace;
        return root == RestorePlace::own_root() ? RestorePlace::own_lock(name)
                                                : root + "/" + name + ".lock";
    }

    /// Says what would be restored, and to what. Takes no lock.
    void look(const kdvfs::restore::RestorePlace& place, const std::string& name,
              const kdvfs::restore::Snapshots& snapshots, Outcome& outcome) const {
        const auto entry = kdvfs::restore::find_record(place.folder, name);
        if (!entry) return;
        if (const auto holder = kdvfs::restore::DeviceLock::holder(place, name)) {
            outcome.said += " (held by " + *holder + ": left)";
            return;
        }
        const auto decision = settle_device(place.folder, *entry, snapshots);
        outcome.decision = std::max(outcome.decision, decision);
        if (decision != RestoreDecision::write_back) return;
        const kdvfs::ClockState& state =
            kdvfs::restore::believed_by_root(*entry, place.folder, snapshots).history.initial;
        outcome.said +=
            entry->kind.ends_with("-power")
                ? " (the power limit to " + std::to_string(state.cap.core.count) + " W)"
                : " (" + entry->kind + " to " + to_string(state.cap) + ", mode " + state.mode + ")";
    }

    /// What the record's watchdog has done, where it has.
    static std::string words_of_watchdog(const kdvfs::restore::RestoreFolder& folder) {
        const auto file = folder.open(kdvfs::restore::record_name);
        const std::string words = kdvfs::restore::read_note(file.get()).words;
        if (words.empty() || words == "none" || words == "watching") return {};
        return " (its watchdog says: " + words + ")";
    }

    /// Behind an owner that has ended: the lock says so.
    RestoreDecision settle(const kdvfs::restore::RestorePlace& place, const std::string& gpu,
                           const kdvfs::restore::Snapshots& snapshots) const {
        const kdvfs::restore::DeviceLock lock{
            place, gpu, {.for_watchdog = std::chrono::seconds{10}}};
        const auto entry = kdvfs::restore::find_record(place.folder, gpu);
        if (!entry) return RestoreDecision::nothing;  // its owner ended in peace meanwhile
        const auto decision = settle_device(place.folder, *entry, snapshots);
        place.folder.remove(kdvfs::restore::record_name);
        return decision;
    }

    /// Under an owner that its scheduler has frozen. What tells it from one that works is that its
    /// heart does not beat: a controller that holds a clock looks at it once a second.
    RestoreDecision settle_frozen(const kdvfs::restore::RestorePlace& place, const std::string& gpu,
                                  const kdvfs::restore::Snapshots& snapshots) const {
        const auto file = place.folder.open(kdvfs::restore::record_name);
        const std::string beat = kdvfs::restore::read_beat(file.get());
        std::this_thread::sleep_for(std::chrono::milliseconds{1500});
        const auto entry = kdvfs::restore::find_record(place.folder, gpu);
        if (!entry) return RestoreDecision::nothing;
        if (kdvfs::restore::read_beat(file.get()) != beat) {
            throw Error{kdvfs::Errc::busy,
                        {"restore under a suspended process", gpu,
                         "process " + std::to_string(entry->process) + " of user " +
                             std::to_string(entry->user) + " is at work",
                         "freeze the whole job first"}};
        }
        return settle_device(place.folder, *entry, snapshots);
    }

    RestoreDecision settle_device(const kdvfs::restore::RestoreFolder& folder,
                                  const kdvfs::restore::RestoreEntry& written,
                                  const kdvfs::restore::Snapshots& snapshots) const {
        if (!written.has_pending_restore()) return RestoreDecision::nothing;
        const auto entry = kdvfs::restore::believed_by_root(written, folder, snapshots);
        // Whoever was given the folder of one was not given the others.
        if (suffix_of(entry.kind) != suffix_of(entry.device)) {
            kdvfs::restore::reject("the record of " + entry.device,
                                   "its kind, '" + entry.kind + "', has a folder of its own");
        }
        if (entry.kind == "nvml") {
            kdvfs::device::Nvml gpu{entry.device,
                                    kdvfs::extend::with_site_locks(
                                        {.access = kdvfs::device::ClockAccess::set}, entry.device)};
            return settle_board(folder, entry, gpu);
        }
        const std::string gpu_address = without_suffix(entry.device);
        if (entry.kind == "nvml-power") {
            kdvfs::device::NvmlPowerLimit limit{gpu_address};
            return settle_limit(folder, entry, limit);
        }
        const auto address = kdvfs::io::parse_pci_address(gpu_address);
        if (entry.kind == "amdgpu-power" && address) {
            kdvfs::device::amd::SysfsPowerLimit limit{kdvfs::device::amd::find_card(*address)};
            return settle_limit(folder, entry, limit);
        }
        if (entry.kind == "nvml-point") {
            const kdvfs::device::NvmlOptions usual;
            kdvfs::device::NvmlPreparedPoints points{gpu_address, usual.library, usual.restorer};
            return settle_board(folder, entry, points);
        }
        if (entry.kind == "amdgpu-point" && address) {
            kdvfs::device::amd::PreparedPoints points{kdvfs::device::amd::find_card(*address)};
            return settle_board(folder, entry, points);
        }
        if (entry.kind != "amdgpu" || !address) {
            throw Error{kdvfs::Errc::not_supported,
                        {"restore the clocks", entry.device,
                         "its record is of a kind '" + entry.kind + "' that is not known here",
                         "use the kdvfs-restore of the kdvfs that has written it"}};
        }
        kdvfs::device::AmdgpuSysfs gpu{*address};
        return settle_board(folder, entry, gpu);
    }

    template <class Device>
    RestoreDecision settle_board(const kdvfs::restore::RestoreFolder& folder,
                                 const kdvfs::restore::RestoreEntry& entry, Device& device) const {
        if (!request_.dry_run) return kdvfs::restore::settle(folder, entry, device);
        if constexpr (kdvfs::AdoptingControl<Device>) device.adopt(entry.history.written);
        return kdvfs::restore::decide_restore(entry.history, device.read_clock_state());
    }

    template <class Limit>
    RestoreDecision settle_limit(const kdvfs::restore::RestoreFolder& folder,
                                 const kdvfs::restore::RestoreEntry& entry, Limit& limit) const {
        kdvfs::train::LimitAsState state{limit};
        return settle_board(folder, entry, state);
    }

    Request request_;
    std::vector<kdvfs::device::amd::Card> cards_ = kdvfs::device::amd::find_cards();
};

}  // namespace restoring
