// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/sensor_posterior.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>
#include <kdvfs/measure/settings.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

/// Boards whose sensors nobody knows: the parameters are drawn from ranges, the response is stepped
/// through on a grid of time, and nothing is taken from the library.
namespace sensor_bed {

/// 0 of none.
inline double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

using kdvfs::Duration;
using kdvfs::Seconds;
using kdvfs::TimePoint;

/// What a power log's reading is.
enum class Log { none, memory, since_last, part, mean_25_ms };

struct Bed {
    std::string name;
    Log log = Log::none;
    double log_period = 0.02;   ///< s
    double counter_period = 0;  ///< s; 0: no counter
    bool mixed = false;         ///< kernels in random order instead of a fixed step
    double most_delay = 10e-3;  ///< s, of the log, or of the counter where there is no log
    bool exactly = false;       ///< the counter's period is a round figure
    bool remembers = false;     ///< the counter adds up what a filter with a memory shows
    bool judged = true;        ///< or shown only: not yet good enough, or not measured often enough
    bool outside = false;      ///< another process draws power, which comes and goes
    bool always = false;       ///< it does not go, and the board does not wander
    bool listed = true;        ///< the driver shows who works on the board
    double least_load = 40;    ///< W, of it
    double most_load = 150;    ///< W
    double rests = 0.3;        ///< s, before the first kernel and after the last
    bool leaves_out = false;   ///< the first kernel has no scope
    bool limited = false;      ///< the board's power limit is near what the step draws, or below it
    double least_time = 0.85;  ///< of the time that the oracle resolves
    double lost = 0;           ///< share of the calls whose markers never arrive
    std::size_t burst = 1;     ///< calls in a row that lose theirs
    bool of_one = false;       ///< only the second kernel does
    double least_delay = 0;    ///< s
    double least_memory = 5e-3;  ///< s
    double most_memory = 50e-3;  ///< s
    double most_jump = 0;        ///< s that the GPU's clock jumps by against the host's, once
    bool stops = false;          ///< the counter, at some moment, for good
    double slowest_log = 0;      ///< s; where it is given, the log's period is drawn up to it
    bool fixed_step = false;     ///< 20 kernels: the first has 20 % of the time, the second 5 %
    double spread = -1;          ///< of kernels' powers from call to call; below 0: drawn
};

/// What the ranges gave.
struct Truth {
    double delay = 0;     ///< s, with the offset of the timestamps
    double memory = 0;    ///< s
    double window = 0;    ///< s
    double rise = 0;      ///< s
    double spread = 0;    ///< of a kernel's power from call to call, relative
    double noise = 0;     ///< of a reading, W
    double limit = 700;   ///< W, of the board
    double limiter = 0;   ///< per second that the power is off by all of the limit
    double averages = 0;  ///< s, time constant of the power that the limiter looks at
};

constexpr double grain = 50e-6;  ///< s

/// What a sensor shows at the times `at` of `drawn`, W by grain: means over `window`, or the
/// filter's value.
inline std::vector<double> seen(const Truth& truth, const std::vector<double>& drawn,
                                const std::vector<double>& at, double window);

struct Kernel {
    double watts = 0;                                   ///< mean over its calls
    double seconds = 0;                                 ///< of all its calls
    std::optional<std::pair<double, double>> found{};   ///< W and half-width, where resolved
    std::optional<std::pair<double, double>> oracle{};  ///< of a fit that knows the sensor
};

class Run {
public:
    /// How kernels differ from what was drawn: factors by kernel.
    struct Change {
        std::vector<double> watts{};
        std::vector<double> lengths{};
    };
    Run(const Bed& bed, std::uint64_t seed) : Run{bed, seed, {}, {}} {}
    /// @param again the seed of all but program and sensor, for another run of the same program
    Run(const Bed& bed, std::uint64_t seed, std::optional<std::uint64_t> again,
        const Change& change)
        : bed_{bed}, random_{seed} {
        draw();
        for (std::size_t k = 0; k < change.watts.size(); ++k) kernels_[k].watts *= change.watts[k];
        for (std::size_t k = 0; k < change.lengths.size(); ++k) lengths_[k] *= change.lengths[k];
        if (again) random_.seed(*again);
        work();
        if (bed.log != Log::none) read_log();
        if (bed.counter_period > 0) read_counter();
        judge_by_oracle();
    }
    /// Integrates the sensor out (`SensorPosterior`), by the log where there is one.
    void judge(const kdvfs::measure::SensorPrior& prior = {});

    [[nodiscard]] const Truth& truth() const { return truth_; }
    [[nodiscard]] const std::vector<Kernel>& kernels() const { return kernels_; }
    [[nodiscard]] double step() const { return step_; }
    /// Joules of a step from its first call to the end of its last, mean over whole ones.
    [[nodiscard]] double step_joules() const {
        double joules = 0;
        double steps = 0;
        const std::size_t count = kernels_.size();
        for (std::size_t i = 0; i + count <= calls_.size(); i += count, ++steps) {
            for (std::size_t at = calls_[i].begin; at < calls_[i + count - 1].end; ++at) {
                joules += drawn_[at] * grain;
            }
        }
        return joules / std::max(steps, 1.0);
    }
    /// Whether the log is the finer source.
    [[nodiscard]] bool by_log() const {
        const bool finer = bed_.counter_period > 0 && 2 * bed_.counter_period < bed_.log_period;
        return bed_.log != Log::none && !finer;
    }

    struct Call {
        std::size_t kernel;
        std::size_t begin;  ///< grains
        std::size_t end;
        double watts;
    };
    struct Reading {
        double at;  ///< timestamp, s
        double value;
    };
    static constexpr double grain = sensor_bed::grain;
    static constexpr kdvfs::measure::RestRange idle{{70}, {125}};  ///< of the beds' boards
    [[nodiscard]] const std::vector<Call>& calls() const { return calls_; }
    [[nodiscard]] const std::vector<Reading>& log() const { return log_; }
    [[nodiscard]] const std::vector<Reading>& counter() const { return counter_; }
    /// W by grain, with what others draw.
    [[nodiscard]] const std::vector<double>& drawn() const { return drawn_; }
    /// Writes into `kernels()` what somebody found: W and half-width.
    void found(std::size_t kernel, double watts, double half_width) {
        kernels_[kernel].found = {watts, half_width};
    }
    static TimePoint time(double seconds) {
        return TimePoint{std::chrono::duration_cast<Duration>(Seconds{seconds})};
    }

private:
    static constexpr double length = 60;  // s

    double uniform(double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random_);
    }
    double normal() { return std::normal_distribution<double>{}(random_); }
    void draw();
    void draw_limiter();
    void work();
    void disturb(std::vector<double>& sums);
    void load_from_outside();
    void read_log();
    void read_counter();
    void judge_by_oracle();
    Bed bed_;
    std::mt19937_64 random_;
    Truth truth_;
    std::vector<Kernel> kernels_;
    std::vector<double> lengths_;
    double idle_ = 0;
    double step_ = 0;
    std::vector<Call> calls_;
    std::vector<double> drawn_;  // W, as the load asks for it, by grain
    std::vector<Reading> log_;
    std::vector<Reading> counter_;
    std::vector<double> log_at_;
    std::vector<double> counter_at_;
};

inline void Run::draw() {
    auto count = static_cast<std::size_t>(uniform(8, 60.999));
    if (bed_.fixed_step) count = 20;
    kernels_.resize(count);
    for (Kernel& kernel : kernels_) {
        kernel.watts = uniform(200, 680);
        const double each = std::exp(uniform(std::log(0.5e-3), std::log(20e-3)));
        lengths_.push_back(std::max(1.0, std::round(each / grain)) * grain);
        step_ += lengths_.back();
    }
    if (bed_.fixed_step) {
        const double others = step_ - lengths_[0] - lengths_[1];
        lengths_[0] = others * 0.20 / 0.75;
        lengths_[1] = others * 0.05 / 0.75;
        step_ = others / 0.75;
    }
    idle_ = uniform(idle.least.count, idle.most.count);
    truth_.delay = uniform(bed_.least_delay, bed_.most_delay) + uniform(-1e-3, 1e-3);
    truth_.rise = uniform(0, 2e-3);
    truth_.spread = uniform(0, 0.05);
    if (bed_.spread >= 0) truth_.spread = bed_.spread;
    truth_.noise = uniform(1, 5);
    const double memory =
        std::exp(uniform(std::log(bed_.least_memory), std::log(bed_.most_memory)));
    const double duty = uniform(0.25, 1);
    if (bed_.limited) draw_limiter();
    if (bed_.slowest_log > 0) {
        bed_.log_period = std::exp(uniform(std::log(bed_.log_period), std::log(bed_.slowest_log)));
    }
    switch (bed_.log) {
        case Log::memory: truth_.memory = memory; break;
        case Log::since_last: truth_.window = bed_.log_period; break;
        case Log::part: truth_.window = std::round(duty * bed_.log_period / grain) * grain; break;
        case Log::mean_25_ms: truth_.window = 25e-3; break;
        case Log::none: truth_.memory = bed_.remembers ? memory : 0; break;
    }
}

/// Limiters were measured at 27 to 33 per second of the power (H100, H200), without an average.
inline void Run::draw_limiter() {
    double joules = 0;
    for (std::size_t k = 0; k < kernels_.size(); ++k) joules += kernels_[k].watts * lengths_[k];
    truth_.limit = uniform(0.75, 1.1) * joules / step_;
    truth_.limiter = std::exp(uniform(std::log(10), std::log(60)));
    truth_.averages = std::exp(uniform(std::log(0.5e-3), std::log(20e-3)));
}

inline void Run::work() {
    const double gap = uniform(0, 2e-3);
    std::vector<double> sums(kernels_.size());
    const auto rest = [&](double seconds) {
        drawn_.insert(drawn_.end(), static_cast<std::size_t>(seconds / grain), idle_);
    };
    rest(bed_.rests);
    for (std::size_t i = 0; static_cast<double>(drawn_.size()) * grain < length; ++i) {
        const std::size_t k = bed_.mixed ? random_() % kernels_.size() : i % kernels_.size();
        const double wavers = lengths_[k] * (1 + 0.01 * normal());
        const auto grains = static_cast<std::size_t>(std::max(1.0, std::round(wavers / grain)));
        const double watts = kernels_[k].watts * (1 + truth_.spread * normal());
        calls_.push_back({k, drawn_.size(), drawn_.size() + grains, watts});
        drawn_.insert(drawn_.end(), grains, watts);
        sums[k] += watts * static_cast<double>(grains) * grain;
        kernels_[k].seconds += static_cast<double>(grains) * grain;
        if (i % kernels_.size() + 1 == kernels_.size()) rest(gap);
    }
    rest(bed_.rests);
    disturb(sums);
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
        if (kernels_[k].seconds > 0) kernels_[k].watts = sums[k] / kernels_[k].seconds;
    }
}

/// What is not in the model: the board's power limit, which is one of the mean and whose loop
/// scales the power of all kernels, and another process, which is nobody's energy.
inline void Run::disturb(std::vector<double>& sums) {
    if (bed_.limited) {
        double mean = idle_;
        double scale = 1;
        std::fill(sums.begin(), sums.end(), 0.0);
        const auto passes = [&](double watts) {
            mean += (watts - mean) * -std::expm1(-grain / truth_.averages);
            const double spare = 1 - mean / truth_.limit;
            scale = std::clamp(scale * std::exp(truth_.limiter * spare * grain), 0.2, 1.0);
        };
        std::size_t done = 0;
        for (const Call& call : calls_) {
            for (; done < call.begin; ++done) passes(idle_);
            for (; done < call.end; ++done) {
                drawn_[done] = idle_ + (drawn_[done] - idle_) * scale;
                passes(drawn_[done]);
                sums[call.kernel] += drawn_[done] * grain;
            }
        }
    }
    if (bed_.outside) load_from_outside();
}

/// It comes and goes every 0.5 to 5 s, on a board that wanders by 1 %.
inline void Run::load_from_outside() {
    const double watts = uniform(bed_.least_load, bed_.most_load);
    const double lasts = std::exp(uniform(std::log(0.5), std::log(5)));
    bool on = bed_.always;
    double until = 0;
    double wandered = 0;
    for (std::size_t i = 0; i < drawn_.size(); ++i) {
        if (static_cast<double>(i) * grain >= until) {
            until += lasts * uniform(0.5, 1.5);
            on = bed_.always || !on;
            wandered = bed_.always ? 0 : 0.01 * normal();
        }
        drawn_[i] = drawn_[i] * (1 + wandered) + (on ? watts : 0);
    }
}

inline std::vector<double> seen(const Truth& truth, const std::vector<double>& drawn,
                                const std::vector<double>& at, double window) {
    const auto kept = [](double constant) {
        return constant > 0 ? std::exp(-grain / constant) : 0.0;
    };
    const double rises = kept(truth.rise);
    const double fades = kept(truth.memory);
    std::vector<double> shown;
    std::vector<double> joules{0};
    shown.reserve(drawn.size() + 1);
    joules.reserve(drawn.size() + 1);
    double power = drawn.front();
    double filtered = power;
    shown.push_back(filtered);
    for (const double watts : drawn) {
        // Exact for a first-order response to a power that is constant over the grain.
        const double mean =
            truth.rise > 0 ? watts + (power - watts) * (1 - rises) * truth.rise / grain : watts;
        power = watts + (power - watts) * rises;
        const double before = filtered;
        filtered = mean + (filtered - mean) * fades;
        shown.push_back(filtered);
        const double through = truth.memory > 0 ? 0.5 * (before + filtered) : filtered;
        joules.push_back(joules.back() + through * grain);
    }
    const auto between = [](const std::vector<double>& values, double place) {
        place = std::clamp(place, 0.0, static_cast<double>(values.size() - 2));
        const auto whole = static_cast<std::size_t>(place);
        return values[whole] +
               (place - static_cast<double>(whole)) * (values[whole + 1] - values[whole]);
    };
    std::vector<double> found;
    for (const double stamp : at) {
        const double end = stamp - truth.delay;
        found.push_back(
            window > 0
                ? (between(joules, end / grain) - between(joules, (end - window) / grain)) / window
                : between(shown, end / grain));
    }
    return found;
}

inline void Run::read_log() {
    const double period = bed_.log_period * (1 + uniform(-3e-3, 3e-3));
    const double end = static_cast<double>(drawn_.size()) * grain;
    if (bed_.log == Log::since_last) truth_.window = period;
    for (double at = 0.1 + uniform(0, period); at < end; at += period) log_at_.push_back(at);
    const std::vector<double> watts = seen(truth_, drawn_, log_at_, truth_.window);
    for (std::size_t i = 0; i < watts.size(); ++i) {
        log_.push_back({log_at_[i], watts[i] + truth_.noise * normal()});
    }
}

/// Joules as the counter has them at its moves, which are read as they happen.
inline void Run::read_counter() {
    const double period = bed_.counter_period * (bed_.exactly ? 1 : 1 + uniform(-3e-3, 3e-3));
    const double end = static_cast<double>(drawn_.size()) * grain;
    for (double at = 0.1 + uniform(0, period); at < end; at += period) counter_at_.push_back(at);
    const std::vector<double> means = seen(truth_, drawn_, counter_at_, period);
    double joules = 0;
    for (std::size_t i = 0; i < means.size(); ++i) {
        joules += means[i] * period + 1e-3 * normal();
        counter_.push_back({counter_at_[i], joules});
    }
    if (!bed_.stops) return;
    const auto left =
        static_cast<std::size_t>(uniform(0.2, 0.8) * static_cast<double>(means.size()));
    counter_.resize(left);
    counter_at_.resize(left);
}

/// Least squares of the finer source by who knows the sensor.
inline void Run::judge_by_oracle() {
    const bool by_log = this->by_log();
    const std::vector<double>& at = by_log ? log_at_ : counter_at_;
    if (at.size() < kernels_.size() + 20) return;
    const double period = at[1] - at[0];
    const double window = by_log ? truth_.window : period;
    std::vector<double> watts;
    for (std::size_t i = 0; i < at.size(); ++i) {
        const double joules = by_log || i == 0 ? 0 : counter_[i].value - counter_[i - 1].value;
        watts.push_back(by_log ? log_[i].value : joules / period);
    }
    std::vector<std::vector<double>> shares;
    std::vector<double> load(drawn_.size());
    for (std::size_t k = 0; k <= kernels_.size(); ++k) {
        std::fill(load.begin(), load.end(), k == kernels_.size() ? 1.0 : 0.0);
        for (const Call& call : calls_) {
            if (k != kernels_.size() && call.kernel != k) continue;
            std::fill(load.begin() + static_cast<std::ptrdiff_t>(call.begin),
                      load.begin() + static_cast<std::ptrdiff_t>(call.end),
                      k == kernels_.size() ? 0.0 : 1.0);
        }
        shares.push_back(seen(truth_, load, at, window));
    }
    const std::size_t columns = shares.size();
    kdvfs::measure::SymmetricMatrix gram{columns};
    std::vector<double> right(columns);
    for (std::size_t j = 0; j < columns; ++j) gram(j, j) = 1e-9;
    std::vector<double> row(columns);
    for (std::size_t i = 1; i < at.size(); ++i) {
        for (std::size_t j = 0; j < columns; ++j) row[j] = shares[j][i];
        gram.add_outer(row, 1);
        for (std::size_t j = 0; j < columns; ++j) right[j] += row[j] * watts[i];
    }
    const kdvfs::measure::Cholesky factor{gram};
    const std::vector<double> found = factor.solve(right);
    double square = 0;
    for (std::size_t i = 1; i < at.size(); ++i) {
        double left = watts[i];
        for (std::size_t j = 0; j < columns; ++j) left -= shares[j][i] * found[j];
        square += left * left / static_cast<double>(at.size() - 1 - columns);
    }
    const std::vector<double> variances = factor.inverse_diagonal();
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
        const double half = 1.96 * std::sqrt(square * variances[k]);
        if (half <= 0.1 * found[k]) kernels_[k].oracle = {found[k], half};
    }
}

inline void Run::judge(const kdvfs::measure::SensorPrior& prior) {
    using namespace kdvfs::measure;
    const bool by_log = this->by_log();
    const double period = by_log ? bed_.log_period : bed_.counter_period;
    SensorSample sample;
    sample.begin(std::chrono::duration_cast<Duration>(Seconds{period}));
    double mean = 0;
    for (const double watts : drawn_) mean += watts / static_cast<double>(drawn_.size());
    std::size_t passed = 0;
    const auto pass = [&](std::size_t until, std::size_t column) {
        if (until == passed) return;
        sample.pass(time(static_cast<double>(passed) * grain),
                    time(static_cast<double>(until) * grain));
        sample.add(column, static_cast<double>(until - passed) * grain);
        passed = until;
    };
    const std::vector<Reading>& readings = by_log ? log_ : counter_;
    std::size_t read = 0;
    for (const Call& call : calls_) {
        pass(call.begin, 0);
        pass(call.end, call.kernel + 1);
        for (; read < readings.size() && readings[read].at < static_cast<double>(passed) * grain;
             ++read) {
            if (by_log) {
                sample.read(time(readings[read].at), Seconds{0}, readings[read].value);
            } else if (read > 0) {
                const double since = readings[read].at - readings[read - 1].at;
                sample.read(time(readings[read].at), Seconds{since},
                            (readings[read].value - readings[read - 1].value) / since);
            }
        }
    }
    const ColumnPrior columns = ColumnPrior::around(mean, kernels_.size() + 1);
    const SensorPosterior posterior{sample, !by_log, columns, prior};
    if (!posterior.solved()) return;
    const SymmetricMatrix noise = posterior.noise(posterior.likely());
    const auto count = static_cast<double>(posterior.cloud().size());
    std::vector<double> sums(columns.centre.size());
    std::vector<double> squares(columns.centre.size());
    for (const SensorGuess& guess : posterior.cloud()) {
        const std::vector<double> watts = posterior.watts(posterior.sensor(guess));
        for (std::size_t j = 0; j < watts.size(); ++j) {
            sums[j] += watts[j] / count;
            squares[j] += watts[j] * watts[j] / count;
        }
    }
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
        const double watts = sums[k + 1];
        const double sensor = std::max(squares[k + 1] - watts * watts, 0.0) * count / (count - 1);
        const double half_width = 1.96 * std::sqrt(sensor + noise(k + 1, k + 1));
        if (half_width <= 0.1 * watts) kernels_[k].found = {watts, half_width};
    }
}

/// The rows of the table in docs/measuring.md.
inline std::vector<Bed> beds() {
    return {
        {.name = "log of 20 ms with a memory", .log = Log::memory},
        {.name = "the same, kernels in any order", .log = Log::memory, .mixed = true},
        {.name = "log of 20 ms, means since the last", .log = Log::since_last},
        {.name = "log of 20 ms, 25-100 % of the time", .log = Log::part},
        {.name = "log of 25 of every 100 ms", .log = Log::mean_25_ms, .log_period = 0.1},
        {.name = "log of means of 1 s", .log = Log::since_last, .log_period = 1},
        {.name = "counter of 1 ms", .counter_period = 1e-3, .judged = false},
        {.name = "counter of 20 ms", .counter_period = 20e-3, .judged = false},
        {.name = "counter of 100 ms", .counter_period = 0.1, .judged = false},
        {.name = "counter of 100 ms, up to 100 ms late",
         .counter_period = 0.1,
         .most_delay = 0.1,
         .judged = false},
        {.name = "counter of exactly 100 ms",
         .counter_period = 0.1,
         .exactly = true,
         .judged = false},
    };
}

}  // namespace sensor_bed
