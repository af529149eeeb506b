// SPDX-License-Identifier: MIT
#pragma once

/// The version of kdvfs. CMakeLists.txt reads it from here: it is written once.
#define KDVFS_VERSION_MAJOR 0
#define KDVFS_VERSION_MINOR 3
#define KDVFS_VERSION_PATCH 0

/// The ABI version: the name of the inline namespace that everything is in. It changes with the
/// layout of a type that two modules of one process may share.
#define KDVFS_ABI_VERSION "v0_3"
