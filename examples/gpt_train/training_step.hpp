// SPDX-License-Identifier: MIT
#pragma once

#include "attention_kernels.hpp"
#include "byte_text.hpp"
#include "gemm_kernel.hpp"
#include "kernel_names.hpp"
#include "kernels.hpp"
#include "launches.hpp"
#include "model_shape.hpp"

#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace gpt {

/// What the forward pass of one layer leaves for its backward pass, on the device.
struct LayerBuffers {
    using Floats = gpu::Buffer<float>;
    Floats input, norm1, mean1, deviation1, qkv, probabilities, attention;
    Floats middle, norm2, mean2, deviation2, up, gelu;

    explicit LayerBuffers(const ModelShape& shape)
        : input{matrix(shape, shape.width)},
          norm1{matrix(shape, shape.width)},
          mean1{matrix(shape, 1)},
          deviation1{matrix(shape, 1)},
          qkv{matrix(shape, 3 * shape.width)},
          probabilities{matrix(shape, shape.heads * shape.sequence)},
          attention{matrix(shape, shape.width)},
          middle{matrix(shape, shape.width)},
          norm2{matrix(shape, shape.width)},
          mean2{matrix(shape, 1)},
          deviation2{matrix(shape, 1)},
          up{matrix(shape, shape.hidden())},
          gelu{matrix(shape, shape.hidden())} {}

    /// The elements of a matrix with a row per token.
    static std::size_t matrix(const ModelShape& shape, int columns) {
        return static_cast<std::size_t>(shape.tokens()) * static_cast<std::size_t>(columns);
    }
};

/// What training changes, on the device: all of it as `ParameterLayout` has it.
struct Weights {
    gpu::Buffer<float> parameters, gradient, first_moment, second_moment;

    explicit Weights(const std::vector<float>& initial)
        : parameters{initial},
          gradient{std::vector<float>(initial.size())},
          first_moment{std::vector<float>(initial.size())},
          second_moment{std::vector<float>(initial.size())} {}
};

/// Which layers a part of the model has, and of how many batches a step's gradient is the mean.
struct ModelPart {
    int first_layer = 0;
    int end_layer = 0;  ///< one behind the last
    int batches = 1;
};

/// A training step on the GPU: all work goes into one stream, in single precision, and gives the
/// same bits each time. `Scopes` is what `scoped` takes. Not thread-safe.
template <class Scopes>
class TrainingStep {
public:
    /// The whole model.
    /// @throws kdvfs::Error if the shape makes no sense or the memory does not suffice.
    TrainingStep(const ModelShape& shape, const std::vector<float>& parameters, Scopes& scopes,
                 gpu::Stream stream)
        : TrainingStep{
              shape, std::make_shared<Weights>(parameters), scopes, stream, {0, shape.layers, 1}} {}

    /// A part of the model, whose weights other steps may share: it keeps what the forward pass of
    /// one batch leaves for its backward pass.
    TrainingStep(const ModelShape& shape, std::shared_ptr<Weights> weights, Scopes& scopes,
                 gpu::Stream stream, const ModelPart& part)
        : shape_{(check(shape), shape)},
          part_{part},
          scopes_{scopes},
          stream_{stream},
          weights_{std::move(weights)},
          tokens_{static_cast<std::size_t>(shape.tokens())},
          targets_{static_cast<std::size_t>(shape.tokens())},
          last_{elements(shape.width)},
          normal_{elements(shape.width)},
          mean_{elements(1)},
          deviation_{elements(1)},
          logits_{elements(ModelShape::vocabulary)},
          row_losses_{elements(1)},
          d_stream_{elements(shape.width)},
          d_narrow_{elements(shape.width)},
          d_wide_{elements(shape.hidden())},
          d_scores_{elements(shape.heads * shape.sequence)} {
        for (int l = part.first_layer; l < part.end_layer; ++l) layers_.emplace_back(shape);
    }

    /// Copies a batch to the device; it may go once the stream has passed.
    void load(const Batch& batch) {
        tokens_.copy_from(batch.tokens, stream_);
        targets_.copy_from(batch.targets, stream_);
    }

    /// Leaves the loss of each row, and the gradient of the logits.
    void forward() {
        forward_embedding();
        forward_layers();
        forward_head();
    }

    /// Leaves the gradient of the mean loss; after forward().
    void backward() {
        backward_head();
        backward_layers();
        backward_embedding();
    }

    // The same, part by part: a stage of a pipeline has some of them.

    void forward_embedding() {
        const int rows = shape_.tokens();
        const int width = shape_.width;
        run<Embed>([&] {
            elementwise(kernels::embed, rows * width, input(), tokens_.data(),
                        at(layout_.token_embedding), at(layout_.position_embedding), rows,
                        shape_.sequence, width);
        });
    }
    void forward_layers() {
        for (int l = part_.first_layer; l < part_.end_layer; ++l) layer_forward(l);
    }
    void forward_head() {
        const int rows = shape_.tokens();
        const int width = shape_.width;
        norm(normal_, mean_, deviation_, last_.data(), layout_.final_scale, layout_.final_shift);
        product<false, true>(LinearMap::head, Product::forward, logits_.data(), normal_.data(),
                             at(layout_.token_embedding), nullptr, rows, ModelShape::vocabulary,
                             width);
        run<CrossEntropy>([&] {
            per_row(kernels::cross_entropy, rows, row_losses_.data(), logits_.data(),
                    targets_.data(), rows * part_.batches, ModelShape::vocabulary);
        });
    }

    void backward_head() {
        const int rows = shape_.tokens();
        const int width = shape_.width;
        product<true, false>(LinearMap::head, Product::weight_gradient,
                             gradient(layout_.token_embedding), logits_.data(), normal_.data(),
                             nullptr, ModelShape::vocabulary, width, rows);
        product<false, false>(LinearMap::head, Product::input_gradient, d_narrow_.data(),
                              logits_.data(), at(layout_.token_embedding), nullptr, rows, width,
                              ModelShape::vocabulary);
        gpu::clear(d_stream_, stream_);
        norm_backward(d_narrow_.data(), last_.data(), mean_, deviation_, layout_.final_scale,
                      layout_.final_shift);
    }
    void backward_layers() {
        for (int l = part_.end_layer; l-- > part_.first_layer;) layer_backward(l);
    }
    /// Adds to the gradient of the token embedding, which the head has as its own.
    void backward_embedding() {
        const int rows = shape_.tokens();
        const int width = shape_.width;
        run<EmbedBackward>([&] {
            per_row(kernels::embed_backward_tokens, ModelShape::vocabulary,
                    gradient(layout_.token_embedding), d_stream_.data(), tokens_.data(), rows,
                    width);
            elementwise(kernels::embed_backward_positions, shape_.sequence * width,
                        gradient(layout_.position_embedding), d_stream_.data(), rows,
                        shape_.sequence, width);
        });
    }

    /// One AdamW step; after backward().
    void update(const AdamW& settings) {
        ++steps_;
        const kernels::AdamWStep step{
            static_cast<float>(settings.learning_rate),
            static_cast<float>(settings.beta1),
            static_cast<float>(settings.beta2),
            static_cast<float>(settings.epsilon),
            static_cast<float>(settings.weight_decay),
            static_cast<float>(1 - std::pow(settings.beta1, steps_)),
            static_cast<float>(1 - std::pow(settings.beta2, steps_)),
        };
        const int count = static_cast<int>(layout_.count);
        run<Optimizer>([&] {
            elementwise(kernels::adamw, count, weights_->parameters.data(),
                        weights_->first_moment.data(), weights_->second_moment.data(),
                        weights_->gradient.data(), step, static_cast<int>(layout_.decayed), count);
        });
    }

    /// The mean loss of the last forward pass; waits for the stream.
    [[nodiscard]] double read_loss() const {
        const std::vector<float> losses = row_losses_.read(stream_);
        return std::accumulate(losses.begin(), losses.end(), 0.0) / shape_.tokens();
    }

    [[nodiscard]] const gpu::Buffer<float>& parameters() const { return weights_->parameters; }
    [[nodiscard]] const gpu::Buffer<float>& gradient() const { return weights_->gradient; }

    // What goes from part to part: a value for each token and column.

    /// What the first layer reads.
    [[nodiscard]] float* input() const { return residual_stream(part_.first_layer); }
    /// What the last layer writes.
    [[nodiscard]] float* output() const { return last_.data(); }
    /// The gradient of the output before the backward pass, of the input behind it.
    [[nodiscard]] float* stream_gradient() const { return d_stream_.data(); }

private:
    using Floats = gpu::Buffer<float>;

    [[nodiscard]] std::size_t elements(int columns) const {
        return LayerBuffers::matrix(shape_, columns);
    }
    [[nodiscard]] float* at(const Tensor& tensor) const {
        return weights_->parameters.data() + tensor.offset;
    }
    [[nodiscard]] float* gradient(const Tensor& tensor) const {
        return weights_->gradient.data() + tensor.offset;
    }
    /// The input of layer `l`, which is the output of the one before it.
    [[nodiscard]] float* residual_stream(int l) const {
        return l < part_.end_layer ? kept(l).input.data() : last_.data();
    }

    [[nodiscard]] const LayerBuffers& kept(int l) const {
        return layers_[static_cast<std::size_t>(l - part_.first_layer)];
    }

    template <class Kernel, class Work>
    void run(Work&& work, kdvfs::Variant variant = {}) {
        scoped<Kernel>(scopes_, stream_, variant, work);
    }
    template <class Function, class... Arguments>
    void per_row(Function kernel, int rows, Arguments... arguments) {
        launches::per_row(stream_, kernel, rows, arguments...);
    }
    template <class Function, class... Arguments>
    void elementwise(Function kernel, int count, Arguments... arguments) {
        launches::elementwise(stream_, kernel, count, arguments...);
    }
    template <class Function, class... Arguments>
    void down_columns(Function kernel, int columns, Arguments... arguments) {
        per_row(kernel, (columns + kernels::sum_columns - 1) / kernels::sum_columns, arguments...);
    }
    template <class Function, class... Arguments>
    void per_position(Function kernel, Arguments... arguments) {
        gpu::launch(kernel,
                    dim3{static_cast<unsigned>(shape_.sequence),
                         static_cast<unsigned>(shape_.batch * shape_.heads), 1},
                    dim3{128, 1, 1}, stream_, arguments...);
    }

    template <bool TransposeA, bool TransposeB>
    void product(LinearMap map, Product product, float* c, const float* a, const float* b,
                 const float* bias, int m, int n, int k) {
        run<Gemm>(
            [&] { launches::product<TransposeA, TransposeB>(stream_, c, a, b, bias, m, n, k); },
            gemm_variant(map, product));
    }

    void linear(LinearMap map, float* out, const float* in, const Tensor& weight,
                const Tensor& bias) {
        product<false, false>(map, Product::forward, out, in, at(weight), at(bias), shape_.tokens(),
                              weight.columns, weight.rows);
    }

    void linear_backward(LinearMap map, float* d_in, const float* d_out, const float* in,
                         const Tensor& weight, const Tensor& bias) {
        product<true, false>(map, Product::weight_gradient, gradient(weight), in, d_out, nullptr,
                             weight.rows, weight.columns, shape_.tokens());
        run<BiasBackward>([&] {
            down_columns(kernels::column_sum, weight.columns, gradient(bias), d_out,
                         shape_.tokens(), weight.columns);
        });
        product<false, true>(map, Product::input_gradient, d_in, d_out, at(weight), nullptr,
                             shape_.tokens(), weight.rows, weight.columns);
    }

    void norm(const Floats& out, const Floats& mean, const Floats& deviation, const float* in,
              const Tensor& scale, const Tensor& shift) {
        run<Norm>([&] {
            per_row(kernels::norm, shape_.tokens(), out.data(), mean.data(), deviation.data(), in,
                    at(scale), at(shift), shape_.width);
        });
    }

    /// Adds to the gradient of the residual stream.
    void norm_backward(const float* d_out, const float* in, const Floats& mean,
                       const Floats& deviation, const Tensor& scale, const Tensor& shift) {
        run<NormBackward>([&] {
            down_columns(kernels::norm_backward_parameters, shape_.width, gradient(scale),
                         gradient(shift), d_out, in, mean.data(), deviation.data(), shape_.tokens(),
                         shape_.width);
            per_row(kernels::norm_backward_input, shape_.tokens(), d_stream_.data(), d_out, in,
                    at(scale), mean.data(), deviation.data(), shape_.width);
        });
    }

    /// `out` may be `a`.
    void residual(float* out, const float* a, const float* b) {
        const int count = shape_.tokens() * shape_.width;
        run<Residual>([&] { elementwise(kernels::add, count, out, a, b, count); });
    }

    void layer_forward(int l) {
        const LayerTensors& tensors = layout_.layers[static_cast<std::size_t>(l)];
        const LayerBuffers& kept = this->kept(l);
        const kernels::AttentionPlace place{shape_.sequence, shape_.heads, shape_.width};
        const int hidden = shape_.tokens() * shape_.hidden();
        norm(kept.norm1, kept.mean1, kept.deviation1, kept.input.data(), tensors.norm1_scale,
             tensors.norm1_shift);
        linear(LinearMap::qkv, kept.qkv.data(), kept.norm1.data(), tensors.qkv_weight,
               tensors.qkv_bias);
        run<Attention>([&] {
            per_position(kernels::attention, kept.attention.data(), kept.probabilities.data(),
                         kept.qkv.data(), place);
        });
        linear(LinearMap::out, kept.middle.data(), kept.attention.data(), tensors.out_weight,
               tensors.out_bias);
        residual(kept.middle.data(), kept.middle.data(), kept.input.data());
        norm(kept.norm2, kept.mean2, kept.deviation2, kept.middle.data(), tensors.norm2_scale,
             tensors.norm2_shift);
        linear(LinearMap::up, kept.up.data(), kept.norm2.data(), tensors.up_weight,
               tensors.up_bias);
        run<Gelu>(
            [&] { elementwise(kernels::gelu, hidden, kept.gelu.data(), kept.up.data(), hidden); });
        linear(LinearMap::down, residual_stream(l + 1), kept.gelu.data(), tensors.down_weight,
               tensors.down_bias);
        residual(residual_stream(l + 1), residual_stream(l + 1), kept.middle.data());
    }

    void layer_backward(int l) {
        const LayerTensors& tensors = layout_.layers[static_cast<std::size_t>(l)];
        const LayerBuffers& kept = this->kept(l);
        const kernels::AttentionPlace place{shape_.sequence, shape_.heads, shape_.width};
        const int hidden = shape_.tokens() * shape_.hidden();
        linear_backward(LinearMap::down, d_wide_.data(), d_stream_.data(), kept.gelu.data(),
                        tensors.down_weight, tensors.down_bias);
        run<GeluBackward>([&] {
            elementwise(kernels::gelu_backward, hidden, d_wide_.data(), kept.up.data(), hidden);
        });
        linear_backward(LinearMap::up, d_narrow_.data(), d_wide_.data(), kept.norm2.data(),
                        tensors.up_weight, tensors.up_bias);
        norm_backward(d_narrow_.data(), kept.middle.data(), kept.mean2, kept.deviation2,
                      tensors.norm2_scale, tensors.norm2_shift);
        linear_backward(LinearMap::out, d_narrow_.data(), d_stream_.data(), kept.attention.data(),
                        tensors.out_weight, tensors.out_bias);
        run<AttentionBackward>([&] {
            per_position(kernels::attention_backward_queries, d_wide_.data(), d_scores_.data(),
                         d_narrow_.data(), kept.probabilities.data(), kept.qkv.data(), place);
            per_position(kernels::attention_backward_keys, d_wide_.data(), d_scores_.data(),
                         d_narrow_.data(), kept.probabilities.data(), kept.qkv.data(), place);
        });
        linear_backward(LinearMap::qkv, d_narrow_.data(), d_wide_.data(), kept.norm1.data(),
                        tensors.qkv_weight, tensors.qkv_bias);
        norm_backward(d_narrow_.data(), kept.input.data(), kept.mean1, kept.deviation1,
                      tensors.norm1_scale, tensors.norm1_shift);
    }

    ModelShape shape_;
    ModelPart part_;
    ParameterLayout layout_{shape_};
    Scopes& scopes_;
    gpu::Stream stream_;
    std::shared_ptr<Weights> weights_;
    gpu::Buffer<int> tokens_, targets_;
    std::vector<LayerBuffers> layers_;
    Floats last_, normal_, mean_, deviation_, logits_, row_losses_;
    Floats d_stream_;  ///< gradient of the residual stream
    Floats d_narrow_, d_wide_, d_scores_;
    int steps_ = 0;
};

}  // namespace gpt
