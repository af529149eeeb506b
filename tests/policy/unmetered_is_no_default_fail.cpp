// SPDX-License-Identifier: MIT
// expected: this kernel has no policy: add kdvfs::Bind<
// expected: SoftmaxBackward
#include <kdvfs/registry.hpp>

struct SoftmaxBackward : kdvfs::Kernel<"softmax_backward"> {};

using Defaulted = kdvfs::PolicyRegistry<kdvfs::Unmetered, kdvfs::Default<kdvfs::AutoClock>>;
using Bound = Defaulted::policy_of<SoftmaxBackward>;
#ifdef KDVFS_MISTAKE
using Unbound = kdvfs::PolicyRegistry<kdvfs::Unmetered>::policy_of<SoftmaxBackward>;
#endif
