// SPDX-License-Identifier: MIT
#pragma once

#include <hip/hip_ext.h>
#include <hip/hip_runtime_api.h>

#include <tools/attach/hip_functions.hpp>

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
#include <kdvfs/detail/device/amd/hip_api.hpp>

#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>
#include <kdvfs/detail/device/gpu_streams.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/detail/io/shared_library.hpp>
#include <kdvfs/error.hpp>
#include <tools/attach/device.hpp>
#include <tools/attach/dispatches.hpp>
#include <tools/attach/launch_names.hpp>
#include <tools/attach/no_readings.hpp>
#include <tools/attach/process.hpp>
#include <tools/attach/ranges.hpp>
#include <tools/attach/record_streams.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

namespace attach {

using Hip = kdvfs::device::Hip;
using HipApi = kdvfs::device::HipApi;

/// What `RecordStreams` calls of a driver, by HIP's names.
inline CudaDriver hip_as_driver() {
    CudaDriver driver;
    driver.is_capturing = [](void* stream, int* status) {
        hipStreamCaptureStatus capture{};
        const int failed =
            static_cast<int>(hipStreamIsCapturing(static_cast<hipStream_t>(stream), &capture));
        *status = static_cast<int>(capture);
        return failed;
    };
    driver.write = [](void* stream, std::uint64_t address, std::uint32_t value, unsigned) {
        return static_cast<int>(hipStreamWriteValue32(static_cast<hipStream_t>(stream),
                                                      reinterpret_cast<void*>(address), value, 0));
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

/// Measured only, unless clocks are to be set; without joules where the board cannot be read.
/// @param streams where launches are timed by records; else null
inline Opened open_hip_gpu(int ordinal, const std::shared_ptr<RecordStreams>& streams) {
    Process& process = Process::instance();
    const std::string text = kdvfs::device::pci_address<HipApi>(ordinal);
    const auto open = [&](auto open_clocks, auto readings) {
        const auto options =
            attached_options(process.settings(), kdvfs::gpu_name(readings->info()));
        const auto open_readings = [&] { return readings; };
        if (streams != nullptr) {
            return kdvfs::Gpu{kdvfs::extend::open_device(
                text + " attached", [&] { return streams; }, open_clocks, open_readings, options)};
        }
        return kdvfs::Gpu{kdvfs::extend::open_device(
            text + " attached", [&] { return std::make_shared<Hip>(ordinal); }, open_clocks,
            open_readings, options)};
    };
    using Board = kdvfs::extend::OwnedDevice<kdvfs::device::amd::Clocks>;
    std::string why;
    try {
        const auto address = kdvfs::io::parse_pci_address(text);
        if (!address) {
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"read the PCI address", kdvfs::device::device_name<HipApi>(ordinal),
                                "HIP says '" + text + "'", ""}};
        }
        const auto card = kdvfs::device::amd::find_card(*address);
        return {open(
            [&] {
                return process.settings().drives_clocks() ? std::make_shared<Board>(card)
                                                          : std::shared_ptr<Board>{};
            },
            std::make_shared<kdvfs::device::AmdgpuSysfs>(card))};
    } catch (const kdvfs::Error& error) {
        if (process.settings().drives_clocks()) throw;
        why = error.what();
    }
    process.note("no joules: " + why);
    return {open([] { return std::shared_ptr<Board>{}; },
                 std::make_shared<NoReadings>("AMD GPU", text, why)),
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
            kdvfs::io::keep_loaded(reinterpret_cast<const void*>(&next_hip));
            std::shared_ptr<RecordStreams> streams;
            if (Dispatches::instance().there()) {
                streams = std::make_shared<RecordStreams>(
                    kdvfs::device::pci_address<HipApi>(ordinal), hip_as_driver());
            }
            // Markers cost stream time: one iteration in 16 has them. What records cost is not
            // known.
            device = &process.add(std::make_unique<Device>(
                open_hip_gpu(ordinal, streams), process.settings(), streams != nullptr ? 1 : 16));
            if (streams != nullptr) Dispatches::instance().add(*device, ordinal, streams);
        }
        return *device;
    }

    /// What launches of a function share; `name_of` is asked once for each, and always where there
    /// is none.
    template <class NameOf>
    const kdvfs::extend::ScopeKind& kind_of(Device& device, const void* function,
                                            kdvfs::Variant variant, NameOf name_of) {
        if (function == nullptr) return device.launch_kind(name_of(), variant);
        const std::lock_guard lock{mutex_};
        const kdvfs::extend::ScopeKind*& kind = kinds_[{&device, function, variant.index}];
        if (kind == nullptr) kind = &device.launch_kind(name_of(), variant);
        return *kind;
    }

    [[nodiscard]] Graphs& graphs() { return graphs_; }

private:
    std::mutex mutex_;
    std::map<int, Device*> devices_;
    Graphs graphs_;
    std::map<std::tuple<const Device*, const void*, std::uint32_t>, const kdvfs::extend::ScopeKind*>
        kinds_;
};

inline bool captures(hipStream_t stream) {
    kdvfs::device::CaptureState capture;
    return HipApi::capture_state(stream, capture) != HipApi::success || capture.active ||
           capture.invalidated;
}

/// Whether a call may be made again with the same arguments, where kernels are repeated.
enum class Again { no, yes };
using Kernels = Dispatches::Kernels;

/// The real call, with a scope around it. What goes wrong with the scope is none of the program's.
template <Again again = Again::no, Kernels kernels = Kernels::one, class NameOf, class Call>
hipError_t launched(const void* function, std::uint64_t blocks, hipStream_t stream, NameOf name_of,
                    Call call) {
    if (in_launch() || !Process::instance().runs()) return call();
    in_launch() = true;
    LaunchScopes scopes;
    std::uint32_t number = 0;  // of the launch, where there are records
    try {
        if (!captures(stream)) {
            HipPrograms& programs = HipPrograms::instance();
            Device& gpu = programs.current_gpu();
            const bool has_records = Dispatches::instance().there();
            const bool many = kernels == Kernels::many && has_records && gpu.looks_into_graphs();
            const auto& kind = many
                                   ? gpu.graph_kind(name_of())
                                   : programs.kind_of(gpu, function, grid_variant(blocks), name_of);
            gpu.launched(kind);
            if (again == Again::yes && gpu.repeats()) {
                const auto checked = [&] {
                    kdvfs::device::check<HipApi>(call(), "launch a kernel again", "HIP");
                };
                gpu.repeat(stream, kind, {.launch = checked});
            }
            if (has_records) {
                number =
                    Dispatches::instance().begin_launch(gpu, many ? Kernels::many : Kernels::one);
            }
            scopes.enter(gpu, stream, kind, number);
        }
    } catch (const std::exception& error) {
        Process::instance().give_up(error.what());
    }
    const hipError_t status = call();
    if (status == hipSuccess) {
        scopes.leave(number);
    } else {
        scopes.leave_failed();
    }
    if (number != 0) Dispatches::instance().end_launch();
    in_launch() = false;
    return status;
}

/// A copy or memset, called by its kind.
template <class Call>
hipError_t copied(const char* name, hipStream_t stream, Call call) {
    return launched(
        name, 0, stream, [name] { return std::string{name}; }, call);
}

/// A graph has been made ready to be launched.
inline hipError_t instantiated(hipError_t status, const hipGraphExec_t* executable,
                               hipGraph_t graph) {
    std::size_t nodes = 0;
    const auto nodes_of = ATTACH_NEXT(hipGraphGetNodes);
    if (status != hipSuccess || nodes_of == nullptr || !Process::instance().runs() ||
        nodes_of(graph, nullptr, &nodes) != hipSuccess) {
        return status;
    }
    try {
        HipPrograms::instance().graphs().made(*executable, nodes);
    } catch (const std::exception& error) {
        Process::instance().give_up(error.what());
    }
    return status;
}

/// The launch of a graph: a unit, unless there are records of its kernels.
template <class Call>
hipError_t graph_launched(hipGraphExec_t graph, hipStream_t stream, Call call) {
    return launched<Again::no, Kernels::many>(
        nullptr, 0, stream, [graph] { return HipPrograms::instance().graphs().name_of(graph); },
        call);
}

/// A call whose launches are not followed: on several GPUs at once. Where dispatches are told of,
/// they are seen there.
template <class Call>
hipError_t not_followed(Call call) {
    if (!in_launch() && Process::instance().runs() && !Dispatches::instance().there()) {
        in_launch() = true;
        try {
            HipPrograms::instance().current_gpu().launched_unseen();
        } catch (const std::exception& error) {
            Process::instance().give_up(error.what());
        }
        in_launch() = false;
    }
    return call();
}

inline const char* name_of_copy(hipMemcpyKind kind) {
    switch (kind) {
        case hipMemcpyHostToDevice: return "memcpy HtoD";
        case hipMemcpyDeviceToHost: return "memcpy DtoH";
        case hipMemcpyDeviceToDevice: return "memcpy DtoD";
        default: return "memcpy";
    }
}

/// The stream that a call with per-thread default streams means.
inline hipStream_t own_stream(hipStream_t stream) {
    return stream == nullptr ? hipStreamPerThread : stream;
}

inline std::uint64_t blocks_of(const dim3& grid) { return std::uint64_t{grid.x} * grid.y * grid.z; }

inline auto name_by_pointer(const void* function, hipStream_t stream) {
    return [=]() -> std::string {
        const auto name = ATTACH_NEXT(hipKernelNameRefByPtr);
        return launch_name(name == nullptr ? nullptr : name(function, stream));
    };
}
inline auto name_by_handle(hipFunction_t function) {
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
inline Configured& configured() {
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

}  // namespace attach
