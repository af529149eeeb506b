// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/error.hpp>

#include <array>
#include <string>
#include <string_view>

namespace kdvfs::inline v0_3::device::amd {

/// What is known of putting back the clocks of a family of boards.
enum class RestoreEvidence {
    shown,       ///< level `auto` undoes all that kdvfs writes
    not_undone,  ///< level `auto` leaves the OverDrive table as kdvfs wrote it
    unknown,     ///< nobody has looked
};

/// A family of boards and the evidence that its clocks are put back.
struct Family {
    std::string_view architecture;  ///< how its LLVM target names begin
    std::string_view name;
    RestoreEvidence evidence;
    std::string_view source;  ///< of the evidence
};

/// In order: the first whose target fits counts. No clock was set on a real board of any of them.
inline constexpr std::array<Family, 11> families{{
    {"gfx908", "CDNA1 (MI100)", RestoreEvidence::shown, "arcturus_ppt.c and a virtual board"},
    {"gfx90a", "CDNA2 (MI200)", RestoreEvidence::shown, "aldebaran_ppt.c and virtual boards"},
    {"gfx94", "CDNA3 (MI300)", RestoreEvidence::shown, "smu_v13_0_6_ppt.c and a virtual board"},
    {"gfx950", "CDNA4 (MI350)", RestoreEvidence::shown, "smu_v13_0_6_ppt.c, as MI300"},
    {"gfx1250", "MI400", RestoreEvidence::shown, "the driver's patches and a virtual board"},
    {"gfx900", "Vega10", RestoreEvidence::not_undone, "vega10_hwmgr.c: the table stays until r"},
    {"gfx906", "Vega20", RestoreEvidence::not_undone, "vega20_hwmgr.c: the table stays until r"},
    {"gfx10", "RDNA1, RDNA2", RestoreEvidence::not_undone,
     "navi10_ppt.c, sienna_cichlid_ppt.c: the table stays until r"},
    {"gfx11", "RDNA3", RestoreEvidence::not_undone, "smu_v13_0_0_ppt.c: the table stays until r"},
    {"gfx12", "RDNA4", RestoreEvidence::not_undone, "smu_v14_0_2_ppt.c: the table stays until r"},
    {"", "unknown", RestoreEvidence::unknown, "nobody has looked"},
}};

/// The family of an architecture ("gfx90a"); the unknown one where none fits or it is empty.
constexpr const Family& family_of(std::string_view architecture) {
    for (const Family& family : families) {
        if (architecture.starts_with(family.architecture)) return family;
    }
    return families.back();
}
static_assert(family_of("gfx942").name == "CDNA3 (MI300)" && family_of("").name == "unknown");

/// Whether the clocks of a board may be set.
/// @param allow_unproven sets those of unknown families, too
/// @throws Error (not_supported) where they are not known to come back
inline void require_proven(const Card& card, bool allow_unproven) {
    const Family& family = family_of(card.architecture);
    if (family.evidence == RestoreEvidence::shown) return;
    const bool unknown = family.evidence == RestoreEvidence::unknown;
    if (unknown && allow_unproven) return;
    const std::string architecture =
        card.architecture.empty() ? "an architecture that KFD does not name" : card.architecture;
    throw Error{Errc::not_supported,
                {"set the clocks", to_string(card),
                 "it is of family " + std::string{family.name} + " (" + architecture +
                     "), whose clocks are not known to come back: " + std::string{family.source},
                 unknown ? "open it to measure only, or set GpuOptions::allow_unproven"
                         : "open it to measure only"}};
}

}  // namespace kdvfs::inline v0_3::device::amd
