// SPDX-License-Identifier: MIT
#pragma once

#include <examples/gpt3_xl/published_table.hpp>

#include <array>
#include <cstddef>
#include <string_view>

/// One training iteration of GPT-3-XL (1.3B) with llm.c's kernels, as published in
/// arXiv 2601.08539. Entries are numbered as in `published_table`.
namespace gpt3 {

inline constexpr std::size_t kernel_count = published_table.size();
inline constexpr std::size_t layers = 24;
inline constexpr std::size_t launch_count = 897;

/// The entries in the order in which one iteration launches them: embedding, the layers forward,
/// loss, the layers backward, embedding backward.
constexpr std::array<std::size_t, launch_count> launch_sequence() {
    std::array<std::size_t, launch_count> sequence{};
    std::size_t next = 0;
    const auto append = [&](std::size_t first, std::size_t last, std::size_t times) {
        for (std::size_t repeat = 0; repeat < times; ++repeat) {
            for (std::size_t entry = first; entry <= last; ++entry) sequence[next++] = entry;
        }
    };
    append(0, 1, 1);
    append(2, 13, layers);
    append(14, 18, 1);
    append(19, 43, layers);
    append(44, 45, 1);
    return sequence;
}

/// The pass an entry weighs in: the loss up to its softmax counts as forward.
constexpr std::string_view pass_of(std::size_t entry) {
    return entry < 16 ? "forward" : "backward";
}

}  // namespace gpt3
