// SPDX-License-Identifier: MIT
#pragma once

/// The version of kdvfs. CMakeLists.txt reads it from here: it is written once.
#define KDVFS_VERSION_MAJOR 0
#define KDVFS_VERSION_MINOR 1
#define KDVFS_VERSION_PATCH 0
