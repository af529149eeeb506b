// SPDX-License-Identifier: MIT
// How much of what a plan promises is kept: one GPT-3-XL iteration on the simulated RTX 3080 Ti,
// measured with noise, planned from plain means and from shrunk estimates, and validated against
// the simulation's own truth.
#include <bench/promise/noisy_profile.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/shrinkage.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

using namespace kdvfs::tune;

struct Tally {
    double promised = 0;
    double kept = 0;
    double kept_time = 0;

    void add(const Plan& plan, const CostTable& truth) {
        const Cost real = cost_under(plan, truth);
        promised += plan.energy_pct();
        kept += energy_percent(real, truth.baseline_cost());
        kept_time += time_percent(real, truth.baseline_cost());
    }
    void print(const char* name, int seeds) const {
        std::printf(
            "%-8s promised %+.3f %%, kept %+.3f %% at time %+.3f %%: difference %+.3f points\n",
            name, promised / seeds, kept / seeds, kept_time / seeds, (promised - kept) / seeds);
    }
};

}  // namespace

int main(int argc, char** argv) {
    const int seeds = argc > 1 ? std::atoi(argv[1]) : 50;
    const CostTable truth = simulated_truth();
    const Objective objective = strict_waste();
    const Plan perfect = make_plan(truth, objective, Aggregate::global);
    Tally naive;
    Tally shrunk;
    for (int seed = 0; seed < seeds; ++seed) {
        const Profile profile = noisy_profile(truth, 0.01, 5, static_cast<std::uint64_t>(seed));
        naive.add(make_plan(mean_costs(profile), objective, Aggregate::global), truth);
        shrunk.add(make_plan(shrunk_costs(profile), objective, Aggregate::global), truth);
    }
    std::printf(
        "simulated RTX 3080 Ti, 46 kernels x 66 points, strict waste, 1 %% noise on time and "
        "energy, 5 samples a point, %d seeds\n",
        seeds);
    std::printf("perfect  knowledge %+.3f %%\n", perfect.energy_pct());
    naive.print("naive", seeds);
    shrunk.print("shrunk", seeds);
}
