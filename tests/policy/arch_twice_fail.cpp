// SPDX-License-Identifier: MIT
// expected: an architecture or shape has two cases here: keep one kdvfs::OnArch
#include <kdvfs/policy.hpp>

using namespace kdvfs::literals;

#ifdef KDVFS_MISTAKE
#define KDVFS_SECOND_ARCH "gfx90a"
#else
#define KDVFS_SECOND_ARCH "gfx942"
#endif
using Policy = kdvfs::ByArch<kdvfs::OnArch<"gfx90a", kdvfs::CapClock<1100_MHz>>,
                             kdvfs::OnArch<KDVFS_SECOND_ARCH, kdvfs::CapClock<900_MHz>>,
                             kdvfs::Otherwise<kdvfs::AutoClock>>;
static_assert(Policy::request({}).asks);
