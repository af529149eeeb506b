// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/hip_api.hpp>

/// For a file that hipcc compiles, beside <kdvfs/kdvfs.hpp>: gives the program a marker kernel, the
/// cheapest and most exact way into a stream, which then serves all its files. One such file is
/// enough. <kdvfs/rocm.hpp>, which opens GPUs, does the same where it is compiled by hipcc; older
/// ones (clang 15) crash on the C++20 standard library under it, and take this header instead,
/// while another file, compiled by g++, opens the GPU.
