// SPDX-License-Identifier: MIT
//
// A program on the double of HIP that knows nothing of kdvfs: it launches in all ways that the
// double has, both by functions and by modules, and names ranges where roctx is there. With
// HIP_DOUBLE_BOARD=N its kernels are 20 times as long, and run at the clock of the Nth virtual
// board, from 1 (tests/virtual_amdgpu).
//   hip_program_double ITERATIONS [COPIES_EVERY]
// copies on a stream of its own before the first iteration, and in one of so many. With
// HIP_DOUBLE_FAILS a launch of each iteration fails, and the program asks HIP for the error.
#include <hip/hip_ext.h>
#include <hip/hip_runtime_api.h>

#include <tests/hip_double/hip_double.hpp>

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

/// What the compiler leaves on the host for each kernel.
void gemm(float*) {}
template <class T>
void norm(T*) {}
template void norm<float>(float*);

namespace {

hipStream_t stream = nullptr;
double megacycles = 0.3;  // at 1000 MHz: 300 us
void* arguments[] = {&megacycles};
const std::array<std::string, 4> board_addresses{"0000:c1:00.0", "0000:c4:00.0", "0000:c7:00.0",
                                                 "0000:ca:00.0"};

std::string board_index = "0";

void use_virtual_board() {
    const char* const number = std::getenv("HIP_DOUBLE_BOARD");
    if (number == nullptr) return;
    const int board = std::atoi(number) - 1;
    board_index = std::to_string(board);
    megacycles *= 20;
    hip_double::reset({board_addresses.at(static_cast<std::size_t>(board))});
    hip_double::set_board({[](int) {
                               std::ifstream file{"/sys/control/running" + board_index};
                               double clock = 1000;
                               file >> clock;
                               return clock;
                           },
                           [](int, bool busy) {
                               std::ofstream{"/sys/control/gpu" + board_index}
                                   << (busy ? "busy" : "idle") << std::flush;
                           }});
}

void launch(const void* kernel) {
    if (hipLaunchKernel(kernel, dim3(64), dim3(256), arguments, 0, stream) != hipSuccess) {
        std::exit(3);
    }
}

/// @returns whether the program learns of a launch that fails, as `<<<0, 256>>>`
bool fails(const void* kernel) {
    return hipLaunchKernel(kernel, dim3(0), dim3(256), arguments, 0, stream) ==
               hipErrorInvalidConfiguration &&
           hipGetLastError() == hipErrorInvalidConfiguration;
}

void step(hipGraphExec_t graph) {
    const auto push =
        reinterpret_cast<int (*)(const char*)>(::dlsym(RTLD_DEFAULT, "roctxRangePushA"));
    const auto pop = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "roctxRangePop"));
    if (push != nullptr) push("step");
    if (push != nullptr) push("layers");
    for (int layer = 0; layer < 4; ++layer) {
        launch(reinterpret_cast<const void*>(&gemm));
        const void* const second = reinterpret_cast<const void*>(&norm<float>);
        if (hipLaunchCooperativeKernel(second, dim3(8), dim3(64), arguments, 0, stream) !=
            hipSuccess) {
            std::exit(4);
        }
    }
    if (pop != nullptr) pop();
    // As Kokkos calls its tool.
    static void* const tool = [] {
        const char* const path = std::getenv("KOKKOS_TOOLS_LIBS");
        return path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW);
    }();
    using Begin = void (*)(const char*, std::uint32_t, std::uint64_t*);
    using End = void (*)(std::uint64_t);
    std::uint64_t number = 0;
    if (tool != nullptr) {
        reinterpret_cast<Begin>(::dlsym(tool, "kokkosp_begin_parallel_for"))("axpy", 0, &number);
    }
    static char name[] = "module_kernel";
    auto* const function = reinterpret_cast<hipFunction_t>(name);
    if (hipModuleLaunchKernel(function, 16, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr) !=
            hipSuccess ||
        hipExtModuleLaunchKernel(function, 1024, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr,
                                 nullptr, nullptr, 0) != hipSuccess ||
        hipGraphLaunch(graph, stream) != hipSuccess) {
        std::exit(5);
    }
    if (tool != nullptr) {
        reinterpret_cast<End>(::dlsym(tool, "kokkosp_end_parallel_for"))(number);
    }
    if (pop != nullptr) pop();
}

}  // namespace

int main(int argc, char** argv) {
    const int iterations = argc > 1 ? std::atoi(argv[1]) : 10;
    const int copies_every = argc > 2 ? std::atoi(argv[2]) : iterations + 1;
    const std::chrono::milliseconds pause{argc > 3 ? std::atoi(argv[3]) : 0};
    use_virtual_board();
    const bool has_failures = std::getenv("HIP_DOUBLE_FAILS") != nullptr;
    if (has_failures) hip_double::set_quirks({.success_resets_error = true});
    std::puts("output");
    std::fflush(stdout);
    hipGraph_t graph = nullptr;
    hipGraphExec_t ready = nullptr;
    if (hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) != hipSuccess ||
        hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal) != hipSuccess) {
        return 2;
    }
    launch(reinterpret_cast<const void*>(&gemm));
    if (hipStreamEndCapture(stream, &graph) != hipSuccess ||
        hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0) != hipSuccess ||
        hipGraphDestroy(graph) != hipSuccess) {
        return 2;
    }
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint32_t to_thread = 0;  // both streams may copy at a time
    // The second as with -fgpu-default-stream=per-thread.
    if (hipMemcpyAsync(&to, &from, sizeof to, hipMemcpyHostToDevice, stream) != hipSuccess ||
        hipMemcpyAsync_spt(&to_thread, &from, sizeof to_thread, hipMemcpyDeviceToHost, nullptr) !=
            hipSuccess ||
        hipStreamSynchronize(hipStreamPerThread) != hipSuccess) {
        return 2;
    }
    for (int i = 0; i < iterations; ++i) {
        if ((i + 1) % copies_every == 0 &&
            hipMemcpyAsync_spt(&to_thread, &from, sizeof to_thread, hipMemcpyDeviceToHost,
                               nullptr) != hipSuccess) {
            return 2;
        }
        step(ready);
        if (has_failures && !fails(reinterpret_cast<const void*>(&gemm))) return 7;
        if (hipStreamSynchronize(stream) != hipSuccess) return 6;
        std::this_thread::sleep_for(pause);
    }
    return hipGraphExecDestroy(ready) == hipSuccess ? 0 : 2;
}
