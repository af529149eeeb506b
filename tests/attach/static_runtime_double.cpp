// SPDX-License-Identifier: MIT
//
// A program whose runtime is part of it: CUDA's opens the driver by itself, HIP's launches are its
// own, which nobody can stand before.
//   static_runtime_double cuda|hip LAUNCHES
#include "cuda_double.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

cuda_double::Kernel kernel{"_Z4gemmPKfS0_Pfi", 100, 300};

template <class Function>
Function* find(void* driver, const char* name) {
    return reinterpret_cast<Function*>(::dlsym(driver, name));
}

int run_cuda(int launches) {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return 2;
    find<decltype(cuInit)>(driver, "cuInit")(0);
    void* stream = nullptr;
    find<decltype(cuStreamCreate)>(driver, "cuStreamCreate")(&stream, 0);
    auto* const launch = find<decltype(cuLaunchKernel)>(driver, "cuLaunchKernel");
    for (int i = 0; i < launches; ++i) {
        if (launch(&kernel, 8, 1, 1, 64, 1, 1, 0, stream, nullptr, nullptr) != 0) return 3;
    }
    return find<decltype(cuStreamSynchronize)>(driver, "cuStreamSynchronize")(stream);
}

int launched = 0;
int hipLaunchKernel() { return ++launched, 0; }

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 1;
    const int launches = std::atoi(argv[2]);
    std::puts("output");
    std::fflush(stdout);
    if (std::string_view{argv[1]} == "cuda") return run_cuda(launches);
    for (int i = 0; i < launches; ++i) hipLaunchKernel();
    return launched == launches ? 0 : 4;
}
