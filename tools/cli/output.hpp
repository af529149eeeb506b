// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/error.hpp>

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

/// Prints a text, or writes it to a file as a whole.
/// @throws Error (io)
inline void write(const std::string& file, const std::string& text) {
    if (!is_standard_output(file)) return kdvfs::io::write_file_atomically(file, text);
    std::cout << text;
    finish_standard_output();
}

}  // namespace cli
