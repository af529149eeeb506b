// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/train/pipeline_shape.hpp>

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace kdvfs::inline v0_3::train {

/// Which curve an operation runs on: (stage, pass, chunk) -> index of the curve.
using CurveIndex = std::map<std::tuple<std::uint32_t, Pass, std::uint32_t>, std::uint32_t>;

/// A pipeline of a known schedule, or of one whose order is given. Fewer microbatches than stages
/// are fine unless interleaved.
/// @throws Error (invalid_input) for numbers out of range, chunks or microbatches that do not
/// divide, and operations without a curve
KDVFS_INLINE Pipeline make_pipeline(const PipelineShape& shape, const CurveIndex& curve_of,
                                    std::vector<Curve> curves, Watts blocking_power);

/// A pipeline of which nothing has been measured: the order of its operations, and curves that
/// stand for those to come. Reductions of gradients begin where their last backward ends: how much
/// of them fits beside it is not known.
/// @throws Error (invalid_input) as `make_pipeline`
KDVFS_INLINE Pipeline unmeasured_pipeline(PipelineShape shape);

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/schedules.hpp>
#endif
