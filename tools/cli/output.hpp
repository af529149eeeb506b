// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>
#include <tools/cli/standard_streams.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>

namespace cli {

/// Whether a file's name stands for standard output.
inline bool is_standard_output(const std::string& file) {
    return file.empty() || file == "-" || file == "/dev/stdout" || file == "/dev/fd/1" ||
           file == "/proc/self/fd/1";
}

/// Whether a file is written as a whole, at the end, whatever it holds: standard output, a device,
/// a FIFO. Others may grow line by line.
inline bool is_special(const std::string& file) {
    std::error_code none;
    const auto status = std::filesystem::status(file, none);
    return is_standard_output(file) ||
           (std::filesystem::exists(status) && std::filesystem::is_other(status));
}

/// Makes sure that what was printed has arrived: a disk may be full, a pipe closed.
/// @throws Error (io)
inline void finish_standard_output() {
    errno = 0;
    const bool arrived = static_cast<bool>(std::cout.flush()) && std::fflush(stdout) == 0 &&
                         std::ferror(stdout) == 0;
    if (arrived) return;
    // An earlier write may have failed, whose reason is gone.
    throw kdvfs::Error{kdvfs::Errc::io,
                       {"write", "standard output",
                        errno == 0 ? "what was printed did not arrive" : std::strerror(errno),
                        "check that the disk has space left and that the reader is there"}};
}

/// Called before long work whose result is written last.
/// @throws Error (io) where there is no folder for the file, or it cannot be written to
inline void refuse_unwritable(const std::string& file) {
    const auto refuse = [&](int error) {
        kdvfs::io::throw_file_error("write a file", file.empty() ? "standard output" : file, error);
    };
    if (is_standard_output(file) && !has_standard_output()) refuse(EBADF);
    if (is_special(file)) return;
    std::error_code none;
    const auto folder = std::filesystem::absolute(file, none).parent_path();
    if (std::filesystem::is_directory(file, none)) refuse(EISDIR);
    if (::access(folder.c_str(), W_OK | X_OK) != 0) refuse(errno);
}

/// Prints a text, or writes it to a file as a whole.
/// @throws Error (io)
inline void write(const std::string& file, const std::string& text) {
    if (!is_standard_output(file)) return kdvfs::io::write_file_atomically(file, text);
    std::cout << text;
    finish_standard_output();
}

/// Writes the result of long work; prints it where the file cannot be written.
/// @throws Error (io)
inline void write_or_print(const std::string& file, const std::string& text) {
    try {
        write(file, text);
    } catch (const kdvfs::Error&) {
        if (!is_standard_output(file)) std::cout << text << std::flush;
        throw;
    }
}

}  // namespace cli
