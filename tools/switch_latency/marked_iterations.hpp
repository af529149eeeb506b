// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/switch_latency.hpp>
#include <kdvfs/device/contracts.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/units.hpp>

#include <gsl/assert>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

/// The work whose time tells the clock.
struct IterationWork {
    kdvfs::StreamRef stream{};
    std::function<void()> launch{};  ///< enqueues one iteration: short, always the same
    std::function<void(kdvfs::Duration)> pass{};  ///< lets so much of the device's time pass
};

struct IterationSettings {
    /// The longest switching latency that can be seen. Published ones end at 500 ms, most are
    /// under 150 ms. Before a trace the old clock is held under load for a little longer.
    kdvfs::Duration longest = std::chrono::milliseconds{250};
    kdvfs::Duration before_call = std::chrono::milliseconds{5};
    std::size_t steady = 200;           ///< iterations that tell a steady clock's time
    std::size_t most_in_trace = 20000;  ///< as many markers must fit into the runtime's ring
};

/// Switching latencies of any GPU, by markers between iterations: the two halves of a
/// `SwitchExperiment`. Puts the clocks back as they were found when it ends, whatever happens; for
/// the death of the process `Clocks` may be `kdvfs::restore::OwnedClocks`. One thread at a time.
template <kdvfs::StreamRuntime Runtime, kdvfs::ClockControl Clocks>
class MarkedIterations {
public:
    /// `runtime` and `clocks` must outlive it. @throws Error if the clocks cannot be read
    MarkedIterations(Runtime& runtime, Clocks& clocks, IterationWork work,
                     IterationSettings settings = {})
        : runtime_{runtime},
          clocks_{clocks},
          work_{std::move(work)},
          settings_{settings},
          found_{clocks.read_clock_state()},
          cell_{runtime.make_cell()} {
        Expects(work_.launch && work_.pass && settings_.steady > 0);
    }
    MarkedIterations(const MarkedIterations&) = delete;
    MarkedIterations& operator=(const MarkedIterations&) = delete;
    ~MarkedIterations() {
        try {
            restore();
        } catch (const std::exception& error) {
            std::fprintf(stderr, "kdvfs: %s\n", error.what());
        }
    }

    /// Puts the clocks back. @throws Error if they cannot be, or read back as something else
    void restore() {
        if (std::exchange(restored_, true)) return;
        clocks_.restore(found_);
        const kdvfs::ClockState seen = clocks_.read_clock_state();
        if (seen == found_) return;
        throw kdvfs::Error{kdvfs::Errc::refused,
                           {"restore the clock settings", to_string(clocks_.info()),
                            "it reads back " + to_string(seen.cap) + " in mode " + seen.mode,
                            "run kdvfs restore"}};
    }

    /// The median time of an iteration at whatever clock holds.
    [[nodiscard]] kdvfs::Duration time_iteration() {
        enqueue_marked(settings_.steady);
        return steady_iterations(harvest(settings_.steady)).median;
    }

    [[nodiscard]] std::vector<kdvfs::measure::ClockedIteration> steady(kdvfs::ClockPoint clock) {
        if (iteration_ == kdvfs::Duration::zero()) iteration_ = time_iteration();
        settle_at(clock);
        enqueue_marked(settings_.steady);
        auto iterations = harvest(settings_.steady);
        iteration_ = std::min(iteration_, steady_iterations(iterations).median);
        return iterations;
    }

    [[nodiscard]] kdvfs::measure::SwitchTrace change(kdvfs::ClockPoint from, kdvfs::ClockPoint to) {
        if (iteration_ == kdvfs::Duration::zero()) iteration_ = time_iteration();
        settle_at(from);
        const std::size_t count = iterations_in(settings_.before_call + settings_.longest);
        enqueue_marked(count);
        // Calls come at any place in an iteration.
        constexpr std::uint32_t places = 16;
        work_.pass(settings_.before_call + iteration_ * (changes_++ % places) / places);
        const kdvfs::TimePoint called = runtime_.now();
        clocks_.apply(to);
        return {called, harvest(count)};
    }

private:
    /// At the shortest time that was seen, so that they last long enough at every clock.
    [[nodiscard]] std::size_t iterations_in(kdvfs::Duration time) const {
        const auto count = time / std::max(iteration_, kdvfs::Duration{1000}) + 1;
        return std::min(static_cast<std::size_t>(count), settings_.most_in_trace);
    }

    /// Holds a clock under load, for longer than any latency: idle boards drop their clocks.
    void settle_at(kdvfs::ClockPoint clock) {
        restored_ = false;
        clocks_.apply(clock);
        const std::size_t count = iterations_in(settings_.longest + settings_.longest / 4);
        for (std::size_t i = 0; i < count; ++i) work_.launch();
        runtime_.synchronize(work_.stream);
    }

    void enqueue_marked(std::size_t count) {
        mark();
        for (std::size_t i = 0; i < count; ++i) {
            work_.launch();
            mark();
        }
    }
    void mark() { runtime_.put_marker(work_.stream, {cell_, {}, {}, true}); }

    std::vector<kdvfs::measure::ClockedIteration> harvest(std::size_t count) {
        runtime_.synchronize(work_.stream);
        std::vector<kdvfs::TimePoint> times;
        std::array<kdvfs::MarkerTimestamp, 256> timestamps;
        while (const std::size_t drained = runtime_.drain_timestamps(timestamps)) {
            for (std::size_t i = 0; i < drained; ++i) times.push_back(timestamps[i].time);
        }
        if (times.size() != count + 1) {
            throw kdvfs::Error{
                kdvfs::Errc::io,
                {"time iterations", to_string(clocks_.info()),
                 std::to_string(times.size()) + " timestamps of " + std::to_string(count + 1) +
                     " came back",
                 "let nothing else use this process's streams; lower the longest latency"}};
        }
        std::vector<kdvfs::measure::ClockedIteration> iterations;
        for (std::size_t i = 1; i < times.size(); ++i)
            iterations.push_back({times[i - 1], times[i]});
        return iterations;
    }

    Runtime& runtime_;
    Clocks& clocks_;
    IterationWork work_;
    IterationSettings settings_;
    kdvfs::ClockState found_;
    kdvfs::RequestCell* cell_;
    kdvfs::Duration iteration_{0};
    std::uint32_t changes_ = 0;
    bool restored_ = true;
};
