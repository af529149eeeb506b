// SPDX-License-Identifier: MIT
#pragma once

/// A kernel whose time is a number of core cycles, whatever the memory does.
namespace clock_loop {

/// Whether this program was built with device code.
bool has_kernel();

/// Enqueues one iteration of `steps` dependent multiply-adds on every compute unit.
/// @param stream a hipStream_t
/// @throws std::runtime_error with HIP's words
void launch(void* stream, unsigned steps);

}  // namespace clock_loop
