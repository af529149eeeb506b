// SPDX-License-Identifier: MIT
// A scope without a name ends before the kernel is launched: what is a warning is an error here.
// expected: name the scope: a temporary ends before the kernel is launched
#include <kdvfs/scope.hpp>

#pragma GCC diagnostic error "-Wunused-result"
#pragma GCC diagnostic error "-Wunused-value"

struct Gelu : kdvfs::Kernel<"gelu"> {};

struct SomeGpu {
    template <class>
    static constexpr bool has_scope_for = false;
};

void run(const SomeGpu& gpu) {
    const kdvfs::FrequencyScope<Gelu> scope{gpu, nullptr};
#ifdef KDVFS_MISTAKE
    kdvfs::FrequencyScope<Gelu>{gpu, nullptr};
#endif
}
