// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/gpu_api.hpp>
#include <kdvfs/detail/device/loaded_kernel.hpp>
#include <kdvfs/detail/device/marker_launch.hpp>
#include <kdvfs/detail/device/nvidia/marker_ptx.hpp>
#include <kdvfs/detail/io/shared_library.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

struct CUstream_st;  // CUDA's: its runtime's and its driver's streams and events are the same
struct CUevent_st;

namespace kdvfs::inline v0_3::device {

/// CUDA's driver, looked for when the program runs: no file needs CUDA's headers, and no program
/// links it for kdvfs's sake. Its streams and events are those of CUDA's runtime; a device is used
/// in its primary context, as the runtime and PyTorch do. Own declarations of CUDA's driver API,
/// with the version suffixes that its header hides. See `GpuApi` for what the members are.
struct CudaApi {
    using StreamObject = CUstream_st;
    using Stream = CUstream_st*;
    using Event = CUevent_st*;
    using Status = int;       ///< CUresult
    using CaptureMode = int;  ///< CUstreamCaptureMode
    using Home = void*;

    static constexpr const char* name = "CUDA";
    static constexpr const char* compiler = "nvcc";
    static constexpr bool records_writes = true;
    static constexpr bool records_callbacks = true;
    static constexpr bool waits_in_signal_memory = false;

    static constexpr Status success = 0;
    static constexpr Status invalid_value = 1;
    static constexpr Status out_of_memory = 2;
    static constexpr Status device_unavailable = 46;
    static constexpr Status no_device = 100;
    static constexpr Status invalid_device = 101;
    static constexpr Status invalid_context = 201;
    static constexpr Status invalid_handle = 400;
    static constexpr Status not_ready = 600;
    static constexpr Status not_permitted = 800;
    static constexpr Status not_supported = 801;
    static constexpr Status cannot_capture = 900;
    static constexpr Status capture_invalidated = 901;
    static constexpr Status capture_implicit = 906;
    static constexpr CaptureMode relaxed_capture = 2;

    static constexpr Errc code_of(Status status) {
        switch (status) {
            case no_device:
            case not_supported: return Errc::not_supported;
            case invalid_device:
            case invalid_value:
            case invalid_context:
            case invalid_handle:
            case capture_implicit:
            case capture_invalidated: return Errc::invalid_input;
            case not_permitted: return Errc::refused;
            case device_unavailable: return Errc::busy;
            default: return Errc::io;
        }
    }
    static std::string words_of(Status status) {
        const char* words = nullptr;
        if (driver().error_string != nullptr) driver().error_string(status, &words);
        return "CUDA error " + std::to_string(status) + ": " +
               (words != nullptr ? words : "libcuda.so.1 cannot be used");
    }
    static constexpr const char* remedy_for(Status status) {
        switch (status) {
            case no_device:
            case invalid_device:
                return "is NVIDIA's driver installed, and a GPU visible to this process "
                       "(CUDA_VISIBLE_DEVICES)?";
            case invalid_handle: return "is the stream alive, and of this device?";
            case capture_implicit:
                return "another stream is being captured: use no default stream meanwhile";
            case capture_invalidated:
                return "end the capture, and begin it again without calls that it forbids";
            default: return "";
        }
    }
    static void forget_last_error() {}  // the driver keeps none

    /// -1 where the thread has no context yet.
    static Status get_device(int* device) {
        void* context = nullptr;
        *device = -1;
        if (const Status status = call(driver().current_context, &context); status != success) {
            return status;
        }
        return context == nullptr ? success : call(driver().context_device, device);
    }
    /// Makes the device's primary context current, unless another one of it is; -1: none.
    static Status set_device(int device) {
        if (device < 0) return call(driver().set_context, static_cast<void*>(nullptr));
        int present = -1;
        if (const Status status = get_device(&present); status != success) return status;
        if (present == device) return success;
        void* context = nullptr;
        const Status status = primary_context(device, context);
        return status == success ? call(driver().set_context, context) : status;
    }
    static Status pci_address(char* text, int length, int device) {
        int handle = 0;
        const Status status = call(driver().device_of, &handle, device);
        return status == success ? call(driver().pci_address, text, length, handle) : status;
    }
    static double wall_clock_megahertz(int) { return 1000; }  // %globaltimer is in nanoseconds

    static Home home(int) {
        void* context = nullptr;
        static_cast<void>(call(driver().current_context, &context));
        return context;
    }
    /// A default stream is that of the context that is current; on a thread without one it is taken
    /// for the default stream of `home`, and calls on it are made there.
    static std::string external(Stream stream, int, Home home) {
        home_of_thread() = home;
        void* context = nullptr;
        const Status status = is_default(stream) ? call(driver().current_context, &context)
                                                 : call(driver().context_of, stream, &context);
        if (home == nullptr || status != success || context == nullptr || context == home)
            return {};
        return is_default(stream) ? "another CUDA device or context is current, whose default "
                                    "stream it is"
                                  : "the stream belongs to another CUDA context";
    }
    /// Null, CU_STREAM_LEGACY (1) and CU_STREAM_PER_THREAD (2).
    static bool is_default(Stream stream) { return reinterpret_cast<std::uintptr_t>(stream) <= 2; }
    static bool is_per_thread(Stream stream) { return stream == per_thread_stream(); }

    static Status make_stream(Stream* stream) {
        constexpr unsigned non_blocking = 1;
        return call(driver().make_stream, stream, non_blocking);
    }
    static Status destroy_stream(Stream stream) { return call(driver().destroy_stream, stream); }
    static Status synchronize(Stream stream) {
        return with_context(stream, driver().synchronize, stream);
    }
    static Status query_stream(Stream stream) {
        return with_context(stream, driver().query_stream, stream);
    }
    static Status capture_state(Stream stream, CaptureState& capture) {
        int state = 0;
        std::uint64_t id = 0;
        const Status status = with_context(stream, driver().capture_info, stream, &state, &id);
        capture = {state == 1, state == 2, id};
        return status;
    }
    static Status exchange_capture_mode(CaptureMode* mode) {
        return call(driver().exchange_capture_mode, mode);
    }

    static Status register_host_memory(void* memory, std::size_t bytes) {
        constexpr unsigned portable_and_mapped = 3;
        return with_context(nullptr, driver().register_memory, memory, bytes, portable_and_mapped);
    }
    static Status device_address(void** device, void* host) {
        std::uint64_t address = 0;
        const Status status = with_context(nullptr, driver().device_address, &address, host, 0U);
        *device = reinterpret_cast<void*>(address);
        return status;
    }
    static Status make_device_memory(void** memory, std::size_t bytes) {
        std::uint64_t address = 0;
        const Status status = with_context(nullptr, driver().allocate, &address, bytes);
        *memory = reinterpret_cast<void*>(address);
        if (status != success) return status;
        return with_context(nullptr, driver().set_bytes, address, static_cast<unsigned char>(0),
                            bytes);
    }
    static Status make_signal_memory(std::uint32_t**) { return not_supported; }

    static Status write(Stream stream, std::uint32_t* word, std::uint32_t value) {
        return with_context(stream, driver().write, stream, number_of(word), value, 0U);
    }
    static Status set(Stream stream, std::uint32_t* word, std::uint32_t value) {
        return with_context(stream, driver().set_words, number_of(word), value, std::size_t{1},
                            stream);
    }
    static Status wait(Stream stream, std::uint32_t* word, std::uint32_t value) {
        constexpr unsigned at_least = 0;  // CU_STREAM_WAIT_VALUE_GEQ
        return with_context(stream, driver().wait, stream, number_of(word), value, at_least);
    }
    template <void (*Function)(void*)>
    static Status call_back(Stream stream, void* data) {
        return with_context(stream, driver().call_back, stream, Function, data);
    }

    static Status make_event(Event* event) {
        return with_context(nullptr, driver().make_event, event, 0U);
    }
    static Status record(Event event, Stream stream) {
        return with_context(stream, driver().record, event, stream);
    }
    static Status query(Event event) { return call(driver().query, event); }
    static Status elapsed(float* milliseconds, Event from, Event to) {
        return call(driver().elapsed, milliseconds, from, to);
    }

    /// Launches the marker kernel of `marker_ptx`, which the driver compiles for each device before
    /// its first launch: at opening, when the markers are proven.
    static int launch_marker(void* stream, const MarkerArguments& arguments) {
        MarkerArguments copy = arguments;
        static Kernel marker{marker_ptx, "kdvfs_marker"};
        void* pointers[] = {&copy};
        return marker.launch(static_cast<Stream>(stream), 1, 1, pointers);
    }

    /// A kernel as PTX text, which the driver compiles for each device before its first launch.
    /// Lives as long as the process. Thread-safe.
    class Kernel {
    public:
        constexpr Kernel(const char* text, const char* symbol) : text_{text}, name_{symbol} {}

        /// Enqueues it on a device of the stream's context.
        Status launch(Stream stream, unsigned blocks, unsigned threads, void** arguments) {
            const auto in_context = [](Kernel* its, Stream on, unsigned grid, unsigned block,
                                       void** pointers) -> Status {
                int device = 0;
                void* kernel = nullptr;
                Status status = call(driver().context_device, &device);
                if (status == success) status = its->compiled(device, kernel);
                return status != success ? status
                                         : call(driver().launch, kernel, grid, 1U, 1U, block, 1U,
                                                1U, 0U, on, pointers, static_cast<void**>(nullptr));
            };
            return with_context(stream, +in_context, this, stream, blocks, threads, arguments);
        }

    private:
        Status compiled(int device, void*& kernel) {
            return loaded_.find(device, kernel, [this](void*& found) {
                void* module = nullptr;
                const Status status =
                    call(driver().load_module, &module, static_cast<const void*>(text_));
                return status == success ? call(driver().kernel_of, &found, module, name_) : status;
            });
        }

        const char* text_;
        const char* name_;
        LoadedKernel<CudaApi> loaded_;
    };

private:
    static constexpr std::size_t most_devices = 64;

    /// Null where the driver is missing or lacks the function.
    struct Driver {
        int (*error_string)(int status, const char** words) = library()["cuGetErrorString"];
        int (*device_of)(int* device, int ordinal) = library()["cuDeviceGet"];
        int (*retain_primary)(void** context, int device) = library()["cuDevicePrimaryCtxRetain"];
        int (*set_context)(void* context) = library()["cuCtxSetCurrent"];
        int (*push_context)(void* context) = library()["cuCtxPushCurrent_v2"];
        int (*pop_context)(void** context) = library()["cuCtxPopCurrent_v2"];
        int (*current_context)(void** context) = library()["cuCtxGetCurrent"];
        int (*context_device)(int* device) = library()["cuCtxGetDevice"];
        int (*context_of)(Stream, void** context) = library()["cuStreamGetCtx"];
        int (*pci_address)(char* text, int length, int device) = library()["cuDeviceGetPCIBusId"];
        int (*make_stream)(Stream*, unsigned flags) = library()["cuStreamCreate"];
        int (*destroy_stream)(Stream) = library()["cuStreamDestroy_v2"];
        int (*synchronize)(Stream) = library()["cuStreamSynchronize"];
        int (*query_stream)(Stream) = library()["cuStreamQuery"];
        int (*capture_info)(Stream, int* state,
                            std::uint64_t* id) = library()["cuStreamGetCaptureInfo"];
        int (*exchange_capture_mode)(int* mode) = library()["cuThreadExchangeStreamCaptureMode"];
        int (*register_memory)(void* memory, std::size_t bytes,
                               unsigned flags) = library()["cuMemHostRegister_v2"];
        int (*device_address)(std::uint64_t* address, void* memory,
                              unsigned flags) = library()["cuMemHostGetDevicePointer_v2"];
        int (*allocate)(std::uint64_t* address, std::size_t bytes) = library()["cuMemAlloc_v2"];
        int (*set_bytes)(std::uint64_t address, unsigned char value,
                         std::size_t count) = library()["cuMemsetD8_v2"];
        int (*write)(Stream, std::uint64_t address, std::uint32_t value,
                     unsigned flags) = library()["cuStreamWriteValue32_v2"];
        int (*wait)(Stream, std::uint64_t address, std::uint32_t value,
                    unsigned flags) = library()["cuStreamWaitValue32_v2"];
        int (*set_words)(std::uint64_t address, unsigned value, std::size_t count,
                         Stream) = library()["cuMemsetD32Async"];
        int (*call_back)(Stream, void (*function)(void*),
                         void* data) = library()["cuLaunchHostFunc"];
        int (*make_event)(Event*, unsigned flags) = library()["cuEventCreate"];
        int (*record)(Event, Stream) = library()["cuEventRecord"];
        int (*query)(Event) = library()["cuEventQuery"];
        int (*elapsed)(float* milliseconds, Event from, Event to) = library()["cuEventElapsedTime"];
        int (*load_module)(void** module, const void* text) = library()["cuModuleLoadData"];
        int (*kernel_of)(void** kernel, void* module,
                         const char* name) = library()["cuModuleGetFunction"];
        int (*launch)(void* kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      Stream, void** arguments, void** extra) = library()["cuLaunchKernel"];
    };

    static const Driver& driver() {
        return kdvfs::detail::made_once([] { return Driver{}; });
    }
    /// The driver, where it starts.
    static const kdvfs::detail::SharedLibrary& library() {
        return kdvfs::detail::made_once([] {
            kdvfs::detail::SharedLibrary found{"libcuda.so.1"};
            int (*const initialise)(unsigned flags) = found["cuInit"];
            if (initialise != nullptr && initialise(0) == success) return found;
            return kdvfs::detail::SharedLibrary{std::span<const std::string>{}};
        });
    }

    template <class... Parameters, class... Arguments>
    static Status call(Status (*function)(Parameters...), Arguments... arguments) {
        return function == nullptr ? no_device : function(arguments...);
    }

    /// The same on a thread that has no context yet, which the runtime would give one: in the
    /// stream's context, for default streams in that which `external` was asked about here.
    template <class... Parameters, class... Arguments>
    static Status with_context(Stream stream, Status (*function)(Parameters...),
                               Arguments... arguments) {
        const Status status = call(function, arguments...);
        if (status != invalid_context) return status;
        void* context = nullptr;
        if (is_default(stream) || call(driver().context_of, stream, &context) != success) {
            context = home_of_thread();
        }
        if (context == nullptr || call(driver().push_context, context) != success) return status;
        const Status again = call(function, arguments...);
        static_cast<void>(call(driver().pop_context, &context));
        return again;
    }

    /// Kept until the process ends, as the runtime keeps it.
    static Status primary_context(int device, void*& context) {
        static std::mutex mutex;
        static std::array<void*, most_devices> kept{};
        if (static_cast<std::size_t>(device) >= most_devices) return invalid_device;
        const std::lock_guard lock{mutex};
        void*& primary = kept.at(static_cast<std::size_t>(device));
        if (primary == nullptr) {
            int handle = 0;
            Status status = call(driver().device_of, &handle, device);
            if (status == success) status = call(driver().retain_primary, &primary, handle);
            if (status != success) return status;
        }
        context = primary;
        return success;
    }

    static void*& home_of_thread() {
        static thread_local constinit void* context = nullptr;
        return context;
    }
    /// CU_STREAM_PER_THREAD.
    static Stream per_thread_stream() { return reinterpret_cast<Stream>(std::uintptr_t{2}); }
    static std::uint64_t number_of(const std::uint32_t* word) {
        return reinterpret_cast<std::uint64_t>(word);
    }
};

static_assert(GpuApi<CudaApi>);

/// CUDA's streams; complete with <kdvfs/detail/device/gpu_streams.hpp>.
using Cuda = GpuStreams<CudaApi>;

}  // namespace kdvfs::inline v0_3::device

#if defined(__CUDACC__)
#include <kdvfs/detail/device/marker_kernel.hpp>
#endif
