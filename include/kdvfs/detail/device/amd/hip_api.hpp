// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/marker_source.hpp>
#include <kdvfs/detail/device/gpu_api.hpp>
#include <kdvfs/detail/device/loaded_kernel.hpp>
#include <kdvfs/detail/device/marker_launch.hpp>
#include <kdvfs/detail/io/shared_library.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

struct ihipStream_t;  // HIP's own
struct ihipEvent_t;

namespace kdvfs::inline v0_3::device {

/// HIP's runtime, looked for when the program runs: the one that the process has already, else the
/// newest that is installed. No file needs HIP's headers, and no program links it for kdvfs's sake.
/// Own declarations of what ROCm 5.2 to 7 have in common; see `GpuApi` for what the members are.
struct HipApi {
    using StreamObject = ihipStream_t;
    using Stream = ihipStream_t*;
    using Event = ihipEvent_t*;
    using Status = int;       ///< hipError_t
    using CaptureMode = int;  ///< hipStreamCaptureMode
    using Home = int;

    static constexpr const char* name = "HIP";
    static constexpr const char* compiler = "hipcc";
    // A capture runs both at once and says that all is well (ROCm up to 7.2, by its sources and
    // users' reports): a request would be stored while the graph is still being made.
    static constexpr bool records_writes = false;
    static constexpr bool records_callbacks = false;
    // By the documentation of hipStreamWaitValue32.
    static constexpr bool waits_in_signal_memory = true;

    static constexpr Status no_marker_compiler = -1;  ///< none of HIP's
    static constexpr Status success = 0;
    static constexpr Status invalid_value = 1;
    static constexpr Status out_of_memory = 2;
    static constexpr Status insufficient_driver = 35;
    static constexpr Status no_device = 100;
    static constexpr Status invalid_device = 101;
    static constexpr Status invalid_handle = 400;
    static constexpr Status not_ready = 600;
    static constexpr Status not_supported = 801;
    static constexpr Status cannot_capture = 900;
    static constexpr Status capture_invalidated = 901;
    static constexpr Status capture_implicit = 906;
    static constexpr CaptureMode relaxed_capture = 2;

    static constexpr Errc code_of(Status status) {
        switch (status) {
            case no_device:
            case not_supported:
            case insufficient_driver: return Errc::not_supported;
            case invalid_device:
            case invalid_value:
            case invalid_handle:
            case capture_implicit:
            case capture_invalidated: return Errc::invalid_input;
            default: return Errc::io;
        }
    }
    /// With the number, because Debian's HIP has one text for many errors.
    static std::string words_of(Status status) {
        if (status == no_marker_compiler) return "hipRTC is missing, or does not compile a kernel";
        const char* const words =
            runtime().error_string == nullptr ? nullptr : runtime().error_string(status);
        return "HIP error " + std::to_string(status) + ": " +
               (words != nullptr ? words : "libamdhip64.so cannot be used");
    }
    static constexpr const char* remedy_for(Status status) {
        switch (status) {
            case no_device:
            case invalid_device:  // Debian's HIP says this where there is no device at all
                return "is libamdhip64 installed, and a GPU visible to this process "
                       "(HIP_VISIBLE_DEVICES, /dev/kfd)?";
            case invalid_handle: return "is the stream alive, and of this device?";
            case capture_implicit:
                return "another stream is being captured: use no default stream meanwhile";
            case capture_invalidated:
                return "end the capture, and begin it again without calls that it forbids";
            default: return "";
        }
    }
    static void forget_last_error() { static_cast<void>(call(runtime().last_error)); }

    static Status get_device(int* device) { return call(runtime().get_device, device); }
    static Status set_device(int device) { return call(runtime().set_device, device); }
    static Status pci_address(char* text, int length, int device) {
        return call(runtime().pci_address, text, length, device);
    }
    /// 100 MHz on CDNA where HIP knows no attribute to ask (it came after ROCm 5.2).
    static double wall_clock_megahertz(int device) {
        constexpr int wall_clock_rate = 10017;  // hipDeviceAttributeWallClockRate, in kHz
        int kilohertz = 0;
        const Status status = call(runtime().attribute, &kilohertz, wall_clock_rate, device);
        return status == success && kilohertz > 0 ? kilohertz / 1000.0 : 100;
    }

    static Home home(int device) { return device; }
    static std::string external(Stream stream, int device, Home) {
        const int its = device_of(stream, device);
        if (its == device) return {};
        return its < 0 ? "there is no such stream"
                       : "the stream is of HIP device " + std::to_string(its);
    }
    /// Null, hipStreamLegacy (1) and hipStreamPerThread (2).
    static bool is_default(Stream stream) { return reinterpret_cast<std::uintptr_t>(stream) <= 2; }
    /// hipStreamPerThread.
    static bool is_per_thread(Stream stream) {
        return stream == reinterpret_cast<Stream>(std::uintptr_t{2});
    }

    static Status make_stream(Stream* stream) {
        constexpr unsigned non_blocking = 1;
        return call(runtime().make_stream, stream, non_blocking);
    }
    static Status destroy_stream(Stream stream) { return call(runtime().destroy_stream, stream); }
    static Status synchronize(Stream stream) { return call(runtime().synchronize, stream); }
    static Status query_stream(Stream stream) { return call(runtime().query_stream, stream); }
    static Status capture_state(Stream stream, CaptureState& capture) {
        int state = 0;
        unsigned long long id = 0;
        const Status status = call(runtime().capture_info, stream, &state, &id);
        capture = {state == 1, state == 2, id};
        return status;
    }
    static Status exchange_capture_mode(CaptureMode* mode) {
        return call(runtime().exchange_capture_mode, mode);
    }

    static Status register_host_memory(void* memory, std::size_t bytes) {
        constexpr unsigned portable_and_mapped = 3;
        return call(runtime().register_memory, memory, bytes, portable_and_mapped);
    }
    static Status device_address(void** device, void* host) {
        return call(runtime().device_address, device, host, 0U);
    }
    static Status make_device_memory(void** memory, std::size_t bytes) {
        const Status status = call(runtime().allocate, memory, bytes);
        return status == success ? call(runtime().set_bytes, *memory, 0, bytes) : status;
    }
    static Status make_signal_memory(std::uint32_t** word) {
        constexpr unsigned signal_memory = 2;
        void* memory = nullptr;
        const Status status = call(runtime().allocate_kind, &memory, std::size_t{8}, signal_memory);
        if (status != success) return status;
        *word = static_cast<std::uint32_t*>(memory);
        std::atomic_ref{**word}.store(0);
        return status;
    }

    static Status write(Stream stream, std::uint32_t* word, std::uint32_t value) {
        return call(runtime().write, stream, static_cast<void*>(word), value, 0U);
    }
    static Status set(Stream stream, std::uint32_t* word, std::uint32_t value) {
        return call(runtime().set_words, static_cast<void*>(word), static_cast<int>(value),
                    std::size_t{1}, stream);
    }
    static Status wait(Stream stream, std::uint32_t* word, std::uint32_t value) {
        constexpr unsigned at_least = 0;  // hipStreamWaitValueGte
        return call(runtime().wait, stream, static_cast<void*>(word), value, at_least, 0xffffffffU);
    }
    /// hipLaunchHostFunc is declared, but not exported, by Debian's library.
    template <void (*Function)(void*)>
    static Status call_back(Stream stream, void* data) {
        const auto function = [](Stream, Status, void* its_data) { Function(its_data); };
        return call(runtime().call_back, stream, +function, data, 0U);
    }

    static Status make_event(Event* event) { return call(runtime().make_event, event); }
    static Status record(Event event, Stream stream) {
        return call(runtime().record, event, stream);
    }
    static Status query(Event event) { return call(runtime().query, event); }
    static Status elapsed(float* milliseconds, Event from, Event to) {
        return call(runtime().elapsed, milliseconds, from, to);
    }

    /// Launches the marker kernel of `marker_source`, which hipRTC compiles for each device before
    /// its first launch: at opening, when the markers are proven.
    static int launch_marker(void* stream, const MarkerArguments& arguments) {
        MarkerArguments copy = arguments;
        static Kernel marker{marker_source, "kdvfs_marker"};
        void* pointers[] = {&copy};
        return marker.launch(static_cast<Stream>(stream), 1, 1, pointers);
    }

    /// A kernel as HIP source, which hipRTC compiles for each device before its first launch.
    /// Lives as long as the process. Thread-safe.
    class Kernel {
    public:
        constexpr Kernel(const char* text, const char* symbol) : text_{text}, name_{symbol} {}

        /// Enqueues it on the stream's device, for a default stream on the current one.
        Status launch(Stream stream, unsigned blocks, unsigned threads, void** arguments) {
            int current = 0;
            void* kernel = nullptr;
            Status status = get_device(&current);
            const int device = device_of(stream, current);
            if (status == success) {
                status =
                    loaded_.find(device, kernel, [&](void*& found) { return load(device, found); });
            }
            return status != success
                       ? status
                       : call(runtime().launch, kernel, blocks, 1U, 1U, threads, 1U, 1U, 0U, stream,
                              arguments, static_cast<void**>(nullptr));
        }

    private:
        /// Modules are of the current device, and hipRTC compiles for it.
        Status load(int device, void*& kernel) {
            int before = 0;
            void* module = nullptr;
            Status status = get_device(&before);
            if (status == success) status = set_device(device);
            if (status != success) return status;
            std::string code;
            status = compile(text_, code) ? call(runtime().load_module, &module,
                                                 static_cast<const void*>(code.data()))
                                          : no_marker_compiler;
            if (status == success) status = call(runtime().kernel_of, &kernel, module, name_);
            static_cast<void>(set_device(before));
            return status;
        }

        const char* text_;
        const char* name_;
        LoadedKernel<HipApi> loaded_;
    };

private:
    /// Null where the runtime is missing or lacks the function.
    struct Runtime {
        const char* (*error_string)(Status status) = library()["hipGetErrorString"];
        Status (*last_error)() = library()["hipGetLastError"];
        Status (*get_device)(int* device) = library()["hipGetDevice"];
        Status (*set_device)(int device) = library()["hipSetDevice"];
        Status (*pci_address)(char* text, int length,
                              int device) = library()["hipDeviceGetPCIBusId"];
        Status (*attribute)(int* value, int attribute,
                            int device) = library()["hipDeviceGetAttribute"];
        int (*device_of)(Stream) = library()["hipGetStreamDeviceId"];
        Status (*make_stream)(Stream*, unsigned flags) = library()["hipStreamCreateWithFlags"];
        Status (*destroy_stream)(Stream) = library()["hipStreamDestroy"];
        Status (*synchronize)(Stream) = library()["hipStreamSynchronize"];
        Status (*query_stream)(Stream) = library()["hipStreamQuery"];
        Status (*capture_info)(Stream, int* state,
                               unsigned long long* id) = library()["hipStreamGetCaptureInfo"];
        Status (*exchange_capture_mode)(int* mode) =
            library()["hipThreadExchangeStreamCaptureMode"];
        Status (*register_memory)(void* memory, std::size_t bytes,
                                  unsigned flags) = library()["hipHostRegister"];
        Status (*device_address)(void** address, void* memory,
                                 unsigned flags) = library()["hipHostGetDevicePointer"];
        Status (*allocate)(void** address, std::size_t bytes) = library()["hipMalloc"];
        Status (*allocate_kind)(void** address, std::size_t bytes,
                                unsigned flags) = library()["hipExtMallocWithFlags"];
        Status (*set_bytes)(void* address, int value, std::size_t count) = library()["hipMemset"];
        Status (*write)(Stream, void* address, std::uint32_t value,
                        unsigned flags) = library()["hipStreamWriteValue32"];
        Status (*wait)(Stream, void* address, std::uint32_t value, unsigned flags,
                       std::uint32_t mask) = library()["hipStreamWaitValue32"];
        Status (*set_words)(void* address, int value, std::size_t count,
                            Stream) = library()["hipMemsetD32Async"];
        Status (*call_back)(Stream, void (*function)(Stream, Status, void*), void* data,
                            unsigned flags) = library()["hipStreamAddCallback"];
        Status (*make_event)(Event*) = library()["hipEventCreate"];
        Status (*record)(Event, Stream) = library()["hipEventRecord"];
        Status (*query)(Event) = library()["hipEventQuery"];
        Status (*elapsed)(float* milliseconds, Event from,
                          Event to) = library()["hipEventElapsedTime"];
        Status (*load_module)(void** module, const void* code) = library()["hipModuleLoadData"];
        Status (*kernel_of)(void** kernel, void* module,
                            const char* name) = library()["hipModuleGetFunction"];
        Status (*launch)(void* kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, Stream, void** arguments,
                         void** extra) = library()["hipModuleLaunchKernel"];
        // hipRTC: a part of the runtime at first, a library beside it since.
        int (*create_program)(void** program, const char* source, const char* name, int headers,
                              const char** header_sources,
                              const char** header_names) = rtc()["hiprtcCreateProgram"];
        int (*compile_program)(void* program, int options,
                               const char** texts) = rtc()["hiprtcCompileProgram"];
        int (*code_size)(void* program, std::size_t* bytes) = rtc()["hiprtcGetCodeSize"];
        int (*code)(void* program, char* bytes) = rtc()["hiprtcGetCode"];
        int (*destroy_program)(void** program) = rtc()["hiprtcDestroyProgram"];
    };

    static const Runtime& runtime() {
        return kdvfs::detail::made_once([] { return Runtime{}; });
    }

    static kdvfs::detail::SharedLibrary present_or_newest() {
        using kdvfs::detail::SharedLibrary;
        // The last is what developers' packages install.
        static const std::array<std::string, 4> names{"libamdhip64.so.7", "libamdhip64.so.6",
                                                      "libamdhip64.so.5", "libamdhip64.so"};
        SharedLibrary present{names, SharedLibrary::Where::this_process};
        if (present.is_open()) return present;
        return SharedLibrary{names};
    }
    static const kdvfs::detail::SharedLibrary& library() {
        return kdvfs::detail::made_once([] { return present_or_newest(); });
    }
    /// hipRTC of the same version as the runtime.
    static const kdvfs::detail::SharedLibrary& rtc() {
        if (library()["hiprtcCompileProgram"].is_found()) return library();
        return kdvfs::detail::made_once([] {
            std::string name = library().name();
            name.replace(0, name.find(".so"), "libhiprtc");
            return kdvfs::detail::SharedLibrary{name};
        });
    }
    template <class... Parameters, class... Arguments>
    static Status call(Status (*function)(Parameters...), Arguments... arguments) {
        return function == nullptr ? no_device : function(arguments...);
    }

    /// `otherwise` where HIP cannot tell; negative: there is no such stream.
    static int device_of(Stream stream, int otherwise) {
        return runtime().device_of == nullptr ? otherwise : runtime().device_of(stream);
    }

    /// For the current device, which hipRTC takes where it is told no other.
    static bool compile(const char* source, std::string& code) {
        const Runtime& its = runtime();
        void* program = nullptr;
        if (its.compile_program == nullptr || its.code_size == nullptr || its.code == nullptr ||
            its.create_program == nullptr || its.destroy_program == nullptr ||
            its.create_program(&program, source, "kdvfs_marker.hip", 0, nullptr, nullptr) != 0) {
            return false;
        }
        std::size_t bytes = 0;
        const bool is_compiled =
            its.compile_program(program, 0, nullptr) == 0 && its.code_size(program, &bytes) == 0;
        if (is_compiled) code.resize(bytes);
        const bool is_whole = is_compiled && bytes > 0 && its.code(program, code.data()) == 0;
        static_cast<void>(its.destroy_program(&program));
        return is_whole;
    }
};

static_assert(GpuApi<HipApi>);

/// HIP's streams; complete with <kdvfs/detail/device/gpu_streams.hpp>.
using Hip = GpuStreams<HipApi>;

}  // namespace kdvfs::inline v0_3::device

#if defined(__HIPCC__)
#include <kdvfs/detail/device/marker_kernel.hpp>
#endif
