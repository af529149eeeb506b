// SPDX-License-Identifier: MIT
// A program for NVIDIA's compiler, whose front end takes less of C++20 than g++: it must compile.
#include <kdvfs/cuda_markers.hpp>
#include <kdvfs/extend.hpp>
#include <kdvfs/kdvfs.hpp>
#include <kdvfs/nvidia.hpp>
#include <kdvfs/tune/session.hpp>

using Gelu = kdvfs::Kernel<"gelu">;
using Policies =
    kdvfs::PolicyRegistry<kdvfs::Default<kdvfs::AutoClock>,
                          kdvfs::Bind<"gelu", kdvfs::CapClock<kdvfs::Megahertz{1100}>>>;

__global__ void gelu() {}

int main() {
    const auto gpu = kdvfs::nvidia::measure(0).with<Policies>();
    cudaStream_t stream = nullptr;
    const kdvfs::FrequencyScope<Gelu> scope{gpu, stream};
    gelu<<<1, 1, 0, stream>>>();
}
