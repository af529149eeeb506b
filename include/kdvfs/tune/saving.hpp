// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/form.hpp>
#include <kdvfs/detail/tune/paired_comparison.hpp>
#include <kdvfs/units.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kdvfs::inline v0_3::tune {

/// What a run that tunes itself is doing.
enum class RunPhase {
    warm_up,  ///< as found, until its iterations are steady
    explore,  ///< blocks of iterations at other clocks, between stretches as found
    plan,     ///< as found, while a plan is made
    follow,   ///< by the plan, with comparison blocks as found
    doubt,  ///< as found for some iterations, since the program or the board seems to have changed
    rest,   ///< as found: nothing is to be gained, or no plan kept its bound
};

constexpr std::string_view to_string(RunPhase phase) {
    switch (phase) {
        case RunPhase::warm_up: return "warm-up";
        case RunPhase::explore: return "explore";
        case RunPhase::plan: return "plan";
        case RunPhase::follow: return "follow";
        case RunPhase::doubt: return "doubt";
        case RunPhase::rest: break;
    }
    return "rest";
}

/// What a run that tunes itself has saved so far. Intervals hold at every moment with 95 %
/// (`PairedComparison`); against the same run at the clocks that were found.
struct Saving {
    RunPhase phase = RunPhase::warm_up;
    Seconds passed{0};
    Seconds followed{0};      ///< by plans
    std::size_t pairs = 0;    ///< of comparison blocks, of the plan that is followed
    std::size_t plans = 0;    ///< that have been followed
    std::size_t changes = 0;  ///< of the program or the board, after which it learned again
    std::optional<PercentInterval> energy{};  ///< change by the plan that is followed
    std::optional<PercentInterval> time{};    ///< likewise
    /// Change of the energy by the plan against the best clock for all kernels within the bound.
    std::optional<PercentInterval> beyond_one_clock{};
    /// Energy saved by the plans that were measured; what exploring cost is taken off.
    Joules saved{};
    Joules saved_low{};
    Joules saved_high{};
    Joules as_found{};     ///< what the run would have used as found; 0: not known yet
    double saved_pct = 0;  ///< of `as_found`
    std::optional<Joules> by_one_clock{};  ///< of `saved`: what one clock would have saved
    Seconds lost{0};                       ///< by exploring and by plans
    Seconds lost_high{0};
    Seconds budget{0};  ///< that may be lost by now
    /// Since when the energy saved has been worth more than the time lost, at the board's mean
    /// power.
    std::optional<Seconds> paid_back{};
    std::string note{};  ///< why the run rests, or that clocks cannot be set; empty elsewhere
};

/// "follow: saved 51200 J (2.41 %, 95 % interval 1.90 to 2.93), lost 21.3 s of 54.1 s, paid back
/// since 1460 s".
KDVFS_INLINE std::string to_string(const Saving& saving);

}  // namespace kdvfs::inline v0_3::tune

#if KDVFS_DEFINES_ENGINE
#include <kdvfs/detail/tune/saving.hpp>
#endif
