// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/gpu.hpp>
#include <kdvfs/options.hpp>

#include <filesystem>

namespace gpt {

/// Opens the first GPU. Defined in a file of its own: a host compiler is enough for it, and the
/// files with kernels stay light.
/// @throws kdvfs::Error where there is none.
kdvfs::Gpu open_gpu(kdvfs::GpuOptions options);

/// Keeps what is metered from now on, for `print_report` to write.
void keep_record(const kdvfs::Gpu& gpu);

/// To standard output: per kernel, calls, time, energy and clocks. Into `folder`, if there is one:
/// report.json; and what `keep_record` kept, as runs.csv (the kernel's row in the report, the
/// nested place, start and length in ns), samples.csv (time in ns, joules, segment), power.csv (of
/// the power log) and marks.csv (kernels, places, iterations, figures of repeated kernels).
/// @throws kdvfs::Error where a file cannot be written
void print_report(const kdvfs::Gpu& gpu, const std::filesystem::path& folder);

}  // namespace gpt
