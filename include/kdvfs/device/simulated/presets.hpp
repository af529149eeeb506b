// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/device/simulated/presets/h100.hpp>
#include <kdvfs/device/simulated/presets/mi210.hpp>
#include <kdvfs/device/simulated/presets/mi250x.hpp>
#include <kdvfs/device/simulated/presets/mi300x.hpp>
#include <kdvfs/device/simulated/presets/rtx_3080_ti.hpp>
