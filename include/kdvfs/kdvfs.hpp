// SPDX-License-Identifier: MIT
#pragma once

/// Everything a file with hot kernels needs: names, policies, scopes, the GPU handle, its report as
/// text. No vendor's header, no Eigen, no JSON library. Where the GPU is opened, include
/// <kdvfs/rocm.hpp>, <kdvfs/nvidia.hpp> or <kdvfs/simulated.hpp> as well; for reports as files,
/// <kdvfs/measure/report_csv.hpp> and <kdvfs/measure/report_json.hpp>.

#include <kdvfs/core/clock_point.hpp>
#include <kdvfs/core/error.hpp>
#include <kdvfs/core/kernel.hpp>
#include <kdvfs/core/units.hpp>
#include <kdvfs/core/version.hpp>
#include <kdvfs/gpu.hpp>
#include <kdvfs/measure/report_text.hpp>
#include <kdvfs/policy/policy.hpp>
#include <kdvfs/policy/registry.hpp>
#include <kdvfs/scope/frequency_scope.hpp>
#include <kdvfs/scope/launch.hpp>
