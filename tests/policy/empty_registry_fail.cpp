// SPDX-License-Identifier: MIT
// expected: an empty registry binds no kernel: start with kdvfs::Default<kdvfs::AutoClock>
#include <kdvfs/registry.hpp>

static_assert(kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::AutoClock>>::size == 1);
#ifdef KDVFS_MISTAKE
static_assert(kdvfs::PolicyRegistry<>::size == 0);
#endif
