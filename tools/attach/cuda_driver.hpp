// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/shared_library.hpp>

#include <cstddef>
#include <cstdint>

/// The few calls of CUDA's driver that attaching needs, of the driver that the process has: own
/// declarations of CUDA's driver API.
namespace attach {

struct CudaDriver {
    int (*is_capturing)(void* stream, int* status) = nullptr;
    int (*context_device)(int* device) = nullptr;
    int (*pci_address)(char* text, int room, int device) = nullptr;
    int (*graph_nodes)(void* graph, void** nodes, std::size_t* count) = nullptr;
    int (*node_type)(void* node, int* type) = nullptr;
    int (*write)(void* stream, std::uint64_t address, std::uint32_t value,
                 unsigned flags) = nullptr;
    int (*register_memory)(void* memory, std::size_t bytes, unsigned flags) = nullptr;
    int (*device_address)(std::uint64_t* address, void* memory, unsigned flags) = nullptr;
    int (*synchronize)(void* stream) = nullptr;
    int (*set_bytes)(std::uint64_t to, unsigned char value, std::size_t count,
                     void* stream) = nullptr;
    int (*set_shorts)(std::uint64_t to, unsigned short value, std::size_t count,
                      void* stream) = nullptr;
    int (*set_words)(std::uint64_t to, unsigned value, std::size_t count, void* stream) = nullptr;
    int (*launch)(const void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  void* stream, void** arguments, void** extra) = nullptr;
    int (*launch_by_config)(const void* config, const void* function, void** arguments,
                            void** extra) = nullptr;

    /// @returns the driver of this process; its functions are null where there is none
    static const CudaDriver& of_process() {
        static const CudaDriver driver = [] {
            CudaDriver found;
            using kdvfs::io::SharedLibrary;
            const SharedLibrary library{"libcuda.so.1", SharedLibrary::Where::this_process};
            if (!library.is_open()) return found;
            library.find(found.is_capturing, "cuStreamIsCapturing");
            library.find(found.context_device, "cuCtxGetDevice");
            library.find(found.pci_address, "cuDeviceGetPCIBusId");
            library.find(found.graph_nodes, "cuGraphGetNodes");
            library.find(found.node_type, "cuGraphNodeGetType");
            library.find(found.write, "cuStreamWriteValue32_v2");
            library.find(found.register_memory, "cuMemHostRegister_v2");
            library.find(found.device_address, "cuMemHostGetDevicePointer_v2");
            library.find(found.synchronize, "cuStreamSynchronize");
            library.find(found.set_bytes, "cuMemsetD8Async");
            library.find(found.set_shorts, "cuMemsetD16Async");
            library.find(found.set_words, "cuMemsetD32Async");
            library.find(found.launch, "cuLaunchKernel");
            library.find(found.launch_by_config, "cuLaunchKernelEx");
            return found;
        }();
        return driver;
    }

    /// Whether a stream is being captured, or a capture forbids to ask: then nothing may be put.
    [[nodiscard]] bool captures(void* stream) const {
        int status = 0;
        return is_capturing == nullptr || is_capturing(stream, &status) != 0 || status != 0;
    }
};

}  // namespace attach
