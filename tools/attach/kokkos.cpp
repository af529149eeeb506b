// SPDX-License-Identifier: MIT
//
// Kokkos Tools (KOKKOS_TOOLS_LIBS): the names of kernels and regions are ranges around the launches
// inside them, since Kokkos tells no stream. Entry points follow Kokkos_Profiling_C_Interface.h.
#include <tools/attach/process.hpp>
#include <tools/attach/ranges.hpp>

#include <cstdint>
#include <exception>

namespace {

using attach::Process;

void begin(const char* name) noexcept {
    try {
        if (name == nullptr || !Process::instance().runs()) return;
        Process::instance().range_begins(name);
        attach::Ranges::of_process().push(name);
    } catch (const std::exception& error) {
        Process::instance().give_up(error.what());
    }
}
void end() noexcept {
    if (Process::instance().runs()) attach::Ranges::of_process().pop();
}
void begin_kernel(const char* name, std::uint64_t* number) noexcept {
    if (number != nullptr) *number = 0;
    begin(name);
}

/// Kokkos_Tools_ToolSettings.
struct ToolSettings {
    bool requires_global_fencing;
    bool padding[255];
};

}  // namespace

#define KDVFS_EXPORTED extern "C" __attribute__((visibility("default"))) void

/// Kokkos would wait for the GPU after every kernel.
KDVFS_EXPORTED kokkosp_request_tool_settings(std::uint32_t, ToolSettings* settings) {
    settings->requires_global_fencing = false;
}
KDVFS_EXPORTED kokkosp_init_library(int, std::uint64_t, std::uint32_t, void*) {}
KDVFS_EXPORTED kokkosp_finalize_library() {}
KDVFS_EXPORTED kokkosp_begin_parallel_for(const char* name, std::uint32_t, std::uint64_t* number) {
    begin_kernel(name, number);
}
KDVFS_EXPORTED kokkosp_end_parallel_for(std::uint64_t) { end(); }
KDVFS_EXPORTED kokkosp_begin_parallel_reduce(const char* name, std::uint32_t,
                                             std::uint64_t* number) {
    begin_kernel(name, number);
}
KDVFS_EXPORTED kokkosp_end_parallel_reduce(std::uint64_t) { end(); }
KDVFS_EXPORTED kokkosp_begin_parallel_scan(const char* name, std::uint32_t, std::uint64_t* number) {
    begin_kernel(name, number);
}
KDVFS_EXPORTED kokkosp_end_parallel_scan(std::uint64_t) { end(); }
KDVFS_EXPORTED kokkosp_push_profile_region(const char* name) { begin(name); }
KDVFS_EXPORTED kokkosp_pop_profile_region() { end(); }
