// SPDX-License-Identifier: MIT
#pragma once

#include <bench/nvidia_round/training_replay.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace measuring {

/// The recorded runs with powers made up: each kernel's is what it drew when it was repeated, times
/// a common factor and its own. A counter that moves every 100 ms and is looked at every 10, and a
/// power log of 20 ms, see them.
struct MadeUp {
    RecordedTraining training;
    std::vector<double> watts;  ///< by kernel

    /// What a run of each phase drew, J.
    [[nodiscard]] std::map<std::string, double> joules_a_run() const {
        const auto& record = training.record;
        TimePoint last = TimePoint::max();
        for (const auto& [at, on] : record.metering) last = on ? TimePoint::max() : at;
        std::map<std::uint32_t, std::pair<double, int>> phases;
        for (const auto& [parent, enclosing] : record.places) phases[enclosing.value] = {};
        for (const auto& [run, window] : record.runs) {
            if (run.end > last) continue;
            const bool of_phase = phases.count(run.kernel.value) > 0;
            if (!of_phase && run.place == 0) continue;
            const std::uint32_t phase =
                of_phase ? run.kernel.value : record.places[run.place - 1].second.value;
            phases[phase].first +=
                watts[run.kernel.value] * kdvfs::Seconds{run.end - run.start}.count();
            phases[phase].second += of_phase && run.ends_scope ? 1 : 0;
        }
        for (const kdvfs::KernelInterval& end : record.ends) {
            if (end.end <= last) ++phases[end.kernel.value].second;
        }
        std::map<std::string, double> found;
        for (const auto& [phase, sums] : phases) {
            found[training.kernels[phase].name] = sums.first / sums.second;
        }
        return found;
    }

    MadeUp(const RecordedTraining& recorded, std::uint64_t seed, double factor, double spread,
           bool memory = false)
        : training{recorded}, watts(recorded.kernels.size(), 150) {
        auto& record = training.record;
        std::mt19937_64 random{seed};
        std::normal_distribution<double> normal;
        for (const auto& power : record.repeated) {
            watts[power.kernel.value] =
                factor * power.figure.power.count * (1 + spread * normal(random));
        }
        std::vector<std::pair<TimePoint, double>> ends;  // joules by then
        constexpr double idle = 125;
        const TimePoint first = record.runs.front().interval.start - std::chrono::seconds{1};
        TimePoint now = first;
        double joules = 0;
        ends.emplace_back(now, joules);
        for (const auto& [run, window] : record.runs) {
            joules += idle * kdvfs::Seconds{run.start - now}.count();
            ends.emplace_back(run.start, joules);
            joules += watts[run.kernel.value] * kdvfs::Seconds{run.end - run.start}.count();
            ends.emplace_back(run.end, joules);
            now = run.end;
        }
        const auto joules_until = [&](TimePoint at) {
            const auto after =
                std::lower_bound(ends.begin() + 1, ends.end() - 1, at,
                                 [](const auto& end, TimePoint time) { return end.first < time; });
            const auto& [from, before] = *(after - 1);
            const double part = kdvfs::Seconds{at - from} /
                                kdvfs::Seconds{std::max(after->first - from, Duration{1})};
            return before + part * (after->second - before);
        };
        const auto faded = [&](TimePoint end) {
            constexpr Duration step = std::chrono::microseconds{250};
            constexpr double kept = 0.98065866;  // over a step, of 12.8 ms
            double sum = 0;
            double weight = 1;
            for (int i = 0; i < 400 && end > first + step; ++i, weight *= kept, end -= step) {
                sum += (1 - kept) * weight * (joules_until(end) - joules_until(end - step)) /
                       kdvfs::Seconds{step}.count();
            }
            return sum + weight * idle;
        };
        record.samples.clear();
        record.power.clear();
        // Reads come every 10 ms, so that each move is seen as late as the first, but for some
        // time.
        std::uniform_int_distribution<int> late{0, 10'000};
        std::uniform_int_distribution<int> wavers{0, 500};
        const auto phase = std::chrono::microseconds{late(random)};
        double wrong = 0;  // as rows of the recordings are off by 3 to 6 W
        for (TimePoint at = first; at < now; at += std::chrono::milliseconds{100}) {
            wrong += 0.3 * normal(random);
            record.samples.push_back({at + phase + std::chrono::microseconds{wavers(random)},
                                      {joules_until(at) + wrong},
                                      0});
        }
        for (TimePoint at = first + std::chrono::milliseconds{50}; at < now;
             at += std::chrono::milliseconds{20}) {
            const TimePoint end = at - std::chrono::milliseconds{2};
            const TimePoint begin = end - std::chrono::milliseconds{20};
            double mean = (joules_until(end) - joules_until(begin)) / 0.020;
            if (memory) mean = faded(at - std::chrono::microseconds{3400});
            record.power.push_back(
                {{mean / 1.01 + 4 * normal(random)}, at, kdvfs::ReadingStatus::ok});
        }
    }
};

/// The same recording as if only ranges had scopes: of so many launches each of a phase, one behind
/// another, named by what is in them. What was repeated is forgotten.
struct Ranges {
    RecordedTraining training;
    std::vector<std::map<std::uint32_t, double>> content;  ///< by range, seconds by kernel

    Ranges(const RecordedTraining& whole, std::size_t launches) : training{whole} {
        auto& record = training.record;
        auto runs = std::exchange(record.runs, {});
        record.repeated.clear();
        std::stable_sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) {
            return a.interval.start < b.interval.start;
        });
        std::set<std::uint32_t> phases;
        for (const auto& [parent, enclosing] : record.places) phases.insert(enclosing.value);
        for (const auto& run : runs) {
            const bool of_phase = phases.count(run.interval.kernel.value) > 0;
            if (of_phase && (run.interval.ends_scope || open_.empty())) {
                close();
                record.runs.push_back(run);  // between its launches, the phase's own
            }
            if (of_phase) continue;
            if (!open_.empty() && open_.back().place != run.interval.place) close();
            open_.push_back(run.interval);
            if (open_.size() == launches) close();
        }
        close();
    }

private:
    void close() {
        if (open_.empty()) return;
        std::string name;
        for (const auto& run : open_) name += '+' + std::to_string(run.kernel.value);
        const auto next = static_cast<std::uint32_t>(training.kernels.size());
        const auto [known, is_new] = numbers_.try_emplace(name, next);
        if (is_new) training.kernels.push_back({"range" + name.substr(0, 40), {next}});
        content.resize(training.kernels.size());
        for (const auto& run : open_) {
            content[known->second][run.kernel.value] += kdvfs::Seconds{run.end - run.start}.count();
        }
        kdvfs::KernelInterval range = open_.front();
        range.kernel.value = known->second;
        range.end = open_.back().end;
        range.ends_scope = true;
        training.record.runs.push_back({range, 1});
        open_.clear();
    }

    std::vector<kdvfs::KernelInterval> open_;
    std::map<std::string, std::uint32_t> numbers_;
};

}  // namespace measuring
