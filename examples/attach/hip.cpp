// SPDX-License-Identifier: MIT
//
// Attaching to HIP programs: this library is preloaded (LD_PRELOAD), and its launches stand before
// those of libamdhip64, which they call. Markers go around each, as for code of one's own.
#include <hip/hip_ext.h>
#include <hip/hip_runtime_api.h>

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string_view>

namespace attach {

/// A function of the HIP library that the program has: the next one of its name, or, where a
/// program opened the library by itself, that of the library. Null where there is none.
inline void* next_hip(const char* name) {
    if (void* const next = ::dlsym(RTLD_NEXT, name)) return next;
    static void* const library = [] {
        void* found = nullptr;
        ::dl_iterate_phdr(
            [](dl_phdr_info* info, std::size_t, void* handle) {
                const std::string_view path = info->dlpi_name;
                if (path.find("libamdhip64.so") == std::string_view::npos) return 0;
                *static_cast<void**>(handle) =
                    ::dlopen(info->dlpi_name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
                return 1;
            },
            &found);
        return found;
    }();
    return library == nullptr ? nullptr : ::dlsym(library, name);
}

}  // namespace attach

// The library's streams call HIP by name. Here those names mean the functions of whatever HIP the
// program has, found at run time: this library is linked to none, because it is loaded into
// programs that have none, too.
#define ATTACH_NEXT_AS(type, name)                                                  \
    ([] {                                                                           \
        static const auto next = reinterpret_cast<type>(::attach::next_hip(#name)); \
        return next;                                                                \
    }())
#define ATTACH_NEXT(name) ATTACH_NEXT_AS(decltype(&::name), name)
#define hipGetErrorString ATTACH_NEXT(hipGetErrorString)
#define hipGetLastError ATTACH_NEXT(hipGetLastError)
#define hipGetDevice ATTACH_NEXT(hipGetDevice)
#define hipSetDevice ATTACH_NEXT(hipSetDevice)
#define hipDeviceGetPCIBusId ATTACH_NEXT(hipDeviceGetPCIBusId)
#define hipGetStreamDeviceId ATTACH_NEXT(hipGetStreamDeviceId)
#define hipStreamCreateWithFlags ATTACH_NEXT(hipStreamCreateWithFlags)
#define hipStreamDestroy ATTACH_NEXT(hipStreamDestroy)
#define hipStreamSynchronize ATTACH_NEXT(hipStreamSynchronize)
#define hipStreamQuery ATTACH_NEXT(hipStreamQuery)
#define hipStreamGetCaptureInfo ATTACH_NEXT(hipStreamGetCaptureInfo)
#define hipThreadExchangeStreamCaptureMode ATTACH_NEXT(hipThreadExchangeStreamCaptureMode)
#define hipHostRegister ATTACH_NEXT(hipHostRegister)
#define hipHostGetDevicePointer ATTACH_NEXT(hipHostGetDevicePointer)
#define hipMalloc ATTACH_NEXT_AS(hipError_t (*)(void**, std::size_t), hipMalloc)
#define hipMemset ATTACH_NEXT(hipMemset)
#define hipExtMallocWithFlags ATTACH_NEXT(hipExtMallocWithFlags)
#define hipStreamWriteValue32 ATTACH_NEXT(hipStreamWriteValue32)
#define hipMemsetD32Async ATTACH_NEXT(hipMemsetD32Async)
#define hipStreamWaitValue32 ATTACH_NEXT(hipStreamWaitValue32)
#define hipStreamAddCallback ATTACH_NEXT(hipStreamAddCallback)
#define hipEventCreate ATTACH_NEXT(hipEventCreate)
#define hipEventRecord ATTACH_NEXT(hipEventRecord)
#define hipEventQuery ATTACH_NEXT(hipEventQuery)
#define hipEventElapsedTime ATTACH_NEXT(hipEventElapsedTime)
#define hipDeviceGetAttribute ATTACH_NEXT(hipDeviceGetAttribute)
#define hipStreamIsCapturing ATTACH_NEXT(hipStreamIsCapturing)
#include <kdvfs/device/amd/hip_api.hpp>

#include <examples/attach/device.hpp>
#include <examples/attach/dispatch_records.hpp>
#include <examples/attach/launch_names.hpp>
#include <examples/attach/no_readings.hpp>
#include <examples/attach/process.hpp>
#include <examples/attach/ranges.hpp>
#include <examples/attach/record_streams.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/device/amd/clocks.hpp>
#include <kdvfs/device/amd/gpu_metrics.hpp>
#include <kdvfs/device/gpu_streams.hpp>
#include <kdvfs/error.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace attach {
namespace {

using Hip = kdvfs::device::Hip;
using HipApi = kdvfs::device::HipApi;

/// The driver's records of dispatches, where there are any: one numbering of launches, whatever the
/// GPU.
class Dispatches {
public:
    static Dispatches& instance() {
        static auto& dispatches = *new Dispatches;
        return dispatches;
    }

    [[nodiscard]] bool there() const { return records_.has_value(); }

    /// Streams that are timed by records, of a GPU that is opened now.
    std::shared_ptr<RecordStreams> streams_of(const std::string& object) {
        auto streams = std::make_shared<RecordStreams>(object, hip_as_driver());
        const std::lock_guard lock{mutex_};
        return streams_.emplace_back(std::move(streams));
    }

    /// The dispatches of this thread belong to a launch, until its end.
    [[nodiscard]] std::uint32_t begin_launch() {
        std::uint32_t number = ++launches_;
        if (number == 0) number = ++launches_;  // 0 is none
        records_->push(number);
        return number;
    }
    void end_launch() const { records_->pop(); }

private:
    Dispatches() {
        std::string why;
        records_ = DispatchRecords::open(why);
        if (records_ && records_->begin(&ran) != 0) {
            records_.reset();
            why = "they could not be begun";
        }
        if (!why.empty()) Process::instance().note("no records of dispatches: " + why);
        if (!records_) return;
        Process::instance().before_report([this](bool at_end) {
            records_->flush();
            if (!at_end) return;
            const std::lock_guard lock{mutex_};
            for (const auto& streams : streams_) streams->finish();
        });
    }

    static void ran(std::uint64_t launch, std::uint64_t start, std::uint64_t end) {
        try {
            Dispatches& all = instance();
            const std::int64_t offset = all.offset();
            const auto on_host = [offset](std::uint64_t time) {
                return kdvfs::TimePoint{kdvfs::Duration{static_cast<std::int64_t>(time) + offset}};
            };
            const std::lock_guard lock{all.mutex_};
            for (const auto& streams : all.streams_) {
                streams->arrived(static_cast<std::uint32_t>(launch), on_host(start), on_host(end));
            }
        } catch (const std::exception& error) {
            Process::instance().give_up(error.what());
        }
    }

    /// Where the records' clock lies off the host's, now: the closest of four looks.
    [[nodiscard]] std::int64_t offset() const {
        const auto host = [] {
            return std::chrono::steady_clock::now().time_since_epoch().count();
        };
        std::int64_t closest = std::numeric_limits<std::int64_t>::max();
        std::int64_t found = 0;
        for (int i = 0; i < 4; ++i) {
            const std::int64_t before = host();
            const auto theirs = static_cast<std::int64_t>(records_->now());
            const std::int64_t after = host();
            if (after - before >= closest) continue;
            closest = after - before;
            found = before + (after - before) / 2 - theirs;
        }
        return found;
    }

    /// What `RecordStreams` calls of a driver, by HIP's names.
    static CudaDriver hip_as_driver() {
        CudaDriver driver;
        driver.is_capturing = [](void* stream, int* status) {
            hipStreamCaptureStatus capture{};
            const int failed =
                static_cast<int>(hipStreamIsCapturing(static_cast<hipStream_t>(stream), &capture));
            *status = static_cast<int>(capture);
            return failed;
        };
        driver.write = [](void* stream, std::uint64_t address, std::uint32_t value, unsigned) {
            return static_cast<int>(hipStreamWriteValue32(
                static_cast<hipStream_t>(stream), reinterpret_cast<void*>(address), value, 0));
        };
        driver.register_memory = [](void* memory, std::size_t bytes, unsigned) {
            return static_cast<int>(
                hipHostRegister(memory, bytes, hipHostRegisterPortable | hipHostRegisterMapped));
        };
        driver.device_address = [](std::uint64_t* address, void* memory, unsigned) {
            void* there = nullptr;
            const hipError_t failed = hipHostGetDevicePointer(&there, memory, 0);
            *address = reinterpret_cast<std::uint64_t>(there);
            return static_cast<int>(failed);
        };
        driver.synchronize = [](void* stream) {
            return static_cast<int>(hipStreamSynchronize(static_cast<hipStream_t>(stream)));
        };
        return driver;
    }

    std::optional<DispatchRecords> records_;
    std::atomic<std::uint32_t> launches_{0};
    std::mutex mutex_;
    std::deque<std::shared_ptr<RecordStreams>> streams_;
};

/// Measured only, unless the mode sets clocks; without joules where the board cannot be read.
Opened open_hip_gpu(int ordinal) {
    Process& process = Process::instance();
    const std::string text = kdvfs::device::pci_address<HipApi>(ordinal);
    const auto open = [&](auto open_clocks, auto open_readings) {
        if (Dispatches::instance().there()) {
            return kdvfs::Gpu{kdvfs::detail::open_device(
                text + " attached", [&] { return Dispatches::instance().streams_of(text); },
                open_clocks, open_readings, attached_options(process.settings()))};
        }
        return kdvfs::Gpu{kdvfs::detail::open_device(
            text + " attached", [&] { return std::make_shared<Hip>(ordinal); }, open_clocks,
            open_readings, attached_options(process.settings()))};
    };
    using Board = kdvfs::detail::OwnedDevice<kdvfs::device::amd::Clocks>;
    std::string why;
    try {
        const auto address = kdvfs::device::amd::parse_pci_address(text);
        if (!address) {
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"read the PCI address", kdvfs::device::device_name<HipApi>(ordinal),
                                "HIP says '" + text + "'", ""}};
        }
        const auto card = kdvfs::device::amd::find_card(*address);
        return {open(
            [&] {
                return process.settings().sets_clocks ? std::make_shared<Board>(card)
                                                      : std::shared_ptr<Board>{};
            },
            [&] { return std::make_shared<kdvfs::device::AmdgpuSysfs>(card); })};
    } catch (const kdvfs::Error& error) {
        if (process.settings().sets_clocks) throw;
        why = error.what();
    }
    process.note("no joules: " + why);
    return {open([] { return std::shared_ptr<Board>{}; },
                 [&] { return std::make_shared<NoReadings>("AMD GPU", text, why); }),
            false};
}

/// HIP's side of this process.
class HipPrograms {
public:
    static HipPrograms& instance() {
        static auto& programs = *new HipPrograms;
        return programs;
    }

    /// The GPU that is current, as this thread's calls mean it.
    Device& current_gpu() {
        int ordinal = 0;
        kdvfs::device::check<HipApi>(HipApi::get_device(&ordinal), "ask for the current device",
                                     "HIP");
        const std::lock_guard lock{mutex_};
        Device*& device = devices_[ordinal];
        if (device == nullptr) {
            Process& process = Process::instance();
            kdvfs::detail::keep_loaded(reinterpret_cast<const void*>(&next_hip));
            // Markers cost stream time: one iteration in 16 has them. Records do not.
            device =
                &process.add(std::make_unique<Device>(open_hip_gpu(ordinal), process.settings(),
                                                      Dispatches::instance().there() ? 1 : 16));
            // The clocks go back through ROCm SMI, which was loaded just now, and whose static
            // objects end before whatever was to be done at exit until then.
            std::atexit([] { Process::instance().end(); });
        }
        return *device;
    }

    /// What launches of a function share; `name_of` is asked once for each.
    template <class NameOf>
    const kdvfs::detail::ScopeKind& kind_of(Device& device, const void* function,
                                            kdvfs::Variant variant, NameOf name_of) {
        const std::lock_guard lock{mutex_};
        const kdvfs::detail::ScopeKind*& kind = kinds_[{&device, function, variant.index}];
        if (kind == nullptr) kind = &device.launch_kind(name_of(), variant);
        return *kind;
    }

private:
    std::mutex mutex_;
    std::map<int, Device*> devices_;
    std::map<std::tuple<const Device*, const void*, std::uint32_t>, const kdvfs::detail::ScopeKind*>
        kinds_;
};

bool& in_launch() {
    thread_local bool inside = false;
    return inside;
}

bool captures(hipStream_t stream) {
    kdvfs::device::CaptureState capture;
    return HipApi::capture_state(stream, capture) != HipApi::success || capture.active ||
           capture.invalidated;
}

/// Whether a call may be made again with the same arguments, where kernels are repeated.
enum class Again { no, yes };

/// The real call, with a scope around it. What goes wrong with the scope is none of the program's.
template <Again again = Again::no, class NameOf, class Call>
hipError_t launched(const void* function, std::uint64_t blocks, hipStream_t stream, NameOf name_of,
                    Call call) {
    if (in_launch() || !Process::instance().runs()) return call();
    in_launch() = true;
    Device* device = nullptr;
    kdvfs::detail::ScopeToken token;
    std::uint32_t number = 0;  // of the launch, where there are records
    try {
        if (!captures(stream)) {
            HipPrograms& programs = HipPrograms::instance();
            Device& gpu = programs.current_gpu();
            const auto& kind = programs.kind_of(gpu, function, grid_variant(blocks), name_of);
            gpu.launched(kind);
            if (again == Again::yes && gpu.repeats()) {
                const auto checked = [&] {
                    kdvfs::device::check<HipApi>(call(), "launch a kernel again", "HIP");
                };
                gpu.repeat(stream, kind, checked, {});
            }
            if (Dispatches::instance().there()) number = Dispatches::instance().begin_launch();
            const AtLaunch here{number};
            if (Process::instance().settings().level == Level::kernel) {
                token = gpu.sink().enter(stream, gpu.scope_kind(kind));
                device = &gpu;
            } else if (!Ranges::of_process().launched(gpu, stream, number)) {
                token = gpu.sink().enter(stream, gpu.scope_kind(gpu.outside()));
                device = &gpu;
            }
        }
    } catch (const std::exception& error) {
        Process::instance().give_up(error.what());
    }
    const hipError_t status = call();
    if (number != 0) Dispatches::instance().end_launch();
    const AtLaunch here{number};
    if (device != nullptr) device->sink().leave_noexcept(token);
    in_launch() = false;
    return status;
}

/// A copy or memset, called by its kind. Records of dispatches tell of none.
template <class Call>
hipError_t copied(const char* name, hipStream_t stream, Call call) {
    if (in_launch() || !Process::instance().runs() || Dispatches::instance().there()) return call();
    return launched(
        name, 0, stream, [name] { return std::string{name}; }, call);
}

const char* name_of_copy(hipMemcpyKind kind) {
    switch (kind) {
        case hipMemcpyHostToDevice: return "memcpy HtoD";
        case hipMemcpyDeviceToHost: return "memcpy DtoH";
        case hipMemcpyDeviceToDevice: return "memcpy DtoD";
        default: return "memcpy";
    }
}

std::uint64_t blocks_of(const dim3& grid) { return std::uint64_t{grid.x} * grid.y * grid.z; }

auto name_by_pointer(const void* function, hipStream_t stream) {
    return [=]() -> std::string {
        const auto name = ATTACH_NEXT(hipKernelNameRefByPtr);
        return launch_name(name == nullptr ? nullptr : name(function, stream));
    };
}
auto name_by_handle(hipFunction_t function) {
    return [=]() -> std::string {
        const auto name = ATTACH_NEXT(hipKernelNameRef);
        return launch_name(name == nullptr ? nullptr : name(function));
    };
}

/// What `hipConfigureCall` said, for `hipLaunchByPtr`.
struct Configured {
    std::uint64_t blocks = 0;
    hipStream_t stream = nullptr;
};
Configured& configured() {
    thread_local Configured last;
    return last;
}

template <class Real>
hipError_t ext_module_launch(Real real, hipFunction_t function, std::uint32_t global[3],
                             std::uint32_t local[3], std::size_t shared_bytes, hipStream_t stream,
                             void** parameters, void** extra, hipEvent_t start, hipEvent_t stop,
                             std::uint32_t flags) {
    if (real == nullptr) return hipErrorNotSupported;
    std::uint64_t blocks = 1;  // the grid is given in threads
    for (int i = 0; i < 3; ++i) blocks *= local[i] == 0 ? 1 : global[i] / local[i];
    return launched<Again::yes>(function, blocks, stream, name_by_handle(function), [&] {
        return real(function, global[0], global[1], global[2], local[0], local[1], local[2],
                    shared_bytes, stream, parameters, extra, start, stop, flags);
    });
}
using ExtModuleLaunch = hipError_t (*)(hipFunction_t, std::uint32_t, std::uint32_t, std::uint32_t,
                                       std::uint32_t, std::uint32_t, std::uint32_t, std::size_t,
                                       hipStream_t, void**, void**, hipEvent_t, hipEvent_t,
                                       std::uint32_t);

/// hipLaunchConfig_t of HIP 6.2, which older headers lack.
struct LaunchConfig {
    dim3 grid;
    dim3 block;
    std::size_t shared_bytes;
    hipStream_t stream;
    void* attributes;
    unsigned attribute_count;
};

}  // namespace
}  // namespace attach

// Here the names are the program's own again.
#undef hipMalloc
using attach::Again;
using attach::launched;

extern "C" {

__attribute__((visibility("default"))) hipError_t hipLaunchKernel(const void* function, dim3 grid,
                                                                  dim3 block, void** arguments,
                                                                  std::size_t shared_bytes,
                                                                  hipStream_t stream) {
    const auto real = ATTACH_NEXT(hipLaunchKernel);
    return launched<Again::yes>(
        function, attach::blocks_of(grid), stream, attach::name_by_pointer(function, stream),
        [&] { return real(function, grid, block, arguments, shared_bytes, stream); });
}

__attribute__((visibility("default"))) hipError_t hipLaunchKernel_spt(const void* function,
                                                                      dim3 grid, dim3 block,
                                                                      void** arguments,
                                                                      std::size_t shared_bytes,
                                                                      hipStream_t stream) {
    const auto real = ATTACH_NEXT_AS(decltype(&::hipLaunchKernel), hipLaunchKernel_spt);
    const hipStream_t own = stream == nullptr ? hipStreamPerThread : stream;
    return launched<Again::yes>(
        function, attach::blocks_of(grid), own, attach::name_by_pointer(function, own),
        [&] { return real(function, grid, block, arguments, shared_bytes, stream); });
}

__attribute__((visibility("default"))) hipError_t hipExtLaunchKernel(
    const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
    hipStream_t stream, hipEvent_t start, hipEvent_t stop, int flags) {
    using Real = hipError_t (*)(const void*, dim3, dim3, void**, std::size_t, hipStream_t,
                                hipEvent_t, hipEvent_t, int);
    const auto real = ATTACH_NEXT_AS(Real, hipExtLaunchKernel);
    return launched<Again::yes>(
        function, attach::blocks_of(grid), stream, attach::name_by_pointer(function, stream), [&] {
            return real(function, grid, block, arguments, shared_bytes, stream, start, stop, flags);
        });
}

__attribute__((visibility("default"))) hipError_t hipModuleLaunchKernel(
    hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared_bytes, hipStream_t stream, void** parameters, void** extra) {
    const auto real = ATTACH_NEXT(hipModuleLaunchKernel);
    return launched<Again::yes>(
        function, std::uint64_t{gx} * gy * gz, stream, attach::name_by_handle(function), [&] {
            return real(function, gx, gy, gz, bx, by, bz, shared_bytes, stream, parameters, extra);
        });
}

__attribute__((visibility("default"))) hipError_t hipLaunchCooperativeKernel(const void* function,
                                                                             dim3 grid, dim3 block,
                                                                             void** arguments,
                                                                             unsigned shared_bytes,
                                                                             hipStream_t stream) {
    using Real = hipError_t (*)(const void*, dim3, dim3, void**, unsigned, hipStream_t);
    const auto real = ATTACH_NEXT_AS(Real, hipLaunchCooperativeKernel);
    return launched(function, attach::blocks_of(grid), stream,
                    attach::name_by_pointer(function, stream),
                    [&] { return real(function, grid, block, arguments, shared_bytes, stream); });
}

__attribute__((visibility("default"))) hipError_t hipLaunchCooperativeKernel_spt(
    const void* function, dim3 grid, dim3 block, void** arguments, std::uint32_t shared_bytes,
    hipStream_t stream) {
    using Real = hipError_t (*)(const void*, dim3, dim3, void**, unsigned, hipStream_t);
    const auto real = ATTACH_NEXT_AS(Real, hipLaunchCooperativeKernel_spt);
    const hipStream_t own = stream == nullptr ? hipStreamPerThread : stream;
    return launched(function, attach::blocks_of(grid), own, attach::name_by_pointer(function, own),
                    [&] { return real(function, grid, block, arguments, shared_bytes, stream); });
}

__attribute__((visibility("default"))) hipError_t hipConfigureCall(dim3 grid, dim3 block,
                                                                   std::size_t shared_bytes,
                                                                   hipStream_t stream) {
    attach::configured() = {attach::blocks_of(grid), stream};
    return ATTACH_NEXT(hipConfigureCall)(grid, block, shared_bytes, stream);
}

__attribute__((visibility("default"))) hipError_t hipLaunchByPtr(const void* function) {
    const auto real = ATTACH_NEXT(hipLaunchByPtr);
    const auto made = attach::configured();
    return launched(function, made.blocks, made.stream,
                    attach::name_by_pointer(function, made.stream), [&] { return real(function); });
}

__attribute__((visibility("default"))) hipError_t hipGraphLaunch(hipGraphExec_t graph,
                                                                 hipStream_t stream) {
    const auto real = ATTACH_NEXT(hipGraphLaunch);
    return launched(
        graph, 0, stream, [] { return std::string{"graph"}; }, [&] { return real(graph, stream); });
}

__attribute__((visibility("default"))) hipError_t hipGraphLaunch_spt(hipGraphExec_t graph,
                                                                     hipStream_t stream) {
    const auto real = ATTACH_NEXT_AS(decltype(&::hipGraphLaunch), hipGraphLaunch_spt);
    const hipStream_t own = stream == nullptr ? hipStreamPerThread : stream;
    return launched(
        graph, 0, own, [] { return std::string{"graph"}; }, [&] { return real(graph, stream); });
}

__attribute__((visibility("default"))) hipError_t hipLaunchKernelExC(
    const attach::LaunchConfig* config, const void* function, void** arguments) {
    using Real = hipError_t (*)(const attach::LaunchConfig*, const void*, void**);
    const auto real = ATTACH_NEXT_AS(Real, hipLaunchKernelExC);
    if (real == nullptr) return hipErrorNotSupported;
    if (config == nullptr) return real(config, function, arguments);
    // Its attributes may say that its blocks wait for one another: it is not repeated.
    return launched(function, attach::blocks_of(config->grid), config->stream,
                    attach::name_by_pointer(function, config->stream),
                    [&] { return real(config, function, arguments); });
}

__attribute__((visibility("default"))) hipError_t hipMemcpyAsync(void* to, const void* from,
                                                                 std::size_t bytes,
                                                                 hipMemcpyKind kind,
                                                                 hipStream_t stream) {
    const auto real = ATTACH_NEXT(hipMemcpyAsync);
    return attach::copied(attach::name_of_copy(kind), stream,
                          [&] { return real(to, from, bytes, kind, stream); });
}

__attribute__((visibility("default"))) hipError_t hipMemcpyWithStream(void* to, const void* from,
                                                                      std::size_t bytes,
                                                                      hipMemcpyKind kind,
                                                                      hipStream_t stream) {
    const auto real = ATTACH_NEXT(hipMemcpyWithStream);
    return attach::copied(attach::name_of_copy(kind), stream,
                          [&] { return real(to, from, bytes, kind, stream); });
}

__attribute__((visibility("default"))) hipError_t hipMemcpy2DAsync(
    void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
    std::size_t height, hipMemcpyKind kind, hipStream_t stream) {
    const auto real = ATTACH_NEXT(hipMemcpy2DAsync);
    return attach::copied("memcpy 2D", stream, [&] {
        return real(to, to_pitch, from, from_pitch, width, height, kind, stream);
    });
}

__attribute__((visibility("default"))) hipError_t hipMemsetAsync(void* where, int value,
                                                                 std::size_t bytes,
                                                                 hipStream_t stream) {
    const auto real = ATTACH_NEXT(hipMemsetAsync);
    return attach::copied("memset", stream, [&] { return real(where, value, bytes, stream); });
}

/// The plain spelling, which later versions of HIP export.
__attribute__((visibility("default"))) hipError_t attach_hip_ext_module_launch_kernel(
    hipFunction_t function, std::uint32_t gx, std::uint32_t gy, std::uint32_t gz, std::uint32_t bx,
    std::uint32_t by, std::uint32_t bz, std::size_t shared_bytes, hipStream_t stream,
    void** parameters, void** extra, hipEvent_t start, hipEvent_t stop,
    std::uint32_t flags) __asm__("hipExtModuleLaunchKernel");
hipError_t attach_hip_ext_module_launch_kernel(hipFunction_t function, std::uint32_t gx,
                                               std::uint32_t gy, std::uint32_t gz, std::uint32_t bx,
                                               std::uint32_t by, std::uint32_t bz,
                                               std::size_t shared_bytes, hipStream_t stream,
                                               void** parameters, void** extra, hipEvent_t start,
                                               hipEvent_t stop, std::uint32_t flags) {
    std::uint32_t global[]{gx, gy, gz};
    std::uint32_t local[]{bx, by, bz};
    return attach::ext_module_launch(
        ATTACH_NEXT_AS(attach::ExtModuleLaunch, hipExtModuleLaunchKernel), function, global, local,
        shared_bytes, stream, parameters, extra, start, stop, flags);
}

}  // extern "C"

/// The spelling of HIP 5.2: mangled as C++.
__attribute__((visibility("default"))) hipError_t hipExtModuleLaunchKernel(
    hipFunction_t function, std::uint32_t gx, std::uint32_t gy, std::uint32_t gz, std::uint32_t bx,
    std::uint32_t by, std::uint32_t bz, std::size_t shared_bytes, hipStream_t stream,
    void** parameters, void** extra, hipEvent_t start, hipEvent_t stop, std::uint32_t flags) {
    std::uint32_t global[]{gx, gy, gz};
    std::uint32_t local[]{bx, by, bz};
    constexpr const char* mangled =
        "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_"
        "tS6_j";
    static const auto real = reinterpret_cast<attach::ExtModuleLaunch>(attach::next_hip(mangled));
    return attach::ext_module_launch(real, function, global, local, shared_bytes, stream,
                                     parameters, extra, start, stop, flags);
}
