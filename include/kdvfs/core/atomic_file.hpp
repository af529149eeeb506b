// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs {
namespace detail {

[[noreturn]] inline void throw_file_error(std::string action, const std::filesystem::path& path,
                                          int error) {
    throw Error{Errc::io,
                {std::move(action), path.string(), std::strerror(error),
                 "check that the folder exists, is writable and has space left"}};
}

/// Writes all of `content`, however many calls that takes. Returns 0 or errno.
inline int write_all(int descriptor, std::string_view content) {
    while (!content.empty()) {
        const ssize_t written = ::write(descriptor, content.data(), content.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return errno;
        content.remove_prefix(static_cast<std::size_t>(written));
    }
    return 0;
}

}  // namespace detail

/// Replaces a file as a whole: readers see the old content or the new, never a part, and after a
/// failure the old file is untouched. The content goes to a temporary beside the target, reaches
/// the disk, and is renamed. A symbolic link at `path` is replaced, not followed.
/// @throws Error (io) with the operating system's words. Thread-safe.
inline void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
    static std::atomic<unsigned> counter{0};
    std::filesystem::path temporary = path;
    temporary.replace_filename("." + path.filename().string() + "." + std::to_string(::getpid()) +
                               "." + std::to_string(counter++) + ".tmp");

    const int descriptor =
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0) detail::throw_file_error("create a temporary file", temporary, errno);

    int error = detail::write_all(descriptor, content);
    if (error == 0 && ::fsync(descriptor) != 0) error = errno;
    if (::close(descriptor) != 0 && error == 0) error = errno;
    if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
    if (error != 0) {
        ::unlink(temporary.c_str());
        detail::throw_file_error("write a file", path, error);
    }
}

}  // namespace kdvfs
