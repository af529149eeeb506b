// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace gpt {

/// The sizes of a GPT-2 style decoder and of its batch. A token is a byte.
struct ModelShape {
    int batch = 8;
    int sequence = 256;
    int width = 512;
    int heads = 8;
    int layers = 6;
    static constexpr int vocabulary = 256;

    [[nodiscard]] int tokens() const { return batch * sequence; }
    [[nodiscard]] int head_width() const { return width / heads; }
    [[nodiscard]] int hidden() const { return 4 * width; }
};

/// @throws kdvfs::Error if a size is not positive or the heads do not divide the width.
inline void check(const ModelShape& shape) {
    if (shape.batch > 0 && shape.sequence > 0 && shape.width > 0 && shape.heads > 0 &&
        shape.layers > 0 && shape.width % shape.heads == 0) {
        return;
    }
    throw kdvfs::Error{kdvfs::Errc::invalid_input,
                       {"build the model", "the given sizes", "",
                        "sizes are positive and the heads divide the width"}};
}

/// Where a row-major matrix (or, with one row, a vector) lies in the flat parameter buffer.
struct Tensor {
    std::size_t offset = 0;
    int rows = 0;
    int columns = 0;

    [[nodiscard]] std::size_t size() const {
        return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
    }
};

/// The weights of one layer. A linear map is stored as (inputs x outputs).
struct LayerTensors {
    Tensor qkv_weight, qkv_bias;
    Tensor out_weight, out_bias;
    Tensor up_weight, up_bias;
    Tensor down_weight, down_bias;
    Tensor norm1_scale, norm1_shift;
    Tensor norm2_scale, norm2_shift;
};

/// All parameters in one buffer, shared by parameters, gradient and both moments of AdamW. The
/// matrices come first: exactly they are decayed. The head is tied to the token embedding.
struct ParameterLayout {
    Tensor token_embedding, position_embedding;
    std::vector<LayerTensors> layers;
    Tensor final_scale, final_shift;
    std::size_t decayed = 0;  ///< parameters before this index are decayed
    std::size_t count = 0;

    explicit ParameterLayout(const ModelShape& shape)
        : layers(static_cast<std::size_t>(shape.layers)) {
        const int width = shape.width;
        token_embedding = take(ModelShape::vocabulary, width);
        position_embedding = take(shape.sequence, width);
        for (LayerTensors& layer : layers) {
            layer.qkv_weight = take(width, 3 * width);
            layer.out_weight = take(width, width);
            layer.up_weight = take(width, shape.hidden());
            layer.down_weight = take(shape.hidden(), width);
        }
        decayed = count;
        for (LayerTensors& layer : layers) {
            layer.qkv_bias = take(1, 3 * width);
            layer.out_bias = take(1, width);
            layer.up_bias = take(1, shape.hidden());
            layer.down_bias = take(1, width);
            layer.norm1_scale = take(1, width);
            layer.norm1_shift = take(1, width);
            layer.norm2_scale = take(1, width);
            layer.norm2_shift = take(1, width);
        }
        final_scale = take(1, width);
        final_shift = take(1, width);
    }

private:
    Tensor take(int rows, int columns) {
        const Tensor tensor{count, rows, columns};
        count += tensor.size();
        return tensor;
    }
};

/// The settings of AdamW (Loshchilov and Hutter, arXiv 1711.05101).
struct AdamW {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
};

}  // namespace gpt
