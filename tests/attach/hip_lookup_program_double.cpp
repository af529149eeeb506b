// SPDX-License-Identifier: MIT
//
// Launches as Triton, JAX and CuPy make them on AMD: by functions that are looked up in the HIP
// library itself, by `dlsym` and by `hipGetProcAddress`. Each iteration has one launch through the
// linker, three by `dlsym`, two by `hipGetProcAddress`.
//   hip_lookup_program_double ITERATIONS
#include <hip/hip_runtime_api.h>

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

void gemm(float*) {}

int main(int argc, char** argv) {
    const int iterations = argc > 1 ? std::atoi(argv[1]) : 10;
    void* const library = ::dlopen("libamdhip64.so.5", RTLD_NOLOAD | RTLD_LAZY);
    if (library == nullptr) return 3;
    using Launch = decltype(&hipModuleLaunchKernel);
    const auto by_symbol = reinterpret_cast<Launch>(::dlsym(library, "hipModuleLaunchKernel"));
    using Find = hipError_t (*)(const char*, void**, int, std::uint64_t, void*);
    const auto find = reinterpret_cast<Find>(::dlsym(library, "hipGetProcAddress"));
    void* found = nullptr;
    if (by_symbol == nullptr || find == nullptr ||
        find("hipModuleLaunchKernel", &found, 60000000, 0, nullptr) != hipSuccess) {
        return 4;
    }
    const auto by_address = reinterpret_cast<Launch>(found);
    hipStream_t stream = nullptr;
    if (hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) != hipSuccess) return 2;
    double megacycles = 0.3;
    void* arguments[] = {&megacycles};
    static char gelu_name[] = "triton_poi_fused_gelu_0";
    static char norm_name[] = "triton_red_fused_norm_1";
    const auto gelu = reinterpret_cast<hipFunction_t>(gelu_name);
    const auto norm = reinterpret_cast<hipFunction_t>(norm_name);
    for (int i = 0; i < iterations; ++i) {
        if (hipLaunchKernel(reinterpret_cast<const void*>(&gemm), dim3(64), dim3(256), arguments, 0,
                            stream) != hipSuccess) {
            return 5;
        }
        for (int k = 0; k < 3; ++k) {
            if (by_symbol(gelu, 16, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr) != hipSuccess) {
                return 5;
            }
        }
        for (int k = 0; k < 2; ++k) {
            if (by_address(norm, 16, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr) != hipSuccess) {
                return 5;
            }
        }
        if (hipStreamSynchronize(stream) != hipSuccess) return 6;
    }
}
