// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/descriptor.hpp>
#include <kdvfs/core/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace kdvfs::device::amdgpu {

/// What a file said: a text, or the errno that stands for it.
struct FileText {
    int error = 0;
    std::string text;
};

/// Opens a file; the descriptor is not open on failure, and errno says why.
inline Descriptor open_file(const std::string& path, int flags) {
    int fd = -1;
    do {
        fd = ::open(path.c_str(), flags | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return Descriptor{fd};
}

/// Reads a file of sysfs, which answers at most one page, with one call. Never throws an `Error`.
inline FileText read_file(const std::string& path) {
    const Descriptor file = open_file(path, O_RDONLY);
    if (!file.is_open()) return {errno, {}};
    std::array<char, 4096> page;
    const ssize_t count = ::read(file.get(), page.data(), page.size());
    if (count < 0) return {errno, {}};
    return {0, {page.data(), static_cast<std::size_t>(count)}};
}

/// Writes a text to a file of sysfs with one call, as its handlers expect. Returns 0 or an errno.
inline int write_file(const std::string& path, std::string_view text) {
    const Descriptor file = open_file(path, O_WRONLY);
    if (!file.is_open()) return errno;
    const ssize_t count = ::write(file.get(), text.data(), text.size());
    if (count < 0) return errno;
    return static_cast<std::size_t>(count) == text.size() ? 0 : EIO;
}

/// What an errno of a clock file means. EINVAL and EOPNOTSUPP are the driver's ways to refuse.
constexpr Errc errc_of(int error) {
    switch (error) {
        case EACCES:
        case EPERM:
        case EROFS:
        case EINVAL:
        case EOPNOTSUPP: return Errc::refused;
        case ENOENT: return Errc::not_supported;
        case ENODEV:
        case ENXIO: return Errc::vanished;
        case EBUSY:
        case EAGAIN:
        case EINTR: return Errc::busy;
        case ETIMEDOUT: return Errc::timed_out;
        default: return Errc::io;
    }
}

/// What to do about an errno of a clock file.
inline std::string remedy_of(int error) {
    switch (error) {
        case EACCES:
        case EPERM:
            return "run as root, or let an administrator hand the GPU's clock files to this user";
        case EROFS: return "the container mounts /sys read-only; mount it writable";
        case EINVAL:
        case EOPNOTSUPP: return "the driver does not accept this clock or mode on this board";
        case ENOENT: return "this board or driver has no such file";
        case ENODEV:
        case ENXIO: return "the GPU has left the bus, or is being reset";
        default: return "see the kernel log";
    }
}

/// The error of a file access. `object` names the device; the path goes with the words.
inline Error file_error(std::string action, std::string object, const std::string& path,
                        int error) {
    return Error{errc_of(error),
                 {std::move(action), std::move(object),
                  path + ": " + std::generic_category().message(error), remedy_of(error)}};
}

}  // namespace kdvfs::device::amdgpu
