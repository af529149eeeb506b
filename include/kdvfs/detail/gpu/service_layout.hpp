// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/control/scope_sink.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/report.hpp>

#include <cstdint>
#include <cstring>

namespace kdvfs::inline v0_3::detail {

/// What objects of this layout have in common, for modules of one process that are compiled from
/// different sources: a function that is added to the interface moves those after it.
inline std::uint64_t service_layout() {
    const auto last = &GpuService::open_again;
    std::uint64_t place = 0;  // where the function is in the table of virtual functions
    static_assert(sizeof last >= sizeof place);
    std::memcpy(&place, &last, sizeof place);
    for (const std::uint64_t size :
         {sizeof(ScopeKind), sizeof(DeviceInfo), sizeof(measure::Report), sizeof(SupportedClocks),
          sizeof(measure::MeterRecord), sizeof(PlannedSequence), sizeof(ScopeToken)}) {
        place = place * 1000003 + size;
    }
    return place;
}

}  // namespace kdvfs::inline v0_3::detail
