// SPDX-License-Identifier: MIT
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>
#include <tests/fuzz/fuzz_target.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace {

using namespace kdvfs::tune;

bool same(const KernelProfile& a, const KernelProfile& b) {
    const auto same_sample = [](const auto& x, const auto& y) {
        return x.index == y.index && x.cost == y.cost;
    };
    const auto same_point = [&](const ProfilePoint& x, const ProfilePoint& y) {
        return x.clock == y.clock && std::equal(x.samples.begin(), x.samples.end(),
                                                y.samples.begin(), y.samples.end(), same_sample);
    };
    return a.key == b.key && a.group == b.group && a.count == b.count &&
           std::equal(a.points.begin(), a.points.end(), b.points.begin(), b.points.end(),
                      same_point);
}

bool same(const Profile& a, const Profile& b) {
    return a.gpu() == b.gpu() && a.baseline() == b.baseline() &&
           std::equal(a.kernels().begin(), a.kernels().end(), b.kernels().begin(),
                      b.kernels().end(), [](const auto& x, const auto& y) { return same(x, y); });
}

}  // namespace

/// Profiles as sweep files; and a plan of one, if it is small, is a finite one.
void fuzzing::fuzz(const std::string& text) {
    std::istringstream input{text};
    const Profile profile = read_profile(input, "input:");
    std::istringstream again{to_csv(profile)};
    require(same(read_profile(again, "input:"), profile), "a profile survives a round trip");
    if (profile.kernels().size() > 6) return;
    const Plan plan = make_plan(mean_costs(profile), strict_waste(), Aggregate::global);
    require(plan.kernels.size() == profile.kernels().size(), "a plan has every kernel");
    require(!std::isnan(plan.expected.time.count()) && !std::isnan(plan.expected.energy.count),
            "a plan has numbers");
}
