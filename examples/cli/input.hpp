// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/atomic_file.hpp>

#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

namespace cli {

/// All of a file, and what errors call it.
struct InputText {
    std::string name;
    std::string text;
};

/// A file as a whole, or standard input where it is "-".
/// @throws Error (io)
inline InputText read_input(const std::string& file) {
    const bool from_stdin = file == "-";
    std::ifstream opened;
    if (!from_stdin) {
        opened.open(file, std::ios::binary);
        if (!opened) kdvfs::detail::throw_file_error("open a file", file, errno);
    }
    std::istream& input = from_stdin ? std::cin : opened;
    InputText read{from_stdin ? "standard input" : file,
                   {std::istreambuf_iterator<char>{input}, {}}};
    if (input.bad()) kdvfs::detail::throw_file_error("read a file", read.name, errno);
    return read;
}

}  // namespace cli
