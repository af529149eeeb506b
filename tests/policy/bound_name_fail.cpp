// SPDX-License-Identifier: MIT
// expected: a kernel name has 1 to 1024 printable ASCII characters except quotes and backslashes
#include <kdvfs/registry.hpp>

static_assert(kdvfs::PolicyRegistry<kdvfs::Bind<"gelu", kdvfs::AutoClock>>::size == 1);
#ifdef KDVFS_MISTAKE
static_assert(kdvfs::PolicyRegistry<kdvfs::Bind<"ge\"lu", kdvfs::AutoClock>>::names("ge\"lu"));
#endif
