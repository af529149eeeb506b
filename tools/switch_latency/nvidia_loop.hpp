// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/nvidia/cuda_driver_api.hpp>

/// The kernel of clock_loop.cpp for NVIDIA's driver, which needs no CUDA.
namespace clock_loop {

/// As `depend` in clock_loop.cpp: dependent multiply-adds in registers, so that an iteration's time
/// is a number of core cycles. For any GPU of compute capability 7.0 or later.
inline constexpr const char* ptx = R"ptx(
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

/// Enqueues one iteration of `steps` dependent multiply-adds in each of 256 threads a block.
/// @throws kdvfs::Error with the driver's words
inline void launch(kdvfs::device::CudaDriverApi::Stream stream, unsigned steps, unsigned blocks) {
    using kdvfs::device::CudaDriverApi;
    static constinit CudaDriverApi::Kernel kernel{ptx, "kdvfs_clock_loop"};
    constexpr unsigned threads = 256;
    void* never = nullptr;
    void* arguments[] = {&steps, &never};
    kdvfs::device::check<CudaDriverApi>(kernel.launch(stream, blocks, threads, arguments),
                                        "launch the kernel that is timed", "CUDA device");
}

}  // namespace clock_loop
