// SPDX-License-Identifier: MIT
#pragma once

#include "mix_replay.hpp"

#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/measure/meter_record.hpp>
#include <kdvfs/measure/sensor_calibration.hpp>
#include <kdvfs/report.hpp>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// A recorded run of gpt_train (`--record`), attributed again as the library did it live.
namespace measuring {

struct RecordedTraining {
    std::vector<kdvfs::KernelKey> kernels;  ///< by number
    kdvfs::measure::MeterRecord record;
};

/// The lines of `path`, or of `path`.gz, which gzip unpacks. Empty where there is neither.
inline std::vector<std::string> unpacked_lines(const std::filesystem::path& path) {
    std::filesystem::path packed = path;
    packed += ".gz";
    const bool plain = std::filesystem::exists(path);
    std::vector<std::string> lines;
    if (!plain && !std::filesystem::exists(packed)) return lines;
    const std::string command =
        plain ? "cat '" + path.string() + "'" : "gzip -dc '" + packed.string() + "'";
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe{popen(command.c_str(), "r"),
                                                               &pclose};
    std::string line;
    for (int c = pipe ? std::fgetc(pipe.get()) : EOF; c != EOF; c = std::fgetc(pipe.get())) {
        if (c != '\n') {
            line += static_cast<char>(c);
            continue;
        }
        lines.push_back(std::exchange(line, {}));
    }
    return lines;
}

/// Calls `row(fields)` for each line but the header.
/// @throws kdvfs::Error where a line has too few fields or `row` finds fault.
template <class Row>
void read_packed(const std::filesystem::path& path, std::size_t fields_needed, Row row) {
    const std::vector<std::string> lines = unpacked_lines(path);
    for (std::size_t i = 1; i < lines.size(); ++i) {
        std::vector<std::string> fields;
        for (std::size_t begin = 0; begin <= lines[i].size();) {
            const std::size_t end = std::min(lines[i].find(',', begin), lines[i].size());
            fields.push_back(lines[i].substr(begin, end - begin));
            begin = end + 1;
        }
        if (fields.size() >= fields_needed && row(fields)) continue;
        throw kdvfs::Error{
            kdvfs::Errc::invalid_input,
            {"read", path.string() + ':' + std::to_string(i + 1), lines[i], "record it again"}};
    }
}

/// Reads what `gpt_train --record --out FOLDER` or an attached program has written
/// (`measure::write_record`).
inline RecordedTraining read_training(const std::filesystem::path& folder) {
    using namespace kdvfs::measure;
    using Fields = std::vector<std::string>;
    RecordedTraining training;
    MeterRecord& record = training.record;
    read_packed(folder / "runs.csv", 4, [&](const Fields& fields) {
        kdvfs::KernelInterval interval;
        Duration::rep length = 0;
        const bool good = parse(fields[0], interval.kernel.value) &&
                          parse(fields[1], interval.place) && parse(fields[2], interval.start) &&
                          parse(fields[3], length);
        interval.end = interval.start + Duration{length};
        interval.ends_scope = fields.size() < 5 || fields[4] != "0";
        if (fields.size() == 5 && fields[4] == "2") {
            record.ends.push_back(interval);
        } else {
            record.runs.push_back({interval, 1});
        }
        return good;
    });
    read_packed(folder / "samples.csv", 3, [&](const Fields& fields) {
        EnergySample& sample = record.samples.emplace_back();
        return parse(fields[0], sample.at) && parse(fields[1], sample.total.count) &&
               parse(fields[2], sample.segment);
    });
    read_packed(folder / "power.csv", 2, [&](const Fields& fields) {
        kdvfs::PowerReading& reading = record.power.emplace_back();
        reading.status = kdvfs::ReadingStatus::ok;
        return parse(fields[0], reading.sampled_at) && parse(fields[1], reading.watts.count);
    });
    read_packed(folder / "marks.csv", 4, [&](const Fields& fields) {
        TimePoint at;
        int flag = 0;
        if (fields[0] == "kernel") {
            std::string name = fields[2];  // in which there may be commas
            for (std::size_t i = 3; i + 1 < fields.size(); ++i) name += ',' + fields[i];
            training.kernels.push_back({name, {}});
            return parse(fields.back(), training.kernels.back().variant.index);
        }
        if (fields[0] == "place") {
            auto& [parent, enclosing] = record.places.emplace_back();
            return parse(fields[1], parent) && parse(fields[2], enclosing.value);
        }
        if (fields[0] == "repeated") {
            RepeatedPower& power = record.repeated.emplace_back();
            double seconds = 0;
            const bool good = parse(fields[1], power.kernel.value) &&
                              parse(fields[2], power.figure.power.count) &&
                              parse(fields[3], power.figure.half_width.count) &&
                              (fields.size() < 6 ||
                               (parse(fields[4], power.figure.calls) && parse(fields[5], seconds)));
            power.figure.time = kdvfs::Seconds{seconds};
            return good;
        }
        const bool good = parse(fields[1], at) && parse(fields[2], flag);
        if (fields[0] == "metering") record.metering.emplace_back(at, flag != 0);
        if (fields[0] == "iteration") {
            record.iterations.emplace_back(at, static_cast<IterationMark>(flag));
        }
        return good && (fields[0] == "metering" || fields[0] == "iteration");
    });
    return training;
}

/// The same as if only one step in `every` had been metered, from the first on: nothing is known of
/// what ran in the others.
inline RecordedTraining metered_one_in(const RecordedTraining& whole, std::size_t every) {
    using namespace kdvfs::measure;
    RecordedTraining part = whole;
    MeterRecord& record = part.record;
    record.runs.clear();
    record.metering.clear();
    record.iterations.clear();
    std::vector<std::pair<TimePoint, TimePoint>> steps;
    for (const auto& [at, mark] : whole.record.iterations) {
        if (!steps.empty() && steps.back().second == TimePoint::max()) steps.back().second = at;
        if (mark == IterationMark::begins) steps.emplace_back(at, TimePoint::max());
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < steps.size(); i += every) {
        const auto [begin, end] = steps[i];
        if (end == TimePoint::max()) break;
        TimePoint last = begin;
        for (; next < whole.record.runs.size(); ++next) {
            const auto& run = whole.record.runs[next];
            if (run.interval.start >= end) break;
            if (run.interval.start < begin) continue;
            record.runs.push_back(run);
            last = std::max(last, run.interval.end);
        }
        if (i > 0) record.metering.emplace_back(begin, true);
        record.iterations.emplace_back(begin, IterationMark::begins);
        record.iterations.emplace_back(last, IterationMark::ends);
        record.metering.emplace_back(last, false);
    }
    return part;
}

/// What is left out of a replay.
struct ReplaySettings {
    bool power = true;     ///< the samples of the power log
    bool repeated = true;  ///< the figures of repeated kernels
    /// Nothing before and behind, by parts of the metered time, from iteration to iteration.
    double from = 0;
    double to = 1;
    Duration counter_period = std::chrono::milliseconds{100};
    bool sensor_may_lag = true;  ///< as where users open a real board
    Duration shift{0};           ///< of the log's stamps against all others
    bool attached = false;       ///< with the columns of `kdvfs run`
    /// What `kdvfs measure-sensor` has kept of the board.
    std::optional<kdvfs::measure::SensorCalibration> sensors{};
};

/// The report of an accumulator that is told all of it in the order in which it came.
inline kdvfs::measure::Report replay(const RecordedTraining& training,
                                     ReplaySettings settings = {}) {
    using namespace kdvfs::measure;
    constexpr Duration slice = std::chrono::milliseconds{250};
    const MeterRecord& record = training.record;
    KernelTable table;
    for (const kdvfs::KernelKey& kernel : training.kernels) (void)table.id(kernel);
    EnergyAccumulator accumulator{table,
                                  {.counter_period = settings.counter_period,
                                   .most_columns = settings.attached ? 96U : 1024U,
                                   .pool_below = settings.attached ? 1e-3 : 0,
                                   .kernels_repeat = settings.repeated,
                                   .sensor_may_lag = settings.sensor_may_lag,
                                   .sensors = settings.sensors}};
    for (const auto& [parent, enclosing] : record.places) accumulator.add_place(parent, enclosing);
    if (settings.repeated) {
        for (const RepeatedPower& power : record.repeated) accumulator.add_repeated(power);
    }
    kdvfs::measure::Report report;
    if (record.runs.empty() || record.samples.empty()) return report;
    TimePoint first = record.runs.front().interval.start;
    TimePoint last = record.runs.back().interval.end;
    // Metered from the start on, unless that was taken back before the first run.
    const auto& metered = record.metering;
    if (metered.size() > 1 && !metered[0].second && metered[0].first < first) {
        first = std::max(first, metered[1].first);
    }
    if (!metered.empty() && !metered.back().second) last = std::min(last, metered.back().first);
    const auto part = [&](double share) {
        const TimePoint at = first + std::chrono::duration_cast<Duration>((last - first) * share);
        // As it was live, the whole begins before the first kernel, where all was metered.
        const bool from_opening = first == record.runs.front().interval.start;
        if (share <= 0 && from_opening) return std::min(at, record.samples.front().at);
        if (share <= 0 || share >= 1) return at;
        for (const auto& [begun, mark] : record.iterations) {
            if (begun >= at && mark == IterationMark::begins) return begun;
        }
        return at;
    };
    const TimePoint from = part(settings.from);
    const TimePoint to = part(settings.to);
    const auto within = [&](TimePoint at) { return at >= from && at <= to; };
    const auto add = [&](const auto& items, std::size_t& next, TimePoint until, auto time,
                         auto take) {
        for (; next < items.size() && time(items[next]) < until; ++next) {
            if (within(time(items[next]))) take(items[next]);
        }
    };
    std::size_t runs = 0;
    std::size_t ends = 0;
    std::size_t samples = 0;
    std::size_t power = 0;
    std::size_t metering = 0;
    std::size_t iterations = 0;
    const auto pair_time = [](const auto& item) { return item.first; };
    for (TimePoint until = from; until < last + std::chrono::seconds{1}; until += slice) {
        for (; metering < record.metering.size() && record.metering[metering].first < until;
             ++metering) {
            accumulator.metering(record.metering[metering].first, record.metering[metering].second);
        }
        add(record.iterations, iterations, until, pair_time,
            [&](const auto& item) { accumulator.iteration(item.first, item.second); });
        TimePoint known = until;
        // A run comes in when it has ended.
        add(
            record.runs, runs, until, [](const auto& run) { return run.interval.start; },
            [&](const auto& run) { accumulator.add(run.interval); });
        add(
            record.ends, ends, until, [](const auto& end) { return end.start; },
            [&](const auto& end) { accumulator.end_enclosing(end); });
        add(
            record.samples, samples, until, [](const auto& sample) { return sample.at; },
            [&](const auto& sample) { accumulator.add(sample); });
        if (settings.power) {
            add(
                record.power, power, until, [](const auto& reading) { return reading.sampled_at; },
                [&](auto reading) {
                    reading.sampled_at += settings.shift;
                    accumulator.add(reading);
                });
        }
        if (samples > 0) known = std::min(known, record.samples[samples - 1].at);
        accumulator.advance(known);
    }
    accumulator.fill(report);
    return report;
}

}  // namespace measuring
