// SPDX-License-Identifier: MIT
// What reports of recorded runs of gpt_train say that begin at random moments, as a program that is
// looked at for a while: recording_cuts CUTS FOLDER FIGURES [FOLDER FIGURES]..., where the second
// folder lends its figures of repeated kernels. Of each recording a line: how many kernels of 2 %
// of the time or more are resolved without these figures, how many of them agree with them, how far
// the sensor's delay is off that of the whole recording, and, with the figures, the widest
// half-width of a kernel of 5 % of the time. Needs no GPU.
#include "training_replay.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace {

using kdvfs::measure::Report;

/// ms from a load to the reading that shows it, where the report says so.
std::optional<double> delay_of(const Report& report) {
    if (report.fit.sensor) {
        return 1e3 * (report.fit.sensor->delay + report.fit.sensor->rise).count();
    }
    for (const std::string& note : report.notes) {
        const std::size_t at = note.find("they follow the kernels ");
        double found = 0;
        if (at != std::string::npos &&
            std::sscanf(note.c_str() + at, "they follow the kernels %lf ms late", &found) == 1) {
            return found;
        }
    }
    return {};
}

struct Line {
    int kernels = 0;
    int resolved = 0;
    int covered = 0;
    int far = 0;  ///< beyond two half-widths
    int reports = 0;
    int delays = 0;      ///< that were found
    int delays_off = 0;  ///< by more than 0.3 ms
    int wide = 0;        ///< reports with repeated figures whose widest half-width is above 10 %
    double widest = 0;

    void add(const Report& report, std::optional<double> whole) {
        double all = 0;
        for (const auto& row : report.rows) all += row.counted_time.count();
        for (const auto& row : report.rows) {
            if (!row.repeated || row.counted_time.count() < 0.02 * all) continue;
            ++kernels;
            if (!row.energy.resolved) continue;
            ++resolved;
            const double seconds = row.counted_time.count();
            const double half_width = row.energy.half_width.count / seconds;
            const double off =
                std::abs(row.energy.joules.count / seconds - row.repeated->power.count);
            covered += off <= half_width + row.repeated->half_width.count ? 1 : 0;
            far += off > 2 * half_width + row.repeated->half_width.count ? 1 : 0;
        }
        ++reports;
        const auto delay = delay_of(report);
        if (!delay || !whole) return;
        ++delays;
        delays_off += std::abs(*delay - *whole) > 0.3 ? 1 : 0;
    }
    void add_repeated(const Report& report) {
        double all = 0;
        double widest_here = 0;
        for (const auto& row : report.rows) all += row.counted_time.count();
        for (const auto& row : report.rows) {
            if (row.counted_time.count() < 0.05 * all) continue;
            const double width =
                row.energy.resolved ? row.energy.half_width.count / row.energy.joules.count : 1;
            widest_here = std::max(widest_here, width);
        }
        widest = std::max(widest, widest_here);
        wide += widest_here > 0.1 ? 1 : 0;
    }
    void print(const char* name, int cuts) const {
        std::printf("%-44s | %4d of %4d %5.1f %4d | %2d of %2d | %2d of %2d %6.1f\n", name,
                    resolved, kernels, 100.0 * covered / std::max(resolved, 1), far, delays_off,
                    delays, wide, cuts, 100 * widest);
        std::fflush(stdout);
    }
};

/// The figures of repeated kernels, for who was not told of them.
void set_beside(Report& report, const measuring::RecordedTraining& training) {
    for (auto& row : report.rows) {
        for (const auto& power : training.record.repeated) {
            if (training.kernels[power.kernel.value] == row.kernel) row.repeated = power.figure;
        }
    }
}

/// Resolved kernels before and after shifts of the log's stamps.
struct Shifted {
    int before = 0;
    int after = 0;
    int both = 0;
    int steady = 0;       ///< of those: move by less than half a half-width
    double farthest = 0;  ///< half-widths

    void add(const Report& whole, const Report& moved) {
        for (std::size_t k = 0; k < whole.rows.size(); ++k) {
            const auto& a = whole.rows[k].energy;
            const auto& b = moved.rows[k].energy;
            before += a.resolved ? 1 : 0;
            after += b.resolved ? 1 : 0;
            if (!a.resolved || !b.resolved) continue;
            const double watts = (a.joules / whole.rows[k].counted_time).count;
            const double apart = std::abs((b.joules / moved.rows[k].counted_time).count - watts);
            const double part = apart / (a.half_width / whole.rows[k].counted_time).count;
            steady += part < 0.5 ? 1 : 0;
            ++both;
            farthest = std::max(farthest, part);
        }
    }
};

Shifted shift(const measuring::RecordedTraining& training, bool repeated) {
    using measuring::replay;
    Shifted found;
    const Report whole = replay(training, {.repeated = repeated});
    for (const int by : {-300, 300}) {
        found.add(whole,
                  replay(training, {.repeated = repeated, .shift = std::chrono::microseconds{by}}));
    }
    return found;
}

Line look_at(const std::string& folder, const std::string& figures, int cuts) {
    using namespace measuring;
    RecordedTraining training = read_training(folder);
    training.record.repeated = read_training(figures).record.repeated;
    if (training.record.runs.empty()) throw std::runtime_error{"nothing was recorded there"};
    const double length = kdvfs::Seconds{training.record.runs.back().interval.end -
                                         training.record.runs.front().interval.start}
                              .count();
    constexpr double left = 10;  // s
    std::mt19937_64 random{20'261'126};
    Line line;
    const auto whole = delay_of(replay(training, {.repeated = false, .sensor_may_lag = true}));
    for (int i = 0; i < cuts; ++i) {
        const double from =
            std::uniform_real_distribution<double>{0, std::max(1 - left / length, 0.01)}(random);
        Report report = replay(training, {.repeated = false, .from = from, .sensor_may_lag = true});
        set_beside(report, training);
        line.add(report, whole);
        line.add_repeated(replay(training, {.from = from, .sensor_may_lag = true}));
    }
    return line;
}

}  // namespace

int main(int count, char** arguments) {
    const int cuts = count > 3 && count % 2 == 0 ? std::atoi(arguments[1]) : 0;
    if (cuts < 1) {
        std::fprintf(stderr, "usage: recording_cuts CUTS FOLDER FIGURES [FOLDER FIGURES]...\n");
        return 2;
    }
    try {
        std::printf("%d cuts of each recording, 10 s or more left\n", cuts);
        std::printf("%-44s | %-24s | %-8s | %s\n", "", "resolved   cov. %  far", "delay",
                    "repeated");
        std::printf("%-44s | %24s | %8s | %s\n", "", "", "> 0.3 ms", "> 10 %, widest %");
        for (int i = 2; i + 1 < count; i += 2) {
            look_at(arguments[i], arguments[i + 1], cuts).print(arguments[i], cuts);
        }
        std::printf(
            "the log's stamps shifted by +-0.3 ms: kernels resolved before, after; of those "
            "that stay so, move by less than half a half-width; farthest, half-widths\n");
        for (int i = 2; i + 1 < count; i += 2) {
            measuring::RecordedTraining training = measuring::read_training(arguments[i]);
            training.record.repeated = measuring::read_training(arguments[i + 1]).record.repeated;
            for (const bool repeated : {false, true}) {
                const Shifted found = shift(training, repeated);
                std::printf("%-44s | %-8s | %4d %4d | %4d of %4d %5.1f %% | %4.1f\n", arguments[i],
                            repeated ? "repeated" : "", found.before, found.after, found.steady,
                            found.both, 100.0 * found.steady / std::max(found.both, 1),
                            found.farthest);
            }
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "recording_cuts: %s\n", error.what());
        return 2;
    }
}
