// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/hip_api.hpp>
#include <kdvfs/detail/device/nvidia/cuda_api.hpp>

#include <string>
#include <type_traits>

/// A kernel whose time is a number of core cycles, whatever the memory does: dependent
/// multiply-adds in registers. It draws little power, so that no limit comes between the clock that
/// is asked for and the one that holds. The vendors' runtimes compile it.
namespace clock_loop {

/// For any GPU of compute capability 7.0 or later.
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

inline constexpr const char* hip_source = R"hip(
extern "C" __global__ void kdvfs_clock_loop(unsigned int steps, float* never) {
    float x = (float)threadIdx.x;
    for (unsigned int i = 0; i < steps; ++i) x = x * 0.999f + 1.0f;
    if (x < 0) *never = x;
}
)hip";

/// Enqueues one iteration of `steps` multiply-adds in each of 256 threads a block.
/// @tparam Api HipApi or CudaApi
/// @throws kdvfs::Error with the vendor's words
template <class Api>
void launch(typename Api::Stream stream, unsigned steps, unsigned blocks) {
    constexpr bool by_hip = std::is_same_v<Api, kdvfs::device::HipApi>;
    static constinit typename Api::Kernel kernel{by_hip ? hip_source : ptx, "kdvfs_clock_loop"};
    constexpr unsigned threads = 256;
    void* never = nullptr;
    void* arguments[] = {&steps, &never};
    kdvfs::device::check<Api>(kernel.launch(stream, blocks, threads, arguments),
                              "launch the kernel that is timed",
                              std::string{Api::name} + " device");
}

}  // namespace clock_loop
