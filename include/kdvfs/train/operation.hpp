// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kdvfs::train {

/// What an operation computes.
enum class Pass {
    forward,
    backward,         ///< of inputs and weights
    backward_input,   ///< of inputs only, what the stage before waits for
    backward_weight,  ///< of weights only
};

constexpr std::string_view to_string(Pass pass) {
    switch (pass) {
        case Pass::forward: return "forward";
        case Pass::backward: return "backward";
        case Pass::backward_input: return "backward_input";
        case Pass::backward_weight: return "backward_weight";
    }
    return "unknown";
}

/// One pass of one microbatch through one chunk of the model, and the curve it runs on.
struct Operation {
    std::uint32_t stage = 0;
    Pass pass = Pass::forward;
    std::uint32_t chunk = 0;
    std::uint32_t microbatch = 0;
    std::uint32_t curve = 0;  ///< index into `Pipeline::curves`

    friend bool operator==(const Operation&, const Operation&) = default;
};

/// "backward of microbatch 3, chunk 0, on stage 1".
inline std::string to_string(const Operation& operation) {
    return std::string{to_string(operation.pass)} + " of microbatch " +
           std::to_string(operation.microbatch) + ", chunk " + std::to_string(operation.chunk) +
           ", on stage " + std::to_string(operation.stage);
}

}  // namespace kdvfs::train
