// SPDX-License-Identifier: MIT
//
// Kokkos Tools (KOKKOS_TOOLS_LIBS): the names of kernels and regions are ranges around the launches
// inside them, since Kokkos tells no stream. Kokkos loads one tool: all that it says is passed on
// to the one that KDVFS_KOKKOS_NEXT names. Entry points follow Kokkos_Profiling_C_Interface.h.
#include <kdvfs/detail/io/files.hpp>
#include <tools/attach/process.hpp>
#include <tools/attach/ranges.hpp>

#include <dlfcn.h>

#include <cstdint>
#include <string>

namespace {

using attach::Process;

/// The tool that was named before kdvfs; null where there is none.
void* next_tool() {
    static void* const tool = []() -> void* {
        const std::string path{kdvfs::io::environment("KDVFS_KOKKOS_NEXT")};
        if (path.empty()) return nullptr;
        void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (library == nullptr) {
            Process::instance().note(std::string{"the Kokkos tool is left out: "} + ::dlerror());
        }
        return library;
    }();
    return tool;
}
template <class Signature>
Signature* find_next(const char* name, Signature*) {
    void* const tool = next_tool();
    return tool == nullptr ? nullptr : reinterpret_cast<Signature*>(::dlsym(tool, name));
}

/// Kokkos_Tools_ToolSettings.
struct ToolSettings {
    bool requires_global_fencing;
    bool padding[255];
};
/// Kokkos_Profiling_SpaceHandle, which is passed by value.
struct SpaceHandle {
    char name[64];
};
/// Kokkos_Tools_VariableInfo and the like are passed through by address alone.
using Address = const void*;

}  // namespace

#define KOKKOS_HOOK extern "C" __attribute__((visibility("default"))) void
/// The other tool's function of the same name, looked up once.
#define NEXT(function)                                          \
    static const auto next = find_next(#function, &(function)); \
    if (next != nullptr && next != &(function)) next

/// Kokkos would wait for the GPU after every kernel, unless the other tool asks for it.
KOKKOS_HOOK kokkosp_request_tool_settings(std::uint32_t count, ToolSettings* settings) {
    if (next_tool() == nullptr) settings->requires_global_fencing = false;
    NEXT(kokkosp_request_tool_settings)(count, settings);
}
KOKKOS_HOOK kokkosp_init_library(int sequence, std::uint64_t version, std::uint32_t devices,
                                 void* info) {
    NEXT(kokkosp_init_library)(sequence, version, devices, info);
}
KOKKOS_HOOK kokkosp_finalize_library() { NEXT(kokkosp_finalize_library)(); }
KOKKOS_HOOK kokkosp_parse_args(int count, char** words) { NEXT(kokkosp_parse_args)(count, words); }
KOKKOS_HOOK kokkosp_print_help(char* name) { NEXT(kokkosp_print_help)(name); }
KOKKOS_HOOK kokkosp_provide_tool_programming_interface(std::uint32_t count, Address functions) {
    NEXT(kokkosp_provide_tool_programming_interface)(count, functions);
}
KOKKOS_HOOK kokkosp_declare_metadata(const char* key, const char* value) {
    NEXT(kokkosp_declare_metadata)(key, value);
}

#define KDVFS_KERNEL(kind)                                                   \
    KOKKOS_HOOK kokkosp_begin_##kind(const char* name, std::uint32_t device, \
                                     std::uint64_t* number) {                \
        if (number != nullptr) *number = 0;                                  \
        attach::push_range(name);                                            \
        NEXT(kokkosp_begin_##kind)(name, device, number);                    \
    }                                                                        \
    KOKKOS_HOOK kokkosp_end_##kind(std::uint64_t number) {                   \
        attach::pop_range();                                                 \
        NEXT(kokkosp_end_##kind)(number);                                    \
    }
KDVFS_KERNEL(parallel_for)
KDVFS_KERNEL(parallel_reduce)
KDVFS_KERNEL(parallel_scan)

KOKKOS_HOOK kokkosp_push_profile_region(const char* name) {
    attach::push_range(name);
    NEXT(kokkosp_push_profile_region)(name);
}
KOKKOS_HOOK kokkosp_pop_profile_region() {
    attach::pop_range();
    NEXT(kokkosp_pop_profile_region)();
}
KOKKOS_HOOK kokkosp_begin_fence(const char* name, std::uint32_t device, std::uint64_t* number) {
    if (number != nullptr) *number = 0;
    NEXT(kokkosp_begin_fence)(name, device, number);
}
KOKKOS_HOOK kokkosp_end_fence(std::uint64_t number) { NEXT(kokkosp_end_fence)(number); }
KOKKOS_HOOK kokkosp_allocate_data(SpaceHandle space, const char* label, Address data,
                                  std::uint64_t bytes) {
    NEXT(kokkosp_allocate_data)(space, label, data, bytes);
}
KOKKOS_HOOK kokkosp_deallocate_data(SpaceHandle space, const char* label, Address data,
                                    std::uint64_t bytes) {
    NEXT(kokkosp_deallocate_data)(space, label, data, bytes);
}
KOKKOS_HOOK kokkosp_begin_deep_copy(SpaceHandle to, const char* to_label, Address to_data,
                                    SpaceHandle from, const char* from_label, Address from_data,
                                    std::uint64_t bytes) {
    NEXT(kokkosp_begin_deep_copy)(to, to_label, to_data, from, from_label, from_data, bytes);
}
KOKKOS_HOOK kokkosp_end_deep_copy() { NEXT(kokkosp_end_deep_copy)(); }
KOKKOS_HOOK kokkosp_create_profile_section(const char* name, std::uint32_t* number) {
    if (number != nullptr) *number = 0;
    NEXT(kokkosp_create_profile_section)(name, number);
}
KOKKOS_HOOK kokkosp_start_profile_section(std::uint32_t number) {
    NEXT(kokkosp_start_profile_section)(number);
}
KOKKOS_HOOK kokkosp_stop_profile_section(std::uint32_t number) {
    NEXT(kokkosp_stop_profile_section)(number);
}
KOKKOS_HOOK kokkosp_destroy_profile_section(std::uint32_t number) {
    NEXT(kokkosp_destroy_profile_section)(number);
}
KOKKOS_HOOK kokkosp_profile_event(const char* name) { NEXT(kokkosp_profile_event)(name); }
KOKKOS_HOOK kokkosp_dual_view_sync(const char* label, Address data, bool device) {
    NEXT(kokkosp_dual_view_sync)(label, data, device);
}
KOKKOS_HOOK kokkosp_dual_view_modify(const char* label, Address data, bool device) {
    NEXT(kokkosp_dual_view_modify)(label, data, device);
}
