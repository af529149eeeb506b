// SPDX-License-Identifier: MIT
#pragma once

#include "model_shape.hpp"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace gpt {

/// GPT-2's initialisation: matrices N(0, 0.02), those that feed the residual stream smaller by
/// sqrt(2 x layers), scales 1, biases and shifts 0.
inline std::vector<float> initial_parameters(const ModelShape& shape, std::uint32_t seed) {
    const ParameterLayout layout{shape};
    std::vector<float> parameters(layout.count, 0.0F);
    std::mt19937 random{seed};
    const auto fill = [&](const Tensor& tensor, double deviation) {
        std::normal_distribution<float> normal{0.0F, static_cast<float>(deviation)};
        for (std::size_t i = 0; i < tensor.size(); ++i) {
            parameters[tensor.offset + i] = normal(random);
        }
    };
    const auto ones = [&](const Tensor& tensor) {
        for (std::size_t i = 0; i < tensor.size(); ++i) parameters[tensor.offset + i] = 1.0F;
    };
    const double residual = 0.02 / std::sqrt(2.0 * shape.layers);
    fill(layout.token_embedding, 0.02);
    fill(layout.position_embedding, 0.02);
    for (const LayerTensors& layer : layout.layers) {
        fill(layer.qkv_weight, 0.02);
        fill(layer.out_weight, residual);
        fill(layer.up_weight, 0.02);
        fill(layer.down_weight, residual);
        ones(layer.norm1_scale);
        ones(layer.norm2_scale);
    }
    ones(layout.final_scale);
    return parameters;
}

}  // namespace gpt
