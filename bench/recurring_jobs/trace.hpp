// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The training traces of Zeus (You, Chung and Chowdhury, NSDI 2023): how many epochs a job needs
/// by batch size, and what an epoch takes by batch size and power limit.
namespace recurring_jobs {

struct EpochCost {
    double time_s = 0;
    double watts = 0;

    [[nodiscard]] double energy_j() const { return time_s * watts; }
};

/// One batch size of one job.
struct SizeTrace {
    std::map<double, EpochCost> limits;          ///< by power limit in watts
    std::vector<std::optional<double>> targets;  ///< epochs to the target, by run; none: never

    /// What an epoch takes at a limit. Where the trace has no row of it: on the line between its
    /// neighbours, beyond them as at the nearest.
    [[nodiscard]] EpochCost at(double limit) const {
        const auto above = limits.lower_bound(limit);
        if (above == limits.end()) return limits.rbegin()->second;
        if (above == limits.begin() || above->first == limit) return above->second;
        const auto& [high, more] = *above;
        const auto& [low, less] = *std::prev(above);
        const double share = (limit - low) / (high - low);
        return {less.time_s + share * (more.time_s - less.time_s),
                less.watts + share * (more.watts - less.watts)};
    }
};

/// How a job is run by default: the artifact's run_alibaba.py.
struct JobDefaults {
    std::string_view dataset;
    std::uint32_t batch_size;
    std::size_t max_epochs;
};
inline constexpr JobDefaults job_defaults[] = {
    {"cifar100", 1024, 100},  {"imagenet", 256, 100},      {"squad", 32, 6},
    {"librispeech", 256, 16}, {"movielens-1m", 1024, 100}, {"sentiment140", 128, 10},
};

struct Job {
    std::string dataset;
    std::uint32_t default_size = 0;  ///< at most the largest that fits the GPU
    std::size_t max_epochs = 100;
    std::map<std::uint32_t, SizeTrace> sizes;
    double max_power = 0;

    [[nodiscard]] std::size_t limits() const { return sizes.begin()->second.limits.size(); }
    /// As many recurrences as the paper looks at.
    [[nodiscard]] std::size_t recurrences() const { return 2 * sizes.size() * limits(); }

    /// Zeus' cost with eta 0.5: half the energy, and half of what the maximum power takes in that
    /// time.
    [[nodiscard]] double cost(double energy_j, double time_s) const {
        return 0.5 * energy_j + 0.5 * max_power * time_s;
    }
    [[nodiscard]] double cost(const EpochCost& epoch) const {
        return cost(epoch.energy_j(), epoch.time_s);
    }
    [[nodiscard]] double least_epoch_cost(const SizeTrace& size) const {
        double least = HUGE_VAL;
        for (const auto& [limit, epoch] : size.limits) least = std::min(least, cost(epoch));
        return least;
    }

    /// What a run costs on average at the best size and limit that always reach the target.
    [[nodiscard]] double best_cost() const {
        double best = HUGE_VAL;
        for (const auto& [batch_size, size] : sizes) {
            double epochs = 0;
            for (const auto& target : size.targets)
                epochs += target && *target <= static_cast<double>(max_epochs) ? *target : HUGE_VAL;
            epochs /= static_cast<double>(size.targets.size());
            best = std::min(best, epochs * least_epoch_cost(size));
        }
        return best;
    }
};

namespace detail {

/// Reads a file's rows as maps from column to text.
inline std::vector<std::map<std::string, std::string>> rows(const std::filesystem::path& path) {
    std::ifstream file{path};
    if (!file) {
        throw kdvfs::Error{kdvfs::Errc::io,
                           {"read a trace", path.string(), "it cannot be opened",
                            "give the folder of train.csv and power_*.csv"}};
    }
    kdvfs::detail::CsvReader reader{file, path.string()};
    std::vector<std::string> names;
    std::vector<std::string> fields;
    std::vector<std::map<std::string, std::string>> all;
    if (!reader.next(names)) reader.fail("the file is empty");
    while (reader.next(fields)) {
        if (fields.size() != names.size()) reader.fail("the line has another number of columns");
        auto& row = all.emplace_back();
        for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = fields[i];
    }
    return all;
}

inline const std::string& text(const std::map<std::string, std::string>& row,
                               const std::string& column) {
    const auto field = row.find(column);
    if (field == row.end()) {
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"read a trace", "column " + column, "there is none",
                            "give the files of Zeus' artifact"}};
    }
    return field->second;
}

inline double number(const std::map<std::string, std::string>& row, const std::string& column) {
    const auto field = row.find(column);
    const auto value =
        field == row.end() ? std::nullopt : kdvfs::detail::parse_number<double>(field->second);
    if (!value || !std::isfinite(*value)) {
        throw kdvfs::Error{kdvfs::Errc::invalid_input,
                           {"read a trace", "column " + column, "there is no number", ""}};
    }
    return *value;
}

inline void set_defaults(Job& job) {
    job.default_size = job.sizes.rbegin()->first;
    for (const JobDefaults& defaults : job_defaults) {
        if (defaults.dataset != job.dataset) continue;
        job.max_epochs = defaults.max_epochs;
        // Where that size does not fit the GPU, the largest that does.
        job.default_size = std::min(job.default_size, defaults.batch_size);
    }
}

}  // namespace detail

/// The jobs of a power trace whose batch sizes the training trace has, too.
/// @throws Error (io, invalid_input)
inline std::vector<Job> read_jobs(const std::filesystem::path& train,
                                  const std::filesystem::path& power) {
    std::map<std::string, Job> by_name;
    for (const auto& row : detail::rows(power)) {
        const std::string& dataset = detail::text(row, "dataset");
        Job& job = by_name[dataset];
        job.dataset = dataset;
        const double limit = detail::number(row, "power_limit");
        job.max_power = std::max(job.max_power, limit);
        job.sizes[static_cast<std::uint32_t>(detail::number(row, "batch_size"))].limits[limit] = {
            detail::number(row, "time_per_epoch"), detail::number(row, "average_power")};
    }
    for (const auto& row : detail::rows(train)) {
        const auto job = by_name.find(detail::text(row, "dataset"));
        if (job == by_name.end()) continue;
        const auto size =
            job->second.sizes.find(static_cast<std::uint32_t>(detail::number(row, "batch_size")));
        if (size == job->second.sizes.end()) continue;
        const bool reached = !detail::text(row, "target_epoch").empty();
        size->second.targets.push_back(reached ? std::optional{detail::number(row, "target_epoch")}
                                               : std::nullopt);
    }
    std::vector<Job> jobs;
    for (auto& [name, job] : by_name) {
        std::erase_if(job.sizes, [](const auto& size) { return size.second.targets.empty(); });
        if (job.sizes.empty()) continue;
        detail::set_defaults(job);
        jobs.push_back(std::move(job));
    }
    return jobs;
}

}  // namespace recurring_jobs
