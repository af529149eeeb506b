// SPDX-License-Identifier: MIT
#include <gpt_train/host_reference.hpp>
#include <gpt_train/initial_parameters.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace gpt {
namespace {

constexpr ModelShape tiny{.batch = 2, .sequence = 5, .width = 12, .heads = 3, .layers = 2};

/// Parameters of all sizes and signs: at the initial ones most gradients are nearly zero.
std::vector<double> lively_parameters(const ModelShape& shape) {
    std::mt19937 random{7};
    std::normal_distribution<double> normal{0.0, 0.4};
    std::vector<double> parameters(ParameterLayout{shape}.count);
    for (double& parameter : parameters) parameter = normal(random);
    return parameters;
}

Batch tiny_batch() {
    std::mt19937 random{3};
    return random_batch(tiny, training_text, random);
}

/// The largest relative difference between the gradient and central differences over some
/// elements of a tensor.
double worst_difference(const Tensor& tensor) {
    std::vector<double> parameters = lively_parameters(tiny);
    const Batch batch = tiny_batch();
    const std::vector<double> gradient = host::forward_backward(tiny, parameters, batch).gradient;
    double scale = 0;
    for (std::size_t i = 0; i < tensor.size(); ++i) {
        scale = std::max(scale, std::abs(gradient[tensor.offset + i]));
    }
    double worst = 0;
    std::mt19937 random{11};
    for (int sample = 0; sample < 12; ++sample) {
        // Of an embedding only the rows of the batch's own tokens have a gradient worth a look.
        const auto row = tensor.rows == ModelShape::vocabulary
                             ? static_cast<std::size_t>(batch.tokens[random() % 10])
                             : random() % static_cast<std::size_t>(tensor.rows);
        const std::size_t columns = static_cast<std::size_t>(tensor.columns);
        const std::size_t i = tensor.offset + row * columns + random() % columns;
        constexpr double step = 1e-5;
        const double kept = parameters[i];
        parameters[i] = kept + step;
        const double above = host::forward_backward(tiny, parameters, batch).loss;
        parameters[i] = kept - step;
        const double below = host::forward_backward(tiny, parameters, batch).loss;
        parameters[i] = kept;
        worst = std::max(worst, std::abs((above - below) / (2 * step) - gradient[i]) / scale);
    }
    return worst;
}

TEST(HostReference, EveryTensorsGradientIsThatOfFiniteDifferences) {
    const ParameterLayout layout{tiny};
    std::vector<Tensor> tensors{layout.token_embedding, layout.position_embedding,
                                layout.final_scale, layout.final_shift};
    for (const LayerTensors& layer : layout.layers) {
        tensors.insert(tensors.end(), {layer.qkv_weight, layer.qkv_bias, layer.out_weight,
                                       layer.out_bias, layer.up_weight, layer.up_bias,
                                       layer.down_weight, layer.down_bias, layer.norm1_scale,
                                       layer.norm1_shift, layer.norm2_scale, layer.norm2_shift});
    }
    for (const Tensor& tensor : tensors) {
        EXPECT_LT(worst_difference(tensor), 1e-6) << "tensor at " << tensor.offset;
    }
}

TEST(HostReference, APositionCannotSeeTheFuture) {
    const std::vector<double> parameters = lively_parameters(tiny);
    Batch batch = tiny_batch();
    const host::Matrix before = host::forward(tiny, parameters, batch.tokens).logits;
    batch.tokens[3] = batch.tokens[3] == 'a' ? 'b' : 'a';
    const host::Matrix after = host::forward(tiny, parameters, batch.tokens).logits;
    for (int row = 0; row < tiny.tokens(); ++row) {
        const bool may_see = row == 3 || row == 4;
        EXPECT_EQ(before(row, 0) != after(row, 0), may_see) << "row " << row;
    }
}

TEST(HostReference, LossGoesDownFromThatOfGuessing) {
    constexpr ModelShape small{.batch = 4, .sequence = 8, .width = 16, .heads = 2, .layers = 1};
    const ParameterLayout layout{small};
    const std::vector<float> initial = initial_parameters(small, 1);
    std::vector<double> parameters(initial.begin(), initial.end());
    std::vector<double> first(parameters.size());
    std::vector<double> second(parameters.size());
    std::mt19937 random{5};
    const Batch batch = random_batch(small, training_text, random);
    double loss = 0;
    for (int step = 1; step <= 60; ++step) {
        const host::Pass pass = host::forward_backward(small, parameters, batch);
        if (step == 1) {
            EXPECT_NEAR(pass.loss, std::log(256.0), 0.1);
        }
        loss = pass.loss;
        host::adamw(AdamW{.learning_rate = 1e-2}, layout.decayed, step, pass.gradient, first,
                    second, parameters);
    }
    EXPECT_LT(loss, 1.0);
}

TEST(ModelShape, AWidthThatTheHeadsDoNotDivideIsRefused) {
    EXPECT_NO_THROW(check(tiny));
    EXPECT_THROW(check(ModelShape{.width = 10, .heads = 3}), kdvfs::Error);
    EXPECT_THROW(check(ModelShape{.batch = 0}), kdvfs::Error);
}

}  // namespace
}  // namespace gpt
