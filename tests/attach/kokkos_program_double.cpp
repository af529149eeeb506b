// SPDX-License-Identifier: MIT
//
// A program on the real Kokkos that knows nothing of kdvfs. Kokkos runs on the host here, and what
// its kernels launch goes to the double of CUDA's driver, as those of a GPU would to the driver.
// Prints how often Kokkos waited for all streams (its fence).
#include "cuda_double.hpp"

#include <Kokkos_Core.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

cuda_double::Kernel axpy{"_Z4axpyPKfPf", 200, 300};
cuda_double::Kernel dot{"_Z3dotPKfS0_", 100, 300};
void* stream = nullptr;
int fences = 0;

void launch(cuda_double::Kernel& kernel) {
    if (cuLaunchKernel(&kernel, 8, 1, 1, 64, 1, 1, 0, stream, nullptr, nullptr) != 0) std::exit(3);
}

}  // namespace

// Stands before the function of the library, which is what Kokkos itself calls around kernels where
// a tool wants that.
namespace Kokkos {
#if KOKKOS_VERSION < 30500
void fence() { ++fences; }
#else
void fence(const std::string&) { ++fences; }
#endif
}  // namespace Kokkos

int main(int argc, char** argv) {
    const int iterations = argc > 1 ? std::atoi(argv[1]) : 10;
    int none = 1;
    Kokkos::initialize(none, argv);
    cuInit(0);
    cuStreamCreate(&stream, 0);
    fences = 0;
    for (int i = 0; i < iterations; ++i) {
        Kokkos::Profiling::pushRegion("solver");
        Kokkos::parallel_for(
            "axpy", 4, KOKKOS_LAMBDA(int) { launch(axpy); });
        Kokkos::View<int, Kokkos::HostSpace> sum{"sum"};
        Kokkos::parallel_reduce(
            "dot", 2,
            KOKKOS_LAMBDA(int, int& part) {
                launch(dot);
                ++part;
            },
            sum);
        Kokkos::Profiling::popRegion();
        if (cuStreamSynchronize(stream) != 0) return 4;
    }
    std::printf("%d fences\n", fences);
    Kokkos::finalize();
    return 0;
}
