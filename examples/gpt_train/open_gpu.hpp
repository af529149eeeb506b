// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/gpu.hpp>

namespace gpt {

/// Opens the first GPU. Defined in a file of its own: a host compiler is enough for it, and the
/// files with kernels stay light.
/// @throws kdvfs::Error where there is none.
kdvfs::Gpu open_gpu();

/// To standard output: per kernel, calls, time, energy and clocks.
void print_report(const kdvfs::Gpu& gpu);

}  // namespace gpt
