// SPDX-License-Identifier: MIT
#pragma once

// Every header of kdvfs reaches this check before it uses C++20. The #error alone would be followed
// by thousands of lines: a missing file ends the compilation.
#if __cplusplus < 201709L
#error "kdvfs needs C++20: compile with -std=c++20"
#include <compile_with_-std=c++20>
#endif

/// The library has two forms from the same sources. Header-only, the default: what a header
/// declares, it also defines. Compiled: the program links libkdvfs (CMake: `kdvfs::compiled`, which
/// sets KDVFS_COMPILED), and headers declare the engine only. A user's code is the same.
///
/// A function of the engine is declared `KDVFS_INLINE` in a public header and defined
/// `KDVFS_INLINE` in a file of `detail/`, which the public header includes where
/// `KDVFS_DEFINES_ENGINE` is 1. libkdvfs compiles these files with KDVFS_BUILDING_LIBRARY.
#ifndef KDVFS_COMPILED
#define KDVFS_COMPILED 0
#endif
#ifndef KDVFS_BUILDING_LIBRARY
#define KDVFS_BUILDING_LIBRARY 0
#endif

#if KDVFS_COMPILED && KDVFS_BUILDING_LIBRARY
// Several files of the library define the same function: the linker keeps one.
#define KDVFS_INLINE [[gnu::used]] inline
#define KDVFS_DEFINES_ENGINE 1
#elif KDVFS_COMPILED
#define KDVFS_INLINE
#define KDVFS_DEFINES_ENGINE 0
#else
#define KDVFS_INLINE inline
#define KDVFS_DEFINES_ENGINE 1
#endif

/// `detail` serves all rooms, and sees the names of the rooms that it stands on; these see
/// `detail`.
namespace kdvfs::inline v0_3 {
namespace detail {}
namespace io {}
namespace restore {
using namespace io;
using namespace detail;
}  // namespace restore
namespace solve {
using namespace io;
using namespace detail;
}  // namespace solve
namespace detail {
using namespace io;
using namespace restore;
using namespace solve;
}  // namespace detail
}  // namespace kdvfs::inline v0_3
