// SPDX-License-Identifier: MIT
#include "pipeline_stage.hpp"

#include "../gpt_train/initial_parameters.hpp"
#include "../gpt_train/portable_gpu.hpp"
#include "../gpt_train/training_step.hpp"

#if defined(__CUDACC__)
#include <kdvfs/cuda_markers.hpp>
#elif defined(__HIPCC__)
#include <kdvfs/hip_markers.hpp>
#endif

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace gpt {

namespace {

class DeviceStage final : public PipelineStage {
public:
    DeviceStage(const ModelShape& shape, int stage, int stages, int microbatches)
        : shape_{shape},
          is_first_{stage == 0},
          is_last_{stage == stages - 1},
          weights_{std::make_shared<Weights>(initial_parameters(shape, 1))},
          total_{std::vector<float>(layout_.count)},
          head_total_{std::vector<float>(layout_.token_embedding.size())},
          embedding_total_{std::vector<float>(layout_.token_embedding.size())} {
        const ModelPart part{shape.layers * stage / stages, shape.layers * (stage + 1) / stages,
                             microbatches};
        // In 1F1B so many microbatches are between their two passes.
        const int in_flight = std::min(stages - stage, microbatches);
        for (int slot = 0; slot < in_flight; ++slot)
            steps_.push_back(std::make_unique<Step>(shape, weights_, bare_, stream_, part));
    }

    [[nodiscard]] std::size_t values() const override {
        return LayerBuffers::matrix(shape_, shape_.width);
    }
    [[nodiscard]] float* input(int m) override { return step(m).input(); }
    [[nodiscard]] float* output(int m) override { return step(m).output(); }
    [[nodiscard]] float* gradient(int m) override { return step(m).stream_gradient(); }
    void copy_values(float* to, const float* from) override {
        copy(to, from, values());
        gpu::synchronize(stream_);
    }

    void load(int m, const Batch& batch) override {
        if (is_first_ || is_last_) step(m).load(batch);
    }

    void forward(int m) override {
        if (is_first_) step(m).forward_embedding();
        step(m).forward_layers();
        if (is_last_) step(m).forward_head();
    }

    void backward(int m) override {
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

    [[nodiscard]] std::vector<float> own_half() const override {
        return (is_first_ ? embedding_total_ : head_total_).read(stream_);
    }
    void set_other_half(const std::vector<float>& gradient) override {
        (is_first_ ? head_total_ : embedding_total_).copy_from(gradient, stream_);
        gpu::synchronize(stream_);
    }

    void update(const AdamW& settings) override {
        const std::size_t shared = layout_.token_embedding.size();
        add(head_total_.data(), embedding_total_.data(), shared);
        copy(total_.data(), head_total_.data(), shared);
        copy(weights_->gradient.data(), total_.data(), layout_.count);
        steps_.front()->update(settings);
        for (gpu::Buffer<float>* sum : {&total_, &head_total_, &embedding_total_})
            gpu::clear(*sum, stream_);
        gpu::clear(weights_->gradient, stream_);
    }

    [[nodiscard]] double loss(int m) override { return step(m).read_loss(); }

private:
    using Step = TrainingStep<BareLaunches>;

    [[nodiscard]] Step& step(int m) { return *steps_[static_cast<std::size_t>(m) % steps_.size()]; }
    void add(float* sum, const float* more, std::size_t count) {
        const int threads = kernels::block_threads;
        const int values = static_cast<int>(count);
        gpu::launch(kernels::add,
                    dim3{static_cast<unsigned>((values + threads - 1) / threads), 1, 1},
                    dim3{kernels::block_threads, 1, 1}, stream_, sum, sum, more, values);
    }
    void copy(float* to, const float* from, std::size_t count) {
        gpu::check(gpu::raw_copy(to, from, count * sizeof(float), stream_), "copy values");
    }

    ModelShape shape_;
    ParameterLayout layout_{shape_};
    bool is_first_;
    bool is_last_;
    gpu::Stream stream_{};
    BareLaunches bare_;  ///< scopes are of operations, not of kernels
    std::shared_ptr<Weights> weights_;
    gpu::Buffer<float> total_;
    gpu::Buffer<float> head_total_, embedding_total_;  ///< of the token embedding
    std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace

std::unique_ptr<PipelineStage> make_pipeline_stage(const ModelShape& shape, int stage, int stages,
                                                   int microbatches) {
    return std::make_unique<DeviceStage>(shape, stage, stages, microbatches);
}

void ReleasePinned::operator()(float* values) const { gpu::raw_release_pinned(values); }

PinnedValues make_pinned_values(std::size_t count) {
    void* memory = nullptr;
    gpu::check(gpu::raw_allocate_pinned(&memory, count * sizeof(float)),
               "allocate pinned host memory");
    return PinnedValues{static_cast<float*>(memory)};
}

}  // namespace gpt
