// SPDX-License-Identifier: MIT
#pragma once

#include "serving_kernels.hpp"

#include <gpt_train/launches.hpp>
#include <gpt_train/model_shape.hpp>
#include <gpt_train/portable_gpu.hpp>

#include <cstddef>
#include <vector>

namespace gpt {

/// The tokens that one step reads, row by row, and the rows after which a byte is sampled.
struct StepTokens {
    std::vector<int> tokens, slots, positions, seeds;
    std::vector<int> sampled;  ///< row numbers

    [[nodiscard]] int rows() const { return static_cast<int>(tokens.size()); }
    void add(int token, int slot, int position, int seed) {
        tokens.push_back(token);
        slots.push_back(slot);
        positions.push_back(position);
        seeds.push_back(seed);
    }
};

/// The model on the GPU with a cache of keys and values: `shape.batch` sequences of up to
/// `shape.sequence` tokens each. Prompts and single tokens go through the same kernels, row by row.
/// All work goes into one stream and gives the same bytes each time. Not thread-safe.
class Generator {
public:
    /// @param most_rows of a step
    /// @throws kdvfs::Error if the shape makes no sense or the memory does not suffice
    Generator(const ModelShape& shape, const std::vector<float>& parameters, int most_rows,
              float temperature, gpu::Stream stream)
        : shape_{(check(shape), shape)},
          most_rows_{most_rows},
          inverse_temperature_{1 / temperature},
          stream_{stream},
          parameters_{parameters},
          tokens_{elements(1)},
          slots_{elements(1)},
          positions_{elements(1)},
          seeds_{elements(1)},
          sampled_{elements(1)},
          bytes_{elements(1)},
          residual_{elements(shape.width)},
          normal_{elements(shape.width)},
          mean_{elements(1)},
          deviation_{elements(1)},
          qkv_{elements(3 * shape.width)},
          attention_{elements(shape.width)},
          branch_{elements(shape.width)},
          up_{elements(shape.hidden())},
          gelu_{elements(shape.hidden())},
          scores_{elements(shape.heads * shape.sequence)},
          logits_{elements(ModelShape::vocabulary)} {
        const auto cached =
            static_cast<std::size_t>(shape.tokens()) * static_cast<std::size_t>(shape.width);
        for (int l = 0; l < shape.layers; ++l) {
            keys_.emplace_back(cached);
            values_.emplace_back(cached);
        }
    }

    /// Puts a step into the stream. `step` must stay as it is until `read`.
    void launch(const StepTokens& step) {
        tokens_.copy_from(step.tokens, stream_);
        slots_.copy_from(step.slots, stream_);
        positions_.copy_from(step.positions, stream_);
        seeds_.copy_from(step.seeds, stream_);
        sampled_.copy_from(step.sampled, stream_);
        const int rows = step.rows();
        launches::elementwise(stream_, kernels::embed_rows, rows * shape_.width, residual_.data(),
                              tokens_.data(), positions_.data(), at(layout_.token_embedding),
                              at(layout_.position_embedding), rows, shape_.width);
        for (int l = 0; l < shape_.layers; ++l) layer(l, rows);
        if (step.sampled.empty()) return;
        norm(layout_.final_scale, layout_.final_shift, rows);
        launches::product<false, true>(stream_, logits_.data(), normal_.data(),
                                       at(layout_.token_embedding), nullptr, rows,
                                       ModelShape::vocabulary, shape_.width);
        launches::per_row(stream_, kernels::sample, static_cast<int>(step.sampled.size()),
                          bytes_.data(), logits_.data(), sampled_.data(), seeds_.data(),
                          positions_.data(), inverse_temperature_, ModelShape::vocabulary);
    }

    /// The sampled bytes of the last step, in the order of its `sampled`; waits for the stream.
    [[nodiscard]] std::vector<int> read(const StepTokens& step) const {
        std::vector<int> bytes = bytes_.read(stream_);
        bytes.resize(step.sampled.size());
        return bytes;
    }

private:
    using Floats = gpu::Buffer<float>;

    [[nodiscard]] std::size_t elements(int columns) const {
        return static_cast<std::size_t>(most_rows_) * static_cast<std::size_t>(columns);
    }
    [[nodiscard]] float* at(const Tensor& tensor) const {
        return parameters_.data() + tensor.offset;
    }

    void norm(const Tensor& scale, const Tensor& shift, int rows) {
        launches::per_row(stream_, kernels::norm, rows, normal_.data(), mean_.data(),
                          deviation_.data(), residual_.data(), at(scale), at(shift), shape_.width);
    }
    void linear(const Floats& out, const Floats& in, const Tensor& weight, const Tensor& bias,
                int rows) {
        launches::product<false, false>(stream_, out.data(), in.data(), at(weight), at(bias), rows,
                                        weight.columns, weight.rows);
    }
    void add_branch(int rows) {
        launches::elementwise(stream_, kernels::add, rows * shape_.width, residual_.data(),
                              residual_.data(), branch_.data(), rows * shape_.width);
    }

    void layer(int l, int rows) {
        const LayerTensors& tensors = layout_.layers[static_cast<std::size_t>(l)];
        const kernels::CachePlace place{shape_.sequence, shape_.heads, shape_.width};
        float* keys = keys_[static_cast<std::size_t>(l)].data();
        float* values = values_[static_cast<std::size_t>(l)].data();
        norm(tensors.norm1_scale, tensors.norm1_shift, rows);
        linear(qkv_, normal_, tensors.qkv_weight, tensors.qkv_bias, rows);
        launches::elementwise(stream_, kernels::store_keys_and_values, rows * shape_.width, keys,
                              values, qkv_.data(), slots_.data(), positions_.data(), place, rows);
        gpu::launch(kernels::cached_attention,
                    dim3{static_cast<unsigned>(rows), static_cast<unsigned>(shape_.heads), 1},
                    dim3{128, 1, 1}, stream_, attention_.data(), scores_.data(), qkv_.data(), keys,
                    values, slots_.data(), positions_.data(), place);
        linear(branch_, attention_, tensors.out_weight, tensors.out_bias, rows);
        add_branch(rows);
        norm(tensors.norm2_scale, tensors.norm2_shift, rows);
        linear(up_, normal_, tensors.up_weight, tensors.up_bias, rows);
        const int hidden = rows * shape_.hidden();
        launches::elementwise(stream_, kernels::gelu, hidden, gelu_.data(), up_.data(), hidden);
        linear(branch_, gelu_, tensors.down_weight, tensors.down_bias, rows);
        add_branch(rows);
    }

    ModelShape shape_;
    ParameterLayout layout_{shape_};
    int most_rows_;
    float inverse_temperature_;
    gpu::Stream stream_;
    Floats parameters_;
    gpu::Buffer<int> tokens_, slots_, positions_, seeds_, sampled_, bytes_;
    Floats residual_, normal_, mean_, deviation_, qkv_, attention_, branch_, up_, gelu_, scores_,
        logits_;
    std::vector<Floats> keys_, values_;  ///< by layer
};

}  // namespace gpt
