// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/csv.hpp>
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/tune/paired_comparison.hpp>
#include <kdvfs/error.hpp>
#include <kdvfs/tune/plan_json.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/run_cost.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// The result of comparing a promise with measured runs.
enum class Verdict {
    kept,             ///< the whole interval is within what was promised
    broken,           ///< the whole interval is beyond it
    undecided,        ///< the interval reaches both, or there are too few pairs
    nothing_to_gain,  ///< kept, but the plan promises no saving worth a change
};

constexpr std::string_view to_string(Verdict verdict) {
    switch (verdict) {
        case Verdict::kept: return "kept";
        case Verdict::broken: return "broken";
        case Verdict::nothing_to_gain: return "nothing to gain";
        case Verdict::undecided: break;
    }
    return "undecided";
}

/// Returns the exit status of a program that judges plans: 0 kept, 3 undecided, 4 broken, 5 nothing
/// to gain. 1 is left to failures and 2 to wrong options.
constexpr int exit_status(Verdict verdict) {
    switch (verdict) {
        case Verdict::kept: return 0;
        case Verdict::broken: return 4;
        case Verdict::nothing_to_gain: return 5;
        case Verdict::undecided: break;
    }
    return 3;
}

/// What a plan was found to save, beside what it promised.
struct Validation {
    /// Fewer pairs decide nothing: their interval says more about chance than about the plan.
    static constexpr std::size_t fewest_pairs = 4;
    /// What repeated runs of an iteration do not tell apart, in percent of the baseline's time.
    static constexpr double time_tolerance_pct = 0.1;
    /// How far a plan's saving may be off, in percent of the baseline's energy: estimates from few
    /// samples are no better than that.
    static constexpr double energy_tolerance_pct = 0.3;
    /// A promised saving below this is none, in percent of the baseline's energy.
    static constexpr double least_saving_pct = 0.05;

    std::size_t pairs = 0;
    double promised_time_pct = 0;
    double promised_energy_pct = 0;
    PercentInterval time;
    PercentInterval energy;
    /// Slowdown that the plan was allowed, in percent; where there was no bound, the promised time
    /// stands for it.
    double time_bound_pct = std::numeric_limits<double>::infinity();

    [[nodiscard]] bool too_few_pairs() const { return pairs < fewest_pairs; }
    [[nodiscard]] double time_limit_pct() const {
        return (std::isfinite(time_bound_pct) ? time_bound_pct : promised_time_pct) +
               time_tolerance_pct;
    }
    [[nodiscard]] double energy_limit_pct() const {
        return promised_energy_pct + energy_tolerance_pct;
    }
    [[nodiscard]] Verdict time_verdict() const { return judge(time, time_limit_pct()); }
    [[nodiscard]] Verdict energy_verdict() const { return judge(energy, energy_limit_pct()); }
    /// Of both: broken if one is, kept if both are.
    [[nodiscard]] Verdict verdict() const {
        if (time_verdict() == Verdict::broken) return Verdict::broken;
        const Verdict verdict =
            time_verdict() == Verdict::kept || energy_verdict() == Verdict::broken
                ? energy_verdict()
                : Verdict::undecided;
        return verdict == Verdict::kept && promised_energy_pct > -least_saving_pct
                   ? Verdict::nothing_to_gain
                   : verdict;
    }

private:
    [[nodiscard]] Verdict judge(const PercentInterval& found, double limit) const {
        if (too_few_pairs()) return Verdict::undecided;
        if (found.high <= limit) return Verdict::kept;
        return found.low > limit ? Verdict::broken : Verdict::undecided;
    }
};

/// How much wider than a normal interval one from `count` values must be: Student's t over the
/// normal quantile (Cornish-Fisher to second order), and the bootstrap's own narrowness.
inline double small_sample_widening(std::size_t count) {
    constexpr double z = 1.959964;  // of 95 %
    const double freedom = static_cast<double>(count) - 1;
    const double t = z + (z * z * z + z) / (4 * freedom) +
                     (5 * z * z * z * z * z + 16 * z * z * z + 3 * z) / (96 * freedom * freedom);
    return t / z * std::sqrt((freedom + 1) / freedom);
}

/// The mean of paired changes and its 95 % interval: percentile bootstrap (Efron, 1979) from 2000
/// resamples, expanded for small samples (Hesterberg, The American Statistician 69, 2015).
/// Deterministic by seed. @pre two changes or more
inline PercentInterval bootstrap(const std::vector<double>& changes, std::uint64_t seed) {
    constexpr std::size_t resamples = 2000;
    const auto mean_of = [&](auto next) {
        double sum = 0;
        for (std::size_t i = 0; i < changes.size(); ++i) sum += next(i);
        return sum / static_cast<double>(changes.size());
    };
    std::mt19937_64 random{seed};
    std::vector<double> means;
    for (std::size_t r = 0; r < resamples; ++r)
        means.push_back(mean_of([&](std::size_t) { return changes[random() % changes.size()]; }));
    std::sort(means.begin(), means.end());
    const double mean = mean_of([&](std::size_t i) { return changes[i]; });
    const double wider = small_sample_widening(changes.size());
    return {mean, mean + wider * (means[resamples / 40] - mean),
            mean + wider * (means[resamples - 1 - resamples / 40] - mean)};
}

/// The mean of paired changes and an interval that holds the true mean at all times at once with
/// 95 % probability, so that one may look after each pair and stop (`t_sequence_half_width`, with a
/// prior for a few pairs). @pre two changes or more
inline PercentInterval anytime_interval(const std::vector<double>& changes) {
    constexpr double prior_variance = 3;
    const auto n = static_cast<double>(changes.size());
    double mean = 0;
    for (const double change : changes) mean += change / n;
    double squares = 0;
    for (const double change : changes) squares += (change - mean) * (change - mean);
    const double half = std::sqrt(squares / (n - 1)) *
                        detail::t_sequence_half_width(changes.size(), prior_variance);
    return {mean, mean - half, mean + half};
}

/// When a validation ends.
enum class Stopping {
    after_all_pairs,  ///< intervals of 95 % at the end
    once_decided,     ///< as soon as the verdict is known; intervals that hold at all times
};

/// Compares a plan with the baseline by fresh runs, in pairs of random order, so that drift weighs
/// on neither; of two pairs in a row one begins with the plan. `measure(planned)` runs the work
/// once, with the plan or at the baseline, and returns its `Cost`.
/// @param pairs of runs; at most so many where `stopping` is `once_decided`
/// @throws Error (invalid_input) for fewer than two pairs; whatever `measure` throws
template <class Measure>
Validation validate(const Plan& plan, std::size_t pairs, Measure&& measure, std::uint64_t seed = 1,
                    Stopping stopping = Stopping::after_all_pairs) {
    if (pairs < 2) {
        throw Error{Errc::invalid_input,
                    {"validate a plan", std::to_string(pairs) + " pairs of runs",
                     "there is no interval to tell from them", "ask for at least two, better ten"}};
    }
    std::vector<double> times;
    std::vector<double> energies;
    const auto judged = [&](const PercentInterval& time, const PercentInterval& energy) {
        return Validation{times.size(), plan.time_pct(), plan.energy_pct(),
                          time,         energy,          100 * plan.max_slowdown};
    };
    std::mt19937_64 random{seed};
    bool plan_first = false;
    for (std::size_t pair = 0; pair < pairs; ++pair) {
        plan_first = pair % 2 == 0 ? random() % 2 == 0 : !plan_first;
        Cost first = measure(plan_first);
        Cost second = measure(!plan_first);
        if (!plan_first) std::swap(first, second);
        times.push_back(time_percent(first, second));
        energies.push_back(energy_percent(first, second));
        if (stopping == Stopping::after_all_pairs || pair == 0) continue;
        const Validation found = judged(anytime_interval(times), anytime_interval(energies));
        if (pair + 1 == pairs || found.verdict() != Verdict::undecided) return found;
    }
    return judged(bootstrap(times, seed), bootstrap(energies, seed + 1));
}

}  // namespace kdvfs::inline v0_3::tune

/// Validation files: `{"gpu","pairs","too_few_pairs","verdict","time_bound_pct",`
/// `"promised":{"time_pct","energy_pct"},"time":{"verdict","limit_pct","mean_pct","low_pct",`
/// `"high_pct"},"energy":{...}}`, percent against the baseline; a verdict is "kept", "broken",
/// "undecided" or "nothing to gain"; `time_bound_pct` is null where the plan had no bound.
namespace kdvfs::inline v0_3::tune {
namespace detail {

inline nlohmann::ordered_json interval_json(const PercentInterval& interval, Verdict verdict,
                                            double limit) {
    return {{"verdict", to_string(verdict)},
            {"limit_pct", limit},
            {"mean_pct", interval.mean},
            {"low_pct", interval.low},
            {"high_pct", interval.high}};
}

inline PercentInterval read_interval(const PlanFields& fields) {
    constexpr double lowest = -1e300;
    return {fields.number("mean_pct", lowest), fields.number("low_pct", lowest),
            fields.number("high_pct", lowest)};
}

}  // namespace detail

/// What a validation found, as a validation file.
inline std::string to_json(const Validation& found, const std::string& gpu) {
    nlohmann::ordered_json json{
        {"gpu", gpu},
        {"pairs", found.pairs},
        {"too_few_pairs", found.too_few_pairs()},
        {"verdict", to_string(found.verdict())},
        {"time_bound_pct", nullptr},
        {"promised",
         {{"time_pct", found.promised_time_pct}, {"energy_pct", found.promised_energy_pct}}},
        {"time", detail::interval_json(found.time, found.time_verdict(), found.time_limit_pct())},
        {"energy",
         detail::interval_json(found.energy, found.energy_verdict(), found.energy_limit_pct())}};
    if (std::isfinite(found.time_bound_pct)) json["time_bound_pct"] = found.time_bound_pct;
    return json.dump(2) + '\n';
}

/// Reads a validation file; errors call the input `file`.
/// @throws Error (invalid_input) naming file and line, or file and field
inline Validation parse_validation(std::string_view text, const std::string& file) {
    const nlohmann::json json = detail::parse_json(text, file);
    const detail::PlanFields root{json, file, ""};
    const detail::PlanFields promised = root.object("promised");
    Validation found{root.integer("pairs", 0), promised.number("time_pct", -1e300),
                     promised.number("energy_pct", -1e300),
                     detail::read_interval(root.object("time")),
                     detail::read_interval(root.object("energy"))};
    if (json.contains("time_bound_pct") && !json["time_bound_pct"].is_null())
        found.time_bound_pct = root.number("time_bound_pct", 0);
    return found;
}

}  // namespace kdvfs::inline v0_3::tune
