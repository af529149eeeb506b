// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/detail/restore/private_folder.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>

namespace kdvfs::detail {

/// The right to drive a device's clocks: one process at a time. The lock belongs to an open file,
/// so a guard that inherits it holds it until it, too, has ended.
class DeviceLock {
public:
    /// Waits for a lock whose holder is gone but whose guard is still at work, for `patience`.
    /// @throws Error (busy) naming the process that holds the device
    DeviceLock(const PrivateFolder& folder, const std::string& device,
               Duration patience = std::chrono::seconds{1})
        : file_{ProcessDescriptor{folder.open(device + ".lock", O_RDWR | O_CREAT)}} {
        const std::string path = folder.path() + "/" + device + ".lock";
        if (file_.get() < 0) {
            throw Error{Errc::io,
                        {.action = "open the device's lock",
                         .object = path,
                         .vendor_words = std::generic_category().message(errno),
                         .remedy = "see that the folder is this user's own and not full"}};
        }
        const auto deadline = std::chrono::steady_clock::now() + patience;
        while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
            const bool owner_is_gone = !is_alive(holder());
            if (!owner_is_gone || std::chrono::steady_clock::now() >= deadline) {
                throw busy(device, owner_is_gone);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{2});
        }
        sign();
    }

    [[nodiscard]] int descriptor() const noexcept { return file_.get(); }

private:
    static bool is_alive(pid_t process) {
        return process > 0 && (::kill(process, 0) == 0 || errno == EPERM);
    }

    [[nodiscard]] pid_t holder() const {
        std::array<char, 16> text{};
        if (::pread(file_.get(), text.data(), text.size() - 1, 0) <= 0) return 0;
        return static_cast<pid_t>(std::strtol(text.data(), nullptr, 10));
    }

    void sign() const {
        const std::string pid = std::to_string(::getpid()) + "\n";
        const bool signed_off = ::ftruncate(file_.get(), 0) == 0 &&
                                ::pwrite(file_.get(), pid.data(), pid.size(), 0) > 0;
        static_cast<void>(signed_off);  // an unsigned lock holds all the same
    }

    [[nodiscard]] Error busy(const std::string& device, bool owner_is_gone) const {
        const std::string process = "process " + std::to_string(holder());
        return Error{
            Errc::busy,
            {.action = "take over the clocks",
             .object = device,
             .vendor_words = owner_is_gone ? process + " has ended, and its guard is still busy"
                                           : process + " drives them already",
             .remedy = "end that process, or open the GPU to measure only"}};
    }

    ProcessDescriptor file_;
};

}  // namespace kdvfs::detail
