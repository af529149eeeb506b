// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/kdvfs.hpp>

#include <vector>

/// Kernels that one does not write oneself: the two matrix products of a feed-forward layer, by
/// hipBLAS, each at a clock of its own through `kdvfs::launch`.
namespace library_calls {

struct UpGemm : kdvfs::Kernel<"up_gemm"> {};
struct DownGemm : kdvfs::Kernel<"down_gemm"> {};

using namespace kdvfs::literals;
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"up_gemm", kdvfs::AutoClock>,
                                       kdvfs::Bind<"down_gemm", kdvfs::CapClock<1300_MHz>>>;

/// Sends `rows` inputs of `width` numbers through the layer `times` times; the hidden layer is four
/// times as wide.
/// @returns what comes out, row by row
/// @throws std::runtime_error where HIP or hipBLAS says no
std::vector<float> run(const kdvfs::BoundGpu<Policies>& gpu, int rows, int width, int times);

}  // namespace library_calls
