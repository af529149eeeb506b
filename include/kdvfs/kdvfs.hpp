// SPDX-License-Identifier: MIT
#pragma once

/// Everything a file with hot kernels needs: names, policies, scopes, the GPU handle, its report as
/// text. No vendor's header, no Eigen, no JSON library. Where the GPU is opened, include
/// <kdvfs/rocm.hpp>, <kdvfs/nvidia.hpp> or <kdvfs/simulated.hpp> as well; for reports as CSV and
/// JSON, <kdvfs/measure/report_files.hpp>.

#include <kdvfs/clock.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/policy.hpp>
#include <kdvfs/registry.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/scope.hpp>
#include <kdvfs/units.hpp>
#include <kdvfs/version.hpp>
