// SPDX-License-Identifier: MIT
#pragma once

#include <dlfcn.h>

namespace kdvfs::detail {

/// Keeps the library that holds this code mapped until the process ends: threads or devices run it,
/// and a plugin may be closed under them. Does nothing for a program's own code, which always
/// stays.
inline void keep_loaded(const void* code) noexcept {
    Dl_info where{};
    if (::dladdr(code, &where) == 0 || where.dli_fname == nullptr) return;
    static_cast<void>(::dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
}

}  // namespace kdvfs::detail
