// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/descriptor.hpp>
#include <kdvfs/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace kdvfs::detail {

/// A folder whose files steer what a privileged process does later: only its owner or root may
/// write there, and no link is ever followed into or out of it.
class PrivateFolder {
public:
    /// @throws Error (refused) where the folder belongs to somebody else or others may write to it,
    /// (io) where it cannot be made
    explicit PrivateFolder(std::string path) : path_{std::move(path)} {
        if (::mkdir(path_.c_str(), 0755) != 0 && errno != EEXIST) fail("make the folder", errno);
        folder_ =
            Descriptor{::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
        if (!folder_.is_open()) fail("open the folder", errno);
        require_trusted(folder_.get(), path_);
    }

    /// Where kdvfs keeps what must outlive its process: /run/kdvfs, which only root can make, else
    /// a folder in $XDG_RUNTIME_DIR. Both are gone after a reboot, as is what they tell of.
    static PrivateFolder of_this_user() {
        if (::geteuid() == 0) return PrivateFolder{"/run/kdvfs"};
        if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr) {
            return PrivateFolder{std::string{runtime} + "/kdvfs"};
        }
        throw Error{Errc::refused,
                    {.action = "find a folder for the clock journal",
                     .object = "this user",
                     .vendor_words = "not root, and XDG_RUNTIME_DIR is not set",
                     .remedy = "set XDG_RUNTIME_DIR to a folder of this user's own"}};
    }

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] int descriptor() const noexcept { return folder_.get(); }

    /// Opens a file of the folder; not open, with errno set, where that fails.
    /// @throws Error (refused) where the file is not to be trusted
    [[nodiscard]] Descriptor open(const std::string& name, int flags) const {
        Descriptor file{
            ::openat(folder_.get(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0600)};
        if (file.is_open()) {
            require_trusted(file.get(), path_ + "/" + name);
        } else if (errno == ELOOP) {
            refuse(path_ + "/" + name, "it is a link");
        }
        return file;
    }

    void remove(const std::string& name) const noexcept {
        ::unlinkat(folder_.get(), name.c_str(), 0);
    }

private:
    [[noreturn]] void fail(std::string action, int error) const {
        throw Error{Errc::io,
                    {.action = std::move(action),
                     .object = path_,
                     .vendor_words = std::generic_category().message(error),
                     .remedy = "check who owns it"}};
    }

    [[noreturn]] static void refuse(const std::string& path, std::string_view why) {
        throw Error{Errc::refused,
                    {.action = "trust what is written in",
                     .object = path,
                     .vendor_words = std::string{why},
                     .remedy = "remove it: kdvfs makes it anew"}};
    }

    static void require_trusted(int fd, const std::string& path) {
        struct stat status {};
        if (::fstat(fd, &status) != 0) refuse(path, "it cannot be examined");
        if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) refuse(path, "it is no file");
        if (S_ISREG(status.st_mode) && status.st_nlink != 1) refuse(path, "it has a second name");
        if (status.st_uid != ::geteuid() && status.st_uid != 0) {
            refuse(path, "it belongs to another user");
        }
        if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) refuse(path, "others may write to it");
    }

    std::string path_;
    Descriptor folder_;
};

}  // namespace kdvfs::detail
