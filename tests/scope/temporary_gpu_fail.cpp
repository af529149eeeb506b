// SPDX-License-Identifier: MIT
// expected: delete
#include <kdvfs/kdvfs.hpp>

struct Gelu : kdvfs::Kernel<"gelu"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::AutoClock>>;

void run(const kdvfs::Gpu& gpu, int* stream) {
    const auto bound = gpu.with<Policies>();
    kdvfs::FrequencyScope<Gelu> lasting{bound, stream};
#ifdef KDVFS_MISTAKE
    kdvfs::FrequencyScope<Gelu> dangling{gpu.with<Policies>(), stream};
#endif
}
