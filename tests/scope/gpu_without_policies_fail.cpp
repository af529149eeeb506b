// SPDX-License-Identifier: MIT
// expected: this GPU has no policies
#include <kdvfs/kdvfs.hpp>

struct Gelu : kdvfs::Kernel<"gelu"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::AutoClock>>;

void run(const kdvfs::Gpu& gpu, int* stream) {
    const auto bound = gpu.with<Policies>();
    kdvfs::launch<Gelu>(bound, stream, [] {});
#ifdef KDVFS_MISTAKE
    kdvfs::launch<Gelu>(gpu, stream, [] {});
#endif
}
