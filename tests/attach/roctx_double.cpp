// SPDX-License-Identifier: MIT
//
// libroctx64 as a program opens it by itself: its functions go through a table, which
// rocprofiler-sdk is handed where a process has it.
#include <dlfcn.h>

#include <cstdint>

namespace {

thread_local int depth = 0;
int push(const char*) { return depth++; }
int pop() { return --depth; }

void** table() {
    static void* functions[]{reinterpret_cast<void*>(&push), reinterpret_cast<void*>(&pop)};
    static const bool registered = [] {
        using Set = int (*)(const char*, std::uint64_t, std::uint64_t, void**, std::uint64_t);
        const auto set = reinterpret_cast<Set>(::dlsym(RTLD_DEFAULT, "rocprofiler_set_api_table"));
        void* tables[]{functions};
        return set != nullptr && set("roctx", 40100, 0, tables, 1) == 0;
    }();
    static_cast<void>(registered);
    return functions;
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) int roctxRangePushA(const char* name) {
    return reinterpret_cast<int (*)(const char*)>(table()[0])(name);
}
__attribute__((visibility("default"))) int roctxRangePop() {
    return reinterpret_cast<int (*)()>(table()[1])();
}
}
