// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

namespace hip_double {

/// Launches a function of a module that has code.
/// @returns a hipError_t; none for a function that is a name alone
std::optional<int> launch_code(const void* function, void* stream, void** arguments);

}  // namespace hip_double
