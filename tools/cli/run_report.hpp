// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cli {

/// Writes what `merge_attached_reports` returned to each file: as JSON (.json), as a page (.html),
/// else as text; "-" is standard output. A file that cannot be written does not keep the others
/// from being written.
/// @throws Error (io), the first one, after all files have been tried
void write_run_report(const std::vector<std::string>& files, const nlohmann::json& merged);

/// The text of a merged report, with at most `most` kernels.
std::string run_report_text(const nlohmann::json& merged, std::size_t most);

}  // namespace cli
