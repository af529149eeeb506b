// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/error.hpp>
#include <kdvfs/measure/attribution.hpp>
#include <kdvfs/measure/energy_accumulator.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/power_windows.hpp>

#include <Eigen/Dense>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

/// A recorded mix of kernels, attributed: what each kernel drew, beside the truth of its long runs.
namespace measuring {

using kdvfs::Duration;
using kdvfs::TimePoint;
using kdvfs::Watts;

struct MixRun {
    std::string kernel;
    TimePoint start;
    TimePoint end;
    bool truth = false;
};

struct MixSample {
    TimePoint at;
    Watts watts;
};

struct RecordedMix {
    std::vector<MixRun> runs;        ///< in order
    std::vector<MixSample> samples;  ///< in order
};

/// A board's meter: a sample is the mean over a window that ended a while before its time.
struct MeterResponse {
    Duration window{std::chrono::milliseconds{10}};
    Duration delay{0};
};

/// Calls `row(fields)` for each line that is neither empty, nor a comment, nor the header.
/// @throws kdvfs::Error naming file and line where there are too few fields or `row` finds fault.
template <class Row>
void read_csv(const std::filesystem::path& path, std::size_t fields_needed, Row row) {
    std::ifstream in{path};
    if (!in) {
        throw kdvfs::Error{kdvfs::Errc::io,
                           {"read", path.string(), "", "record a round with round.sh"}};
    }
    std::string line;
    bool header = true;
    for (int number = 1; std::getline(in, line); ++number) {
        if (line.empty() || line.front() == '#') continue;
        if (std::exchange(header, false)) continue;
        std::vector<std::string> fields;
        for (std::size_t begin = 0; begin <= line.size();) {
            const std::size_t end = std::min(line.find(',', begin), line.size());
            fields.push_back(line.substr(begin, end - begin));
            begin = end + 1;
        }
        if (fields.size() < fields_needed || !row(fields)) {
            throw kdvfs::Error{
                kdvfs::Errc::invalid_input,
                {"read", path.string() + ':' + std::to_string(number), line, "record it again"}};
        }
    }
}

template <class Number>
bool parse(const std::string& text, Number& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size();
}

inline bool parse(const std::string& text, TimePoint& time) {
    Duration::rep nanoseconds = 0;
    const bool good = parse(text, nanoseconds);
    time = TimePoint{Duration{nanoseconds}};
    return good;
}

/// Reads mix_runs.csv and mix_power.csv of a round.
inline RecordedMix read_mix(const std::filesystem::path& folder) {
    RecordedMix mix;
    read_csv(folder / "mix_runs.csv", 6, [&](const std::vector<std::string>& fields) {
        MixRun& run = mix.runs.emplace_back();
        run.kernel = fields[0];
        run.truth = fields[5] == "1";
        return parse(fields[1], run.start) && parse(fields[2], run.end) && run.start < run.end;
    });
    read_csv(folder / "mix_power.csv", 2, [&](const std::vector<std::string>& fields) {
        MixSample& sample = mix.samples.emplace_back();
        return parse(fields[0], sample.at) && parse(fields[1], sample.watts.count);
    });
    return mix;
}

/// What came out for one kernel.
struct MixKernel {
    std::string name;
    std::optional<Watts> truth;       ///< mean power of its long runs, once the board has settled
    std::optional<Watts> unsettled;   ///< mean power of their first 0.2 s
    std::optional<Watts> attributed;  ///< nothing where it is not told
    Watts half_width;                 ///< of the attributed power, 95 %
    double seconds = 0;               ///< of its short runs

    [[nodiscard]] std::optional<double> error() const {
        if (!truth || !attributed) return std::nullopt;
        return attributed->count / truth->count - 1;
    }
};

struct MixResult {
    std::vector<MixKernel> kernels;
    double residual = 0;  ///< standard deviation of a window's power from the model's, W
};

/// The mean power of each kernel's truth runs between two times after their begin.
inline std::map<std::string, Watts> truths(const RecordedMix& mix, Duration from, Duration to) {
    std::map<std::string, std::pair<double, int>> sums;
    for (const MixRun& run : mix.runs) {
        if (!run.truth) continue;
        for (const MixSample& sample : mix.samples) {
            if (sample.at < run.start + from || sample.at >= std::min(run.end, run.start + to)) {
                continue;
            }
            sums[run.kernel].first += sample.watts.count;
            ++sums[run.kernel].second;
        }
    }
    std::map<std::string, Watts> means;
    for (const auto& [kernel, sum] : sums) means[kernel] = {sum.first / sum.second};
    return means;
}

/// Attributes the short runs' power; no sample that touches a truth run is looked at.
inline MixResult attribute_mix(const RecordedMix& mix, MeterResponse response) {
    kdvfs::measure::KernelTable table;
    kdvfs::measure::EnergyAccumulator accumulator{table, {.capacity = 1U << 20U}};
    for (const MixRun& run : mix.runs) {
        kdvfs::KernelInterval interval;
        interval.kernel = table.id(run.kernel, {});
        interval.start = run.start;
        interval.end = run.end;
        accumulator.add(interval);
    }
    const auto in_truth = [&](TimePoint begin, TimePoint end) {
        return std::any_of(mix.runs.begin(), mix.runs.end(), [&](const MixRun& run) {
            return run.truth && begin < run.end && run.start < end;
        });
    };
    kdvfs::measure::PowerWindows windows;
    for (const MixSample& sample : mix.samples) {
        const TimePoint end = sample.at - response.delay;
        if (end - response.window < mix.runs.front().start || end > mix.runs.back().end ||
            in_truth(end - response.window, end)) {
            continue;
        }
        if (const auto pair = windows.take({end, sample.watts, response.window})) {
            for (const auto& edge : *pair) accumulator.add(edge);
        }
    }
    accumulator.advance(mix.runs.back().end + std::chrono::seconds{1});

    const kdvfs::measure::EnergySums sums = accumulator.sums();
    const kdvfs::measure::Attribution attribution = kdvfs::measure::attribute(sums);
    MixResult result;
    result.residual = sums.scatter().count / std::sqrt(kdvfs::Seconds{response.window}.count());
    using std::chrono::milliseconds;
    const auto truth = truths(mix, milliseconds{500}, Duration::max() / 2);
    const auto unsettled = truths(mix, response.window + response.delay, milliseconds{200});
    for (const auto& kernel : attribution.kernels) {
        MixKernel& out = result.kernels.emplace_back();
        out.name = table.key(kernel.kernel).name;
        out.seconds = kernel.time.count();
        if (const auto found = truth.find(out.name); found != truth.end())
            out.truth = found->second;
        if (const auto found = unsettled.find(out.name); found != unsettled.end())
            out.unsettled = found->second;
        if (!kernel.energy.resolved) continue;
        out.attributed = kernel.energy.joules / kernel.time;
        out.half_width = kernel.energy.half_width / kernel.time;
    }
    return result;
}

/// Which share of a window each kernel ran for, in the order of `kernels`; the last is idle.
inline Eigen::RowVectorXd shares(const RecordedMix& mix, const std::vector<std::string>& kernels,
                                 TimePoint begin, TimePoint end) {
    Eigen::RowVectorXd row =
        Eigen::RowVectorXd::Zero(static_cast<Eigen::Index>(kernels.size()) + 1);
    row[row.size() - 1] = 1;
    auto run = std::lower_bound(mix.runs.begin(), mix.runs.end(), begin,
                                [](const MixRun& r, TimePoint t) { return r.end <= t; });
    for (; run != mix.runs.end() && run->start < end; ++run) {
        const Duration both = std::min(end, run->end) - std::max(begin, run->start);
        const double share =
            static_cast<double>(both.count()) / static_cast<double>((end - begin).count());
        const auto kernel = std::find(kernels.begin(), kernels.end(), run->kernel);
        row[static_cast<Eigen::Index>(kernel - kernels.begin())] += share;
        row[row.size() - 1] -= share;
    }
    return row;
}

/// Root mean square of what a window and a delay leave unexplained of the samples, in W.
inline double unexplained(const RecordedMix& mix, const std::vector<std::string>& kernels,
                          MeterResponse response) {
    const auto columns = static_cast<Eigen::Index>(kernels.size()) + 1;
    Eigen::MatrixXd gram = Eigen::MatrixXd::Identity(columns, columns) * 1e-9;
    Eigen::VectorXd right = Eigen::VectorXd::Zero(columns);
    double squares = 0;
    int rows = 0;
    for (const MixSample& sample : mix.samples) {
        const TimePoint end = sample.at - response.delay;
        if (end - response.window < mix.runs.front().start || end > mix.runs.back().end) continue;
        const auto row = shares(mix, kernels, end - response.window, end);
        gram += row.transpose() * row;
        right += row.transpose() * sample.watts.count;
        squares += sample.watts.count * sample.watts.count;
        ++rows;
    }
    const Eigen::VectorXd watts = gram.ldlt().solve(right);
    return std::sqrt(std::max(0.0, squares - watts.dot(right)) / std::max(rows, 1));
}

/// The window and delay that explain the samples best, by one mean power per kernel.
inline MeterResponse find_response(const RecordedMix& mix) {
    using std::chrono::milliseconds;
    std::vector<std::string> kernels;
    for (const MixRun& run : mix.runs) kernels.push_back(run.kernel);
    std::sort(kernels.begin(), kernels.end());
    kernels.erase(std::unique(kernels.begin(), kernels.end()), kernels.end());
    MeterResponse best;
    double least = std::numeric_limits<double>::infinity();
    for (const int window : {1, 5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200}) {
        for (int delay = -20; delay <= 150; delay += 2) {
            const MeterResponse response{milliseconds{window}, milliseconds{delay}};
            const double rms = unexplained(mix, kernels, response);
            if (rms >= least) continue;
            least = rms;
            best = response;
        }
    }
    return best;
}

}  // namespace measuring
