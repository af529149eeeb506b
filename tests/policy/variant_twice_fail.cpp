// SPDX-License-Identifier: MIT
// expected: an architecture or shape has two cases here: keep one kdvfs::OnArch or kdvfs::OnVariant
#include <kdvfs/policy.hpp>

using namespace kdvfs::literals;

#ifdef KDVFS_MISTAKE
#define KDVFS_SECOND_SHAPE 2
#else
#define KDVFS_SECOND_SHAPE 3
#endif
using Policy = kdvfs::ByVariant<kdvfs::OnVariant<2, kdvfs::CapClock<1100_MHz>>,
                                kdvfs::OnVariant<KDVFS_SECOND_SHAPE, kdvfs::AutoClock>,
                                kdvfs::Otherwise<kdvfs::AutoClock>>;
static_assert(Policy::request({}).asks);
