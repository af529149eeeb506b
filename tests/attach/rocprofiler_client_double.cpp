// SPDX-License-Identifier: MIT
//
// Another tool on the double of rocprofiler-sdk, as rocprofv3 and PyTorch's profiler are: counts
// the records of dispatches into the file that ROCPROFILER_CLIENT_COUNTS names.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>

extern "C" {
int rocprofiler_create_context(std::uint64_t*);
int rocprofiler_start_context(std::uint64_t);
int rocprofiler_create_buffer(std::uint64_t, std::size_t, std::size_t, int, void*, void*,
                              std::uint64_t*);
int rocprofiler_flush_buffer(std::uint64_t);
int rocprofiler_configure_buffer_tracing_service(std::uint64_t, std::uint32_t, const std::int32_t*,
                                                 std::size_t, std::uint64_t);
}

namespace {

std::uint64_t buffer = 0;
std::size_t dispatches = 0;

void take(std::uint64_t, std::uint64_t, void**, std::size_t count, void*, std::uint64_t) {
    dispatches += count;
}
int initialize(void*, void*) {
    std::uint64_t context = 0;
    const bool begun =
        rocprofiler_create_context(&context) == 0 &&
        rocprofiler_create_buffer(context, 4096, 2048, 2, reinterpret_cast<void*>(&take), nullptr,
                                  &buffer) == 0 &&
        rocprofiler_configure_buffer_tracing_service(context, 11, nullptr, 0, buffer) == 0 &&
        rocprofiler_start_context(context) == 0;
    return begun ? 0 : -1;
}
void finalize(void*) {
    rocprofiler_flush_buffer(buffer);
    if (const char* const file = std::getenv("ROCPROFILER_CLIENT_COUNTS")) {
        std::ofstream{file} << dispatches << '\n';
    }
}

struct Configuration {
    std::size_t size;
    int (*initialize)(void*, void*);
    void (*finalize)(void*);
    void* data;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void* rocprofiler_configure(std::uint32_t,
                                                                              const char*,
                                                                              std::uint32_t,
                                                                              void*) {
    static Configuration its{sizeof its, &initialize, &finalize, nullptr};
    return &its;
}
