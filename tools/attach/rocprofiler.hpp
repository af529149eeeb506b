// SPDX-License-Identifier: MIT
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

/// AMD's profiling interface, rocprofiler-sdk. It calls each library of a process that exports
/// `rocprofiler_configure`, so nothing of it is needed to build. Layouts and numbers are restated
/// from its public headers (MIT): registration.h, context.h, buffer.h, buffer_tracing.h,
/// callback_tracing.h, external_correlation.h and fwd.h, of versions 0.4 (ROCm 6.2) to 1.0 (7.0),
/// which keep numbers and leading fields.
namespace attach::rocprofiler {

/// rocprofiler_status_t.
using Status = int;
inline constexpr Status success = 0;
inline constexpr Status buffer_busy = 14;  // ROCPROFILER_STATUS_ERROR_BUFFER_BUSY

struct Context {
    std::uint64_t handle = 0;
};
struct Buffer {
    std::uint64_t handle = 0;
};
/// rocprofiler_client_id_t.
struct ClientId {
    const char* name;
    std::uint32_t handle;
};
/// rocprofiler_tool_configure_result_t.
struct Configuration {
    std::size_t size;
    int (*initialize)(void (*finalize)(ClientId), void* data);
    void (*finalize)(void* data);
    void* data;
};

/// Kinds of records in buffers, and of requests for a number of the tool's own.
enum class Traced : std::uint32_t { memory_copy = 10, kernel_dispatch = 11 };
/// Kinds of calls back.
enum class Called : std::uint32_t { marker_core = 7, code_object = 10 };
inline constexpr std::uint32_t entering = 1;          // ROCPROFILER_CALLBACK_PHASE_ENTER, _LOAD
inline constexpr std::int32_t kernel_registered = 2;  // ..._DEVICE_KERNEL_SYMBOL_REGISTER
inline constexpr std::int32_t range_push = 1;         // ..._MARKER_CORE_API_ID_roctxRangePushA
inline constexpr std::int32_t range_pop = 2;          // ..._MARKER_CORE_API_ID_roctxRangePop
inline constexpr std::uint32_t tracing_category = 1;  // ROCPROFILER_BUFFER_CATEGORY_TRACING
inline constexpr int lossless = 2;                    // ROCPROFILER_BUFFER_POLICY_LOSSLESS

/// rocprofiler_record_header_t.
struct RecordHeader {
    std::uint32_t category;
    Traced kind;
    const void* payload;
};
/// What records of dispatches and of copies begin with.
struct Record {
    std::uint64_t size;
    Traced kind;
    std::int32_t operation;
    std::uint64_t internal;
    std::uint64_t external;  ///< the tool's number
    std::uint64_t thread;
    std::uint64_t start;  ///< ns, by `rocprofiler_get_timestamp`
    std::uint64_t end;
};
/// rocprofiler_buffer_tracing_kernel_dispatch_record_t.
struct DispatchRecord {
    Record its;
    std::uint64_t info_size;
    std::uint64_t agent;
    std::uint64_t queue;
    std::uint64_t kernel;
    std::uint64_t dispatch;
    std::uint32_t private_bytes;
    std::uint32_t group_bytes;
    std::uint32_t workgroup[3];
    std::uint32_t grid[3];  ///< in threads
};
static_assert(offsetof(Record, start) == 40 && offsetof(DispatchRecord, kernel) == 80 &&
              offsetof(DispatchRecord, grid) == 116);

/// rocprofiler_callback_tracing_record_t, which is passed by value. Since 1.0 calls have the number
/// of the call that they were made by.
struct Call {
    std::uint64_t context;
    std::uint64_t thread;
    std::uint64_t correlation[3];
    Called kind;
    std::int32_t operation;
    std::uint32_t phase;
    const void* payload;
};
struct CallBefore1 {
    std::uint64_t context;
    std::uint64_t thread;
    std::uint64_t correlation[2];
    Called kind;
    std::int32_t operation;
    std::uint32_t phase;
    const void* payload;
};
static_assert(offsetof(Call, payload) == 56 && offsetof(CallBefore1, payload) == 48);
inline constexpr std::uint32_t version_1 = 10000;

/// rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t, its leading fields.
struct KernelSymbol {
    std::uint64_t size;
    std::uint64_t kernel;
    std::uint64_t code_object;
    const char* name;
};
/// rocprofiler_callback_tracing_marker_api_data_t of roctxRangePushA, its leading fields.
struct RangePushed {
    std::uint64_t size;
    const char* message;
};

using TakeRecords = void (*)(Context context, Buffer buffer, RecordHeader** headers,
                             std::size_t count, void* data, std::uint64_t dropped);
/// @returns 0 where `external` was set
using Request = int (*)(std::uint64_t thread, Context context, Traced kind, std::int32_t operation,
                        std::uint64_t internal, std::uint64_t* external, void* data);

/// The functions of the library.
struct Library {
    Status (*create_context)(Context*) = nullptr;
    Status (*start_context)(Context) = nullptr;
    Status (*create_buffer)(Context, std::size_t size, std::size_t watermark, int policy,
                            TakeRecords take, void* data, Buffer*) = nullptr;
    Status (*flush_buffer)(Buffer) = nullptr;
    Status (*trace_into)(Context, Traced kind, const std::int32_t* operations, std::size_t count,
                         Buffer) = nullptr;
    /// @param called takes a `Call` or `CallBefore1`, a pointer and `data`
    Status (*trace_calls)(Context, Called kind, const std::int32_t* operations, std::size_t count,
                          void (*called)(), void* data) = nullptr;
    Status (*request_numbers)(Context, const Traced* kinds, std::size_t count, Request request,
                              void* data) = nullptr;
    Status (*timestamp)(std::uint64_t* nanoseconds) = nullptr;

    /// @param caller code of the library, which may lie in a namespace of the loader's own
    /// @returns the first function that it lacks, or nothing
    std::string find(const void* caller) {
        Dl_info where{};
        void* const library = ::dladdr(caller, &where) == 0
                                  ? nullptr
                                  : ::dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD);
        std::string missing;
        const auto find = [&]<class Function>(Function*& function, const char* name) {
            void* found = library == nullptr ? nullptr : ::dlsym(library, name);
            if (found == nullptr) found = ::dlsym(RTLD_DEFAULT, name);
            function = reinterpret_cast<Function*>(found);
            if (found == nullptr && missing.empty()) missing = name;
        };
        find(create_context, "rocprofiler_create_context");
        find(start_context, "rocprofiler_start_context");
        find(create_buffer, "rocprofiler_create_buffer");
        find(flush_buffer, "rocprofiler_flush_buffer");
        find(trace_into, "rocprofiler_configure_buffer_tracing_service");
        find(trace_calls, "rocprofiler_configure_callback_tracing_service");
        find(request_numbers, "rocprofiler_configure_external_correlation_id_request_service");
        find(timestamp, "rocprofiler_get_timestamp");
        return missing;
    }
};

}  // namespace attach::rocprofiler
