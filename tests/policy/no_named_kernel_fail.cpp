// SPDX-License-Identifier: MIT
// expected: NamedKernel
#include <kdvfs/registry.hpp>

struct Gelu : kdvfs::Kernel<"gelu"> {};
struct Nameless {};

using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::AutoClock>>;
using Right = Policies::policy_of<Gelu>;
#ifdef KDVFS_MISTAKE
using Wrong = Policies::policy_of<Nameless>;
#endif
