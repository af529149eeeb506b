// SPDX-License-Identifier: MIT
#pragma once

#include "byte_text.hpp"
#include "host_layers.hpp"
#include "model_shape.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

/// A GPT's training step on the host in double precision: what the device is checked against.
namespace gpt::host {

/// What the forward pass of a layer leaves for its backward pass.
struct LayerActivations {
    Matrix input, norm1, qkv, attention, middle, norm2, up, gelu;
};

inline Matrix layer_forward(const ModelShape& shape, const LayerTensors& layer,
                            const std::vector<double>& parameters, const Matrix& x,
                            LayerActivations& kept) {
    kept.input = x;
    kept.norm1 = Norm{layer.norm1_scale, layer.norm1_shift}.forward(parameters, x);
    kept.qkv = Linear{layer.qkv_weight, layer.qkv_bias}.forward(parameters, kept.norm1);
    kept.attention = Matrix{shape.tokens(), shape.width};
    for_each_head(shape, [&](AttentionHead head) { head.forward(kept.qkv, kept.attention); });
    kept.middle = x + Linear{layer.out_weight, layer.out_bias}.forward(parameters, kept.attention);
    kept.norm2 = Norm{layer.norm2_scale, layer.norm2_shift}.forward(parameters, kept.middle);
    kept.up = Linear{layer.up_weight, layer.up_bias}.forward(parameters, kept.norm2);
    kept.gelu = Gelu::forward(kept.up);
    return kept.middle + Linear{layer.down_weight, layer.down_bias}.forward(parameters, kept.gelu);
}

inline Matrix layer_backward(const ModelShape& shape, const LayerTensors& layer,
                             const std::vector<double>& parameters, std::vector<double>& gradient,
                             const LayerActivations& kept, const Matrix& d_output) {
    const Matrix d_gelu = Linear{layer.down_weight, layer.down_bias}.backward(parameters, gradient,
                                                                              kept.gelu, d_output);
    const Matrix d_norm2 = Linear{layer.up_weight, layer.up_bias}.backward(
        parameters, gradient, kept.norm2, Gelu::backward(kept.up, d_gelu));
    const Matrix d_middle = d_output + Norm{layer.norm2_scale, layer.norm2_shift}.backward(
                                           parameters, gradient, kept.middle, d_norm2);
    const Matrix d_attention = Linear{layer.out_weight, layer.out_bias}.backward(
        parameters, gradient, kept.attention, d_middle);
    Matrix d_qkv{shape.tokens(), 3 * shape.width};
    for_each_head(shape, [&](AttentionHead head) { head.backward(kept.qkv, d_attention, d_qkv); });
    const Matrix d_norm1 =
        Linear{layer.qkv_weight, layer.qkv_bias}.backward(parameters, gradient, kept.norm1, d_qkv);
    return d_middle + Norm{layer.norm1_scale, layer.norm1_shift}.backward(parameters, gradient,
                                                                          kept.input, d_norm1);
}

/// Mean cross-entropy of the targets, and the gradient of the logits.
struct Loss {
    double value = 0;
    Matrix d_logits;
};

inline Loss cross_entropy(const Matrix& logits, const std::vector<int>& targets) {
    Loss loss{0, Matrix{logits.rows, logits.columns}};
    for (int i = 0; i < logits.rows; ++i) {
        double sum = 0;
        for (int j = 0; j < logits.columns; ++j) sum += std::exp(logits(i, j));
        const int target = targets[static_cast<std::size_t>(i)];
        loss.value -= (logits(i, target) - std::log(sum)) / logits.rows;
        for (int j = 0; j < logits.columns; ++j) {
            const double probability = std::exp(logits(i, j)) / sum;
            loss.d_logits(i, j) = (probability - (j == target ? 1 : 0)) / logits.rows;
        }
    }
    return loss;
}

/// The forward pass, with all that the backward pass needs.
struct Forward {
    std::vector<LayerActivations> layers;
    Matrix last, normal, logits;
};

inline Forward forward(const ModelShape& shape, const std::vector<double>& parameters,
                       const std::vector<int>& text) {
    const ParameterLayout layout{shape};
    const Matrix tokens = tensor(parameters, layout.token_embedding);
    const Matrix positions = tensor(parameters, layout.position_embedding);
    Matrix x{shape.tokens(), shape.width};
    for (int i = 0; i < x.rows; ++i) {
        const int token = text[static_cast<std::size_t>(i)];
        for (int j = 0; j < x.columns; ++j) {
            x(i, j) = tokens(token, j) + positions(i % shape.sequence, j);
        }
    }
    Forward pass{std::vector<LayerActivations>(layout.layers.size()), {}, {}, {}};
    for (std::size_t l = 0; l < layout.layers.size(); ++l) {
        x = layer_forward(shape, layout.layers[l], parameters, x, pass.layers[l]);
    }
    pass.last = x;
    pass.normal = Norm{layout.final_scale, layout.final_shift}.forward(parameters, x);
    pass.logits = pass.normal * transpose(tokens);
    return pass;
}

/// The loss and its gradient, in double precision, written for reading, not for speed.
struct Pass {
    double loss = 0;
    std::vector<double> gradient;  ///< in the order of ParameterLayout
};

inline Pass forward_backward(const ModelShape& shape, const std::vector<double>& parameters,
                             const Batch& batch) {
    const ParameterLayout layout{shape};
    const Forward kept = forward(shape, parameters, batch.tokens);
    const Loss loss = cross_entropy(kept.logits, batch.targets);

    Pass pass{loss.value, std::vector<double>(layout.count)};
    Matrix d_tokens = transpose(loss.d_logits) * kept.normal;
    Matrix d_positions{shape.sequence, shape.width};
    Matrix dx = Norm{layout.final_scale, layout.final_shift}.backward(
        parameters, pass.gradient, kept.last,
        loss.d_logits * tensor(parameters, layout.token_embedding));
    for (std::size_t l = kept.layers.size(); l-- > 0;) {
        dx = layer_backward(shape, layout.layers[l], parameters, pass.gradient, kept.layers[l], dx);
    }
    for (int i = 0; i < dx.rows; ++i) {
        const int token = batch.tokens[static_cast<std::size_t>(i)];
        for (int j = 0; j < dx.columns; ++j) {
            d_tokens(token, j) += dx(i, j);
            d_positions(i % shape.sequence, j) += dx(i, j);
        }
    }
    add_to_tensor(pass.gradient, layout.token_embedding, d_tokens);
    add_to_tensor(pass.gradient, layout.position_embedding, d_positions);
    return pass;
}

/// One AdamW step; `step` counts from 1.
inline void adamw(const AdamW& settings, std::size_t decayed, int step,
                  const std::vector<double>& gradient, std::vector<double>& first,
                  std::vector<double>& second, std::vector<double>& parameters) {
    const double correction1 = 1 - std::pow(settings.beta1, step);
    const double correction2 = 1 - std::pow(settings.beta2, step);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        first[i] = settings.beta1 * first[i] + (1 - settings.beta1) * gradient[i];
        second[i] = settings.beta2 * second[i] + (1 - settings.beta2) * gradient[i] * gradient[i];
        const double decay = i < decayed ? settings.weight_decay * parameters[i] : 0;
        parameters[i] -=
            settings.learning_rate *
            (first[i] / correction1 / (std::sqrt(second[i] / correction2) + settings.epsilon) +
             decay);
    }
}

}  // namespace gpt::host
