// SPDX-License-Identifier: MIT
//
// A clock for each kernel of a profile, as a table for people and as a header for the compiler:
//
//     07_plan_from_profile profile.csv
//
// The command `kdvfs plan` does the same, and more.
#include <kdvfs/detail/tune/plan_table_text.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/policy_header.hpp>
#include <kdvfs/tune/profile.hpp>

#include <exception>
#include <filesystem>
#include <iostream>

int main(int argc, char** argv) try {
    if (argc != 2) {
        std::cerr << "07_plan_from_profile PROFILE.csv\n";
        return 1;
    }
    namespace tune = kdvfs::tune;
    const tune::Profile profile = tune::read_profile(std::filesystem::path{argv[1]});
    const tune::CostTable costs = tune::mean_costs(profile);
    // As little energy as can be for at most 1 % more time of the whole iteration.
    const tune::Plans plans = tune::make_plans(costs, tune::relaxed_waste(0.01));

    std::cout << to_text_table(plans, tune::Aggregate::global) << '\n'
              << to_policy_header(
                     plans.global,
                     {.namespace_name = "my_training", .input = argv[1], .input_hash = ""});
    return 0;
} catch (const std::exception& error) {
    std::cerr << "07_plan_from_profile: " << error.what() << '\n';
    return 1;
}
