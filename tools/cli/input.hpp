// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <system_error>

namespace cli {

/// A file, or standard input where its name is "-".
class Input {
public:
    /// @throws Error (io)
    explicit Input(const std::string& file) : from_stdin_{file == "-"}, file_{file} {
        if (from_stdin_) return;
        opened_.open(file, std::ios::binary);
        if (!opened_) reject(std::strerror(errno));
        std::error_code none;
        if (std::filesystem::is_directory(file, none)) reject("it is a folder");
    }

    [[nodiscard]] std::istream& stream() { return from_stdin_ ? std::cin : opened_; }
    /// What errors call it.
    [[nodiscard]] std::string name() const { return from_stdin_ ? "standard input" : file_; }

private:
    [[noreturn]] void reject(const char* why) const {
        throw kdvfs::Error{kdvfs::Errc::io,
                           {"open a file", file_, why,
                            "check its path and that you may read it; - is standard input"}};
    }

    bool from_stdin_;
    std::string file_;
    std::ifstream opened_;
};

/// All of a file, and what errors call it.
struct InputText {
    std::string name;
    std::string text;
};

/// What the banner of a generated file says that it was made from.
inline std::string source_name(const std::string& file) {
    return file == "-" ? "standard input" : std::filesystem::path{file}.filename().string();
}

/// Reads a file, or standard input, as a whole. @throws Error (io)
inline InputText read_input(const std::string& file) {
    Input input{file};
    InputText read{input.name(), {std::istreambuf_iterator<char>{input.stream()}, {}}};
    if (input.stream().bad()) kdvfs::io::throw_file_error("read a file", read.name, errno);
    return read;
}

}  // namespace cli
