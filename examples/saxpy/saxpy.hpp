// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/kdvfs.hpp>

/// The smallest program with a kernel in a frequency scope: y = a x + y, which waits for memory and
/// loses little at a lower core clock.
namespace saxpy {

struct Saxpy : kdvfs::Kernel<"saxpy"> {};

using namespace kdvfs::literals;
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"saxpy", kdvfs::CapClock<1100_MHz>>>;

/// Runs `times` kernels over `count` numbers, each in its scope. Compiled by hipcc it is the
/// kernel; compiled by a host compiler a copy of the same bytes stands in.
/// @returns what the first element is in the end
float run(const kdvfs::BoundGpu<Policies>& gpu, int count, int times);

/// Whether `run` has a kernel.
bool has_kernel();

}  // namespace saxpy
