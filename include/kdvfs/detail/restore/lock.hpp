// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/detail/restore/record.hpp>
#include <kdvfs/units.hpp>

#include <sys/file.h>

#include <chrono>
#include <thread>

namespace kdvfs::detail {

/// The right to drive a device's clocks: one process at a time. The lock belongs to an open file,
/// so a watchdog that inherits it holds it until it, too, has ended; whoever gets it knows that
/// neither lives, in whatever PID namespace they did.
class DeviceLock {
public:
    /// How long a lock is waited for: just ended is not yet released, and a watchdog may be at
    /// work.
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
                if (!holder.restoring || waited >= patience.for_watchdog)
                    throw busy(device, holder);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
        }
    }
    DeviceLock(const RestorePlace& place, const std::string& device)
        : DeviceLock{place, device, Patience{}} {}

    [[nodiscard]] int descriptor() const noexcept { return file_.get(); }

    /// For everybody who has inherited it, too.
    void release() noexcept { ::flock(file_.get(), LOCK_UN); }

private:
    struct Holder {
        std::string words = "another process";
        bool restoring = false;
    };

    static ProcessDescriptor open(const std::string& path) {
        Descriptor file = raised(
            Descriptor{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)});
        if (!file.is_open()) cannot(path);
        struct stat status {};
        if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
            mistrust(path, "it is no file");
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

}  // namespace kdvfs::detail
