// SPDX-License-Identifier: MIT
#include <kdvfs/tune/validation.hpp>
#include <tests/fuzz/fuzz_target.hpp>

#include <sstream>

/// What a program reports that its run took.
void fuzzing::fuzz(const std::string& text) {
    using namespace kdvfs::tune;
    std::istringstream input{text};
    const Cost cost = read_cost(input, "input:");
    std::istringstream again{to_csv(cost)};
    require(read_cost(again, "input:") == cost, "a cost survives a round trip");
}
