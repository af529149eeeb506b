// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/capped_clocks.hpp>
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/amd/gpu_metrics.hpp>

#include <memory>

namespace kdvfs::device {

/// An AMD GPU whose settings one library writes: what `AmdgpuSysfs` is for the driver's files.
template <class Writer>
struct ByLibrary : amd::CappedClocks, amd::MetricsFile {
    explicit ByLibrary(const amd::Card& card)
        : CappedClocks{card, std::make_unique<Writer>(card)}, MetricsFile{card} {}

    amd::Capabilities probe() {
        amd::Capabilities found = CappedClocks::probe();
        found.energy = energy_capability();
        return found;
    }
};

using RocmSmi = ByLibrary<rocm_smi::Writer>;
using AmdSmi = ByLibrary<amd_smi::Writer>;

}  // namespace kdvfs::device
