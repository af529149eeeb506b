// SPDX-License-Identifier: MIT
//
// Attaching to HIP programs: this library is preloaded (LD_PRELOAD), and its launches stand before
// those of libamdhip64, which they call. Markers go around each, as for code of one's own.
#include <tools/attach/hip_programs.hpp>

#include <string>

namespace {

/// Of a program that is linked with HIP: before it runs.
[[gnu::constructor]] void redirect_early() { attach::HipFunctions::of_process().redirect(); }

}  // namespace

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
    const hipStream_t own = attach::own_stream(stream);
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
    const hipStream_t own = attach::own_stream(stream);
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

__attribute__((visibility("default"))) hipError_t hipGraphInstantiate(hipGraphExec_t* executable,
                                                                      hipGraph_t graph,
                                                                      hipGraphNode_t* node,
                                                                      char* log,
                                                                      std::size_t bytes) {
    return attach::instantiated(
        ATTACH_NEXT(hipGraphInstantiate)(executable, graph, node, log, bytes), executable, graph);
}

__attribute__((visibility("default"))) hipError_t hipGraphInstantiateWithFlags(
    hipGraphExec_t* executable, hipGraph_t graph, unsigned long long flags) {
    const auto real = ATTACH_NEXT(hipGraphInstantiateWithFlags);
    return attach::instantiated(real(executable, graph, flags), executable, graph);
}

__attribute__((visibility("default"))) hipError_t hipGraphLaunch(hipGraphExec_t graph,
                                                                 hipStream_t stream) {
    const auto real = ATTACH_NEXT(hipGraphLaunch);
    return attach::graph_launched(graph, stream, [&] { return real(graph, stream); });
}

__attribute__((visibility("default"))) hipError_t hipGraphLaunch_spt(hipGraphExec_t graph,
                                                                     hipStream_t stream) {
    const auto real = ATTACH_NEXT_AS(decltype(&::hipGraphLaunch), hipGraphLaunch_spt);
    return attach::graph_launched(graph, attach::own_stream(stream),
                                  [&] { return real(graph, stream); });
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

__attribute__((visibility("default"))) hipError_t hipMemcpyAsync_spt(void* to, const void* from,
                                                                     std::size_t bytes,
                                                                     hipMemcpyKind kind,
                                                                     hipStream_t stream) {
    const auto real = ATTACH_NEXT_AS(decltype(&::hipMemcpyAsync), hipMemcpyAsync_spt);
    return attach::copied(attach::name_of_copy(kind), attach::own_stream(stream),
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

__attribute__((visibility("default"))) hipError_t hipMemcpy2DAsync_spt(
    void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
    std::size_t height, hipMemcpyKind kind, hipStream_t stream) {
    const auto real = ATTACH_NEXT_AS(decltype(&::hipMemcpy2DAsync), hipMemcpy2DAsync_spt);
    return attach::copied("memcpy 2D", attach::own_stream(stream), [&] {
        return real(to, to_pitch, from, from_pitch, width, height, kind, stream);
    });
}

__attribute__((visibility("default"))) hipError_t hipMemsetAsync(void* where, int value,
                                                                 std::size_t bytes,
                                                                 hipStream_t stream) {
    const auto real = ATTACH_NEXT(hipMemsetAsync);
    return attach::copied("memset", stream, [&] { return real(where, value, bytes, stream); });
}

__attribute__((visibility("default"))) hipError_t hipMemsetAsync_spt(void* where, int value,
                                                                     std::size_t bytes,
                                                                     hipStream_t stream) {
    const auto real = ATTACH_NEXT_AS(decltype(&::hipMemsetAsync), hipMemsetAsync_spt);
    return attach::copied("memset", attach::own_stream(stream),
                          [&] { return real(where, value, bytes, stream); });
}

// On several GPUs at once: in one form or another all take a list, a number and flags.

using LaunchOnMany = hipError_t (*)(void* list, int count, unsigned flags);
__attribute__((visibility("default"))) hipError_t attach_hip_ext_launch_multi(
    void* list, int count, unsigned flags) __asm__("hipExtLaunchMultiKernelMultiDevice");
hipError_t attach_hip_ext_launch_multi(void* list, int count, unsigned flags) {
    const auto real = ATTACH_NEXT_AS(LaunchOnMany, hipExtLaunchMultiKernelMultiDevice);
    return attach::not_followed([&] { return real(list, count, flags); });
}
__attribute__((visibility("default"))) hipError_t attach_hip_launch_cooperative_multi(
    void* list, int count, unsigned flags) __asm__("hipLaunchCooperativeKernelMultiDevice");
hipError_t attach_hip_launch_cooperative_multi(void* list, int count, unsigned flags) {
    const auto real = ATTACH_NEXT_AS(LaunchOnMany, hipLaunchCooperativeKernelMultiDevice);
    return attach::not_followed([&] { return real(list, count, flags); });
}
__attribute__((visibility("default"))) hipError_t hipModuleLaunchCooperativeKernelMultiDevice(
    void* list, unsigned count, unsigned flags) {
    const auto real = ATTACH_NEXT_AS(LaunchOnMany, hipModuleLaunchCooperativeKernelMultiDevice);
    return attach::not_followed([&] { return real(list, static_cast<int>(count), flags); });
}
__attribute__((visibility("default"))) hipError_t hipModuleLaunchCooperativeKernel(
    hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared_bytes, hipStream_t stream, void** parameters) {
    using Real = hipError_t (*)(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned,
                                unsigned, unsigned, hipStream_t, void**);
    const auto real = ATTACH_NEXT_AS(Real, hipModuleLaunchCooperativeKernel);
    return launched(
        function, std::uint64_t{gx} * gy * gz, stream, attach::name_by_handle(function),
        [&] { return real(function, gx, gy, gz, bx, by, bz, shared_bytes, stream, parameters); });
}

// Where functions are looked up by name.

/// @param function where the address goes
__attribute__((visibility("default"))) hipError_t hipGetProcAddress(const char* name,
                                                                    void** function, int version,
                                                                    std::uint64_t flags,
                                                                    void* status) {
    using Real = hipError_t (*)(const char*, void**, int, std::uint64_t, void*);
    const auto real = ATTACH_NEXT_AS(Real, hipGetProcAddress);
    if (real == nullptr) return hipErrorNotSupported;
    const hipError_t found = real(name, function, version, flags, status);
    if (found != hipSuccess || name == nullptr || function == nullptr) return found;
    // A version may be part of what is asked for; launches have one each.
    constexpr std::uint64_t per_thread_stream =
        2;  // HIP_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
    attach::HipFunctions& functions = attach::HipFunctions::of_process();
    const std::string own_stream = std::string{name} + "_spt";
    void* own =
        (flags & per_thread_stream) != 0 ? functions.replacement(own_stream.c_str()) : nullptr;
    if (own == nullptr) own = functions.replacement(name);
    if (own != nullptr && *function != nullptr) *function = own;
    return found;
}

/// Called as a library with kernels is loaded: HIP is there by then, and nobody has looked up its
/// functions yet.
// NOLINTNEXTLINE(bugprone-reserved-identifier): HIP's name
__attribute__((visibility("default"))) void** __hipRegisterFatBinary(const void* data) {
    using Real = void** (*)(const void*);
    const auto real = ATTACH_NEXT_AS(Real, __hipRegisterFatBinary);
    return real == nullptr ? nullptr : real(data);
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
