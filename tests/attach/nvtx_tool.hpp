// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

/// A tool of NVTX: what InitializeInjectionNvtx2 does with the tables that a program hands out.
namespace nvtx_tool {

/// Takes the ranges that a thread pushes and pops. @returns whether the program has such a table
inline bool take_ranges(const void* (*export_table)(std::uint32_t), int (*push)(const char*),
                        int (*pop)()) {
    using Function = void (*)();
    struct Callbacks {
        std::size_t size;
        int (*table_of)(int, Function***, unsigned*);
    };
    Function** table = nullptr;
    unsigned entries = 0;
    const auto* const callbacks = static_cast<const Callbacks*>(export_table(1));
    if (callbacks->table_of(1, &table, &entries) == 0) return false;
    *table[9] = reinterpret_cast<Function>(push);
    *table[11] = reinterpret_cast<Function>(pop);
    return true;
}

}  // namespace nvtx_tool
