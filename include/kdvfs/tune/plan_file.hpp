// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/plan.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/segments.hpp>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Plan files, and how plans are obeyed at run time, through `FromPlan` policies. A file has
/// `{"gpu","objective","max_slowdown_pct","baseline":{...},"plan":{...},"single":{...},`
/// `"per_group":{...},"local":{...},"global":{...},"best_static":{...},"kernels":[...]}`.
/// Percentages are against the baseline, negative = saved; `max_slowdown_pct` is null where there
/// is no bound, and `launch_limit_s` is there where launches have one; clocks are MHz, -1 for auto.
/// `predicted_within_pct` is there where costs were predicted: by so much `energy_pct` may be off.
/// Times and energies are of one iteration, in `kernels` of one launch.
namespace kdvfs::inline v0_3::tune {

/// The text of a file that tells this process what to do: a regular file, its own or root's, not
/// writable by others, reached without following a link. The checks are on the file that was
/// opened, not on the path, so that nothing can be exchanged in between.
/// @throws Error (invalid_input, io)
KDVFS_INLINE std::string read_trusted_file(const std::filesystem::path& path);

/// A plan as what `FromPlan` policies obey on a device.
/// @throws Error (invalid_input) for a plan of another GPU, for clocks that the device does not
/// list, and for a kernel that `is_obeyed` knows no `FromPlan` binding of
KDVFS_INLINE std::shared_ptr<const PlanTable> to_plan_table(
    const Plan& plan, const DeviceInfo& device, const SupportedClocks& clocks,
    const std::function<bool(std::string_view kernel)>& is_obeyed);

/// A plan of segments as what scopes follow on a device.
/// @throws Error (invalid_input) for a plan of another GPU, and for clocks that the device does not
///         list
KDVFS_INLINE std::shared_ptr<const PlanTable> to_plan_table(PlannedSequence sequence,
                                                            const DeviceInfo& device,
                                                            const SupportedClocks& clocks);

/// The plan that the environment variable `KDVFS_PLAN` names, for a device; null where it is not
/// set. @throws Error as the functions it is made of
KDVFS_INLINE std::shared_ptr<const PlanTable> plan_from_environment(
    const DeviceInfo& device, const SupportedClocks& clocks,
    const std::function<bool(std::string_view kernel)>& is_obeyed);

/// The same for the kernels that a registry binds to `FromPlan`:
/// `gpu.with<Policies>(plan_from_environment<Policies>(gpu.info(), gpu.supported_clocks()))`.
template <class Registry>
std::shared_ptr<const PlanTable> plan_from_environment(const DeviceInfo& device,
                                                       const SupportedClocks& clocks) {
    return plan_from_environment(device, clocks, &Registry::obeys_plan_for);
}

/// A plan file's text of one plan alone.
KDVFS_INLINE std::string to_json(const Plan& plan);

/// A plan file's text: the plan chosen, and what the others would save.
KDVFS_INLINE std::string to_json(const Plans& plans, Aggregate chosen);

/// What a plan file promises, without its kernels: of any plan, one of segments, too.
/// @throws Error as `parse_plan`
KDVFS_INLINE Plan parse_promise(std::string_view text, const std::string& file);

/// Reads the plan that a plan file was written for; errors call the input `file`.
/// @throws Error (invalid_input) naming file and line, or file and field.
KDVFS_INLINE Plan parse_plan(std::string_view text, const std::string& file);

/// What a plan file says of the other ways to plan: aggregate and cost of an iteration.
/// @throws Error as `parse_plan`
KDVFS_INLINE std::vector<std::pair<Aggregate, Cost>> parse_alternatives(std::string_view text,
                                                                        const std::string& file);

/// A plan of segments as JSON: totals as in plan files, and `segments` in order, with the launch
/// before which each clock is asked for (`first`; with `after_s`: in the gap before it, so long
/// after the launch before has ended), the one in which it arrives, and its `lead_s`;
/// `sequence` has the launches, run-length coded, and `profile_hash` says what it was made from.
KDVFS_INLINE std::string to_json(const SegmentPlan& plan);

/// Whether a plan file is one of segments that can be followed.
KDVFS_INLINE bool has_sequence(std::string_view text, const std::string& file);

/// Reads what is to be followed out of the file of a plan of segments.
/// @throws Error (invalid_input) naming file and line, or file and field
KDVFS_INLINE PlannedSequence parse_sequence(std::string_view text, const std::string& file);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/plan_file.hpp>
#endif
