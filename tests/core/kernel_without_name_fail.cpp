// SPDX-License-Identifier: MIT
// expected: a kernel name has 1 to 1024 printable ASCII characters except quotes and backslashes
#include <kdvfs/kernel.hpp>

struct Gelu : kdvfs::Kernel<"gelu"> {};
#ifdef KDVFS_MISTAKE
struct Nameless : kdvfs::Kernel<""> {};
#endif
