// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/train/schedules.hpp>

#include <filesystem>
#include <string>
#include <string_view>

/// Pipeline case files, `"format": "pipeline-case-1"`: docs/training.md has the schema, field by
/// field.
namespace kdvfs::inline v0_3::train {

struct PipelineCase {
    std::string name;
    Pipeline pipeline;
};

/// Reads a case from its text; `file` is what errors call it.
/// @throws Error (invalid_input) naming the file, and the curve or operation that makes no sense
KDVFS_INLINE PipelineCase parse_pipeline_case(std::string_view text, const std::string& file);

/// Reads a case from a file.
/// @throws Error (io) where the file cannot be read, else as `parse_pipeline_case`
KDVFS_INLINE PipelineCase read_pipeline_case(const std::filesystem::path& path);

/// A case as text, which `parse_pipeline_case` reads: the clocks are those of the core.
KDVFS_INLINE std::string to_case_text(const Pipeline& pipeline, const std::string& name);

}  // namespace kdvfs::inline v0_3::train

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/train/pipeline_case.hpp>
#endif
