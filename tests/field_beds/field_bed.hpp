// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/detail/measure/symmetric_matrix.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

/// Boards as they are in the field: work whose joules are known, and a meter that looks at it.
namespace field {

using kdvfs::Duration;
using kdvfs::Seconds;
using kdvfs::TimePoint;

/// What a kernel draws `age` seconds after the begin of its run, where the kernel before it drew
/// `before` W; and a habit of the kernel, -1 to 1.
using Power = std::function<double(double watts, double age, double before, double habit)>;

struct Bed {
    std::string name;
    std::string truth;       ///< what the intervals must hold
    double shortest = 2e-3;  ///< of a run, s
    double longest = 30e-3;
    double noise = 0.02;       ///< of a sample, relative to its power (standard deviation)
    double lasting = 0;        ///< correlation of the noise with that of the sample before
    bool heavy_tails = false;  ///< Student's t with 3 degrees of freedom
    double jitter = 0;         ///< standard deviation of a sample's time, s
    Power power = [](double watts, double, double, double) { return watts; };
    /// Samples of a power log so far apart instead of a counter's, s, with a memory and a delay
    /// that nobody tells; beside it a counter that moves every 100 ms, or none.
    double log = 0;
    double memory = 0;  ///< s; 0: each is the mean since the one before
    double delay = 0;
    bool counter = true;
    bool judged = true;  ///< or shown only, as a limit of what samples can tell
    double least_covered = 0.92;
    double most_covered = 1;
    double widest = 1.5;  ///< of the oracle's half-width, in the middle
};

/// One seed of a bed: what an `EnergyAccumulator` was told of it, and what is true.
class Run {
public:
    static constexpr std::size_t kernels = 8;
    static constexpr double idle_watts = 90;
    static constexpr double period = 0.02;
    static constexpr double length = 60;

    Run(const Bed& bed, std::uint64_t seed) : bed_{bed}, random_{seed} {
        for (std::size_t k = 0; k < kernels; ++k) {
            watts_[k] = uniform(200, 700);
            habit_[k] = uniform(-1, 1);
            table_.id("kernel", kdvfs::variant(static_cast<std::uint32_t>(k)));
        }
        work();
        if (bed.log > 0) {
            look_at_log();
        } else {
            look();
        }
    }

    struct Judged {
        double error;              ///< relative to the kernel's true joules
        double half_width;         ///< likewise
        double oracle_half_width;  ///< of an oracle who knows the noise of the samples
        double scatter;            ///< of the kernel's true mean power about what it usually draws
    };
    [[nodiscard]] std::vector<Judged> judge() const;
    [[nodiscard]] kdvfs::measure::Report report() const {
        kdvfs::measure::Report filled;
        accumulator_.fill(filled);
        return filled;
    }

private:
    static constexpr std::size_t columns = kernels + 1;
    using Column = std::array<double, columns>;

    double uniform(double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random_);
    }
    static TimePoint at(double seconds) {
        return TimePoint{std::chrono::duration_cast<Duration>(Seconds{seconds})};
    }

    void work();
    void look();
    void look_at_log();
    [[nodiscard]] double noise();
    [[nodiscard]] Column oracle() const;
    [[nodiscard]] Column log_oracle() const;
    [[nodiscard]] Column half_widths(const kdvfs::measure::SymmetricMatrix& gram) const;
    [[nodiscard]] double usual_watts(std::size_t kernel) const;

    // In steps of 0.1 ms, the power and the time of each column since the begin.
    static constexpr double grain = 1e-4;

    Bed bed_;
    std::mt19937_64 random_;
    std::array<double, kernels> watts_{};
    std::array<double, kernels> habit_{};
    kdvfs::measure::KernelTable table_;
    kdvfs::measure::EnergyAccumulator accumulator_{
        table_,
        {.counter_period = bed_.log > 0 ? Duration{std::chrono::milliseconds{100}} : Duration{0},
         .widest_resolved = std::numeric_limits<double>::infinity()}};

    double now_ = 0;
    // By grains of time.
    std::vector<double> power_;
    std::vector<std::size_t> column_;
    std::vector<kdvfs::KernelInterval> runs_;
    std::vector<Column> log_shares_;  // of each sample of the log
    std::vector<double> joules_;      // at each sample's true time
    std::vector<double> power_at_;    // W, then
    std::vector<Column> seconds_;     // of each column, at each sample's believed time
    std::vector<Column> truth_;       // joules of each column, likewise
    double last_noise_ = 0;
};

/// Runs of random kernels, in steps that are short against all that changes.
inline void Run::work() {
    double before = idle_watts;
    // Joules and power at any time come from a fine record of the work.
    std::vector<double> joules{0};
    std::vector<double>& power = power_;
    std::vector<std::size_t>& columns_of = column_;
    while (now_ < length) {
        const auto kernel = static_cast<std::size_t>(random_() % kernels);
        const bool pauses = random_() % 20 == 0;
        const auto steps = static_cast<std::size_t>(uniform(bed_.shortest, bed_.longest) / grain);
        const double begin = now_;
        double drawn = 0;
        for (std::size_t i = 0; i < steps; ++i) {
            drawn =
                bed_.power(watts_[kernel], static_cast<double>(i) * grain, before, habit_[kernel]);
            power.push_back(drawn);
            columns_of.push_back(kernel);
            joules.push_back(joules.back() + drawn * grain);
        }
        now_ += static_cast<double>(steps) * grain;
        runs_.push_back(
            {.kernel = {static_cast<std::uint32_t>(kernel)}, .start = at(begin), .end = at(now_)});
        before = drawn;
        if (!pauses) continue;
        const auto idle = static_cast<std::size_t>(uniform(5e-3, 30e-3) / grain);
        for (std::size_t i = 0; i < idle; ++i) {
            power.push_back(idle_watts);
            columns_of.push_back(kernels);
            joules.push_back(joules.back() + idle_watts * grain);
        }
        now_ += static_cast<double>(idle) * grain;
        before = idle_watts;
    }
    Column seconds{};
    Column truth{};
    std::size_t done = 0;
    const auto steps_per_sample = static_cast<std::size_t>(period / grain + 0.5);
    for (std::size_t sample = 0; sample * steps_per_sample < power.size(); ++sample) {
        const std::size_t end = sample * steps_per_sample;
        for (; done < end; ++done) {
            seconds[columns_of[done]] += grain;
            truth[columns_of[done]] += power[done] * grain;
        }
        const double moved =
            sample == 0 ? 0 : std::normal_distribution<>{0, bed_.jitter + 1e-30}(random_);
        const double place = std::clamp(static_cast<double>(end) + moved / grain, 0.0,
                                        static_cast<double>(power.size() - 1));
        const auto whole = static_cast<std::size_t>(place);
        const double part = place - static_cast<double>(whole);
        joules_.push_back(joules[whole] + part * (joules[whole + 1] - joules[whole]));
        power_at_.push_back(power[whole]);
        seconds_.push_back(seconds);
        truth_.push_back(truth);
    }
}

inline double Run::noise() {
    double fresh = 0;
    if (bed_.heavy_tails) {
        fresh = std::student_t_distribution<>{3}(random_) / std::sqrt(3.0);
    } else {
        fresh = std::normal_distribution<>{}(random_);
    }
    const double weight =
        seconds_.empty() || last_noise_ == 0 ? 1 : std::sqrt(1 - bed_.lasting * bed_.lasting);
    last_noise_ = bed_.lasting * last_noise_ + weight * fresh;
    return last_noise_;
}

/// The counter's samples, each with noise on the joules since the one before.
inline void Run::look() {
    double shown = 0;
    for (const kdvfs::KernelInterval& run : runs_) accumulator_.add(run);
    for (std::size_t i = 0; i < joules_.size(); ++i) {
        if (i > 0) shown += (joules_[i] - joules_[i - 1]) * (1 + bed_.noise * noise());
        accumulator_.add(
            kdvfs::measure::EnergySample{at(static_cast<double>(i) * period), {shown}, 0});
    }
    accumulator_.advance(at(now_));
}

/// What a power log shows, and a counter beside it, in slices of 250 ms, as a program tells it.
inline void Run::look_at_log() {
    const auto grains = [](double seconds) {
        return static_cast<std::size_t>(seconds / grain + 0.5);
    };
    const double kept = bed_.memory > 0 ? std::exp(-grain / bed_.memory) : 0;
    double watts = idle_watts;  // as the log sees it, or of this window so far
    Column shares{};
    double joules = 0;
    std::size_t run = 0;
    std::vector<kdvfs::PowerReading> held;
    std::size_t resolved = 0;
    for (std::size_t i = 0; i < power_.size(); ++i) {
        const double share = bed_.memory > 0 ? 1 - kept : grain / bed_.log;
        for (double& value : shares) value *= bed_.memory > 0 ? kept : 1;
        shares[column_[i]] += share;
        watts = (bed_.memory > 0 ? kept * watts : watts) + share * power_[i];
        joules += power_[i] * grain;
        const double now = static_cast<double>(i + 1) * grain;
        if ((i + 1) % grains(0.1) == 0 && bed_.counter) {
            accumulator_.add(kdvfs::measure::EnergySample{at(now), {joules}, 0});
        }
        if ((i + 1) % grains(bed_.log) == 0) {
            const double shown = watts * (1 + bed_.noise * noise());
            held.push_back({{shown}, at(now + bed_.delay), kdvfs::ReadingStatus::ok});
            log_shares_.push_back(shares);
            if (bed_.memory <= 0) {
                watts = 0;
                shares = {};
            }
        }
        if ((i + 1) % grains(0.25) != 0) continue;
        for (; run < runs_.size() && runs_[run].start < at(now); ++run) {
            accumulator_.add(runs_[run]);
        }
        while (resolved < held.size() && held[resolved].sampled_at <= at(now)) {
            accumulator_.add(held[resolved++]);
        }
        accumulator_.advance(at(now));
    }
    Column truth{};
    Column all{};
    for (std::size_t i = 0; i < power_.size(); ++i) {
        truth[column_[i]] += power_[i] * grain;
        all[column_[i]] += grain;
    }
    truth_.assign(1, truth);
    seconds_.assign(1, all);
}

inline Run::Column Run::half_widths(const kdvfs::measure::SymmetricMatrix& gram) const {
    const kdvfs::measure::Cholesky factor{gram};
    Column result{};
    for (std::size_t j = 0; j < kernels; ++j) {
        std::vector<double> unit(columns);
        unit[j] = 1;
        result[j] = 1.96 * std::sqrt(factor.solve(unit)[j]) * seconds_.back()[j];
    }
    return result;
}

/// Of one who knows the log's memory, delay and noise.
inline Run::Column Run::log_oracle() const {
    kdvfs::measure::SymmetricMatrix gram{columns};
    for (std::size_t j = 0; j < columns; ++j) gram(j, j) = 1e-9;
    for (const Column& shares : log_shares_) {
        double watts = shares[kernels] * idle_watts;
        for (std::size_t j = 0; j < kernels; ++j) watts += shares[j] * watts_[j];
        std::vector<double> row(shares.begin(), shares.end());
        for (double& share : row) share /= bed_.noise * watts;
        gram.add_outer(row, 1);
    }
    return half_widths(gram);
}

/// Half-widths of generalised least squares on the same rows, by one who knows how the samples'
/// noise spreads and lasts, in joules of each kernel.
inline Run::Column Run::oracle() const {
    if (bed_.log > 0) return log_oracle();
    const std::size_t rows = joules_.size() - 1;
    std::vector<Column> shares(rows);
    std::vector<double> deviation(rows);
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = 0; j < columns; ++j) {
            shares[i][j] = (seconds_[i + 1][j] - seconds_[i][j]) / period;
        }
        const double watts = (joules_[i + 1] - joules_[i]) / period;
        const double edges = std::hypot(power_at_[i], power_at_[i + 1]) * bed_.jitter / period;
        const double same = std::sqrt(2.0) * watts * bed_.jitter / period;
        deviation[i] = std::hypot(bed_.noise * watts, std::min(edges, same));
    }
    kdvfs::measure::SymmetricMatrix gram{columns};
    for (std::size_t j = 0; j < columns; ++j) gram(j, j) = 1e-9;
    for (std::size_t i = 0; i < rows; ++i) {
        const double keep = i == 0 ? 1 : 1 / std::sqrt(1 - bed_.lasting * bed_.lasting);
        std::vector<double> row(columns);
        for (std::size_t j = 0; j < columns; ++j) {
            row[j] = keep * shares[i][j] / deviation[i];
            if (i > 0) row[j] -= keep * bed_.lasting * shares[i - 1][j] / deviation[i - 1];
        }
        gram.add_outer(row, 1);
    }
    return half_widths(gram);
}

/// The mean over all runs that the bed could have made.
inline double Run::usual_watts(std::size_t kernel) const {
    double before = 0;
    for (const double watts : watts_) before += watts / kernels;
    double joules = 0;
    double seconds = 0;
    const double step = 1e-3;
    for (double age = step / 2; age < bed_.longest; age += step) {
        const double left = std::min(1.0, (bed_.longest - age) / (bed_.longest - bed_.shortest));
        joules += left * bed_.power(watts_[kernel], age, before, habit_[kernel]);
        seconds += left;
    }
    return joules / seconds;
}

inline std::vector<Run::Judged> Run::judge() const {
    const kdvfs::measure::Report filled = report();
    const Column best = oracle();
    std::vector<Judged> judged;
    for (const auto& row : filled.rows) {
        const std::size_t k = row.kernel.variant.index;
        const double mean = truth_.back()[k] / seconds_.back()[k];
        // A log's first samples are used to know it by, and tell no more.
        const double truth = bed_.log > 0 ? mean * row.counted_time.count() : truth_.back()[k];
        judged.push_back({(row.energy.joules.count - truth) / truth,
                          row.energy.half_width.count / truth, best[k] / truth_.back()[k],
                          mean / usual_watts(k) - 1});
    }
    return judged;
}

/// The beds that attribution is judged by.
inline std::vector<Bed> beds() {
    const std::string joules = "the kernel's joules in this run";
    std::vector<Bed> all;
    all.push_back({.name = "white noise", .truth = joules, .most_covered = 0.98});
    all.push_back({.name = "noise that lasts: AR(1) of 0.9",
                   .truth = joules,
                   .lasting = 0.9,
                   .least_covered = 0.90});
    all.push_back({.name = "noise that lasts, runs of 50 to 500 ms",
                   .truth = joules,
                   .shortest = 50e-3,
                   .longest = 500e-3,
                   .lasting = 0.9,
                   .least_covered = 0.90});
    all.push_back({.name = "heavy tails", .truth = joules, .heavy_tails = true});
    all.push_back({.name = "jitter of the samples' times, 1.5 of 20 ms",
                   .truth = joules,
                   .noise = 0.005,
                   .jitter = 1.5e-3});
    all.push_back({.name = "two plateaus 25 ms apart",
                   .truth = joules,
                   .shortest = 50e-3,
                   .longest = 500e-3,
                   .noise = 0.01,
                   .power = [](double watts, double age, double, double habit) {
                       return age < 25e-3 ? watts * (1 + 0.15 * std::abs(habit)) : watts;
                   }});
    all.push_back({.name = "power depends on run length",
                   .truth = joules,
                   .shortest = 50e-3,
                   .longest = 500e-3,
                   .noise = 0.01,
                   .power = [](double watts, double age, double, double habit) {
                       return watts * (1 + 0.15 * habit * std::exp(-age / 0.1));
                   }});
    all.push_back({.name = "power depends on the predecessor",
                   .truth = joules,
                   .shortest = 50e-3,
                   .longest = 500e-3,
                   .noise = 0.01,
                   .power = [](double watts, double age, double before, double) {
                       return watts + 0.15 * (before - watts) * std::exp(-age / 0.03);
                   }});
    // Boards whose log nobody has looked at: memory and delay are found while it is used.
    for (const auto& [period, name] :
         {std::pair{1e-3, "1 ms"}, {20e-3, "20 ms"}, {100e-3, "100 ms"}}) {
        all.push_back({.name = std::string{"log of "} + name + ", means since the last",
                       .truth = joules,
                       .noise = 0.01,
                       .log = period,
                       .delay = 0.3 * period,
                       .counter = period < 0.1,
                       .widest = 3});
    }
    all.push_back(
        {.name = "log of 20 ms as an H100's: late, with a memory",
         .truth = joules,
         .noise = 0.01,
         .log = 20e-3,
         .memory = 12.8e-3,
         .delay = 3.4e-3,
         .widest = 6});  // its memory is taken to be known within 5 %: more than the noise
    all.push_back({.name = "log of 1 ms, memory of 2.3 ms",
                   .truth = joules,
                   .noise = 0.01,
                   .log = 1e-3,
                   .memory = 2.3e-3,
                   .delay = 0.4e-3,
                   .widest = 6});
    all.push_back({.name = "log of 100 ms, memory of 45 ms, no counter",
                   .truth = joules,
                   .noise = 0.01,
                   .log = 100e-3,
                   .memory = 45e-3,
                   .delay = 20e-3,
                   .counter = false,
                   .widest = 3});
    // What a kernel leaves to the next one within a sample looks like the first one's own.
    all.push_back(
        {.name = "short runs, power depends on the predecessor",
         .truth = joules,
         .noise = 0.01,
         .power = [](double watts, double age, double before,
                     double) { return watts + 0.15 * (before - watts) * std::exp(-age / 0.005); },
         .judged = false});
    return all;
}

}  // namespace field
