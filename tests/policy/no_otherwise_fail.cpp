// SPDX-License-Identifier: MIT
// expected: end the cases with one kdvfs::Otherwise<Policy>
#include <kdvfs/policy.hpp>

using namespace kdvfs::literals;

using Case = kdvfs::OnArch<"gfx90a", kdvfs::CapClock<1100_MHz>>;

static_assert(kdvfs::ByArch<Case, kdvfs::Otherwise<kdvfs::AutoClock>>::request({}).asks);
#ifdef KDVFS_MISTAKE
static_assert(!kdvfs::ByArch<Case>::request({}).asks);
#endif
