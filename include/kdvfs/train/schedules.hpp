// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/train/pipeline_shape.hpp>

#include <cstdint>
#include <map>
#include <string_view>
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

/// Reads the order in which stages run their operations: a line for each stage, its operations
/// separated by spaces, each a pass and a microbatch, with its chunk behind a dot.
///
///     stage 0: F0 F1 F2 B0 F3 B1 B2 B3      # F, forward; B, backward
///     stage 1: F0 F1 B0 W0 F2 F3+B1 ...     # I, input; W, weight; F3+B1 at the same time
///
/// Where a weight's part is written (W0), B0 is the input's part, as in papers on zero bubbles.
/// @returns a shape with `order`, for `make_pipeline`; set its `placement`, and what else it has
/// @throws Error (invalid_input) naming the line and the word
KDVFS_INLINE PipelineShape parse_schedule(std::string_view text);

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/schedule_text.hpp>
#include <kdvfs/detail/train/schedules.hpp>
#endif
