// SPDX-License-Identifier: MIT
//
// A plugin that brings a marker kernel, as one that is compiled for the device does.
#include "marker_api.hpp"

#include <kdvfs/detail/device/marker_launch.hpp>

namespace {

int launch(void*, const kdvfs::device::MarkerArguments&) { return 42; }

[[maybe_unused]] const bool offered = kdvfs::device::offer_marker_kernel<PluginApi>(&launch);

}  // namespace
