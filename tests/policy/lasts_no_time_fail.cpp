// SPDX-License-Identifier: MIT
// expected: a kernel lasts longer than 0 ns
#include <kdvfs/policy.hpp>

static_assert(kdvfs::Lasting<1, kdvfs::AutoClock>::request({}).asks);
#ifdef KDVFS_MISTAKE
static_assert(kdvfs::Lasting<0, kdvfs::AutoClock>::request({}).asks);
#endif
