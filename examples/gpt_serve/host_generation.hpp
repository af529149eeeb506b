// SPDX-License-Identifier: MIT
#pragma once

#include "batcher.hpp"
#include "serving_kernels.hpp"

#include <gpt_train/host_reference.hpp>
#include <gpt_train/model_shape.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

/// Text generation on the host in double precision, without a cache and without batches: what the
/// device is checked against.
namespace gpt::host {

/// The sampled bytes of one request.
inline std::vector<int> generate(const ModelShape& model, const std::vector<double>& parameters,
                                 const GenerationRequest& request, double temperature) {
    ModelShape shape = model;
    shape.batch = 1;
    std::vector<int> text = request.prompt;
    std::vector<int> answer;
    while (static_cast<int>(answer.size()) < request.answer_tokens) {
        // What stands behind the last token has no influence on it.
        std::vector<int> padded = text;
        padded.resize(static_cast<std::size_t>(shape.sequence));
        const Matrix logits = forward(shape, parameters, padded).logits;
        const int last = static_cast<int>(text.size()) - 1;
        int best = 0;
        double most = -std::numeric_limits<double>::infinity();
        for (int c = 0; c < ModelShape::vocabulary; ++c) {
            const double u = kernels::uniform_of(static_cast<std::uint32_t>(request.seed),
                                                 static_cast<std::uint32_t>(last),
                                                 static_cast<std::uint32_t>(c));
            const double score = logits(last, c) / temperature - std::log(-std::log(u));
            if (score <= most) continue;
            most = score;
            best = c;
        }
        answer.push_back(best);
        text.push_back(best);
    }
    return answer;
}

}  // namespace gpt::host
