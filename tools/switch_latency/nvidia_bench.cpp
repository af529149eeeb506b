// SPDX-License-Identifier: MIT
//
// NVIDIA GPUs by the driver alone, which is looked for when the program runs.
#include "gpu_bench.hpp"

#include <kdvfs/detail/device/nvidia/cuda_api.hpp>
#include <kdvfs/detail/device/nvidia/nvml.hpp>
#include <kdvfs/detail/io/files.hpp>

#include <memory>

namespace {

using kdvfs::device::CudaApi;

/// As `depend` in clock_loop.cpp: dependent multiply-adds in registers, so that an iteration's time
/// is a number of core cycles. For any GPU of compute capability 7.0 or later.
constexpr const char* clock_loop_ptx = R"ptx(
.version 6.4
.target sm_70
.address_size 64

.visible .entry kdvfs_clock_loop(.param .u32 steps, .param .u64 never)
{
    .reg .pred %p<3>;
    .reg .f32 %f<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;

    ld.param.u32 %r1, [steps];
    ld.param.u64 %rd1, [never];
    mov.u32 %r2, %tid.x;
    cvt.rn.f32.u32 %f1, %r2;
    mov.u32 %r3, 0;
LOOP:
    setp.ge.u32 %p1, %r3, %r1;
    @%p1 bra DONE;
    fma.rn.f32 %f1, %f1, 0f3F7FBE77, 0f3F800000;
    add.u32 %r3, %r3, 1;
    bra.uni LOOP;
DONE:
    setp.geu.f32 %p2, %f1, 0f00000000;
    @%p2 bra END;
    cvta.to.global.u64 %rd2, %rd1;
    st.global.f32 [%rd2], %f1;
END:
    ret;
}
)ptx";

void launch_clock_loop(CudaApi::Stream stream, unsigned steps) {
    static constinit CudaApi::Kernel kernel{clock_loop_ptx, "kdvfs_clock_loop"};
    // One wave of any such GPU.
    constexpr unsigned blocks = 128;
    constexpr unsigned threads = 256;
    void* never = nullptr;
    void* arguments[] = {&steps, &never};
    kdvfs::device::check<CudaApi>(kernel.launch(stream, blocks, threads, arguments),
                                  "launch the kernel that is timed", "CUDA device");
}

kdvfs::device::NvmlOptions nvml_options() {
    kdvfs::device::NvmlOptions options{.access = kdvfs::device::ClockAccess::set};
    if (const auto named = kdvfs::io::environment("KDVFS_NVML"); !named.empty())
        options.library = named;
    return options;
}

}  // namespace

std::unique_ptr<SwitchBench> open_nvidia_gpu(int cuda_device, IterationSettings settings) {
    static_cast<void>(kdvfs::device::offer_marker_kernel<CudaApi>(&CudaApi::launch_marker));
    const std::string address =
        kdvfs::device::nvml_address(kdvfs::device::pci_address<CudaApi>(cuda_device));
    using Bench = GpuBench<CudaApi, kdvfs::device::Nvml>;
    return std::make_unique<Bench>(cuda_device, &launch_clock_loop, settings, address,
                                   nvml_options());
}
