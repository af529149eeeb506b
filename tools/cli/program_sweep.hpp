// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/tune/excluded_clocks.hpp>
#include <kdvfs/detail/tune/sweep_file.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/sweep_options.hpp>
#include <tools/cli/input.hpp>
#include <tools/cli/program_runs.hpp>
#include <tools/cli/tuning_folder.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

/// The sweep of a program, run after run, until it is over.
namespace cli {

/// The clock points at which the program failed, as `excluded.csv` of the folder lists them. Two
/// such points exclude all core clocks up to the higher one: low clocks are what the program does
/// not bear.
/// @param below core clocks that are excluded anyway
/// @throws Error (invalid_input) naming file and line
inline kdvfs::tune::ExcludedClocks excluded_clocks(const TuningFolder& folder,
                                                   kdvfs::Megahertz below = kdvfs::auto_clock) {
    kdvfs::tune::ExcludedClocks excluded{below, {}};
    if (!folder.has("excluded.csv")) return excluded;
    std::istringstream lines{folder.read("excluded.csv")};
    kdvfs::io::CsvReader reader{lines, folder.file("excluded.csv").string()};
    std::vector<std::string> fields;
    if (!reader.next(fields) || fields.size() != 3 || fields[0] != "core_mhz")
        reader.fail("this is no list of excluded clocks");
    kdvfs::Megahertz highest = kdvfs::auto_clock;
    while (reader.next(fields)) {
        kdvfs::io::require_width(fields, 3, reader);
        const auto core = kdvfs::io::parse_clock(fields[0]);
        const auto memory = kdvfs::io::parse_clock(fields[1]);
        if (!core || !memory) reader.fail("this is no clock point");
        excluded.points.push_back({*core, *memory});
        highest = std::max(highest, *core);
    }
    if (excluded.points.size() > 1)
        excluded.below = std::max(excluded.below, kdvfs::Megahertz{highest.count + 1});
    return excluded;
}

inline std::string long_time(kdvfs::Seconds time) {
    const double seconds = time.count();
    if (seconds < 120) return kdvfs::io::format_text("%.0f s", std::max(1.0, seconds));
    if (seconds < 7200) return kdvfs::io::format_text("%.0f min", seconds / 60);
    return kdvfs::io::format_text("%.1f h", seconds / 3600);
}

namespace sweep_steps {

/// The clock points that a run was at when it ended, one a rank; none where it was at the baseline.
inline std::vector<kdvfs::ClockPoint> clocks_at_the_end(const TuningFolder& folder) {
    std::vector<kdvfs::ClockPoint> clocks;
    for (const std::filesystem::path& path : folder.ranked("profile.csv")) {
        const auto note = kdvfs::tune::current_clock_path(path);
        std::error_code none;
        if (!std::filesystem::exists(note, none)) continue;
        std::string text = read_input(note.string()).text;
        std::erase(text, '\n');
        const auto points = kdvfs::tune::parse_excluded_clocks(text).points;
        clocks.insert(clocks.end(), points.begin(), points.end());
        std::filesystem::remove(note, none);
    }
    std::sort(clocks.begin(), clocks.end());
    clocks.erase(std::unique(clocks.begin(), clocks.end()), clocks.end());
    return clocks;
}

/// Excludes the clocks at which a run failed, from now on.
/// @returns whether there are any
inline bool exclude_clocks_of_failure(const TuningFolder& folder, const kdvfs::Error& failure) {
    const auto clocks = clocks_at_the_end(folder);
    if (clocks.empty()) return false;
    std::string text =
        folder.has("excluded.csv") ? folder.read("excluded.csv") : "core_mhz,mem_mhz,why\n";
    std::string why = failure.text().vendor_words;
    std::replace(why.begin(), why.end(), ',', ';');
    for (const kdvfs::ClockPoint clock : clocks) {
        text += kdvfs::io::to_csv_field(clock.core) + ',' + kdvfs::io::to_csv_field(clock.memory) +
                ',' + why + '\n';
        std::fprintf(stderr, "kdvfs: at %s %s: the clock is excluded (excluded.csv)\n",
                     to_string(clock).c_str(), failure.text().vendor_words.c_str());
    }
    folder.write("excluded.csv", text);
    return true;
}

/// Measurements at other clocks than the baseline's, of all GPUs: what shows that a sweep gets
/// on.
inline std::size_t measured(const TuningFolder& folder) {
    std::size_t count = 0;
    for (const std::filesystem::path& path : folder.ranked("profile.csv")) {
        TuningFolder::wait_for(path);
        std::string text = read_input(path.string()).text;
        text.resize(text.rfind('\n') + 1);  // the last line may have been cut short
        std::istringstream lines{text};
        kdvfs::io::CsvReader reader{lines, path.string()};
        const auto rows = kdvfs::tune::read_rows(reader);
        if (!rows.profile) continue;
        for (const auto& kernel : rows.profile->kernels())
            for (const auto& point : kernel.points)
                if (point.clock != rows.profile->baseline()) count += point.samples.size();
    }
    return count;
}

/// How far a sweep is: a line of a log, or on a terminal one line that renews itself.
/// @param left of the time that it was expected to take
inline void say_progress(const TuningFolder& folder, const kdvfs::tune::SweepProgress& progress,
                         const kdvfs::tune::Objective& objective, kdvfs::Seconds left) {
    std::string text = to_string(progress);
    try {
        const auto profile = kdvfs::tune::read_profile(folder.ranked("profile.csv").at(0));
        const auto plan = make_plan(mean_costs(profile), objective, kdvfs::tune::Aggregate::global);
        text += kdvfs::io::format_text(", so far %+.1f %% energy", plan.energy_pct());
    } catch (const std::exception&) {  // nothing to plan from yet
    }
    if (!progress.done) text += ", about " + long_time(std::max(left, kdvfs::Seconds{0})) + " left";
    const bool on_terminal = ::isatty(STDERR_FILENO) == 1;
    std::fprintf(stderr, "%skdvfs: %s%s", on_terminal ? "\r\033[K" : "", text.c_str(),
                 on_terminal && !progress.done ? "" : "\n");
}

}  // namespace sweep_steps

/// Whether the sweeps of all GPUs are over.
inline bool swept(const TuningFolder& folder) {
    const auto statuses = folder.statuses("sweep_status.json");
    return !statuses.empty() &&
           std::all_of(statuses.begin(), statuses.end(),
                       [](const auto& status) { return status.sweep && status.sweep->done; });
}

/// Runs the program until the sweeps of all GPUs are over. A clock at which it fails is excluded;
/// it may fail elsewhere no more than any program that is run.
/// @param below core clocks that the program must not run at
/// @param expected how long all runs are expected to take
/// @throws Error as `ProgramRuns`, (invalid_input) where runs end before anything is measured
inline void sweep(const TuningFolder& folder, const ProgramRuns& program,
                  const kdvfs::tune::SweepOptions& options, kdvfs::Megahertz below,
                  kdvfs::Seconds expected) {
    const auto began = std::chrono::steady_clock::now();
    const auto percent = [](double share) { return kdvfs::io::to_text(100 * share); };
    std::size_t fruitless = 0;
    for (std::size_t before = sweep_steps::measured(folder); !swept(folder);) {
        auto environment = folder.prepare_run(
            TuningFolder::mode("sweep", folder.file("profile.csv")), "sweep_status.json");
        environment.emplace_back("KDVFS_MAX_SLOWDOWN", percent(options.objective.max_slowdown));
        environment.emplace_back("KDVFS_RUN_SLOWDOWN", percent(options.max_slowdown));
        environment.emplace_back("KDVFS_SWEEP_EXCLUDE", to_string(excluded_clocks(folder, below)));
        const auto log = folder.open_log();
        bool failed_at_clock = false;
        static_cast<void>(sweep_steps::clocks_at_the_end(folder));  // of a tuning that was killed
        try {
            static_cast<void>(program(environment, log.get()));
        } catch (const kdvfs::Error& error) {
            failed_at_clock = sweep_steps::exclude_clocks_of_failure(folder, error);
            if (!failed_at_clock) throw;
        }
        const auto statuses = folder.statuses("sweep_status.json");
        if (!statuses.empty() && statuses.front().sweep)
            sweep_steps::say_progress(
                folder, *statuses.front().sweep, options.objective,
                expected - kdvfs::Seconds{std::chrono::steady_clock::now() - began});
        const std::size_t after = sweep_steps::measured(folder);
        fruitless = after > before || failed_at_clock ? 0 : fruitless + 1;
        before = after;
        if (fruitless == 2 && !swept(folder))
            throw kdvfs::Error{
                kdvfs::Errc::invalid_input,
                {"sweep a program", folder.path().string(),
                 "two runs in a row ended before anything could be measured",
                 "let it run for longer: some seconds of warm-up and measurements of 2 s each"}};
    }
}

}  // namespace cli
