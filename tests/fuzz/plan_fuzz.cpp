// SPDX-License-Identifier: MIT
#include <kdvfs/tune/plan_file.hpp>
#include <kdvfs/tune/policy_header.hpp>
#include <tests/fuzz/fuzz_target.hpp>

/// Plan files; and what becomes C++ of them holds nothing that ends a comment or a string.
void fuzzing::fuzz(const std::string& text) {
    using namespace kdvfs::tune;
    const Plan plan = parse_plan(text, "input:");
    require(parse_plan(to_json(plan), "input:") == plan, "a plan survives a round trip");
    std::string header;
    try {
        header = to_policy_header(plan, {.input = "fuzzed"});
    } catch (const kdvfs::Error&) {
        return;  // a plan that no registry can hold
    }
    require(header.find("*/") == std::string::npos && header.find('\\') == std::string::npos,
            "a header is code and names only");
}
