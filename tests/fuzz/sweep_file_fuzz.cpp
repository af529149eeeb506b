// SPDX-License-Identifier: MIT
#include <kdvfs/tune/profile.hpp>
#include <tests/fuzz/fuzz_target.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

/// A sweep file that is gone on with, whatever it holds: what was whole stays, a row can be added.
void fuzzing::fuzz(const std::string& text) {
    using namespace kdvfs::tune;
    static const auto path =
        std::filesystem::temp_directory_path() / ("kdvfs_fuzz_input:" + std::to_string(::getpid()));
    const auto read = [] {
        std::ostringstream all;
        all << std::ifstream{path, std::ios::binary}.rdbuf();
        return all.str();
    };
    std::ofstream{path, std::ios::binary | std::ios::trunc}
        << (text.starts_with('g') ? std::string{sweep_header} + text.substr(1) : text);
    const std::string before = read();
    {
        SweepFile file{path, "g"};
        require(before.starts_with(read()) || read() == sweep_header, "whole lines stay");
        file.append({{"fuzzed.kernel", {}}, {}, {kdvfs::Seconds{1}, {1}}, "", 7, 4'000'000'000});
    }
    const std::string after = read();
    {
        const SweepFile file{path, "g"};
        require(read() == after, "what was written is read back");
        require(!file.profile().kernels().empty(), "the added row is there");
    }
}
