// SPDX-License-Identifier: MIT
// expected: end the cases with one kdvfs::Otherwise<Policy>
#include <kdvfs/policy.hpp>

using namespace kdvfs::literals;

using Case = kdvfs::OnVariant<1, kdvfs::CapClock<1100_MHz>>;
using Rest = kdvfs::Otherwise<kdvfs::AutoClock>;

static_assert(kdvfs::ByVariant<Case, Rest>::request({}).asks);
#ifdef KDVFS_MISTAKE
static_assert(kdvfs::ByVariant<Rest, Case>::request({}).asks);
#endif
