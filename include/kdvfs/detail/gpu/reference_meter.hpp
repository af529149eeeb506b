// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/settings.hpp>
#include <kdvfs/report.hpp>
#include <kdvfs/units.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

namespace kdvfs::inline v0_3::detail {

/// A second sensor of the board's energy (`GpuOptions::reference`), since the GPU was opened.
/// Thread-safe.
class ReferenceMeter {
public:
    struct Reading {
        TimePoint at;
        Joules joules;
    };

    /// @param now the time by the clock that the counter's samples are stamped with
    /// @throws whatever the sensor throws
    ReferenceMeter(const measure::ReferenceSensor& sensor, std::function<TimePoint()> now)
        : sensor_{sensor}, now_{std::move(now)}, first_{read()} {}

    [[nodiscard]] Reading read() {
        const std::lock_guard one_at_a_time{reading_};
        const TimePoint before = now_();
        const Joules joules = sensor_.read();
        return {before + (now_() - before) / 2, joules};
    }

    /// Adds what both sensors have counted, or a note why they cannot be compared.
    /// @param counted the first and the last of the counter's samples
    template <class Counted>
    void add_to(measure::Report& report, Counted counted) {
        constexpr Duration latest = std::chrono::seconds{1};
        try {
            const Reading end = read();
            const auto both = counted();
            if (!both || both->second.at <= both->first.at || end.at - both->second.at > latest) {
                report.notes.push_back("the counter cannot be held against " + sensor_.name +
                                       ": it rests, or lost its thread: ask right after the work");
                return;
            }
            const auto& [first, last] = *both;
            report.totals.reference = {sensor_.name, end.joules - first_.joules,
                                       Seconds{end.at - first_.at}, last.total - first.total,
                                       Seconds{last.at - first.at}};
        } catch (const std::exception& error) {
            report.notes.emplace_back(error.what());
        }
    }

private:
    const measure::ReferenceSensor& sensor_;
    std::function<TimePoint()> now_;
    std::mutex reading_;
    Reading first_;  ///< when the GPU was opened
};

}  // namespace kdvfs::inline v0_3::detail
