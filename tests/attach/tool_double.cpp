// SPDX-License-Identifier: MIT
//
// Another tool beside kdvfs: it counts the ranges of NVTX and the kernels of Kokkos, and takes no
// more of either. What it has counted goes to the file TOOL_DOUBLE_COUNTS.
#include "nvtx_tool.hpp"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

struct Counts {
    int pushes = 0;
    int pops = 0;
    int kernels = 0;
    std::uint64_t sum_of_ends = 0;

    ~Counts() {
        const char* const path = std::getenv("TOOL_DOUBLE_COUNTS");
        if (path == nullptr) return;
        std::ofstream{path} << pushes << " pushes, " << pops << " pops, " << kernels
                            << " kernels, sum of ends " << sum_of_ends << '\n';
    }
} counts;

int push(const char*) { return counts.pushes++; }
int pop() { return -++counts.pops; }

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int InitializeInjectionNvtx2(const void* (*export_table)(std::uint32_t)) {
    if (!nvtx_tool::take_ranges(export_table, &push, &pop)) return 0;
    return std::getenv("TOOL_DOUBLE_REFUSES") == nullptr ? 1 : 0;
}

EXPORTED void kokkosp_begin_parallel_for(const char*, std::uint32_t, std::uint64_t* number) {
    *number = static_cast<std::uint64_t>(++counts.kernels);
}
EXPORTED void kokkosp_end_parallel_for(std::uint64_t number) { counts.sum_of_ends += number; }
