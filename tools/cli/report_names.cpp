// SPDX-License-Identifier: MIT
#include <kdvfs/error.hpp>
#include <tools/cli/output.hpp>
#include <tools/cli/report_names.hpp>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>

namespace cli {
namespace {

std::string first_of_environment(std::initializer_list<const char*> names) {
    for (const char* name : names) {
        const char* const value = std::getenv(name);
        if (value != nullptr && *value != '\0') return value;
    }
    return "";
}

/// What a launcher says goes into a file's name: no folder is made of it.
std::string without_slashes(std::string text) {
    for (char& c : text) {
        if (c == '/') c = '_';
    }
    return text;
}

/// The text before the ending of the file.
std::string before_extension(const std::string& name, const std::string& text) {
    std::filesystem::path path{name};
    path.replace_extension("." + text + path.extension().string());
    return path.string();
}

}  // namespace

JobPlace JobPlace::of_this_process() {
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    const std::string restarts = without_slashes(first_of_environment({"SLURM_RESTART_COUNT"}));
    return {host,
            without_slashes(first_of_environment(
                {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})),
            without_slashes(
                first_of_environment({"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"})),
            static_cast<int>(::getpid()),
            without_slashes(first_of_environment({"SLURM_STEP_ID"})),
            restarts.empty() || restarts == "0" ? "" : "restart" + restarts};
}

MetricLabels JobPlace::labels() const {
    MetricLabels known;
    for (const auto& [name, value] :
         MetricLabels{{"Hostname", host}, {"jobid", job}, {"jobstep", step}, {"rank", rank}}) {
        if (!value.empty()) known.emplace_back(name, value);
    }
    return known;
}

std::string report_name(std::string_view name, const JobPlace& place) {
    if (is_special(std::string{name})) return std::string{name};
    std::string result;
    bool placed = false;
    bool has_restart = place.restart.empty();
    for (std::size_t i = 0; i < name.size(); ++i) {
        if (name[i] != '%') {
            result += name[i];
            continue;
        }
        const char letter = ++i < name.size() ? name[i] : '\0';
        switch (letter) {
            case 'h': result += place.host; break;
            case 'r': result += place.rank.empty() ? "0" : place.rank; break;
            case 'j':
                result += place.job.empty() ? "0" : place.job;
                if (!place.restart.empty()) result += "." + place.restart;
                has_restart = true;
                break;
            case 'p': result += std::to_string(place.process); break;
            case '%': result += '%'; break;
            default:
                throw kdvfs::Error{
                    kdvfs::Errc::invalid_input,
                    {"name a report", std::string{name},
                     "a % stands before none of h, r, j, p and %", "write %% for a percent sign"}};
        }
        placed = placed || letter != '%';
    }
    if (!placed && !place.rank.empty()) result = before_extension(result, "rank" + place.rank);
    return has_restart ? result : before_extension(result, place.restart);
}

}  // namespace cli
