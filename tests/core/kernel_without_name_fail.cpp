// SPDX-License-Identifier: MIT
// expected: a kernel name has 1 to 64 characters out of A-Z a-z 0-9 _ . : < > , -
#include <kdvfs/kernel.hpp>

struct Gelu : kdvfs::Kernel<"gelu"> {};
#ifdef KDVFS_MISTAKE
struct Nameless : kdvfs::Kernel<""> {};
#endif
