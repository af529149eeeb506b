// SPDX-License-Identifier: MIT
// Fine-grain power profiles of a round's recorded executions, by FinGraV's method, and how well two
// independent sets of runs agree. Needs no GPU: profile_executions FOLDER [DELAY_MS [WINDOW_MS]],
// with the fingrav_*.csv of a round; what a sample is the mean over is what attribute_mix finds.
#include "mix_replay.hpp"

#include <bench/power_profile/power_profile.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace measuring;
namespace measure = kdvfs::measure;

using RecordedRuns = std::vector<measure::ProfiledRun>;

/// The runs of each set, each with the samples that fell into it.
std::map<std::string, RecordedRuns> read_runs(const std::filesystem::path& folder,
                                              MeterResponse response) {
    std::map<std::string, RecordedRuns> sets;
    read_csv(folder / "fingrav_executions.csv", 5, [&](const std::vector<std::string>& fields) {
        std::size_t run = 0;
        std::size_t execution = 0;
        measure::ProfiledRun::Execution times;
        if (!parse(fields[1], run) || !parse(fields[2], execution) ||
            !parse(fields[3], times.start) || !parse(fields[4], times.end)) {
            return false;
        }
        RecordedRuns& runs = sets[fields[0]];
        if (run > runs.size() || (run == runs.size()) != (execution == 0)) return false;
        if (execution == 0) runs.emplace_back();
        runs.back().executions.push_back(times);
        return runs.back().executions.size() == execution + 1;
    });
    std::vector<measure::PowerLog> samples;
    read_csv(folder / "fingrav_power.csv", 2, [&](const std::vector<std::string>& fields) {
        TimePoint at;
        double watts = 0;
        const bool good = parse(fields[0], at) && parse(fields[1], watts);
        samples.push_back({{(at - response.delay).time_since_epoch().count()}, {watts}});
        return good;
    });
    for (auto& [set, runs] : sets) {
        for (measure::ProfiledRun& run : runs) {
            const auto start = run.executions.front().start.time_since_epoch().count();
            const auto end =
                (run.executions.back().end + response.window).time_since_epoch().count();
            run.anchors = {{run.executions.front().start, {start}}};  // one clock for both
            const auto first = std::lower_bound(
                samples.begin(), samples.end(), start,
                [](const measure::PowerLog& log, auto t) { return log.at.nanoseconds < t; });
            for (auto log = first; log != samples.end() && log->at.nanoseconds <= end; ++log) {
                run.logs.push_back(*log);
            }
        }
    }
    return sets;
}

/// Acknowledgements for fewer executions from the begin of longer runs: what follows cannot have
/// changed them. Goes through all runs before any comes again.
class RecordedRunner {
public:
    explicit RecordedRunner(const RecordedRuns& runs) : runs_{&runs} {}

    measure::ProfiledRun operator()(std::size_t executions) {
        measure::ProfiledRun run = (*runs_)[next_++ % runs_->size()];
        if (executions > run.executions.size()) {
            throw kdvfs::Error{kdvfs::Errc::invalid_input,
                               {"profile", std::to_string(executions) + " executions",
                                "the recorded runs are shorter", "record longer runs"}};
        }
        run.executions.resize(executions);
        return run;
    }

private:
    const RecordedRuns* runs_;
    std::size_t next_ = 0;
};

struct Profiles {
    measure::PowerProfile execution;  ///< SSE
    measure::PowerProfile power;      ///< SSP
};

Profiles profile(const RecordedRuns& runs, Duration window) {
    measure::ProfileSettings settings;
    settings.logger_window = window;
    settings.most_executions = runs.front().executions.size();
    settings.most_runs = 1;  // each recorded run counts once
    measure::PowerProfiler profiler{RecordedRunner{runs}, settings};
    return {profiler.profile_execution(), profiler.profile_power()};
}

double mean_watts(const measure::PowerProfile& profile) {
    return measure::power_profile_detail::mean_power(profile).watts;
}

/// Root mean square of the difference of two smoothed profiles, in % of the first one's mean.
double rms_difference(const measure::PowerProfile& a, const measure::PowerProfile& b) {
    const auto& left = a.curves.front().points;
    const auto& right = b.curves.front().points;
    const std::size_t count = std::min(left.size(), right.size());
    if (count == 0) return std::nan("");
    double squares = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const double difference = left[i].y - right[i].y;
        squares += difference * difference;
    }
    return 100 * std::sqrt(squares / static_cast<double>(count)) / mean_watts(a);
}

int run(const std::filesystem::path& folder, MeterResponse response) {
    std::printf("samples taken as means over %.0f ms that ended %.0f ms before their time\n",
                static_cast<double>(response.window.count()) * 1e-6,
                static_cast<double>(response.delay.count()) * 1e-6);
    std::printf("%-10s %3s %-4s %9s %9s %8s %7s %9s\n", "kernel", "set", "", "us", "execution",
                "samples", "wanted", "mean W");
    std::map<std::string, std::map<std::string, Profiles>> kernels;
    for (const auto& [set, runs] : read_runs(folder, response)) {
        const std::size_t cut = set.rfind('_');
        const Profiles& both = kernels[set.substr(0, cut)][set.substr(cut + 1)] =
            profile(runs, response.window);
        for (const auto& [name, one] : {std::pair{"SSE", &both.execution}, {"SSP", &both.power}}) {
            std::printf("%-10s %3s %-4s %9.1f %9zu %8zu %7zu %9.1f\n", set.substr(0, cut).c_str(),
                        set.substr(cut + 1).c_str(), name,
                        static_cast<double>(one->duration.count()) * 1e-3, one->execution,
                        one->points.size(), one->wanted, mean_watts(*one));
        }
    }
    std::printf("\nthe two sets of each kernel against each other\n%-10s %10s %12s %10s %12s\n",
                "kernel", "SSE mean", "SSE profile", "SSP mean", "SSP profile");
    for (auto& [kernel, sets] : kernels) {
        const Profiles& a = sets.at("a");
        const Profiles& b = sets.at("b");
        const auto apart = [](const measure::PowerProfile& x, const measure::PowerProfile& y) {
            return 100 * (mean_watts(y) / mean_watts(x) - 1);
        };
        std::printf("%-10s %+9.2f%% %10.2f%% %+9.2f%% %10.2f%%\n", kernel.c_str(),
                    apart(a.execution, b.execution), rms_difference(a.execution, b.execution),
                    apart(a.power, b.power), rms_difference(a.power, b.power));
        std::ofstream picture{folder / ("fingrav_" + kernel + ".json")};
        measure::write_profile_json(picture,
                                    {{"SSE, set a", &a.execution},
                                     {"SSP, set a", &a.power},
                                     {"SSE, set b", &b.execution},
                                     {"SSP, set b", &b.power}},
                                    false);
        std::ofstream points{folder / ("fingrav_" + kernel + "_ssp.csv")};
        measure::write_profile_csv(points, a.power);
    }
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        using std::chrono::milliseconds;
        MeterResponse response{milliseconds{20}, milliseconds{2}};
        if (count > 2) response.delay = milliseconds{std::atoi(arguments[2])};
        if (count > 3) response.window = milliseconds{std::atoi(arguments[3])};
        return run(count > 1 ? arguments[1] : ".", response);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "profile_executions: %s\n", error.what());
        return 2;
    }
}
