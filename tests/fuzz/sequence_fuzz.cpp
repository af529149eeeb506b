// SPDX-License-Identifier: MIT
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/tune/profile.hpp>
#include <tests/fuzz/fuzz_target.hpp>

#include <sstream>

/// The launches of an iteration.
void fuzzing::fuzz(const std::string& text) {
    using namespace kdvfs::tune;
    std::istringstream input{text};
    const auto launches = read_sequence(input, "input:");
    std::string written = "kernel\n";
    for (const kdvfs::KernelKey& key : launches)
        written += kdvfs::detail::csv_field(to_string(key)) + '\n';
    std::istringstream again{written};
    require(read_sequence(again, "input:") == launches, "a sequence survives a round trip");
}
