// SPDX-License-Identifier: MIT
// expected: this kernel has no policy: add kdvfs::Bind<
// expected: SoftmaxBackward
#include <kdvfs/registry.hpp>

struct Gelu : kdvfs::Kernel<"gelu"> {};
struct SoftmaxBackward : kdvfs::Kernel<"softmax_backward"> {};

using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"gelu", kdvfs::AutoClock>>;
using Bound = Policies::policy_of<Gelu>;
#ifdef KDVFS_MISTAKE
using Unbound = Policies::policy_of<SoftmaxBackward>;
#endif
