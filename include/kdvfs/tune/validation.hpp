// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/tune/paired_comparison.hpp>
#include <kdvfs/tune/planner.hpp>
#include <kdvfs/tune/profile.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <istream>
#include <limits>
#include <string>
#include <string_view>
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
    [[nodiscard]] double time_limit_pct() const;
    [[nodiscard]] double energy_limit_pct() const;
    [[nodiscard]] Verdict time_verdict() const { return judge(time, time_limit_pct()); }
    [[nodiscard]] Verdict energy_verdict() const { return judge(energy, energy_limit_pct()); }
    /// Of both: broken if one is, kept if both are.
    [[nodiscard]] Verdict verdict() const;

private:
    [[nodiscard]] Verdict judge(const PercentInterval& found, double limit) const;
};

/// The mean of paired changes and an interval that holds the true mean at all times at once with
/// 95 % probability, so that one may look after each pair and stop (`t_sequence_half_width`, with a
/// prior for a few pairs). Its ends are infinite where so few changes say nothing: below four.
/// @pre two changes or more
KDVFS_INLINE PercentInterval anytime_interval(const std::vector<double>& changes);

/// Compares a plan with the baseline by fresh runs, in pairs of random order, so that drift weighs
/// on neither; of two pairs in a row one begins with the plan. `measure(planned)` runs the work
/// once, with the plan or at the baseline, and returns its `Cost`. Ends once the verdict is known.
/// @param pairs of runs, at most
/// @throws Error (invalid_input) for fewer than two pairs; whatever `measure` throws
KDVFS_INLINE Validation validate(const Plan& plan, std::size_t pairs,
                                 const std::function<Cost(bool planned)>& measure,
                                 std::uint64_t seed = 1);

}  // namespace kdvfs::inline v0_3::tune

/// Validation files: `{"gpu","pairs","too_few_pairs","verdict","time_bound_pct",`
/// `"promised":{"time_pct","energy_pct"},"time":{"verdict","limit_pct","mean_pct","low_pct",`
/// `"high_pct"},"energy":{...}}`, percent against the baseline; a verdict is "kept", "broken",
/// "undecided" or "nothing to gain"; `time_bound_pct` is null where the plan had no bound,
/// `low_pct` and `high_pct` where too few pairs give no interval.
namespace kdvfs::inline v0_3::tune {

/// What a validation found, as a validation file:
/// `{"gpu","pairs","too_few_pairs","verdict","time_bound_pct",`
/// `"promised":{"time_pct","energy_pct"},"time":{"verdict","limit_pct","mean_pct","low_pct",`
/// `"high_pct"},"energy":{...}}`, percent against the baseline; a verdict is "kept", "broken",
/// "undecided" or "nothing to gain"; `time_bound_pct` is null where the plan had no bound,
/// `low_pct` and `high_pct` where too few pairs give no interval.
KDVFS_INLINE std::string to_json(const Validation& found, const std::string& gpu);

/// Reads a validation file; errors call the input `file`.
/// @throws Error (invalid_input) naming file and line, or file and field
KDVFS_INLINE Validation parse_validation(std::string_view text, const std::string& file);

/// A run's cost as the text `time_s,energy_j`, a header line and a line of numbers.
KDVFS_INLINE std::string to_csv(const Cost& cost);

/// Writes a run's cost to the file that the environment variable `KDVFS_COST` names; does nothing
/// where it is not set. @throws Error (io)
KDVFS_INLINE void report_cost(const Cost& cost);

/// Reads what `report_cost` writes. Errors call the input `name`.
/// @throws Error (invalid_input) naming file and line
KDVFS_INLINE Cost read_cost(std::istream& input, const std::string& name);

/// @throws Error (invalid_input) where there is no such file, else as above
KDVFS_INLINE Cost read_cost(const std::filesystem::path& path);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/validation.hpp>
#endif
