// SPDX-License-Identifier: MIT
// What stands around the C++ blocks of the documents: documents.py puts each block in place of the
// line that names it, and its includes at the beginning.
#include <kdvfs/kdvfs.hpp>
#include <kdvfs/rocm.hpp>
#include <kdvfs/tune/session.hpp>
#include <kdvfs/units.hpp>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <vector>

namespace documents {

struct Gelu : kdvfs::Kernel<"gelu"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"gelu", kdvfs::AutoClock>>;

namespace on_amd {

void train_an_epoch();

void opening() {
    // block: docs/on_amd.md 1
}

void points(kdvfs::BoundGpu<Policies>& gpu) {
    // block: docs/on_amd.md 2
}

}  // namespace on_amd

namespace cpp17 {

struct Stream;
using hipStream_t = Stream*;
const kdvfs::BoundGpu<Policies>& gpu();
void gelu_kernel(float* out, const float* in, int n);

// block: docs/cpp17.md 1

namespace behind_the_header {
// block: docs/cpp17.md 2
}

}  // namespace cpp17

namespace serving {

struct Prompt {
    std::uint32_t tokens_left;
    kdvfs::Seconds time_left;
    std::uint32_t tokens_read;
};

struct Engine {
    bool has_work();
    std::vector<Prompt> waiting();
    void step();
};

void loop(Engine& engine, void* stream, std::uint32_t prompt_tokens, std::uint32_t sequences,
          std::uint32_t mean_context, std::uint32_t prompt_context) {
    // block: docs/serving.md 1
}

void tuning(Engine& engine, kdvfs::Seconds (*now)(), void* stream, std::uint32_t prompt_tokens,
            std::uint32_t sequences, std::uint32_t mean_context, kdvfs::Seconds slack,
            kdvfs::Seconds sampled_at, kdvfs::Joules joules) {
    // block: docs/serving.md 2
}

void requests(const kdvfs::serve::StepEnergyFit& fit,
              const std::vector<kdvfs::serve::RequestWork>& works, kdvfs::Joules energy,
              kdvfs::Joules deviation, kdvfs::Joules between) {
    using namespace kdvfs::serve;
    // block: docs/serving.md 3
}

}  // namespace serving

namespace training {

struct Pass {
    bool is_forward;
    std::uint32_t chunk;
    std::uint32_t microbatch;
};
void forward(const Pass& pass);
void backward(const Pass& pass);

void pipeline(int hip_device, std::uint32_t stages, std::uint32_t microbatches, void* stream,
              int steps, const std::vector<Pass>& passes) {
    // block: docs/training.md 1
}

}  // namespace training

namespace tuning {

struct Batch {};

void train(const kdvfs::tune::Session<Policies>& session, Batch batch);

void one(int steps, Batch batch) {
    // block: docs/tuning.md 1
}

void several(const kdvfs::BoundGpu<Policies>& gpu, std::uint32_t rank) {
    // block: docs/tuning.md 2
}

}  // namespace tuning

}  // namespace documents
