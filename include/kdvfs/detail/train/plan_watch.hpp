// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/tune/paired_comparison.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kdvfs::inline v0_3::train {

/// How the plan of a pipeline is judged while it is followed.
struct PlanWatchOptions {
    /// Whether plans are judged at all.
    bool enabled = true;
    /// A plan is broken when iterations take longer than as found by more than its slowdown and
    /// this: 0.005 is 0.5 %.
    double tolerance = 0.005;
    /// A plan is broken when the operations of every stage take so much longer than planned.
    double late = 0.01;
    /// And when those of every stage take so much less: it is of another program.
    double early = 0.1;
};

/// What has been found out about a plan that is followed. Intervals hold at every moment with 95 %.
struct PlanVerdict {
    enum class Kind {
        unresolved,
        kept,    ///< iterations are as short as the plan promises
        broken,  ///< they are not: clocks went back to as found
    };
    Kind kind = Kind::unresolved;
    /// Operations of the stage that is least late, measured against planned, %.
    std::optional<tune::PercentInterval> operations{};
    /// Iterations by the plan against those as found, %.
    std::optional<tune::PercentInterval> iterations{};
};

constexpr std::string_view to_string(PlanVerdict::Kind kind) {
    switch (kind) {
        case PlanVerdict::Kind::kept: return "kept";
        case PlanVerdict::Kind::broken: return "broken";
        case PlanVerdict::Kind::unresolved: break;
    }
    return "unresolved";
}

/// "broken: operations take 3.09 % longer than planned (3.02 to 3.16)".
inline std::string to_string(const PlanVerdict& verdict) {
    std::string text{to_string(verdict.kind)};
    const auto add = [&](const char* format, const std::optional<tune::PercentInterval>& change) {
        if (!change) return;
        text += text.find(':') == std::string::npos ? ": " : "; ";
        text += io::format_text(format, change->mean, change->low, change->high);
    };
    add("operations take %.2f %% longer than planned (%.2f to %.2f)", verdict.operations);
    add("iterations take %.2f %% longer than as found (%.2f to %.2f)", verdict.iterations);
    return text;
}

/// Judges a plan in two ways: durations of operations against the planned ones, in each iteration,
/// and iterations against neighbours that run at the clocks as found. Every rank has one. All are
/// given the same exchanged figures, so that all go back in the same iteration. A pure state
/// machine.
class PlanWatch {
public:
    /// @param slowdown that the plan may cost, as a fraction
    PlanWatch(const PlanWatchOptions& options, double slowdown)
        : options_{options}, slowdown_{slowdown} {}

    /// How an iteration is to be run.
    struct Step {
        bool as_found = false;
        std::optional<std::uint64_t> pair{};  ///< the pair that it belongs to
    };

    /// The iteration that begins. Depends on nothing but how many have begun.
    /// @param comparable whether the plan may be no slower than as found: it may be while it waits
    ///        for a slow stage that is not answered yet, or for what the program has said
    Step next(bool comparable) {
        if (!options_.enabled || !comparable) return {};
        const std::uint64_t place = iterations_++;
        if (place < plan_first) return {};
        const bool often =
            verdict_.kind == PlanVerdict::Kind::unresolved && next_pair_ < often_pairs;
        if (!second_ && place < due_) return {};
        if (!second_) due_ = place + (often ? often_every : seldom_every);
        const bool found_first = ((next_pair_ * 0x9E3779B97F4A7C15ULL) >> 63) != 0;
        const Step step{found_first != second_, next_pair_};
        if (second_) ++next_pair_;
        second_ = !second_;
        return step;
    }

    /// An iteration of a pair has been measured, from its start to that of the next.
    void measured(std::uint64_t pair, bool as_found, Seconds length) {
        if (!(length > Seconds{0})) return;
        std::array<Seconds, 2>& both = open_[pair];
        both[as_found ? 1 : 0] = length;
        if (both[0] <= Seconds{0} || both[1] <= Seconds{0}) return;
        if (compared_.pairs() >= remembered) compared_ = {};
        compared_.add(both[0].count(), both[1].count());
        open_.erase(open_.begin(), std::next(open_.find(pair)));
    }

    static constexpr std::size_t figures = 3;
    /// What this rank knows of its pairs, to be exchanged as maxima: mean and bounds, %.
    /// @param measures whether this rank is of the first stage; the others start later
    [[nodiscard]] std::array<double, figures> own_figures(bool measures) const {
        if (!measures || !options_.enabled) return {-unknown, -unknown, -unknown};
        const auto change = compared_.change();
        if (!change) return {-unknown, -unknown, unknown};
        return {change->mean, change->low, change->high};
    }

    /// Figures of the same iteration from all ranks.
    /// @param slowness of all stages, measured over planned durations, of an iteration that has not
    ///        been counted yet; 0: not known
    /// @param pairs the largest of `own_figures`
    const PlanVerdict& look(std::span<const double> slowness, std::span<const double> pairs) {
        if (!options_.enabled || verdict_.kind == PlanVerdict::Kind::broken) return verdict_;
        double least = 0;
        double most = 0;
        for (const double s : slowness) {
            if (s > 0 && (least == 0 || s < least)) least = s;
            most = std::max(most, s);
        }
        if (late_.pairs() >= remembered) late_ = early_ = {};
        if (least > 0) late_.add(least, 1);
        if (most > 0) early_.add(most, 1);
        if (const auto change = late_.change()) verdict_.operations = change;
        if (pairs[2] < unknown && pairs[2] > -unknown)
            verdict_.iterations = tune::PercentInterval{pairs[0], pairs[1], pairs[2]};
        verdict_.kind = judge();
        return verdict_;
    }

    [[nodiscard]] const PlanVerdict& verdict() const { return verdict_; }

private:
    static constexpr double unknown = 1e9;
    static constexpr std::uint64_t plan_first =
        4;  ///< iterations by the plan before the first pair
    static constexpr std::uint64_t often_every = 4;
    static constexpr std::uint64_t often_pairs = 16;
    static constexpr std::uint64_t seldom_every = 64;
    static constexpr std::size_t remembered = 64;  ///< iterations and pairs that a verdict is of

    [[nodiscard]] PlanVerdict::Kind judge() const {
        using Kind = PlanVerdict::Kind;
        const double allowed = 100 * (slowdown_ + options_.tolerance);
        const auto& [kind, operations, iterations] = verdict_;
        if (operations && operations->low > 100 * options_.late) return Kind::broken;
        const auto least_early = early_.change();
        if (least_early && least_early->high < -100 * options_.early) return Kind::broken;
        if (iterations && iterations->low > allowed) return Kind::broken;
        const bool is_kept = iterations && iterations->high <= allowed && operations &&
                             operations->high <= 100 * options_.late;
        return is_kept ? Kind::kept : kind;
    }

    PlanWatchOptions options_;
    double slowdown_;
    PlanVerdict verdict_;
    tune::detail::PairedComparison late_;   ///< operations of the stage that is least late
    tune::detail::PairedComparison early_;  ///< and of the one that is least early
    tune::detail::PairedComparison compared_;
    std::map<std::uint64_t, std::array<Seconds, 2>> open_;  ///< by the plan, as found; 0: not known
    std::uint64_t iterations_ = 0;
    std::uint64_t due_ = 0;
    std::uint64_t next_pair_ = 0;
    bool second_ = false;  ///< of a pair, comes next
};

}  // namespace kdvfs::inline v0_3::train
