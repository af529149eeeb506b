// SPDX-License-Identifier: MIT
// expected: a registry has one kdvfs::Default at most
#include <kdvfs/registry.hpp>

using Start = kdvfs::Default<kdvfs::AutoClock>;

static_assert(kdvfs::PolicyRegistry<Start>::size == 1);
#ifdef KDVFS_MISTAKE
static_assert(kdvfs::PolicyRegistry<Start, kdvfs::Default<kdvfs::KeepClock>>::size == 2);
#endif
