// SPDX-License-Identifier: MIT
#pragma once

#include "../gpt_train/byte_text.hpp"
#include "../gpt_train/model_shape.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace gpt {

/// One stage of a pipeline: some layers of the model, the first stage with the embedding, the last
/// one with the head, which share their weights. Sums are taken in the same order whatever the
/// number of stages, so that losses are the same to the last bit. All work goes into the default
/// stream. Defined in a file of its own, the only one with kernels. Not thread-safe.
class PipelineStage {
public:
    PipelineStage() = default;
    PipelineStage(const PipelineStage&) = delete;
    PipelineStage& operator=(const PipelineStage&) = delete;
    virtual ~PipelineStage() = default;

    /// The batch must stay as it is until the stream has passed.
    virtual void load(int m, const Batch& batch) = 0;
    /// From the input, or the first stage's tokens, to the output, or the last stage's losses.
    virtual void forward(int m) = 0;
    /// From the gradient of the output to that of the input; adds to the gradients of weights.
    virtual void backward(int m) = 0;
    /// The mean loss of a microbatch that is between its passes, on the last stage; waits.
    [[nodiscard]] virtual double loss(int m) = 0;

    // What goes from stage to stage, on the device: so many values each.
    [[nodiscard]] virtual std::size_t values() const = 0;
    [[nodiscard]] virtual float* input(int m) = 0;
    [[nodiscard]] virtual float* output(int m) = 0;
    [[nodiscard]] virtual float* gradient(int m) = 0;
    /// Copies them to the device or from it, and waits.
    virtual void copy_values(float* to, const float* from) = 0;

    /// First and last stage have the same token embedding, and each half of its gradient.
    [[nodiscard]] virtual std::vector<float> own_half() const = 0;
    /// Waits.
    virtual void set_other_half(const std::vector<float>& gradient) = 0;
    /// One step of AdamW with the gradients of all microbatches, which then begin anew.
    virtual void update(const AdamW& settings) = 0;
};

/// @param shape of one microbatch
/// @throws kdvfs::Error if the shape makes no sense or the memory does not suffice
std::unique_ptr<PipelineStage> make_pipeline_stage(const ModelShape& shape, int stage, int stages,
                                                   int microbatches);

struct ReleasePinned {
    void operator()(float* values) const;
};
/// Host memory that the GPU can reach: copies of it need no second one on the way.
using PinnedValues = std::unique_ptr<float[], ReleasePinned>;
/// @throws kdvfs::Error if the memory does not suffice
PinnedValues make_pinned_values(std::size_t count);

}  // namespace gpt
