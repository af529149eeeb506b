// SPDX-License-Identifier: MIT
//
// The least that a profiler of kernels does, for comparison: it asks CUPTI for the records of
// kernels, is called at each launch, has ranges of NVTX handed to it, and throws all away.
#include <tests/attach/nvtx_tool.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" {
int cuptiSubscribe(void** subscriber, void (*callback)(void*, int, std::uint32_t, const void*),
                   void* user);
int cuptiEnableCallback(std::uint32_t on, void* subscriber, int domain, std::uint32_t id);
int cuptiActivityEnable(std::uint32_t kind);
int cuptiActivityRegisterCallbacks(void (*wanted)(std::uint8_t**, std::size_t*, std::size_t*),
                                   void (*done)(void*, std::uint32_t, std::uint8_t*, std::size_t,
                                                std::size_t));
}

namespace {

int push(const char*) { return 0; }
int pop() { return 0; }

void at_launch(void*, int, std::uint32_t, const void*) {}

void give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) {
    *bytes = std::size_t{1} << 20U;
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *bytes));
    *records = 0;
}
void take_buffer(void*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t) {
    std::free(buffer);
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int InitializeInjection() {
    constexpr int driver = 1;                     // CUPTI_CB_DOMAIN_DRIVER_API
    constexpr std::uint32_t launch_kernel = 307;  // CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel
    constexpr std::uint32_t kernels = 10;         // CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
    void* subscriber = nullptr;
    if (cuptiSubscribe(&subscriber, &at_launch, nullptr) != 0) return 0;
    cuptiEnableCallback(1, subscriber, driver, launch_kernel);
    cuptiActivityRegisterCallbacks(&give_buffer, &take_buffer);
    cuptiActivityEnable(kernels);
    return 1;
}

EXPORTED int InitializeInjectionNvtx2(const void* (*export_table)(std::uint32_t)) {
    return nvtx_tool::take_ranges(export_table, &push, &pop) ? 1 : 0;
}
