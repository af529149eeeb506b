// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/shared_library.hpp>

#include <cstddef>
#include <cstdint>

/// The few calls of CUDA's driver that attaching needs, of the driver that the process has: own
/// declarations of CUDA's driver API.
namespace attach {

struct CudaDriver {
    int (*is_capturing)(void* stream, int* status) = library()["cuStreamIsCapturing"];
    int (*context_device)(int* device) = library()["cuCtxGetDevice"];
    int (*pci_address)(char* text, int room, int device) = library()["cuDeviceGetPCIBusId"];
    int (*graph_nodes)(void* graph, void** nodes,
                       std::size_t* count) = library()["cuGraphGetNodes"];
    int (*node_type)(void* node, int* type) = library()["cuGraphNodeGetType"];
    int (*write)(void* stream, std::uint64_t address, std::uint32_t value,
                 unsigned flags) = library()["cuStreamWriteValue32_v2"];
    int (*register_memory)(void* memory, std::size_t bytes,
                           unsigned flags) = library()["cuMemHostRegister_v2"];
    int (*device_address)(std::uint64_t* address, void* memory,
                          unsigned flags) = library()["cuMemHostGetDevicePointer_v2"];
    int (*synchronize)(void* stream) = library()["cuStreamSynchronize"];
    int (*set_bytes)(std::uint64_t to, unsigned char value, std::size_t count,
                     void* stream) = library()["cuMemsetD8Async"];
    int (*set_shorts)(std::uint64_t to, unsigned short value, std::size_t count,
                      void* stream) = library()["cuMemsetD16Async"];
    int (*set_words)(std::uint64_t to, unsigned value, std::size_t count,
                     void* stream) = library()["cuMemsetD32Async"];
    int (*launch)(const void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  void* stream, void** arguments, void** extra) = library()["cuLaunchKernel"];
    int (*launch_by_config)(const void* config, const void* function, void** arguments,
                            void** extra) = library()["cuLaunchKernelEx"];

    /// @returns the driver of this process; its functions are null where there is none
    static const CudaDriver& of_process() {
        static const CudaDriver driver{};
        return driver;
    }

    /// Whether a stream is being captured, or a capture forbids to ask: then nothing may be put.
    [[nodiscard]] bool captures(void* stream) const {
        int status = 0;
        return is_capturing == nullptr || is_capturing(stream, &status) != 0 || status != 0;
    }

private:
    static const kdvfs::io::SharedLibrary& library() {
        using kdvfs::io::SharedLibrary;
        static const SharedLibrary found{"libcuda.so.1", SharedLibrary::Where::this_process};
        return found;
    }
};

}  // namespace attach
