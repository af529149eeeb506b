// SPDX-License-Identifier: MIT
//
// Launches as Triton, JAX and CuPy make them on AMD: by functions that are looked up in the HIP
// library itself, by `dlsym` and by `hipGetProcAddress`. Each iteration has one launch through the
// linker, three by `dlsym`, two by `hipGetProcAddress`, and what else is asked for:
//   hip_lookup_program_double ITERATIONS [extension] [several] [graph] [copy] [roctx=LIBRARY]
// "several" launches twice by a call for several GPUs; "roctx" opens ranges by a library that it
// opens itself. With HIP_DOUBLE_BOARD it runs on the first virtual board (tests/virtual_amdgpu).
#include <hip/hip_ext.h>
#include <hip/hip_runtime_api.h>

#include <tests/hip_double/hip_double.hpp>

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

void gemm(float*) {}
void attention(float*) {}
void several(float*) {}
void in_graph(float*) {}

namespace {

using Launch = decltype(&hipModuleLaunchKernel);
using ExtLaunch = hipError_t (*)(const void*, dim3, dim3, void**, std::size_t, hipStream_t,
                                 hipEvent_t, hipEvent_t, int);
using Find = hipError_t (*)(const char*, void**, int, std::uint64_t, void*);
using Several = hipError_t (*)(hipLaunchParams*, int, unsigned);

double megacycles = 0.3;
void* arguments[] = {&megacycles};
hipStream_t stream = nullptr;

const void* of(void (*kernel)(float*)) { return reinterpret_cast<const void*>(kernel); }
void check(bool fine, int code) {
    if (!fine) std::exit(code);
}
template <class Function>
Function look_up(void* library, const char* name) {
    const auto found = reinterpret_cast<Function>(::dlsym(library, name));
    check(found != nullptr, 4);
    return found;
}

void use_virtual_board() {
    if (std::getenv("HIP_DOUBLE_BOARD") == nullptr) return;
    megacycles *= 20;
    hip_double::reset({"0000:c1:00.0"});
    hip_double::set_board({nullptr, [](int, bool busy) {
                               std::ofstream{"/sys/control/gpu0"} << (busy ? "busy" : "idle")
                                                                  << std::flush;
                           }});
}

hipGraphExec_t capture() {
    hipGraph_t graph = nullptr;
    hipGraphExec_t ready = nullptr;
    check(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal) == hipSuccess, 2);
    for (int i = 0; i < 3; ++i) {
        check(
            hipLaunchKernel(of(&in_graph), dim3(32), dim3(64), arguments, 0, stream) == hipSuccess,
            2);
    }
    check(hipStreamEndCapture(stream, &graph) == hipSuccess &&
              hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0) == hipSuccess &&
              hipGraphDestroy(graph) == hipSuccess,
          2);
    return ready;
}

}  // namespace

int main(int argc, char** argv) {
    const int iterations = argc > 1 ? std::atoi(argv[1]) : 10;
    const auto asked = [&](const char* word) -> const char* {
        for (int i = 2; i < argc; ++i) {
            if (std::strncmp(argv[i], word, std::strlen(word)) == 0) {
                return argv[i] + std::strlen(word);
            }
        }
        return nullptr;
    };
    use_virtual_board();
    void* const library = ::dlopen("libamdhip64.so.5", RTLD_NOLOAD | RTLD_LAZY);
    if (library == nullptr) return 3;
    const auto by_symbol = look_up<Launch>(library, "hipModuleLaunchKernel");
    const auto find = look_up<Find>(library, "hipGetProcAddress");
    void* found = nullptr;
    void* found_extension = nullptr;
    check(find("hipModuleLaunchKernel", &found, 60000000, 0, nullptr) == hipSuccess &&
              find("hipExtLaunchKernel", &found_extension, 60000000, 0, nullptr) == hipSuccess,
          4);
    const auto by_address = reinterpret_cast<Launch>(found);
    const auto extension = reinterpret_cast<ExtLaunch>(found_extension);
    if (hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) != hipSuccess) return 2;
    const hipGraphExec_t graph = asked("graph") != nullptr ? capture() : nullptr;
    using Push = int (*)(const char*);
    using Pop = int (*)();
    Push push = nullptr;
    Pop pop = nullptr;
    if (const char* const path = asked("roctx=")) {
        void* const roctx = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
        check(roctx != nullptr, 7);
        push = look_up<Push>(roctx, "roctxRangePushA");
        pop = look_up<Pop>(roctx, "roctxRangePop");
    }
    static char gelu_name[] = "triton_poi_fused_gelu_0";
    static char norm_name[] = "triton_red_fused_norm_1";
    const auto gelu = reinterpret_cast<hipFunction_t>(gelu_name);
    const auto norm = reinterpret_cast<hipFunction_t>(norm_name);
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    for (int i = 0; i < iterations; ++i) {
        if (push != nullptr) push("step");
        check(hipLaunchKernel(of(&gemm), dim3(64), dim3(256), arguments, 0, stream) == hipSuccess,
              5);
        for (int k = 0; k < 3; ++k) {
            check(by_symbol(gelu, 16, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr) == hipSuccess,
                  5);
        }
        for (int k = 0; k < 2; ++k) {
            check(by_address(norm, 16, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr) == hipSuccess,
                  5);
        }
        if (asked("extension") != nullptr) {
            check(extension(of(&attention), dim3(8), dim3(64), arguments, 0, stream, nullptr,
                            nullptr, 0) == hipSuccess,
                  5);
        }
        if (asked("several") != nullptr) {
            hipLaunchParams launches[2]{};
            for (hipLaunchParams& each : launches) {
                each.func = const_cast<void*>(of(&several));
                each.gridDim = dim3(4);
                each.blockDim = dim3(64);
                each.args = arguments;
                each.stream = stream;
            }
            const auto launch =
                look_up<Several>(RTLD_DEFAULT, "hipExtLaunchMultiKernelMultiDevice");
            check(launch(launches, 2, 0) == hipSuccess, 5);
        }
        if (graph != nullptr) check(hipGraphLaunch(graph, stream) == hipSuccess, 5);
        if (asked("copy") != nullptr) {
            check(
                hipMemcpyAsync(&to, &from, sizeof to, hipMemcpyHostToDevice, stream) == hipSuccess,
                5);
        }
        if (pop != nullptr) pop();
        if (hipStreamSynchronize(stream) != hipSuccess) return 6;
    }
    if (graph != nullptr) check(hipGraphExecDestroy(graph) == hipSuccess, 7);
}
