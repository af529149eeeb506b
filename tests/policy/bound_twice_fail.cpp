// SPDX-License-Identifier: MIT
// expected: a kernel is bound twice in this registry: keep one kdvfs::Bind of each name
// expected: BoundOnce<false, 'g', 'e', 'l', 'u'>
#include <kdvfs/registry.hpp>

using namespace kdvfs::literals;

#ifdef KDVFS_MISTAKE
#define KDVFS_SECOND_NAME "gelu"
#else
#define KDVFS_SECOND_NAME "softmax"
#endif
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"gelu", kdvfs::CapClock<1100_MHz>>,
                                       kdvfs::Default<kdvfs::AutoClock>,
                                       kdvfs::Bind<KDVFS_SECOND_NAME, kdvfs::AutoClock>>;
static_assert(Policies::size == 3);
