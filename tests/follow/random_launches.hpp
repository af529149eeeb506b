// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/plan_follower.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

/// Iterations as programs really launch them: almost as planned.
namespace follow_test {

/// A launch, and where the plan has it; `nowhere` for one that was added.
struct Launched {
    static constexpr std::size_t nowhere = ~std::size_t{0};
    kdvfs::detail::PlanKernel kernel = 0;
    std::size_t place = nowhere;
};

/// One iteration in which a share of the launches is left out, doubled by another one, or swapped
/// with the next. What is added is a kernel of the plan half of the times, else an unknown one.
inline std::vector<Launched> perturbed(const std::vector<std::uint32_t>& launches, double share,
                                       std::mt19937_64& random) {
    std::uniform_real_distribution<double> chance{0, 1};
    std::uniform_int_distribution<std::size_t> any{0, launches.size() - 1};
    std::vector<Launched> result;
    for (std::size_t place = 0; place < launches.size(); ++place) {
        if (chance(random) >= share) {
            result.push_back({launches[place], place});
            continue;
        }
        switch (random() % 3) {
            case 0: break;
            case 1:
                result.push_back({launches[place], place});
                result.push_back(
                    {random() % 2 == 0 ? launches[any(random)] : kdvfs::detail::not_in_plan});
                break;
            default:
                if (place + 1 < launches.size()) {
                    result.push_back({launches[place + 1], place + 1});
                    result.push_back({launches[place], place});
                    ++place;
                }
        }
    }
    return result;
}

}  // namespace follow_test
