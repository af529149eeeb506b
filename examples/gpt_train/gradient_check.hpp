// SPDX-License-Identifier: MIT
#pragma once

#include "host_reference.hpp"
#include "initial_parameters.hpp"
#include "training_step.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace gpt {

/// How far a step on the device is from the double-precision host reference.
struct GradientCheck {
    double loss_difference = 0;       ///< relative
    double gradient_difference = 0;   ///< 2-norm of the difference over that of the reference
    double parameter_difference = 0;  ///< the same, of what one AdamW step changed
};

inline double relative_difference(const std::vector<double>& value,
                                  const std::vector<double>& reference) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
        difference += (value[i] - reference[i]) * (value[i] - reference[i]);
        norm += reference[i] * reference[i];
    }
    return std::sqrt(difference / norm);
}

/// Runs a step on the device and on the host, at parameters large enough that every kernel
/// matters; the host takes time that grows with the cube of the sizes.
/// @throws kdvfs::Error on trouble with the device.
inline GradientCheck check_gradient(const ModelShape& shape, gpu::Stream stream) {
    std::mt19937 random{17};
    std::normal_distribution<float> normal{0.0F, 0.2F};
    std::vector<float> initial(ParameterLayout{shape}.count);
    for (float& parameter : initial) parameter = normal(random);
    const Batch batch = random_batch(shape, training_text, random);
    // A large epsilon makes the update proportional to the gradient: with the usual one it is
    // nearly the gradient's sign, which hides wrong arithmetic where it is large and shows
    // rounding where it is small.
    const AdamW settings{.learning_rate = 0.1, .epsilon = 1e-2};

    BareLaunches scopes;
    TrainingStep step{shape, initial, scopes, stream};
    step.load(batch);
    step.forward();
    step.backward();
    step.update(settings);
    const std::vector<float> gradient = step.gradient().read(stream);
    const std::vector<float> updated = step.parameters().read(stream);

    std::vector<double> parameters(initial.begin(), initial.end());
    const host::Pass pass = host::forward_backward(shape, parameters, batch);
    std::vector<double> first(parameters.size());
    std::vector<double> second(parameters.size());
    host::adamw(settings, ParameterLayout{shape}.decayed, 1, pass.gradient, first, second,
                parameters);
    std::vector<double> change(parameters.size());
    std::vector<double> reference_change(parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        change[i] = static_cast<double>(updated[i]) - static_cast<double>(initial[i]);
        reference_change[i] = parameters[i] - static_cast<double>(initial[i]);
    }
    return {std::abs(step.read_loss() - pass.loss) / pass.loss,
            relative_difference({gradient.begin(), gradient.end()}, pass.gradient),
            relative_difference(change, reference_change)};
}

}  // namespace gpt
