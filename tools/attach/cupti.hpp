// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/shared_library.hpp>

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

/// NVIDIA's profiling interface, loaded at run time: neither its header nor its import library is
/// needed to build. Layouts and numbers follow the headers of CUPTI 12 and 13 (cupti_callbacks.h,
/// cupti_activity.h, cupti_driver_cbid.h, generated_cuda_meta.h), which keep those of old calls and
/// the leading fields of records.
namespace attach::cupti {

/// CUptiResult.
using Status = int;
inline constexpr Status success = 0;
inline constexpr Status not_initialized = 15;  // CUPTI_ERROR_NOT_INITIALIZED
inline constexpr Status held_by_another = 39;  // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED

inline constexpr int driver_api = 1;  // CUPTI_CB_DOMAIN_DRIVER_API
inline constexpr int at_enter = 0;    // CUPTI_API_ENTER

/// CUpti_CallbackData.
struct CallbackData {
    int site;
    const char* function;
    const void* parameters;
    const void* result;
    const char* symbol;
    void* context;
    std::uint32_t context_uid;
    std::uint64_t* kept;
    std::uint32_t correlation;
};
static_assert(offsetof(CallbackData, symbol) == 32 && offsetof(CallbackData, correlation) == 64);

/// Kinds of activity records (CUpti_ActivityKind).
enum class Kind : std::uint32_t {
    copy = 1,
    set = 2,
    kernel = 10,  // CONCURRENT_KERNEL: kernels of several streams are not made to wait
    graph = 51,   // GRAPH_TRACE: a graph's launch as a whole, instead of its nodes, which otherwise
                  // have records with the correlation of the launch
};

/// What a record says, whatever its kind.
struct Activity {
    Kind kind{};
    std::uint32_t correlation = 0;
    std::uint64_t start = 0;  ///< ns, by `timestamp`; 0 where not known
    std::uint64_t end = 0;
    const char* symbol = nullptr;  ///< of a kernel
    std::uint64_t blocks = 0;      ///< of its grid
};

/// @param record as CUPTI hands it out
/// @returns nothing for a kind that is not asked for
inline std::optional<Activity> read_activity(const std::byte* record) {
    const auto field = [record]<class Number>(Number, std::size_t offset) {
        Number value;
        std::memcpy(&value, record + offset, sizeof value);
        return value;
    };
    constexpr auto u32 = std::uint32_t{};
    constexpr auto u64 = std::uint64_t{};
    const Kind kind{field(u32, 0)};
    switch (kind) {
        case Kind::kernel:
            return Activity{kind,
                            field(u32, 92),
                            field(u64, 16),
                            field(u64, 24),
                            field(static_cast<const char*>(nullptr), 104),
                            std::uint64_t{field(u32, 52)} * field(u32, 56) * field(u32, 60)};
        case Kind::copy:
        case Kind::set: return Activity{kind, field(u32, 44), field(u64, 16), field(u64, 24)};
        case Kind::graph: return Activity{kind, field(u32, 4), field(u64, 8), field(u64, 16)};
    }
    return std::nullopt;
}

using Callback = void (*)(void* user, int domain, std::uint32_t id, const CallbackData* data);
using BufferWanted = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records);
using BufferDone = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer,
                            std::size_t size, std::size_t used);
using Timestamp = std::uint64_t (*)();

/// The functions of the library. Those up to `words` are all there, or the library is not used;
/// those behind it may be null.
struct Library {
    Status (*subscribe)(void** subscriber, Callback callback, void* user) = nullptr;
    Status (*unsubscribe)(void* subscriber) = nullptr;
    Status (*enable_callback)(std::uint32_t on, void* subscriber, int domain,
                              std::uint32_t id) = nullptr;
    Status (*enable)(Kind kind) = nullptr;
    Status (*disable)(Kind kind) = nullptr;
    Status (*register_buffers)(BufferWanted wanted, BufferDone done) = nullptr;
    Status (*next_record)(std::uint8_t* buffer, std::size_t used, std::byte** record) = nullptr;
    Status (*flush)(std::uint32_t forced) = nullptr;
    Status (*timestamp)(std::uint64_t* nanoseconds) = nullptr;
    Status (*dropped)(void* context, std::uint32_t stream, std::size_t* records) = nullptr;
    Status (*words)(Status status, const char** text) = nullptr;
    Status (*callback_state)(std::uint32_t* on, void* subscriber, int domain,
                             std::uint32_t id) = nullptr;
    Status (*enable_domain)(std::uint32_t on, void* subscriber, int domain) = nullptr;
    Status (*enable_domains)(std::uint32_t on, void* subscriber) = nullptr;
    Status (*enable_in_context)(void* context, Kind kind) = nullptr;
    Status (*disable_in_context)(void* context, Kind kind) = nullptr;
    Status (*register_timestamp)(Timestamp timestamp) = nullptr;
    Status (*finalize)() = nullptr;
    std::string path;

    [[nodiscard]] std::string words_of(Status status) const {
        const char* text = nullptr;
        if (words(status, &text) != success || text == nullptr) text = "unknown";
        return std::string{text} + " (" + std::to_string(status) + ')';
    }
};

/// The copy that the process has, else the first that the loader finds; `KDVFS_CUPTI` names one.
inline kdvfs::io::SharedLibrary find_file() {
    using kdvfs::io::SharedLibrary;
    const std::string wanted{kdvfs::io::environment("KDVFS_CUPTI")};
    if (!wanted.empty()) return SharedLibrary{wanted};
    static const std::array<std::string, 4> names{"libcupti.so.13", "libcupti.so.12", "libcupti.so",
                                                  "/usr/local/cuda/lib64/libcupti.so"};
    SharedLibrary loaded{names, SharedLibrary::Where::this_process};
    return loaded.is_open() ? std::move(loaded) : SharedLibrary{names};
}

/// @returns why there is none, else nothing
inline std::string open(Library& library) {
    const kdvfs::io::SharedLibrary file = find_file();
    if (!file.is_open()) return file.words().empty() ? "libcupti is not found" : file.words();
    std::string missing;
    const auto find = [&]<class Function>(Function& function, const char* name) {
        file.find(function, name);
        if (function == nullptr) missing = name;
    };
    find(library.subscribe, "cuptiSubscribe");
    find(library.unsubscribe, "cuptiUnsubscribe");
    find(library.enable_callback, "cuptiEnableCallback");
    find(library.enable, "cuptiActivityEnable");
    find(library.disable, "cuptiActivityDisable");
    find(library.register_buffers, "cuptiActivityRegisterCallbacks");
    find(library.next_record, "cuptiActivityGetNextRecord");
    find(library.flush, "cuptiActivityFlushAll");
    find(library.timestamp, "cuptiGetTimestamp");
    find(library.dropped, "cuptiActivityGetNumDroppedRecords");
    find(library.words, "cuptiGetResultString");
    if (!missing.empty()) return "it has no " + missing;
    find(library.callback_state, "cuptiGetCallbackState");
    find(library.enable_domain, "cuptiEnableDomain");
    find(library.enable_domains, "cuptiEnableAllDomains");
    find(library.enable_in_context, "cuptiActivityEnableContext");
    find(library.disable_in_context, "cuptiActivityDisableContext");
    find(library.register_timestamp, "cuptiActivityRegisterTimestampCallback");
    find(library.finalize, "cuptiFinalize");
    Dl_info where{};
    if (::dladdr(reinterpret_cast<void*>(library.subscribe), &where) != 0) {
        library.path = where.dli_fname;
    }
    return {};
}

/// What a call enqueues.
enum class Work : std::uint8_t { kernel, kernel_by_config, graph, copy, set };

/// CUlaunchConfig.
struct LaunchConfig {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void* stream;
    const std::byte* attributes;
    unsigned attribute_count;
};
static_assert(offsetof(LaunchConfig, stream) == 32 && sizeof(LaunchConfig) == 56);

/// Where a call that waits for its own work has its stream: nowhere, it is the default one.
inline constexpr std::size_t default_stream = ~std::size_t{0};

/// A call of the driver that puts work into a stream: its number, its name in reports, and where
/// its parameters (one struct, as the driver declares them) hold the stream.
struct LaunchCall {
    std::uint32_t id;
    std::uint32_t per_thread_id;  ///< the same with per-thread default streams; 0 for none
    Work work;
    std::size_t stream_at;
    const char* name;  ///< of copies
};

inline constexpr LaunchCall launch_calls[] = {
    {307, 442, Work::kernel, 40, nullptr},                  // cuLaunchKernel
    {652, 653, Work::kernel_by_config, 0, nullptr},         // cuLaunchKernelEx
    {477, 478, Work::kernel, 40, nullptr},                  // cuLaunchCooperativeKernel
    {514, 515, Work::graph, 8, nullptr},                    // cuGraphLaunch
    {277, 421, Work::copy, 24, "memcpy HtoD"},              // cuMemcpyHtoDAsync_v2
    {279, 422, Work::copy, 24, "memcpy DtoH"},              // cuMemcpyDtoHAsync_v2
    {281, 423, Work::copy, 24, "memcpy DtoD"},              // cuMemcpyDtoDAsync_v2
    {306, 418, Work::copy, 24, "memcpy"},                   // cuMemcpyAsync
    {289, 424, Work::copy, 8, "memcpy 2D"},                 // cuMemcpy2DAsync_v2
    {291, 425, Work::copy, 8, "memcpy 3D"},                 // cuMemcpy3DAsync_v2
    {216, 428, Work::set, 24, "memset"},                    // cuMemsetD8Async
    {218, 429, Work::set, 24, "memset"},                    // cuMemsetD16Async
    {220, 430, Work::set, 24, "memset"},                    // cuMemsetD32Async
    {222, 431, Work::set, 40, "memset 2D"},                 // cuMemsetD2D8Async
    {224, 432, Work::set, 40, "memset 2D"},                 // cuMemsetD2D16Async
    {226, 433, Work::set, 40, "memset 2D"},                 // cuMemsetD2D32Async
    {276, 397, Work::copy, default_stream, "memcpy HtoD"},  // cuMemcpyHtoD_v2
    {278, 398, Work::copy, default_stream, "memcpy DtoH"},  // cuMemcpyDtoH_v2
    {280, 399, Work::copy, default_stream, "memcpy DtoD"},  // cuMemcpyDtoD_v2
    {305, 408, Work::copy, default_stream, "memcpy"},       // cuMemcpy
    {287, 405, Work::copy, default_stream, "memcpy 2D"},    // cuMemcpy2D_v2
    {288, 406, Work::copy, default_stream, "memcpy 2D"},    // cuMemcpy2DUnaligned_v2
    {290, 407, Work::copy, default_stream, "memcpy 3D"},    // cuMemcpy3D_v2
    {249, 411, Work::set, default_stream, "memset"},        // cuMemsetD8_v2
    {250, 412, Work::set, default_stream, "memset"},        // cuMemsetD16_v2
    {251, 413, Work::set, default_stream, "memset"},        // cuMemsetD32_v2
    {252, 414, Work::set, default_stream, "memset 2D"},     // cuMemsetD2D8_v2
    {253, 415, Work::set, default_stream, "memset 2D"},     // cuMemsetD2D16_v2
    {254, 416, Work::set, default_stream, "memset 2D"},     // cuMemsetD2D32_v2
};

/// The calls that make a graph ready to be launched: {exec**, graph, ...}.
inline constexpr std::uint32_t instantiations[] = {643, 656, 657};

/// The per-thread default stream (CU_STREAM_PER_THREAD).
inline void* per_thread_stream() { return reinterpret_cast<void*>(std::uintptr_t{2}); }

/// A launch as its parameters tell it.
struct Launch {
    const LaunchCall* call = nullptr;
    void* stream = nullptr;
    const void* function = nullptr;  ///< the kernel's handle, or the graph's
    std::uint64_t blocks = 0;
    const std::byte* parameters = nullptr;  ///< of the call

    /// The launch's configuration, where it was made by one.
    [[nodiscard]] const LaunchConfig* config() const {
        const LaunchConfig* its = nullptr;
        if (call != nullptr && call->work == Work::kernel_by_config) {
            std::memcpy(&its, parameters, sizeof its);
        }
        return its;
    }

    /// Whether the same kernel may be launched again with the same arguments, as far as the call
    /// tells: not where its blocks wait for one another, nor where others wait for it by an event.
    [[nodiscard]] bool again() const {
        constexpr std::uint32_t cooperative_calls[] = {477, 478};
        constexpr std::uint32_t cooperative = 2;        // CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        constexpr std::uint32_t event = 7;              // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
        constexpr std::uint32_t completion_event = 12;  // ..._LAUNCH_COMPLETION_EVENT
        constexpr std::size_t attribute_bytes = 72;     // CUlaunchAttribute
        if (call == nullptr || function == nullptr) return false;
        if (call->work != Work::kernel && call->work != Work::kernel_by_config) return false;
        for (const std::uint32_t id : cooperative_calls) {
            if (call->id == id || call->per_thread_id == id) return false;
        }
        const LaunchConfig* const its = config();
        if (its == nullptr) return call->work == Work::kernel;
        for (unsigned i = 0; i < its->attribute_count; ++i) {
            std::uint32_t id = 0;
            std::memcpy(&id, its->attributes + i * attribute_bytes, sizeof id);
            if (id == cooperative || id == event || id == completion_event) return false;
        }
        return true;
    }
};

/// @returns a launch without a call for a number that is not of a launch
inline Launch read_launch(std::uint32_t id, const void* parameters) {
    const auto* const bytes = static_cast<const std::byte*>(parameters);
    const auto field = []<class T>(T value, const std::byte* at) {
        std::memcpy(&value, at, sizeof value);
        return value;
    };
    const auto blocks_at = [&](const std::byte* grid) {
        const auto side = [&](std::size_t i) {
            return std::uint64_t{field(std::uint32_t{}, grid + 4 * i)};
        };
        return side(0) * side(1) * side(2);
    };
    Launch launch;
    launch.parameters = bytes;
    for (const LaunchCall& call : launch_calls) {
        if (id != call.id && id != call.per_thread_id) continue;
        launch.call = &call;
        if (call.work == Work::kernel_by_config) {
            const auto* const config = launch.config();
            launch.function = field(static_cast<const void*>(nullptr), bytes + 8);
            if (config != nullptr) {
                launch.stream = config->stream;
                launch.blocks = blocks_at(reinterpret_cast<const std::byte*>(config->grid));
            }
        } else {
            if (call.stream_at != default_stream) {
                launch.stream = field(static_cast<void*>(nullptr), bytes + call.stream_at);
            }
            if (call.work == Work::kernel) launch.blocks = blocks_at(bytes + 8);
            if (call.work == Work::kernel || call.work == Work::graph) {
                launch.function = field(static_cast<const void*>(nullptr), bytes);
            }
        }
        if (id == call.per_thread_id && launch.stream == nullptr) {
            launch.stream = per_thread_stream();
        }
        break;
    }
    return launch;
}

}  // namespace attach::cupti
