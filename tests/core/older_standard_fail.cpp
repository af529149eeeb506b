// SPDX-License-Identifier: MIT
// expected: kdvfs needs C++20: compile with -std=c++20
#ifdef KDVFS_MISTAKE
#undef __cplusplus
#define __cplusplus 201703L
#endif
#include <kdvfs/rocm.hpp>
