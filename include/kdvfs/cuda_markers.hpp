// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/nvidia/cuda_api.hpp>

/// For a file that nvcc compiles, beside <kdvfs/kdvfs.hpp>: gives the program a marker kernel, the
/// cheapest and most exact way into a stream, which then serves all its files. One such file is
/// enough. <kdvfs/nvidia.hpp>, which opens GPUs, does the same where it is compiled by nvcc; this
/// header keeps files with kernels light, while another file, compiled by g++, opens the GPU.
