// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/clock.hpp>
#include <kdvfs/detail/tune/block_schedule.hpp>
#include <kdvfs/detail/tune/loss_budget.hpp>
#include <kdvfs/detail/tune/sweep_block.hpp>
#include <kdvfs/detail/tune/sweep_design.hpp>
#include <kdvfs/tune/cost_table.hpp>
#include <kdvfs/tune/profile.hpp>
#include <kdvfs/tune/sweep_options.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune {

/// What an iteration is to be run at.
struct SweepStep {
    ClockPoint clock;
    bool metered = false;
    bool done = false;  ///< the sweep is over: run as the policies say
    /// Number of the stretch that the iteration is in: odd at the baseline, the next even one at
    /// other clocks; 0 where nothing is measured.
    std::uint64_t stage = 0;
    std::uint32_t length = 0;  ///< iterations of the stretch; 0: not known
    /// What the ranks of a job run at, at once; null in a sweep of one rank.
    std::shared_ptr<const std::vector<ClockPoint>> clocks{};
};

/// Blocks of iterations at clock points.
using ClockBlocks = detail::BlockSchedule<ClockPoint, std::uint32_t>;

/// The next iteration of the blocks. @pre one is left
inline SweepStep next_step(ClockBlocks& blocks) {
    const ClockBlocks::Stage& stage = blocks.stage();
    SweepStep step{.clock = stage.point,
                   .metered = blocks.is_measured(),
                   .stage = stage.number,
                   .length = stage.settling + stage.measured,
                   .clocks = stage.points};
    blocks.pass(1);
    return step;
}

/// Which iterations of a run go at which clocks, and which of them are measured. A pure state
/// machine: measured blocks in, steps out.
///
/// First it warms up, at the baseline, until an iteration's time and power are steady. Then, in
/// rounds, blocks of a few points in random order: each begins unmetered, while clocks and
/// temperatures settle, and is preceded by as many iterations at the baseline as its slowdown
/// costs, the last of which are measured, too. Between rounds the models of what is known say which
/// points promise most for the time that they cost, and whether any promises enough.
/// What comes back may lag behind what was asked by any number of iterations.
///
/// Of several ranks that wait for each other, each runs at another point in the same block, for the
/// price of the slowest: points that take about as long share a block.
class SweepSchedule {
public:
    /// @param at_once ranks that each run a block at a point of their own
    SweepSchedule(SweepDesign design, const SweepOptions& options, std::size_t at_once = 1)
        : design_{std::move(design)},
          options_{options},
          at_once_{std::max<std::size_t>(at_once, 1)},
          loss_budget_{options.max_slowdown, Seconds{options.start_loss}},
          blocks_{design_.baseline(), options.seed} {}

    /// What the next iteration is to be run at. `sample_period` is the energy counter's, as known.
    SweepStep next(const Profile& profile, Duration sample_period) {
        sample_period_ = sample_period;
        while (!done_ && blocks_.is_idle()) plan(profile);
        loss_budget_.count_iteration();
        if (done_) return {.clock = design_.baseline(), .done = true};
        return next_step(blocks_);
    }

    /// A block of metered steps has been measured. @returns whether it belongs into the profile
    bool measured(const MeasuredBlock& found) {
        blocks_.came_back(found.block.stage, found.block.clock, true);
        if (found.block.clock != design_.baseline()) {
            settle_charge(found);
            return true;
        }
        loss_budget_.set_baseline(found.iteration);
        baseline_energy_ = found.power * found.iteration;
        if (warm_) return true;
        warm_up_.push_back(found);
        const auto iterations = static_cast<double>(loss_budget_.iterations());
        warm_ = iterations >= options_.warm_up_iterations &&
                (is_steady() ||
                 loss_budget_.baseline() * iterations > Seconds{options_.longest_warm_up});
        if (warm_ && is_varied()) fewest_iterations_ = varied_iterations;
        return warm_;
    }

    /// A block of metered steps could not be measured: the counter may have said too little. Blocks
    /// at the baseline grow by themselves until one can be (`plan`).
    void dropped(const SweepBlock& block) {
        blocks_.came_back(block.stage, block.clock, false);
        if (block.clock == design_.baseline() && knows_baseline()) blocks_.grow(block.clock);
    }

    /// Whether a launch of a kernel surely keeps its bound at a clock; `measured` null: never met.
    [[nodiscard]] bool keeps_bound(const KernelProfile* measured, ClockPoint clock) const {
        return design_.keeps_bound(measured, clock, options_.objective);
    }

    [[nodiscard]] const SweepDesign& design() const { return design_; }
    /// How much longer than at the highest clocks work can take.
    [[nodiscard]] double longest_factor(ClockPoint clock) const {
        return design_.longest_factor(clock);
    }

    /// Whether an iteration at the baseline has been measured.
    [[nodiscard]] bool knows_baseline() const { return loss_budget_.baseline() > Seconds{0}; }

    /// What an iteration takes at most, as far as is known; 0: nothing is.
    [[nodiscard]] Seconds longest_iteration(ClockPoint clock) const {
        const Seconds surely = loss_budget_.baseline() * design_.longest_factor(clock);
        const auto guessed = longest_.find(clock);
        return guessed == longest_.end() ? surely : std::min(surely, guessed->second);
    }

    /// The sweep is over, whatever is left.
    void end() { done_ = true; }

    /// How long a sweep takes as far as can be told: each point's blocks, and as many iterations at
    /// the baseline as make up for half an iteration more.
    [[nodiscard]] Seconds needed() const {
        const Seconds block =
            Seconds{options_.block.settling()} + Seconds{options_.block.measuring(sample_period_)};
        const auto blocks = static_cast<double>(design_.points().size() * options_.samples);
        return Seconds{options_.longest_warm_up} +
               block * blocks * (1 + 0.5 / options_.max_slowdown);
    }

    [[nodiscard]] SweepProgress progress(const Profile& profile) const {
        SweepProgress progress{.points = design_.points().size(),
                               .points_given_up = blocks_.given_up().size(),
                               .blocks_dropped = blocks_.dropped(),
                               .iterations = loss_budget_.iterations(),
                               .slowdown_pct = 100 * loss_budget_.slowdown(),
                               .lost = loss_budget_.lost(),
                               .used = used_,
                               .expected_regret_pct = regret_pct_,
                               .done = done_};
        for (const ClockPoint clock : design_.points())
            progress.points_measured += visits(profile, clock) > 0 ? 1 : 0;
        return progress;
    }

private:
    /// What a block is taken to cost until it is known.
    struct Charge {
        std::uint32_t iterations = 0;
        Seconds each{0};
    };

    static std::uint32_t visits(const Profile& profile, ClockPoint clock) {
        std::size_t most = 0;
        for (const KernelProfile& kernel : profile.kernels())
            if (const ProfilePoint* point = kernel.find(clock))
                most = std::max(most, point->samples.size());
        return static_cast<std::uint32_t>(most);
    }

    [[nodiscard]] std::uint32_t iterations_of(Duration time) const {
        const Seconds iteration = loss_budget_.baseline();
        if (iteration <= Seconds{0}) return 1;
        const double needed = std::ceil(Seconds{time} / iteration);
        return static_cast<std::uint32_t>(std::clamp(needed, 1.0, 1e6));
    }
    [[nodiscard]] std::uint32_t settle_iterations() const {
        return iterations_of(options_.block.settling());
    }
    [[nodiscard]] std::uint32_t measured_iterations(ClockPoint clock) const {
        constexpr std::uint32_t most = 1'000'000;
        const std::uint32_t iterations =
            std::max(iterations_of(options_.block.measuring(sample_period_)), fewest_iterations_);
        const std::uint32_t growth = blocks_.growth(clock);
        return iterations > most / growth ? most : iterations * growth;
    }

    void plan(const Profile& profile) {
        const ClockPoint baseline = design_.baseline();
        if (!warm_) {
            blocks_.add_baseline(1, measured_iterations(baseline));
            // Records come late, seconds where the driver makes them: until a block could be
            // measured, each is twice as long as the one before, whatever became of that.
            if (!knows_baseline()) blocks_.grow(baseline);
            return;
        }
        if (!began_) begin_round_with(first_points(), profile);
        if (blocks_.wanted().empty() && !blocks_.has_blocks_out()) choose_round(profile);
        if (done_) return;
        if (blocks_.wanted().empty())
            return blocks_.wait(settle_iterations(), measured_iterations(baseline), 1);
        plan_block(blocks_.take(at_once_));
    }

    void plan_block(std::vector<ClockPoint> clocks) {
        const ClockPoint slowest =
            *std::max_element(clocks.begin(), clocks.end(), [&](ClockPoint a, ClockPoint b) {
                return longest_iteration(a) < longest_iteration(b);
            });
        std::uint32_t measured = 0;
        for (const ClockPoint clock : clocks)
            measured = std::max(measured, measured_iterations(clock));
        const std::uint32_t settle = settle_iterations();
        const std::uint32_t slow = settle + measured;
        const Seconds each = longest_iteration(slowest);
        const std::uint32_t wait = loss_budget_.wait_before(slow, each);
        loss_budget_.charge(slow, each, loss_budget_.baseline());
        charges_[blocks_.add(std::move(clocks), slowest, settle, measured, wait)] = {slow, each};
    }

    /// Once for all ranks: they wait for the slowest.
    void settle_charge(const MeasuredBlock& found) {
        const auto known = charges_.find(found.block.stage);
        if (known == charges_.end()) return;
        const Charge charge = known->second;
        charges_.erase(known);
        loss_budget_.charge(charge.iterations, found.iteration, charge.each);
        used_ += (found.power * found.iteration - baseline_energy_) * charge.iterations;
    }

    [[nodiscard]] bool is_steady() const {
        constexpr std::size_t few = 3;
        constexpr double steady = 0.005;
        if (warm_up_.size() < 2 * few) return false;
        const auto changed = [&](auto quantity) {
            double before = 0;
            double after = 0;
            for (std::size_t i = 0; i < few; ++i) {
                before += quantity(warm_up_[warm_up_.size() - 2 * few + i]);
                after += quantity(warm_up_[warm_up_.size() - few + i]);
            }
            return std::abs(after / before - 1) > steady;
        };
        return !changed([](const MeasuredBlock& block) { return block.iteration.count(); }) &&
               !changed([](const MeasuredBlock& block) { return block.power.count; });
    }

    /// Whether iterations take times that differ by more than a percent or two.
    [[nodiscard]] bool is_varied() const {
        constexpr double alike = 0.015;
        if (warm_up_.size() < 4) return false;
        double sum = 0;
        double squares = 0;
        double iterations = 0;
        for (const MeasuredBlock& block : warm_up_) {
            const double off = block.iteration / warm_up_.front().iteration - 1;
            sum += off;
            squares += off * off;
            iterations += block.block.iterations;
        }
        const auto count = static_cast<double>(warm_up_.size());
        const double variance = (squares - sum * sum / count) / (count - 1);
        return variance * (iterations / count) > alike * alike;
    }

    /// Spread out, down to clocks that could double an iteration.
    [[nodiscard]] std::vector<ClockPoint> first_points() const {
        std::vector<ClockPoint> points =
            design_.spread_out(std::max(std::size_t{3}, points_at_once()), 2);
        if (const auto second = second_clock(points)) points.push_back(*second);
        if (options_.horizon > Seconds{0}) return points;
        // Laws say nothing of a memory clock at which nothing was measured.
        constexpr double longest = 5;
        for (const ClockPoint clock : design_.highest_of_each_memory(longest))
            if (std::none_of(points.begin(), points.end(),
                             [&](ClockPoint each) { return each.memory == clock.memory; }))
                points.push_back(clock);
        return points;
    }

    /// The highest clock below the top, where none is among the points: laws say nothing of lower
    /// clocks where only the top was measured.
    [[nodiscard]] std::optional<ClockPoint> second_clock(
        const std::vector<ClockPoint>& points) const {
        const auto is_lower = [&](ClockPoint each) { return design_.longest_factor(each) > 1; };
        if (std::any_of(points.begin(), points.end(), is_lower)) return std::nullopt;
        std::optional<ClockPoint> second;
        for (const ClockPoint each : design_.points())
            if (is_lower(each) &&
                (!second || design_.longest_factor(each) < design_.longest_factor(*second)))
                second = each;
        return second;
    }

    /// Points that an earlier run began with are finished first.
    void begin_round_with(std::span<const ClockPoint> points, const Profile& profile) {
        began_ = true;
        for (const ClockPoint clock : design_.points()) {
            const bool chosen = std::find(points.begin(), points.end(), clock) != points.end();
            if (chosen || visits(profile, clock) > 0) add_to_round(clock, profile);
        }
        put_in_order();
    }
    /// Points that one block can have, each measured as often as is wanted.
    [[nodiscard]] std::size_t points_at_once() const { return at_once_ / options_.samples; }

    /// At random, or for several ranks the slowest first: they are taken from the end.
    void put_in_order() {
        blocks_.shuffle();
        if (at_once_ == 1) return;
        auto& wanted = blocks_.wanted();
        std::stable_sort(wanted.begin(), wanted.end(), [&](ClockPoint a, ClockPoint b) {
            return longest_iteration(a) > longest_iteration(b);
        });
    }

    void add_to_round(ClockPoint clock, const Profile& profile) {
        if (clock == design_.baseline()) return;
        if (!design_.keeps_bounds(profile, clock, options_.objective)) return;
        for (std::uint32_t v = visits(profile, clock); v < samples_of(clock); ++v)
            blocks_.wanted().push_back(clock);
    }
    /// One rank measures points that cost much waiting once: what others scatter says how far they
    /// may be off.
    [[nodiscard]] std::uint32_t samples_of(ClockPoint clock) const {
        constexpr double dear = 1.15;
        const bool once = options_.horizon > Seconds{0} && at_once_ == 1 &&
                          longest_iteration(clock) > dear * loss_budget_.baseline();
        return once ? 1 : options_.samples;
    }
    /// The lowest core clock that may be measured next: a step below those that were. What a step
    /// shows is what the next one promises, and low clocks cost most. Ranks go all ways at once.
    [[nodiscard]] Megahertz lowest_next(const Profile& profile) const {
        if (options_.horizon <= Seconds{0} || at_once_ > 1) return {0};
        constexpr std::uint32_t percent = 80;
        return {lowest_measured(profile).count * percent / 100};
    }
    [[nodiscard]] Megahertz lowest_measured(const Profile& profile) const {
        Megahertz lowest = auto_clock;
        for (const ClockPoint clock : design_.points())
            if (clock.core != auto_clock && visits(profile, clock) > 0)
                lowest = lowest == auto_clock ? clock.core : std::min(lowest, clock.core);
        return lowest;
    }

    /// A point that could be measured next.
    struct Prospect {
        std::size_t point = 0;
        ClockPoint clock;
        double gain = 0;  ///< joules in an iteration, beside the points that were chosen before it
    };

    /// The points that promise most for the time that they and their waiting take; none, and the
    /// sweep is over, if too little is left to be found.
    void choose_round(const Profile& profile) {
        const auto forecasts = design_.forecast(profile, options_.objective);
        std::vector<Prospect> prospects;
        const Megahertz lowest = lowest_next(profile);
        for (std::size_t p = 0; p < design_.points().size(); ++p) {
            const ClockPoint clock = design_.points()[p];
            if (blocks_.given_up().count(clock) > 0 ||
                !design_.keeps_bounds(profile, clock, options_.objective))
                continue;
            Seconds longest{0};
            for (const auto& kernel : forecasts) longest += kernel[p].longest;
            longest_[clock] = longest;
            const bool too_low = clock.core != auto_clock && clock.core < lowest;
            if (visits(profile, clock) == 0 && !too_low) prospects.push_back({p, clock});
        }
        const double baseline = mean_costs(profile).baseline_cost().energy.count;
        double regret = 0;
        for (const auto& kernel : forecasts) {
            double best = 0;
            for (const Prospect& prospect : prospects)
                best = std::max(best, kernel[prospect.point].gain);
            regret += best;
        }
        const std::vector<double> as_one =
            design_.one_clock_gains(profile, forecasts, options_.objective);
        for (const Prospect& prospect : prospects)
            regret = std::max(regret, as_one[prospect.point]);
        regret_pct_ = 100 * regret / baseline;
        std::vector<Prospect> chosen;
        if (regret_pct_ >= options_.regret_pct)
            chosen = most_promising(prospects, forecasts, as_one, baseline);
        if (chosen.empty() || !is_worth_waiting(chosen, profile))
            chosen = between(std::move(prospects), profile);
        done_ = chosen.empty();
        if (done_) return;
        for (const Prospect& prospect : chosen) add_to_round(prospect.clock, profile);
        put_in_order();
    }

    /// Once, at the end: the points between those measured, the fastest first, as far as their
    /// blocks cost no waiting. Where switches take long, kernels share a clock between those that
    /// each of them would have, which forecasts of single kernels do not see.
    [[nodiscard]] std::vector<Prospect> between(std::vector<Prospect> prospects,
                                                const Profile& profile) {
        if (options_.horizon <= Seconds{0} || at_once_ > 1 || std::exchange(filled_, true) ||
            design_.known_saving(profile, options_.objective).count <= 0)
            return {};
        const Megahertz lowest = lowest_measured(profile);
        std::erase_if(prospects, [&](const Prospect& each) { return each.clock.core < lowest; });
        std::stable_sort(prospects.begin(), prospects.end(),
                         [&](const Prospect& a, const Prospect& b) {
                             return longest_iteration(a.clock) < longest_iteration(b.clock);
                         });
        Seconds left = loss_budget_.left();
        const auto end =
            std::find_if(prospects.begin(), prospects.end(), [&](const Prospect& each) {
                left -= loss_of(each.clock) * samples_of(each.clock);
                return left < Seconds{0};
            });
        prospects.erase(end, prospects.end());
        return prospects;
    }

    /// One after the other the point whose gain beside those chosen is largest for its price. A
    /// few: then the forecasts learn. What other ranks try beside them is free where it is not
    /// slower.
    [[nodiscard]] std::vector<Prospect> most_promising(
        std::vector<Prospect> prospects, const std::vector<std::vector<SweepForecast>>& forecasts,
        const std::vector<double>& as_one, double baseline) const {
        constexpr std::size_t few = 2;
        // What is left is in several points, most of it in the best of them.
        const double least = 0.5 * options_.regret_pct / 100 * baseline;
        std::vector<double> gained(forecasts.size());  // by kernel
        double gained_as_one = 0;
        std::vector<Prospect> chosen;
        Seconds slowest{0};
        while (chosen.size() < std::max(few, points_at_once()) && !prospects.empty()) {
            const bool beside = chosen.size() >= few;
            std::size_t best = prospects.size();
            double most = 0;
            for (std::size_t i = 0; i < prospects.size(); ++i) {
                Prospect& each = prospects[i];
                each.gain = 0;
                for (std::size_t k = 0; k < forecasts.size(); ++k)
                    each.gain += std::max(0.0, forecasts[k][each.point].gain - gained[k]);
                each.gain = std::max(each.gain, as_one[each.point] - gained_as_one);
                if (each.gain < (beside ? 0 : least) ||
                    (beside && longest_iteration(each.clock) > slowest))
                    continue;
                const double worth = each.gain / price_of(each.clock).count();
                if (worth > most) most = worth, best = i;
            }
            if (best == prospects.size()) break;
            const Prospect next = prospects[best];
            prospects.erase(prospects.begin() + static_cast<std::ptrdiff_t>(best));
            for (std::size_t k = 0; k < forecasts.size(); ++k)
                gained[k] = std::max(gained[k], forecasts[k][next.point].gain);
            gained_as_one = std::max(gained_as_one, as_one[next.point]);
            slowest = std::max(slowest, longest_iteration(next.clock));
            chosen.push_back(next);
        }
        return chosen;
    }

    /// Whether what points promise until the program's end is more than what is known would save
    /// while they are measured. Ranks share the price of a block.
    [[nodiscard]] bool is_worth_waiting(const std::vector<Prospect>& prospects,
                                        const Profile& profile) const {
        if (options_.horizon <= Seconds{0}) return true;
        double gain = 0;
        Seconds price{0};
        for (const Prospect& prospect : prospects) {
            gain += prospect.gain;
            price += price_of(prospect.clock) * samples_of(prospect.clock) /
                     static_cast<double>(at_once_);
        }
        // What may be lost at once needs no waiting.
        price -= std::max(Seconds{0}, loss_budget_.left()) / options_.max_slowdown;
        return gain * options_.horizon.count() >=
               design_.known_saving(profile, options_.objective).count * price.count();
    }

    /// How long the run goes on for a block: itself, and what makes up for its slowdown.
    [[nodiscard]] Seconds price_of(ClockPoint clock) const {
        return longest_iteration(clock) * block_iterations(clock) +
               loss_of(clock) / options_.max_slowdown;
    }
    /// What a block takes longer than at the baseline.
    [[nodiscard]] Seconds loss_of(ClockPoint clock) const {
        const Seconds each = longest_iteration(clock) - loss_budget_.baseline();
        return std::max(Seconds{0}, each) * block_iterations(clock);
    }
    [[nodiscard]] double block_iterations(ClockPoint clock) const {
        return static_cast<double>(settle_iterations() + measured_iterations(clock));
    }

    SweepDesign design_;
    SweepOptions options_;
    std::size_t at_once_;
    LossBudget loss_budget_;
    ClockBlocks blocks_;
    Duration sample_period_{0};
    std::map<std::uint64_t, Charge> charges_;  ///< by stage
    std::map<ClockPoint, Seconds> longest_;
    std::vector<MeasuredBlock> warm_up_;
    Joules baseline_energy_{};  ///< of an iteration, as measured last
    Joules used_{};             ///< by blocks at other clocks, beyond that
    /// Of a block; more where iterations differ, so that blocks meet most sizes of work.
    static constexpr std::uint32_t varied_iterations = 6;
    std::uint32_t fewest_iterations_ = 1;
    double regret_pct_ = 100;
    bool warm_ = false;
    bool began_ = false;
    bool filled_ = false;  ///< the points between those measured were chosen
    bool done_ = false;
};

}  // namespace kdvfs::inline v0_3::tune
