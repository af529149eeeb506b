// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/attribution.hpp>
#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/detail/measure/meter_response.hpp>
#include <kdvfs/detail/measure/power_windows.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/measure/meter_record.hpp>

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
    std::vector<MixRun> runs;                           ///< in order
    std::vector<MixSample> samples;                     ///< of the power, in order
    std::vector<kdvfs::measure::TimedReading> counter;  ///< joules, in order; may be empty
};

using kdvfs::measure::CounterClock;
using kdvfs::measure::MeterResponse;

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

/// Reads mix_runs.csv and mix_power.csv of a round, and mix_energy.csv where it is.
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
    if (!std::filesystem::exists(folder / "mix_energy.csv")) return mix;
    read_csv(folder / "mix_energy.csv", 2, [&](const std::vector<std::string>& fields) {
        auto& reading = mix.counter.emplace_back();
        return parse(fields[0], reading.read_at) && parse(fields[1], reading.value);
    });
    return mix;
}

/// What came out for one kernel.
struct MixKernel {
    std::string name;
    std::optional<Watts> truth;       ///< mean of the samples wholly inside its short runs
    std::optional<Watts> settled;     ///< mean power of its long runs, once the board has settled
    std::optional<Watts> attributed;  ///< nothing where it is not told
    Watts half_width;                 ///< of the attributed power, 95 %
    double seconds = 0;               ///< of its short runs

    [[nodiscard]] std::optional<double> error() const {
        if (!truth || !attributed) return std::nullopt;
        return attributed->count / truth->count - 1;
    }
    [[nodiscard]] bool covered() const {
        return truth && attributed && std::abs((*attributed - *truth).count) <= half_width.count;
    }
};

struct MixResult {
    std::vector<MixKernel> kernels;
    double residual = 0;  ///< standard deviation of a row's power from the model's, W
    kdvfs::measure::Report report;
};

/// Sums of watts by kernel.
class MeanWatts {
public:
    void add(const std::string& kernel, Watts watts) {
        auto& [sum, count] = sums_[kernel];
        sum += watts.count;
        ++count;
    }
    [[nodiscard]] std::optional<Watts> of(const std::string& kernel) const {
        const auto found = sums_.find(kernel);
        if (found == sums_.end()) return std::nullopt;
        return Watts{found->second.first / found->second.second};
    }

private:
    std::map<std::string, std::pair<double, int>> sums_;
};

/// The mean of the samples that lie wholly inside runs, short or long ones, without the begin.
inline MeanWatts watts_inside(const RecordedMix& mix, MeterResponse response, bool long_runs,
                              Duration without = Duration{0}) {
    MeanWatts means;
    for (const MixRun& run : mix.runs) {
        if (run.truth != long_runs) continue;
        for (const MixSample& sample : mix.samples) {
            const TimePoint end = sample.at - response.delay;
            if (end - response.window < run.start + without || end > run.end) continue;
            means.add(run.kernel, sample.watts);
        }
    }
    return means;
}

/// Attributes the short runs' power as a user's program would have it: what the meter says goes
/// into an `EnergyAccumulator`, whose report is the result. No sample that touches a long run is
/// looked at.
class MixReplay {
public:
    explicit MixReplay(const RecordedMix& mix) : mix_{&mix} {
        for (const MixRun& run : mix.runs) {
            kdvfs::KernelInterval interval;
            interval.kernel = table_.id(run.kernel, {});
            interval.start = run.start;
            interval.end = run.end;
            intervals_.push_back(interval);
            accumulator_.add(interval);
        }
    }
    [[nodiscard]] const std::vector<kdvfs::KernelInterval>& intervals() const { return intervals_; }

    [[nodiscard]] MixResult by_power(MeterResponse response) {
        for (const MixSample& sample : mix_->samples) {
            const TimePoint end = sample.at - response.delay;
            if (!usable(end - response.window, end)) continue;
            accumulator_.add(kdvfs::measure::PowerSample{end, sample.watts, response.window});
        }
        return result(response);
    }
    /// @param response of the power meter, which knows the truth
    [[nodiscard]] MixResult by_counter(CounterClock clock, MeterResponse response) {
        std::optional<kdvfs::measure::EnergySample> last;
        std::uint32_t segment = 0;
        for (const auto& reading : mix_->counter) {
            const TimePoint at = clock.moved(reading.read_at);
            if (last && at <= last->at) continue;
            if (last && !usable(last->at, at)) ++segment;
            last = kdvfs::measure::EnergySample{at, {reading.value}, segment};
            accumulator_.add(*last);
        }
        return result(response);
    }

private:
    [[nodiscard]] bool usable(TimePoint begin, TimePoint end) const {
        if (begin < mix_->runs.front().start || end > mix_->runs.back().end) return false;
        return std::none_of(mix_->runs.begin(), mix_->runs.end(), [&](const MixRun& run) {
            return run.truth && begin < run.end && run.start < end;
        });
    }

    [[nodiscard]] MixResult result(MeterResponse response) {
        accumulator_.advance(mix_->runs.back().end + std::chrono::seconds{1});
        MixResult found;
        accumulator_.fill(found.report);
        found.residual = found.report.fit.scatter.count;
        const MeanWatts inside = watts_inside(*mix_, response, false);
        const MeanWatts settled =
            watts_inside(*mix_, response, true, std::chrono::milliseconds{500});
        for (const auto& row : found.report.rows) {
            MixKernel& out = found.kernels.emplace_back();
            out.name = row.kernel.name;
            out.seconds = row.counted_time.count();
            out.truth = inside.of(out.name);
            out.settled = settled.of(out.name);
            if (!row.energy.resolved) continue;
            out.attributed = row.energy.joules / row.counted_time;
            out.half_width = row.energy.half_width / row.counted_time;
        }
        return found;
    }

    const RecordedMix* mix_;
    kdvfs::measure::KernelTable table_;
    std::vector<kdvfs::KernelInterval> intervals_;
    kdvfs::measure::EnergyAccumulator accumulator_{table_, {.capacity = 1U << 20U}};
};

/// The window and delay that explain the samples best.
inline MeterResponse find_response(const RecordedMix& mix) {
    std::vector<kdvfs::measure::TimedReading> samples;
    for (const MixSample& sample : mix.samples) samples.push_back({sample.at, sample.watts.count});
    return kdvfs::measure::find_meter_response(samples, MixReplay{mix}.intervals()).response;
}

/// How the meter follows a change of the load from one run to the next of kernels that are not at
/// the power limit, where the firmware changes the clock meanwhile: late by `delay`, then with
/// `memory`. Least squares, in which no sample counts beyond a fifth of the change.
struct StepResponse {
    std::size_t samples = 0;
    double delay = 0;   ///< ms
    double memory = 0;  ///< ms
};
inline StepResponse find_step_response(const RecordedMix& mix) {
    constexpr double limit = 640;  // W: above, the H100 and the H200 (700 W) change their clocks
    constexpr double least = 40;   // W, the change
    std::vector<TimePoint> stamps;
    for (const MixSample& sample : mix.samples) stamps.push_back(sample.at);
    kdvfs::measure::LogClock clock{stamps};
    std::vector<std::pair<TimePoint, double>> samples;
    for (const MixSample& sample : mix.samples) {
        if (const auto at = clock.taken(sample.at)) samples.emplace_back(*at, sample.watts.count);
    }
    const auto mean = [&](TimePoint from, TimePoint to) {
        double sum = 0;
        int count = 0;
        for (const auto& [at, watts] : samples) {
            if (at <= from || at > to) continue;
            sum += watts;
            ++count;
        }
        return count > 0 ? sum / count : 0;
    };
    using std::chrono::milliseconds;
    std::vector<std::pair<double, double>> left;  // ms since the change, part of it still to come
    for (std::size_t i = 1; i < mix.runs.size(); ++i) {
        const MixRun& before = mix.runs[i - 1];
        const MixRun& after = mix.runs[i];
        if (after.start - before.start < milliseconds{120} ||
            after.end - after.start < milliseconds{170}) {
            continue;
        }
        const double from = mean(after.start - milliseconds{35}, after.start);
        const double to = mean(after.start + milliseconds{100}, after.end);
        if (from <= 0 || to <= 0 || std::max(from, to) > limit || std::abs(from - to) < least) {
            continue;
        }
        for (const auto& [at, watts] : samples) {
            const double since = kdvfs::Seconds{at - after.start}.count() * 1e3;
            if (since > -6 && since < 70) left.emplace_back(since, (watts - to) / (from - to));
        }
    }
    StepResponse best{left.size()};
    double smallest = std::numeric_limits<double>::infinity();
    for (double delay = 0; delay < 10; delay += 0.05) {
        for (double memory = 1; memory < 40; memory += 0.1) {
            double squares = 0;
            for (const auto& [since, part] : left) {
                const double expected = since < delay ? 1 : std::exp((delay - since) / memory);
                squares += std::min(0.04, std::pow(part - expected, 2));
            }
            if (squares >= smallest) continue;
            smallest = squares;
            best.delay = delay;
            best.memory = memory;
        }
    }
    return best;
}

/// When the counter moves; NVML's does every 100 ms (`HARDWARE` tables).
inline CounterClock find_clock(const RecordedMix& mix) {
    return kdvfs::measure::find_counter_clock(mix.counter, MixReplay{mix}.intervals(),
                                              std::chrono::milliseconds{100});
}

}  // namespace measuring
