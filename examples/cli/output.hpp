// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>

#include <iostream>
#include <string>

namespace cli {

/// Prints a text, or writes it to a file as a whole.
inline void write(const std::string& file, const std::string& text) {
    if (file.empty() || file == "-") {
        std::cout << text << std::flush;
    } else {
        kdvfs::detail::write_file_atomically(file, text);
    }
}

}  // namespace cli
