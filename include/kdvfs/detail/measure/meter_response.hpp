// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/detail/measure/power_estimate.hpp>
#include <kdvfs/detail/measure/power_windows.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>
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
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::measure {

/// A power meter's habits: a sample is the mean over a window that ended `delay` before its time,
/// or, where it has a memory, the mean over all time before that moment, in which what lies
/// `memory` back counts 1/e (a filter of first order). Its samples then come about every `window`.
struct MeterResponse {
    Duration window{std::chrono::milliseconds{10}};
    Duration delay{0};
    Duration memory{0};
    /// How far what a sample says of the time since the one before may be off after a change of the
    /// power, as a part of that change: for the habits are known to so much only.
    double change_error = 0;

    /// Such a part of its window may a run last before samples can show that one part of it draws
    /// other power than another: differences of 40 % (`PowerPrior`) of 450 W, say, move a sample by
    /// 6 W then, as much as noise does.
    static constexpr int shows_inside = 32;
    /// How far back the middle of what a sample shows lies.
    [[nodiscard]] Duration age() const {
        return delay + (memory > Duration::zero() ? memory : window / 2);
    }
    /// What is left in a sample of what the one before showed.
    [[nodiscard]] double kept() const {
        return memory > Duration::zero() ? std::exp(-(Seconds{window} / Seconds{memory})) : 0;
    }
};

/// The clock by which a power log takes its samples, where it is a regular one whose samples are
/// now and then stamped late (every fifth of an H100's by 5 or 9 ms, though its watts are those of
/// the regular moment). Its period and phase are those from which fewest stamps are off.
class LogClock {
public:
    LogClock() = default;
    /// @param stamps of the log's samples, in order
    explicit LogClock(std::span<const TimePoint> stamps);

    [[nodiscard]] bool regular() const { return period_ > 0; }
    /// When a sample was taken; its timestamp where the log is not regular, nothing where it is
    /// late behind a late one: then the log has got out of step. In order of the stamps.
    [[nodiscard]] std::optional<TimePoint> taken(TimePoint timestamp) {
        if (!regular()) return timestamp;
        constexpr double early = 0.1;    // of a period: a timestamp's own scatter
        constexpr double step = 2.5e-3;  // of a period: how far one timestamp moves the clock
        const double since = since_phase(timestamp);
        const double begin = std::floor(since / period_ + early) * period_;
        phase_ += nanoseconds(begin);
        const TimePoint at = phase_;
        phase_ += nanoseconds(std::clamp(since - begin, -step * period_, step * period_));
        const bool late = since - begin > on_time * period_;
        if (std::exchange(late_, late) && late) return {};
        return at;
    }

private:
    static constexpr double on_time = 0.05;  // of a period

    [[nodiscard]] double since_phase(TimePoint timestamp) const {
        return static_cast<double>((timestamp - phase_).count());
    }
    [[nodiscard]] static Duration nanoseconds(double count) {
        return Duration{static_cast<Duration::rep>(std::llround(count))};
    }

    double period_ = 0;  // ns
    TimePoint phase_{};
    bool late_ = false;  // the timestamp before
};

inline LogClock::LogClock(std::span<const TimePoint> stamps) {
    constexpr std::size_t fewest = 50;
    constexpr std::size_t most = 512;
    constexpr double mostly = 0.6;  // of the stamps
    constexpr int steps = 100;      // of a quarter of `on_time` over all stamps
    if (stamps.size() < fewest) return;
    stamps = stamps.first(std::min(stamps.size(), most));
    std::vector<double> gaps;
    for (std::size_t i = 1; i < stamps.size(); ++i) {
        gaps.push_back(static_cast<double>((stamps[i] - stamps[i - 1]).count()));
    }
    const double about = median_of(gaps);
    if (about <= 0) return;
    phase_ = stamps.front();
    const double step = about * on_time / 4 / static_cast<double>(stamps.size());
    std::size_t best = 0;
    double phase = 0;
    std::vector<double> rests(stamps.size());
    for (int k = -steps; k <= steps; ++k) {
        const double period = about + k * step;
        for (std::size_t i = 0; i < stamps.size(); ++i) {
            rests[i] = std::fmod(since_phase(stamps[i]), period);
        }
        std::sort(rests.begin(), rests.end());
        for (std::size_t i = 0; i < stamps.size(); ++i) rests.push_back(rests[i] + period);
        for (std::size_t from = 0, to = 0; from < stamps.size(); ++from) {
            while (to < rests.size() && rests[to] <= rests[from] + on_time * period) ++to;
            if (to - from <= best) continue;
            best = to - from;
            period_ = period;
            phase = rests[from + (to - from) / 2];
        }
        rests.resize(stamps.size());
    }
    if (static_cast<double>(best) < mostly * static_cast<double>(stamps.size())) period_ = 0;
    phase_ += nanoseconds(phase - period_);
}

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

/// What a meter's samples say of the time since the one before: where the meter has a memory, what
/// is left of earlier time is taken out of each. The mean that stays weighs time by `TimeWeight`.
class LogMeans {
public:
    LogMeans() = default;
    explicit LogMeans(MeterResponse response) : response_{response} {}

    /// @param taken in order
    /// @returns nothing where what came before is unknown
    [[nodiscard]] std::optional<PowerSample> take(TimePoint taken, Watts shown) {
        const TimePoint end = taken - response_.delay;
        if (response_.memory <= Duration::zero()) return PowerSample{end, shown, response_.window};
        constexpr int farthest = 3;  // windows: one or two samples may be missing
        const TimePoint from = std::exchange(last_, end);
        const Watts before = std::exchange(shown_, shown);
        if (from == TimePoint::min() || end <= from || end - from > farthest * response_.window) {
            return {};
        }
        const double kept = std::exp(-(Seconds{end - from} / Seconds{response_.memory}));
        return PowerSample{end, (shown - before * kept) * (1 / (1 - kept)), end - from};
    }

private:
    MeterResponse response_;
    TimePoint last_ = TimePoint::min();
    Watts shown_;
};

/// The energy of a power log at its readings, as if each power had held since the reading before.
class LogEnergy {
public:
    /// @param taken  in order
    /// @param period between two readings
    /// @returns in a segment of its own where what came before is unknown
    EnergySample take(TimePoint taken, Watts watts, Seconds period) {
        constexpr int farthest = 3;  // periods: one or two readings may be missing
        const Seconds since{taken - std::exchange(end_.at, taken)};
        if (end_.segment == 0 || since > farthest * period) {
            ++end_.segment;
        } else {
            end_.total += watts * since;
        }
        return end_;
    }

private:
    EnergySample end_{};
};

/// What a second of a row weighs in the mean that a meter with a memory gives of it: late ones
/// more. Without a memory 1.
class TimeWeight {
public:
    TimeWeight() = default;
    explicit TimeWeight(Duration memory) : memory_{memory} {}

    /// The row's next stretch. @returns a second's weight in it, relative to the row's begin
    double pass(TimePoint from, TimePoint to, bool begins_row) {
        if (memory_ <= Duration::zero() || to <= from) return 1;
        if (from == TimePoint::min()) return 1;  // before the first sample: in no row
        constexpr double longest = 50;           // no row that is used lasts as many memories
        if (begins_row) begin_ = from;
        const double a = std::min(Seconds{from - begin_} / Seconds{memory_}, longest);
        const double b = std::min(Seconds{to - begin_} / Seconds{memory_}, longest + 1);
        return (std::exp(b) - std::exp(a)) / (b - a);
    }

private:
    Duration memory_{0};
    TimePoint begin_;
};

/// Of which time it is known what ran: all of it, until something else is said. Where only some
/// iterations are metered, the rest is unknown, and not idle.
class MeteredTime {
public:
    /// From `at` on, in order of time.
    void set(TimePoint at, bool on) {
        if (on == stretches_.back().to.has_value()) {
            if (on) {
                stretches_.push_back({at, {}});
            } else {
                stretches_.back().to = std::max(at, stretches_.back().from);
            }
        }
    }
    /// Whether all of [from, to] is known.
    [[nodiscard]] bool holds(TimePoint from, TimePoint to) const {
        const auto after = std::upper_bound(
            stretches_.begin(), stretches_.end(), from,
            [](TimePoint at, const Stretch& stretch) { return at < stretch.from; });
        return after != stretches_.begin() && (!(after - 1)->to || to <= *(after - 1)->to);
    }
    /// How much of [from, to] is known.
    [[nodiscard]] Duration of(TimePoint from, TimePoint to) const {
        Duration sum{0};
        for (const Stretch& stretch : stretches_) {
            const TimePoint begin = std::max(from, stretch.from);
            const TimePoint end = std::min(to, stretch.to.value_or(to));
            if (end > begin) sum += end - begin;
        }
        return sum;
    }

private:
    struct Stretch {
        TimePoint from;
        std::optional<TimePoint> to;
    };
    std::vector<Stretch> stretches_{{TimePoint::min(), {}}};
};

/// How well one mean power per kernel explains intervals of mean powers.
class MeterTrial {
public:
    /// @param runs in order, none beside another
    explicit MeterTrial(std::span<const KernelInterval> runs, MeteredTime metered = {})
        : metered_{std::move(metered)} {
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
        faded_to_ = {};
    }
    /// Intervals that do not lie in metered time between the first and the last run as a whole tell
    /// nothing.
    void add(TimePoint from, TimePoint to, double watts);
    /// A sample of a meter with a memory, whose sample before was of `from` and showed `before`:
    /// behind a gap that says all that is known of the time until then, so that the first ones
    /// there, which show little else, tell nothing.
    void add_fading(TimePoint from, TimePoint to, double watts, double before, Duration memory);
    /// Root mean square of what is left unexplained, in W, of all intervals since `clear`.
    [[nodiscard]] double unexplained() const;
    [[nodiscard]] double rows() const { return weight_; }

private:
    struct Run {
        TimePoint start;
        TimePoint end;
        std::size_t kernel;
    };

    [[nodiscard]] bool within(TimePoint from, TimePoint to) const {
        return !runs_.empty() && from >= begin() && to <= end() && from < to &&
               metered_.holds(from, to);
    }
    /// Columns and their shares of an interval within the runs, which `weight` weighs by the begin
    /// and the end of a part of it, 1 in all.
    template <class Weight>
    void find_shares(TimePoint from, TimePoint to, Weight weight);
    void add_row(double watts);

    MeteredTime metered_;
    std::vector<Run> runs_;
    std::size_t kernels_ = 0;
    SymmetricMatrix gram_;
    std::vector<double> right_;
    double squares_ = 0;
    double weight_ = 0;
    std::size_t next_ = 0;  // no run before it reaches into the next interval, usually
    std::vector<std::size_t> columns_;
    std::vector<double> shares_;
    std::vector<double> faded_;  // by column, what a meter with a memory shows
    double unknown_ = 1;         // of that, what lies before the first sample
    double before_ = 0;          // what the sample before that showed
    TimePoint faded_to_{};
};

template <class Weight>
void MeterTrial::find_shares(TimePoint from, TimePoint to, Weight weight) {
    while (next_ > 0 && runs_[next_ - 1].end > from) --next_;
    while (runs_[next_].end <= from) ++next_;
    columns_.assign(1, kernels_);
    shares_.assign(1, 1.0);
    for (std::size_t i = next_; i < runs_.size() && runs_[i].start < to; ++i) {
        const double share = weight(std::max(from, runs_[i].start), std::min(to, runs_[i].end));
        shares_[0] -= share;
        const auto known = std::find(columns_.begin() + 1, columns_.end(), runs_[i].kernel);
        if (known != columns_.end()) {
            shares_[static_cast<std::size_t>(known - columns_.begin())] += share;
            continue;
        }
        columns_.push_back(runs_[i].kernel);
        shares_.push_back(share);
    }
}

inline void MeterTrial::add_row(double watts) {
    gram_.add_outer(columns_, shares_, 1);
    for (std::size_t a = 0; a < columns_.size(); ++a) right_[columns_[a]] += shares_[a] * watts;
    squares_ += watts * watts;
    ++weight_;
}

inline void MeterTrial::add(TimePoint from, TimePoint to, double watts) {
    if (!within(from, to)) return;
    find_shares(from, to, [&](TimePoint begin, TimePoint end) {
        return Seconds{end - begin} / Seconds{to - from};
    });
    add_row(watts);
}

inline void MeterTrial::add_fading(TimePoint from, TimePoint to, double watts, double before,
                                   Duration memory) {
    constexpr double little = 0.5;  // a sample of which most is known is noisier by a tenth
    constexpr double nothing = 1e-3;
    if (!within(from, to)) return;
    const auto left = [&](TimePoint at) { return std::exp(-(Seconds{to - at} / Seconds{memory})); };
    const double kept = left(from);
    find_shares(from, to, [&](TimePoint begin, TimePoint end) {
        return (left(end) - left(begin)) / (1 - kept);
    });
    if (faded_to_ != from) {
        faded_.assign(kernels_ + 1, 0.0);
        unknown_ = 1;
        before_ = before;
    }
    faded_to_ = to;
    unknown_ *= kept;
    for (double& share : faded_) share *= kept;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        faded_[columns_[i]] += (1 - kept) * shares_[i];
    }
    if (unknown_ > little) return;
    columns_.clear();
    shares_.clear();
    for (std::size_t j = 0; j < faded_.size(); ++j) {
        if (faded_[j] < nothing) continue;
        columns_.push_back(j);
        shares_.push_back(faded_[j]);
    }
    add_row(watts - unknown_ * before_);
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

/// The habits that explain a power meter's samples best, and how much they leave.
struct FoundResponse {
    MeterResponse response{};
    double unexplained = std::numeric_limits<double>::infinity();  ///< root mean square, W
    double rows = 0;                                               ///< that this was seen in
};

/// What a window and delay, without a memory, leave of a power meter's samples.
[[nodiscard]] inline FoundResponse try_response(MeterTrial& trial,
                                                std::span<const TimedReading> samples,
                                                MeterResponse response) {
    trial.clear();
    for (const TimedReading& sample : samples) {
        const TimePoint end = sample.read_at - response.delay;
        trial.add(end - response.window, end, sample.value);
    }
    return {response, trial.unexplained(), trial.rows()};
}

/// The window, one of `windows`, and delay that explain a power meter's samples best.
/// @param samples `read_at` = when the meter took the sample, in order
/// @param runs    of all kernels, in order, none beside another
[[nodiscard]] inline FoundResponse find_meter_response(
    std::span<const TimedReading> samples, std::span<const KernelInterval> runs,
    std::span<const Duration> windows = usual_windows, const MeteredTime& metered = {}) {
    using std::chrono::milliseconds;
    MeterTrial trial{runs, metered};
    FoundResponse best;
    const auto search = [&](Duration around, Duration reach, Duration step) {
        for (const Duration window : windows) {
            for (Duration delay = around - reach; delay <= around + reach; delay += step) {
                const FoundResponse tried = try_response(trial, samples, {window, delay});
                if (tried.unexplained < best.unexplained) best = tried;
            }
        }
    };
    search(milliseconds{65}, milliseconds{85}, milliseconds{10});
    search(best.response.delay, milliseconds{10}, milliseconds{2});
    // Short windows need to be told when.
    constexpr int steps = 8;  // of a window
    if (best.response.window < steps * milliseconds{1}) {
        search(best.response.delay, milliseconds{2}, best.response.window / steps);
    }
    return best;
}

/// The delay of what `find_meter_response` has found, to a part of a millisecond.
[[nodiscard]] inline Duration exact_delay(FoundResponse found,
                                          std::span<const TimedReading> samples,
                                          std::span<const KernelInterval> runs,
                                          const MeteredTime& metered) {
    constexpr std::chrono::milliseconds reach{2};
    constexpr int steps = 32;  // of a window
    MeterTrial trial{runs, metered};
    const MeterResponse about = found.response;
    for (Duration delay = about.delay - reach; delay <= about.delay + reach;
         delay += about.window / steps) {
        const FoundResponse tried = try_response(trial, samples, {about.window, delay});
        if (tried.unexplained < found.unexplained) found = tried;
    }
    return found.response.delay;
}

/// Memories that a power log may have where one window does not explain its samples.
///
/// NVML's power samples are 20 ms apart, and after a change of the load between kernels that are
/// not at the power limit they follow 3.25, 3.25 and 3.5 ms late and with a memory of 12.8, 13.0
/// and 12.7 ms on an H100 and two H200s (`attribute_mix` on bench/results). For such a log other
/// memories are not tried: where a step repeats, they trade with the kernels' powers. Of a log of
/// another period nothing is known.
class LogMemories {
public:
    /// What the usual log's memory, known within 5 %, and delay, known within 0.3 ms, make of a
    /// change of the power: for kept = exp(-20 / 12.8), 5 % of the memory move it by 0.016, a part
    /// 0.02 of what is left; 0.3 of 20 ms are 0.015.
    static constexpr double usual_error = 0.03;
    /// The odds that a log of the usual period is of means after all, before it has been looked at:
    /// three boards of three had the memory, so the next has it in 4 of 5 cases (Laplace's rule of
    /// succession); and that these are late by as much as the best of the 18 delays that are tried
    /// first, of which none is likelier than others.
    static constexpr double unusual = 0.25 / 18;
    /// Of one that was found in the log itself: its stamps say within 5 % of a period when a sample
    /// was taken (`LogClock`), which is as good as a delay.
    static constexpr double found_error = 0.06;

    LogMemories(std::span<const TimedReading> samples, std::span<const KernelInterval> runs,
                const MeteredTime& metered = {})
        : samples_{samples}, trial_{runs, metered} {}

    /// What the log most likely is: the usual one, unless `plain` explains clearly more, or, of
    /// another period, `plain`, unless a memory does; and how far the responses are from it that
    /// explain nearly as much. Kernels that a program runs at the power limit tell little of a log,
    /// so what boards were found to do has the say there.
    [[nodiscard]] FoundResponse or_better(FoundResponse plain) {
        const Duration window = plain.response.window;
        constexpr double clearly = 0.95;
        // Of what a wrong memory leaves, a log of means leaves 0.62 to 0.76 (made-up powers of a
        // recorded step); of a right one's, means leave 1.19 or more even where ranges blur it.
        constexpr double no_doubt = 0.85;
        tried_.assign(1, plain);
        const bool usual = window > usual_window * 17 / 20 && window < usual_window * 23 / 20;
        if (usual) {
            attempt(window, 0.64, 0.17);
        } else {
            for (const double memory : {0.16, 0.25, 0.4, 0.64, 1.0, 1.6, 2.5, 4.0}) {
                for (const double delay : {0.0, 0.1, 0.2, 0.35, 0.6, 1.0, 2.0}) {
                    attempt(window, memory, delay);
                }
            }
            refine(window);
        }
        const FoundResponse memory = usual ? tried_.back() : best();
        const bool remembers = usual ? plain.unexplained >= no_doubt * memory.unexplained
                                     : memory.unexplained < clearly * plain.unexplained;
        FoundResponse found = remembers ? memory : plain;
        const double least = !remembers ? 0.0 : usual ? usual_error : found_error;
        found.response.change_error = std::max(least, spread(found.response, usual ? unusual : 1));
        return found;
    }

private:
    static constexpr double most = 2048;  // samples
    static constexpr Duration usual_window = std::chrono::milliseconds{20};

    [[nodiscard]] FoundResponse best() const {
        return *std::min_element(tried_.begin(), tried_.end(), [](const auto& a, const auto& b) {
            return a.unexplained < b.unexplained;
        });
    }
    /// @param memory, delay in windows
    void attempt(Duration window, double memory, double delay) {
        const auto part = [&](double share) {
            return std::chrono::duration_cast<Duration>(share * window);
        };
        const MeterResponse response{window, part(delay), part(memory)};
        trial_.clear();
        for (std::size_t i = 1; i < samples_.size() && trial_.rows() < most; ++i) {
            trial_.add_fading(samples_[i - 1].read_at - response.delay,
                              samples_[i].read_at - response.delay, samples_[i].value,
                              samples_[i - 1].value, response.memory);
        }
        tried_.push_back({response, trial_.unexplained(), trial_.rows()});
    }
    /// Nearer and nearer around the best with a memory.
    void refine(Duration window) {
        for (const double reach : {0.25, 0.12, 0.06, 0.03, 0.015, 0.007}) {
            const MeterResponse about = best().response;
            if (about.memory <= Duration::zero()) return;
            const double memory = Seconds{about.memory} / Seconds{window};
            const double delay = Seconds{about.delay} / Seconds{window};
            for (const double more : {1 - reach, 1.0, 1 + reach}) {
                for (const double later : {-reach, 0.0, reach}) {
                    if (more == 1 && later == 0) continue;
                    attempt(window, more * memory, delay + 0.4 * later * std::max(delay, 0.5));
                }
            }
        }
    }
    /// As `MeterResponse::change_error`: the root mean square distance of all that were tried, each
    /// weighed by how likely it makes the samples. What they leave is not noise alone and lasts, so
    /// that they count for fewer. None is farther than 1: a row is off by no more than the change.
    /// @param plain_odds of means against a memory, before any sample
    [[nodiscard]] double spread(const MeterResponse& chosen, double plain_odds) const {
        constexpr double count_for = 0.25;
        const FoundResponse likeliest = best();
        double weights = 0;
        double squares = 0;
        for (const FoundResponse& other : tried_) {
            const double more = std::pow(other.unexplained / likeliest.unexplained, 2) - 1;
            const double odds = other.response.memory > Duration::zero() ? 1 : plain_odds;
            const double weight = odds * std::exp(-0.5 * count_for * likeliest.rows * more);
            const double kept = (other.response.kept() - chosen.kept()) / (1 - chosen.kept());
            const double late =
                Seconds{other.response.age() - chosen.age()} / Seconds{chosen.window};
            weights += weight;
            squares += weight * std::min(1.0, kept * kept + late * late);
        }
        return weights > 0 && std::isfinite(squares) ? std::sqrt(squares / weights) : 0;
    }

    std::span<const TimedReading> samples_;
    MeterTrial trial_;
    std::vector<FoundResponse> tried_;
};

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

}  // namespace kdvfs::inline v0_3::measure
