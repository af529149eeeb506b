// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/segments.hpp>

#include <string>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// A plan, and the GPU architecture it is for.
struct PlanFor {
    std::string architecture;  ///< as `ByArch` matches it: "gfx90a"; empty = any
    Plan plan;
};

/// What a generated header says of itself.
struct HeaderOptions {
    std::string namespace_name;  ///< "my_app::clocks"
    std::string registry_name = "Policies";
    std::string input;       ///< what the plan was made from: "profile.csv"
    std::string input_hash;  ///< `content_hash` of it
};

/// Plans as a C++ header with a `PolicyRegistry` in it, ready to be compiled in: sorted by kernel,
/// architecture and variant, formatted the same way every time, so that diffs show changes alone.
/// A kernel that the plan has for variant 0 alone gets one policy for all of its variants, known or
/// not; of other kernels, variants that the plan does not have run at auto. A `FromPlan` policy, by
/// contrast, asks its plan for just the variant that is launched, and else its fallback.
/// @throws Error (invalid_input) for names that could become anything but names in C++.
KDVFS_INLINE std::string to_policy_header(std::vector<PlanFor> plans, const HeaderOptions& options);

/// One plan, for any architecture.
inline std::string to_policy_header(const Plan& plan, const HeaderOptions& options) {
    return to_policy_header(std::vector<PlanFor>{{"", plan}}, options);
}

/// A plan of segments as a C++ header. Where the plan has a sequence, its `plan()` lets the scopes
/// around the kernels follow it: `gpu.with<Policies>(plan())`. By hand, around the launches
/// `segments[s].first` to before `segments[s].last` of every iteration belongs
/// `kdvfs::FrequencyScope<Segment> scope{gpu, stream, kdvfs::variant(s)};`
/// scopes of kernels inside it keep its clock. Raises are asked for early, as planned: their
/// segments begin before the launches that need them.
/// @throws Error (invalid_input) for names that could become anything but names in C++
KDVFS_INLINE std::string to_segment_header(const SegmentPlan& plan, const HeaderOptions& options);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/policy_header.hpp>
#endif
