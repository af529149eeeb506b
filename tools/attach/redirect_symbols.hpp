// SPDX-License-Identifier: MIT
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace attach {

/// Has whoever looks up a symbol of a loaded library from here on (`dlsym`, or the first call
/// through a procedure linkage table) find another function instead: its entry in the library's
/// table of dynamic symbols, in this process alone, is changed. Calls within the library, and
/// pointers that were taken before, stay.
/// @param name        of the symbol
/// @param function    its address, as `dlsym` found it
/// @param replacement lies in a library that is never unloaded
/// @returns whether it was done: not where the system forbids to write there
inline bool redirect_symbol(const char* name, void* function, void* replacement) {
    Dl_info info{};
    void* entry = nullptr;
    link_map* library = nullptr;
    if (function == nullptr || ::dladdr1(function, &info, &entry, RTLD_DL_SYMENT) == 0) {
        return false;
    }
    if (entry == nullptr || info.dli_saddr != function || std::strcmp(info.dli_sname, name) != 0 ||
        ::dladdr1(function, &info, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP) == 0) {
        return false;
    }
    auto* const symbol = static_cast<ElfW(Sym)*>(entry);
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(symbol) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(symbol + 1);
    auto* const pages = reinterpret_cast<void*>(begin);
    if (::mprotect(pages, end - begin, PROT_READ | PROT_WRITE) != 0) return false;
    symbol->st_value = reinterpret_cast<std::uintptr_t>(replacement) - library->l_addr;
    return ::mprotect(pages, end - begin, PROT_READ) == 0;
}

}  // namespace attach
