// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/train/pipeline.hpp>

namespace kdvfs::train {

/// The least effective energy plus price * time of a pipeline, by LEMON's network simplex on the
/// pipeline as it is described: nothing is contracted. Price in microwatts, exact.
Femtojoules lemon_least_cost(const Pipeline& pipeline, std::int64_t price);

/// The least effective energy of iterations of this length, joules, by GLPK's simplex: operations
/// are mixtures of all their measured points, and wait for each other.
double glpk_least_energy(const Pipeline& pipeline, Seconds length);

/// The same with one measured point for each operation, by GLPK's branch and bound: the best plan
/// found in ten seconds.
double glpk_least_clocked_energy(const Pipeline& pipeline, Seconds length);

}  // namespace kdvfs::train
