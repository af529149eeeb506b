// SPDX-License-Identifier: MIT
#pragma once

#include "../gpt_train/byte_text.hpp"
#include "../gpt_train/initial_parameters.hpp"
#include "../gpt_train/model_shape.hpp"
#include "../gpt_train/training_step.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace gpt {

/// One stage of a pipeline: some layers of the model, the first stage with the embedding, the last
/// one with the head, which share their weights. Sums are taken in the same order whatever the
/// number of stages, so that losses are the same to the last bit. Not thread-safe.
template <class Scopes>
class PipelineStage {
public:
    /// @param shape of one microbatch
    /// @throws kdvfs::Error if the shape makes no sense or the memory does not suffice
    PipelineStage(const ModelShape& shape, int stage, int stages, int microbatches, Scopes& scopes,
                  gpu::Stream stream)
        : shape_{shape},
          is_first_{stage == 0},
          is_last_{stage == stages - 1},
          stream_{stream},
          weights_{std::make_shared<Weights>(initial_parameters(shape, 1))},
          total_{std::vector<float>(layout_.count)},
          head_total_{std::vector<float>(layout_.token_embedding.size())},
          embedding_total_{std::vector<float>(layout_.token_embedding.size())} {
        const ModelPart part{shape.layers * stage / stages, shape.layers * (stage + 1) / stages,
                             microbatches};
        // In 1F1B so many microbatches are between their two passes.
        const int in_flight = std::min(stages - stage, microbatches);
        for (int slot = 0; slot < in_flight; ++slot)
            steps_.push_back(
                std::make_unique<TrainingStep<Scopes>>(shape, weights_, scopes, stream, part));
    }

    [[nodiscard]] bool is_first() const { return is_first_; }
    [[nodiscard]] bool is_last() const { return is_last_; }
    /// Of what goes from stage to stage.
    [[nodiscard]] std::size_t values() const { return LayerBuffers::matrix(shape_, shape_.width); }
    [[nodiscard]] float* input(int m) { return step(m).input(); }
    [[nodiscard]] float* output(int m) { return step(m).output(); }
    [[nodiscard]] float* gradient(int m) { return step(m).stream_gradient(); }

    /// The batch must stay as it is until the stream has passed.
    void load(int m, const Batch& batch) {
        if (is_first_ || is_last_) step(m).load(batch);
    }

    /// From the input, or the first stage's tokens, to the output, or the last stage's losses.
    void forward(int m) {
        if (is_first_) step(m).forward_embedding();
        step(m).forward_layers();
        if (is_last_) step(m).forward_head();
    }

    /// From the gradient of the output to that of the input; adds to the gradients of weights.
    void backward(int m) {
        const Tensor& embedding = layout_.token_embedding;
        float* const shared = weights_->gradient.data() + embedding.offset;
        if (is_last_) {
            step(m).backward_head();
            add(head_total_.data(), shared, embedding.size());
        }
        step(m).backward_layers();
        if (is_first_) {
            gpu::check(gpu::raw_clear(shared, embedding.size() * sizeof(float), stream_), "clear");
            step(m).backward_embedding();
            add(embedding_total_.data(), shared, embedding.size());
        }
        add(total_.data() + embedding.size(), weights_->gradient.data() + embedding.size(),
            layout_.count - embedding.size());
    }

    /// What the other one of first and last stage lacks of the shared weights' gradient.
    [[nodiscard]] gpu::Buffer<float>& head_total() { return head_total_; }
    [[nodiscard]] gpu::Buffer<float>& embedding_total() { return embedding_total_; }

    /// One step of AdamW with the gradients of all microbatches, which then begin anew.
    void update(const AdamW& settings) {
        const std::size_t shared = layout_.token_embedding.size();
        add(head_total_.data(), embedding_total_.data(), shared);
        copy(total_.data(), head_total_.data(), shared);
        copy(weights_->gradient.data(), total_.data(), layout_.count);
        steps_.front()->update(settings);
        for (gpu::Buffer<float>* sum : {&total_, &head_total_, &embedding_total_})
            gpu::clear(*sum, stream_);
        gpu::clear(weights_->gradient, stream_);
    }

    /// The mean loss of a microbatch that is between its passes, on the last stage; waits.
    [[nodiscard]] double loss(int m) { return step(m).read_loss(); }

private:
    [[nodiscard]] TrainingStep<Scopes>& step(int m) {
        return *steps_[static_cast<std::size_t>(m) % steps_.size()];
    }
    void add(float* sum, const float* more, std::size_t count) {
        const int threads = kernels::block_threads;
        const int values = static_cast<int>(count);
        gpu::launch(kernels::add,
                    dim3{static_cast<unsigned>((values + threads - 1) / threads), 1, 1},
                    dim3{kernels::block_threads, 1, 1}, stream_, sum, sum, more, values);
    }
    void copy(float* to, const float* from, std::size_t count) {
        gpu::check(gpu::raw_copy(to, from, count * sizeof(float), stream_), "copy on the device");
    }

    ModelShape shape_;
    ParameterLayout layout_{shape_};
    bool is_first_;
    bool is_last_;
    gpu::Stream stream_;
    std::shared_ptr<Weights> weights_;
    gpu::Buffer<float> total_;
    gpu::Buffer<float> head_total_, embedding_total_;  ///< of the token embedding
    std::vector<std::unique_ptr<TrainingStep<Scopes>>> steps_;
};

}  // namespace gpt
