// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/measure/energy_counter.hpp>
#include <kdvfs/measure/kernel_interval.hpp>
#include <kdvfs/measure/power_estimate.hpp>
#include <kdvfs/measure/symmetric_matrix.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace kdvfs::measure {

/// A power meter's habits: a sample is the mean over a window that ended `delay` before its time.
struct MeterResponse {
    Duration window{std::chrono::milliseconds{10}};
    Duration delay{0};
};

/// An energy counter's own clock: it moves at `phase` and every `period` from then on; a reading
/// shows what it held at its last move.
struct CounterClock {
    Duration period{0};  ///< 0: it moves all the time
    TimePoint phase{};

    /// The moment whose joules a reading at `read_at` shows.
    [[nodiscard]] TimePoint moved(TimePoint read_at) const {
        if (period <= Duration::zero()) return read_at;
        const Duration since = read_at - phase;
        Duration part = since % period;
        if (part < Duration::zero()) part += period;
        return read_at - part;
    }
};

/// How well one mean power per kernel explains intervals of mean powers.
class MeterTrial {
public:
    /// @param runs in order, none beside another
    explicit MeterTrial(std::span<const KernelInterval> runs) {
        std::uint32_t last = 0;
        for (const KernelInterval& run : runs) last = std::max(last, run.kernel.value);
        kernels_ = runs.empty() ? 0 : last + std::size_t{1};
        for (const KernelInterval& run : runs) {
            if (!runs_.empty() && run.start < runs_.back().end) continue;
            runs_.push_back({run.start, run.end, run.kernel.value});
        }
    }
    [[nodiscard]] TimePoint begin() const { return runs_.front().start; }
    [[nodiscard]] TimePoint end() const { return runs_.back().end; }
    [[nodiscard]] bool empty() const { return runs_.empty(); }

    void clear() {
        gram_ = SymmetricMatrix{kernels_ + 1};
        right_.assign(kernels_ + 1, 0.0);
        squares_ = weight_ = 0;
        next_ = 0;
    }
    /// Intervals that do not lie between the first and the last run as a whole tell nothing.
    void add(TimePoint from, TimePoint to, double watts);
    /// Root mean square of what is left unexplained, in W, of all intervals since `clear`.
    [[nodiscard]] double unexplained() const;

private:
    struct Run {
        TimePoint start;
        TimePoint end;
        std::size_t kernel;
    };

    std::vector<Run> runs_;
    std::size_t kernels_ = 0;
    SymmetricMatrix gram_;
    std::vector<double> right_;
    double squares_ = 0;
    double weight_ = 0;
    std::size_t next_ = 0;  // no run before it reaches into the next interval, usually
    std::vector<std::size_t> columns_;
    std::vector<double> shares_;
};

inline void MeterTrial::add(TimePoint from, TimePoint to, double watts) {
    if (runs_.empty() || from < begin() || to > end() || from >= to) return;
    while (next_ > 0 && runs_[next_ - 1].end > from) --next_;
    while (runs_[next_].end <= from) ++next_;
    columns_.assign(1, kernels_);
    shares_.assign(1, 1.0);
    for (std::size_t i = next_; i < runs_.size() && runs_[i].start < to; ++i) {
        const Duration both = std::min(to, runs_[i].end) - std::max(from, runs_[i].start);
        const double share = Seconds{both} / Seconds{to - from};
        shares_[0] -= share;
        const auto known = std::find(columns_.begin() + 1, columns_.end(), runs_[i].kernel);
        if (known != columns_.end()) {
            shares_[static_cast<std::size_t>(known - columns_.begin())] += share;
            continue;
        }
        columns_.push_back(runs_[i].kernel);
        shares_.push_back(share);
    }
    gram_.add_outer(columns_, shares_, 1);
    for (std::size_t a = 0; a < columns_.size(); ++a) right_[columns_[a]] += shares_[a] * watts;
    squares_ += watts * watts;
    ++weight_;
}

inline double MeterTrial::unexplained() const {
    if (weight_ == 0) return std::numeric_limits<double>::infinity();
    const std::vector<double> watts = PowerPrior{}.factor(gram_).solve(right_);
    double explained = 0;
    for (std::size_t j = 0; j < watts.size(); ++j) {
        explained += 2 * watts[j] * right_[j];
        for (std::size_t k = 0; k < watts.size(); ++k) {
            explained -= watts[j] * gram_(j, k) * watts[k];
        }
    }
    return std::sqrt(std::max(0.0, squares_ - explained) / weight_);
}

/// Windows of power meters that are tried.
inline constexpr std::array<Duration, 13> usual_windows = [] {
    constexpr std::array milliseconds{1, 5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200};
    std::array<Duration, milliseconds.size()> windows{};
    for (std::size_t i = 0; i < windows.size(); ++i) {
        windows[i] = std::chrono::milliseconds{milliseconds[i]};
    }
    return windows;
}();

/// The window and delay that explain a power meter's samples best, and how much they leave.
struct FoundResponse {
    MeterResponse response{};
    double unexplained = std::numeric_limits<double>::infinity();  ///< root mean square, W
};

/// The window, one of `windows`, and delay that explain a power meter's samples best.
/// @param samples `read_at` = when the meter took the sample, in order
/// @param runs    of all kernels, in order, none beside another
[[nodiscard]] inline FoundResponse find_meter_response(
    std::span<const TimedReading> samples, std::span<const KernelInterval> runs,
    std::span<const Duration> windows = usual_windows) {
    using std::chrono::milliseconds;
    MeterTrial trial{runs};
    FoundResponse best;
    const auto attempt = [&](Duration window, Duration delay) {
        trial.clear();
        for (const TimedReading& sample : samples) {
            trial.add(sample.read_at - delay - window, sample.read_at - delay, sample.value);
        }
        const double rms = trial.unexplained();
        if (rms < best.unexplained) best = {{window, delay}, rms};
    };
    for (const Duration window : windows) {
        for (int delay = -20; delay <= 150; delay += 10) attempt(window, milliseconds{delay});
    }
    const Duration about = best.response.delay;
    for (const Duration window : windows) {
        for (Duration delay = about - milliseconds{10}; delay <= about + milliseconds{10};
             delay += milliseconds{2}) {
            attempt(window, delay);
        }
    }
    return best;
}

/// When a counter moves, where it is read about as seldom as it moves, so that no reading shows a
/// move as it happens: the period, within 0.05 % of `about`, and the phase that explain the
/// readings best. A clock of period 0 where the times of the readings explain them as well.
/// @param readings `read_at` = when it was read, in order
/// @param runs     of all kernels, in order, none beside another
[[nodiscard]] inline CounterClock find_counter_clock(std::span<const TimedReading> readings,
                                                     std::span<const KernelInterval> runs,
                                                     Duration about) {
    constexpr double farthest = 5e-4;
    constexpr double clearly = 0.9;
    constexpr int phases = 25;
    MeterTrial trial{runs};
    if (trial.empty() || readings.size() < 2 || about <= Duration::zero()) return {};
    CounterClock best;
    double least = std::numeric_limits<double>::infinity();
    const auto attempt = [&](CounterClock clock) {
        trial.clear();
        for (std::size_t i = 1; i < readings.size(); ++i) {
            const TimePoint from = clock.moved(readings[i - 1].read_at);
            const TimePoint to = clock.moved(readings[i].read_at);
            if (to <= from) continue;
            const double joules = readings[i].value - readings[i - 1].value;
            trial.add(from, to, joules / Seconds{to - from}.count());
        }
        const double rms = trial.unexplained();
        if (rms >= least) return false;
        least = rms;
        best = clock;
        return true;
    };
    attempt({});
    const double as_read = least;
    least = std::numeric_limits<double>::infinity();
    // Over all readings the clock may be off by one step of the phase.
    const TimePoint middle = readings[readings.size() / 2].read_at;
    const Duration span = readings.back().read_at - readings.front().read_at;
    const double moves = std::max(1.0, Seconds{span} / Seconds{about});
    Duration period_step = Duration{std::max<Duration::rep>(
        1, static_cast<Duration::rep>(static_cast<double>(about.count()) / phases / moves * 2))};
    Duration phase_step = about / phases;
    const Duration reach{static_cast<Duration::rep>(static_cast<double>(about.count()) * farthest)};
    for (Duration period = about - reach; period <= about + reach; period += period_step) {
        for (int k = 0; k < phases; ++k) attempt({period, middle + k * phase_step});
    }
    while (phase_step > std::chrono::microseconds{100}) {
        bool better = false;
        const CounterClock from = best;
        for (const int p : {-1, 0, 1}) {
            for (const int k : {-1, 0, 1}) {
                better |= attempt({from.period + p * period_step, from.phase + k * phase_step});
            }
        }
        if (better) continue;
        phase_step /= 2;
        period_step = std::max(period_step / 2, Duration{1});
    }
    return least < clearly * as_read ? best : CounterClock{};
}

}  // namespace kdvfs::measure
