// SPDX-License-Identifier: MIT
// expected: ClockPolicy
#include <kdvfs/registry.hpp>

struct Fast {};

using Right = kdvfs::Bind<"gelu", kdvfs::AutoClock>;
#ifdef KDVFS_MISTAKE
using Wrong = kdvfs::Bind<"gelu", Fast>;
#endif
