// SPDX-License-Identifier: MIT
#pragma once

#include "model_shape.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

/// A small text to learn by heart.
inline constexpr std::string_view training_text =
    "A processor that waits for memory gains nothing from a fast clock: it waits faster. A "
    "processor that multiplies matrices without pause gains everything from a fast clock, until "
    "the board runs into its power limit and slows it down again. A training step is made of "
    "both kinds of work. The large products of matrices want all the power that the board can "
    "give, while the sums, the copies, the activations and the norms between them stream "
    "through memory and would be done just as soon at half the clock. Energy is power times "
    "time, and power grows with the clock and with the square of the voltage that the clock "
    "needs; so each kernel has a clock at which it wastes nothing, and no two kernels have to "
    "agree on it. To find that clock, measure: how long, how many joules, at which clock. To "
    "use it, ask the board for it in the order in which the stream of work arrives, and ask "
    "only when the work that follows is longer than the switch. To believe it, measure again, "
    "side by side with the clock that the board would have picked by itself.\n";

/// Tokens (batch x sequence) and, for each, the byte that follows it.
struct Batch {
    std::vector<int> tokens;
    std::vector<int> targets;
};

/// Windows at random places of the text, which is read as a ring.
inline Batch random_batch(const ModelShape& shape, std::string_view text, std::mt19937& random) {
    Batch batch;
    for (int row = 0; row < shape.batch; ++row) {
        const std::size_t start = random() % text.size();
        for (int i = 0; i < shape.sequence; ++i) {
            const auto byte = [&](std::size_t ahead) {
                const std::size_t place = start + static_cast<std::size_t>(i) + ahead;
                return static_cast<int>(static_cast<unsigned char>(text[place % text.size()]));
            };
            batch.tokens.push_back(byte(0));
            batch.targets.push_back(byte(1));
        }
    }
    return batch;
}

}  // namespace gpt
