// SPDX-License-Identifier: MIT
#pragma once

#include "portable_gpu.hpp"

#include <kdvfs/kernel.hpp>

#include <cstdint>
#include <utility>

namespace gpt {

// The phases of a training step: scopes around their kernels, which the report has as levels.
struct Forward : kdvfs::Kernel<"forward"> {};
struct Backward : kdvfs::Kernel<"backward"> {};
struct Update : kdvfs::Kernel<"optimizer"> {};

// What policies, plans and reports call the kernels of a training step.
struct Embed : kdvfs::Kernel<"embed"> {};
struct EmbedBackward : kdvfs::Kernel<"embed_backward"> {};
struct Norm : kdvfs::Kernel<"norm"> {};
struct NormBackward : kdvfs::Kernel<"norm_backward"> {};
struct Gemm : kdvfs::Kernel<"gemm"> {};
struct BiasBackward : kdvfs::Kernel<"bias_backward"> {};
struct Attention : kdvfs::Kernel<"attention"> {};
struct AttentionBackward : kdvfs::Kernel<"attention_backward"> {};
struct Gelu : kdvfs::Kernel<"gelu"> {};
/// Multiplies its input in place: repeated, it ends in infinities.
struct GeluBackward : kdvfs::Kernel<"gelu_backward"> {
    static constexpr bool runs_once = true;
};
struct Residual : kdvfs::Kernel<"residual"> {};
struct CrossEntropy : kdvfs::Kernel<"cross_entropy"> {};
struct Optimizer : kdvfs::Kernel<"adamw"> {};

/// The linear maps of the model: each is a shape, hence a variant, of its own ...
enum class LinearMap : std::uint32_t { qkv, out, up, down, head };

/// ... in each of the three products that training it takes.
enum class Product : std::uint32_t { forward, input_gradient, weight_gradient };

constexpr kdvfs::Variant gemm_variant(LinearMap map, Product product) {
    return kdvfs::variant(static_cast<std::uint32_t>(map) * 3 +
                          static_cast<std::uint32_t>(product));
}

/// Every kernel of the training step starts here, and nowhere else: `work` puts it into the
/// stream, `scopes` puts what it likes around it (a clock, a measurement, nothing).
template <kdvfs::NamedKernel Kernel, class Scopes, class Work>
void scoped(Scopes& scopes, gpu::Stream stream, kdvfs::Variant shape, Work&& work) {
    scopes.template run<Kernel>(stream, shape, std::forward<Work>(work));
}

/// Nothing around the kernels: what a training step costs without kdvfs.
struct BareLaunches {
    template <class Kernel, class Work>
    void run(gpu::Stream, kdvfs::Variant, Work&& work) {
        std::forward<Work>(work)();
    }
    template <class Phase, class Work>
    void phase(gpu::Stream, Work&& work) {
        std::forward<Work>(work)();
    }
};

}  // namespace gpt
