// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/measure/report_files.hpp>

#include <nlohmann/json.hpp>
#include <string>

namespace cli {

/// @throws Error (invalid_input) for a report of a version that this one does not know
inline void refuse_newer_report(const nlohmann::json& report, const std::string& file) {
    const auto version = report.find("version");
    if (version == report.end() || *version == kdvfs::measure::report_json_version) return;
    throw kdvfs::Error{kdvfs::Errc::invalid_input,
                       {"read a report", file,
                        "it is of version " + version->dump() + ", this kdvfs reads " +
                            std::to_string(kdvfs::measure::report_json_version),
                        "use the kdvfs that wrote it, or a later one"}};
}

}  // namespace cli
