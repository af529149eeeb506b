// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/detail/io/text_escape.hpp>
#include <kdvfs/detail/tune/level_shift.hpp>
#include <kdvfs/detail/tune/paired_comparison.hpp>
#include <kdvfs/tune/saving.hpp>
#include <kdvfs/units.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::inline v0_3::tune::detail {

/// How a run that tunes itself is led.
struct RunOptions {
    double max_slowdown = 0.01;            ///< of the time passed, as a fraction
    Seconds start_loss{20};                ///< that may be lost beside it
    std::uint32_t steady_iterations = 20;  ///< alike, before any clock moves
    std::uint32_t observed_after = 8;      ///< of them: measuring as found begins
    Seconds settle{1};  ///< from a change of clocks to a comparison block, or a look at the level
    Seconds block{10};  ///< of comparison, at least
    double first_hour_as_found = 0.1;  ///< share of the first hour for comparison blocks
    double later_as_found = 0.03;      ///< and of the rest
    double precise_pct = 0.15;         ///< half-width of intervals from which on less will do
    double precise_as_found = 0.01;    ///< share of the time for comparison blocks then
    double at_one_clock = 0.015;       ///< and for blocks at the best clock for all kernels
    double least_saving_pct = 0.3;     ///< a plan that saves less is given up
    bool switches_known = false;       ///< how late clocks change was measured
    bool measure_only = false;         ///< clocks cannot be set: plans do nothing
    bool learns = false;     ///< who plans learns from plans before, and can go back to one
    std::uint64_t seed = 1;  ///< of the order of comparison blocks
};

/// What the next iteration is to be run at.
struct RunStep {
    enum class As { found, explored, planned, one_clock };
    As as = As::found;
    std::uint32_t block = 0;   ///< the comparison block that measures it, from 1 on; 0: none
    std::uint32_t triple = 0;  ///< that the block belongs to
};

/// What an iteration was like, on the host.
struct SeenIteration {
    Seconds time{0};
    double launches = 0;
    double unfamiliar = 0;  ///< launches of kernels that the plan does not know
    bool explored = false;  ///< at a clock that is tried
    /// What it was run at: what was chosen last, or before, where the ranks of a job act together.
    RunStep::As as = RunStep::As::found;
    bool others_ready = true;  ///< the other ranks of the job have been steady, too
};

/// Time and energy of an iteration in a comparison block.
struct BlockCost {
    Seconds time{0};
    Joules energy{};
};

/// Change of an iteration's time and energy by a plan, in percent.
struct BlockChange {
    double time_pct = 0;
    double energy_pct = 0;
    double time_error_pct = 0;    ///< standard deviation of `time_pct`
    double energy_error_pct = 0;  ///< and of `energy_pct`
};

/// The same, from blocks by the plan and in another way.
struct PlanChange {
    PairedComparison time;
    PairedComparison energy;

    /// @param by_plan two blocks
    void add(const std::vector<BlockCost>& by_plan, const BlockCost& other) {
        time.add((by_plan[0].time + by_plan[1].time).count() / 2, other.time.count());
        energy.add((by_plan[0].energy + by_plan[1].energy).count / 2, other.energy.count);
    }
    /// Whether both intervals are at most this wide on each side.
    [[nodiscard]] bool is_within(double half_pct) const {
        const auto its_time = time.change();
        const auto its_energy = energy.change();
        return its_time && its_energy && its_energy->high - its_energy->low <= 2 * half_pct &&
               its_time->high - its_time->low <= 2 * half_pct;
    }
};

/// What the best clock for all kernels is to a plan.
enum class OneClock {
    unknown,
    is_plan,   ///< the plan has one clock
    is_found,  ///< no clock for all saves anything
    other,     ///< the plan is compared with it
};

/// The course of a run that tunes itself: warm-up, exploring, planning, following with comparison
/// blocks, and back to the clocks as found where the program or the board changes. Exploring and
/// planning are done elsewhere. A pure state machine: what iterations were like in, steps out.
///
/// The time lost stays below a start amount and a share of the time passed, by its upper 97.5 %
/// bound: `left` is what exploring may use, and a plan is followed only while there is any.
/// Comparison blocks come in threes, one of which, drawn at random, is as found, or in a small
/// share of the time at the best clock for all kernels.
class RunSchedule {
public:
    explicit RunSchedule(const RunOptions& options) : options_{options}, random_{options.seed} {}

    [[nodiscard]] RunPhase phase() const { return phase_; }
    /// How often the program, or the board, has changed.
    [[nodiscard]] std::size_t changes() const { return changes_; }
    /// How many plans have been followed.
    [[nodiscard]] std::size_t plans() const { return plans_; }

    /// What the next iteration is to be run at. @param seen what the one before was like
    RunStep next(const SeenIteration& seen) {
        account(seen);
        detect(seen);
        if (phase_ == RunPhase::warm_up && is_steady() && seen.others_ready &&
            left() >= least_to_explore())
            phase_ = options_.measure_only ? follow_nothing() : RunPhase::explore;
        return choose();
    }

    /// The same where another rank of the job decides for this one, which keeps its account.
    /// @param epoch how often the program has changed  @param plan the number of the plan; 0: none
    /// @returns false where its launches are another program's: it goes on as found
    bool obey(const SeenIteration& seen, std::uint32_t epoch, RunPhase phase, std::uint32_t plan,
              const RunStep& step) {
        account(seen);
        note_launches(seen);
        obeys_ = true;
        if (epoch != epoch_ && phase_ != RunPhase::warm_up) learn_again();
        epoch_ = epoch;
        if (other_launches_ >= fewest_other) {
            learn_again();
            return false;
        }
        if (phase_ == RunPhase::explore && phase != RunPhase::explore) explored();
        if (plan != plan_) {
            end_plan();
            begin_plan();
            plan_ = plan;
        }
        phase_ = phase;
        if (step.block > blocks_) {
            blocks_ = step.block;
            slots_[step.block] = {step.triple, step.as};
        }
        return true;
    }
    /// Whether iterations have been alike for long enough to be measured.
    [[nodiscard]] bool is_steady() const {
        return steady_ >= options_.observed_after && passed_ >= not_before_;
    }
    /// Another rank of the job sees another program.
    void other_program() { learn_again(); }

    /// What may still be lost now; at most so much is to be spent by exploring.
    [[nodiscard]] Seconds left() const { return budget() - lost().high; }
    /// What exploring has lost since it began, and the energy that it has used more.
    void exploring(Seconds lost, Joules used) {
        exploring_lost_ = lost;
        exploring_used_ = used;
    }
    /// Exploring has come to its end.
    void explored() {
        explored_lost_ += std::exchange(exploring_lost_, Seconds{0});
        explored_used_ += std::exchange(exploring_used_, Joules{});
        if (phase_ == RunPhase::explore) phase_ = RunPhase::plan;
    }
    /// The bound of the plan that is wanted, as a fraction: room is left for what is not known.
    [[nodiscard]] double plan_bound() const {
        constexpr std::array shares{0.75, 0.4, 0.15};
        return options_.max_slowdown * shares[std::min(retreats_, shares.size() - 1)] * stretch_;
    }
    /// Factor of the bound of plans, as those before took less time than they might.
    [[nodiscard]] double stretch() const { return stretch_; }
    /// A run before has ended with this factor.
    void begin_with_stretch(double stretch) { stretch_ = stretch; }
    /// What the plan before did to time and energy, in percent, where another one is wanted since.
    [[nodiscard]] const std::optional<BlockChange>& outcome() const { return outcome_; }
    /// Whether the plan that is wanted is one of one clock: several have broken their bound.
    [[nodiscard]] bool one_clock() const { return retreats_ > 0; }
    /// Whether the plan that was followed last is the one to go back to, until another one is.
    [[nodiscard]] bool keeps_last() const { return keeps_last_; }
    /// Whether the plan that is wanted is the one that was kept: plans since have saved less.
    [[nodiscard]] bool takes_back() const { return takes_back_; }
    /// A plan is ready, within `plan_bound`. One that promises too little is not followed: after
    /// one that has proved to save, that one is wanted again (`takes_back`).
    /// @param saving_pct that it promises, above 0
    /// @param slowdown_pct that it promises
    void planned(double saving_pct, double slowdown_pct, OneClock one_clock = OneClock::unknown) {
        if (phase_ != RunPhase::plan) return;
        if (saving_pct < options_.least_saving_pct) {
            if (kept_) return go_back_to_kept();
            return rest("nothing to gain", saving_pct + options_.least_saving_pct);
        }
        begin_plan();
        takes_back_ = keeps_last_ = false;
        one_clock_ = one_clock;
        promised_ = {.time_pct = slowdown_pct, .energy_pct = -saving_pct};
        phase_ = RunPhase::follow;
    }
    /// No plan can be made; as `planned` where a plan before has proved to save.
    void cannot_plan(const std::string& why) {
        if (phase_ == RunPhase::explore) explored();
        if (phase_ == RunPhase::plan && kept_) return go_back_to_kept();
        rest(why, 0);
    }

    /// A comparison block was measured.
    void measured(std::uint32_t block, const BlockCost& cost) {
        const auto slot = slots_.find(block);
        if (slot == slots_.end()) return;
        const auto [triple, as] = slot->second;
        slots_.erase(slot);
        watts_[static_cast<std::size_t>(as)] = cost.energy / cost.time;
        Triple& its = triples_[triple];
        if (as == As::planned)
            its.planned.push_back(cost);
        else
            its.other = {as, cost};
        if (its.planned.size() < 2 || !its.other) return;
        const auto [other, its_cost] = *its.other;
        (other == As::found ? change_ : beyond_one_clock_).add(its.planned, its_cost);
        triples_.erase(triple);
        if (other == As::found) judge();
    }
    /// A comparison block could not be measured.
    void dropped(std::uint32_t block) {
        const auto slot = slots_.find(block);
        if (slot == slots_.end()) return;
        const std::uint32_t triple = slot->second.triple;
        triples_.erase(triple);
        std::erase_if(slots_, [&](const auto& each) { return each.second.triple == triple; });
    }

    [[nodiscard]] Saving saving() const {
        Saving saving{.phase = phase_,
                      .passed = passed_,
                      .followed = followed_ + plan_time_,
                      .pairs = change_.time.pairs(),
                      .plans = plans_,
                      .changes = changes_,
                      .energy = change_.energy.change(),
                      .time = change_.time.change(),
                      .beyond_one_clock = one_clock_ == OneClock::is_found
                                              ? change_.energy.change()
                                              : beyond_one_clock_.energy.change(),
                      .paid_back = paid_back_,
                      .note = note_};
        const Range lost = this->lost();
        const Gain gain = this->gain();
        saving.saved = gain.mean;
        saving.saved_low = gain.low;
        saving.saved_high = gain.high;
        saving.as_found = watts(As::found) * passed_;
        saving.saved_pct = saving.as_found.count > 0 ? 100 * (gain.mean / saving.as_found) : 0;
        if (one_clock_ == OneClock::is_plan)
            saving.by_one_clock = gain.mean;
        else if (saving.beyond_one_clock && saving.energy && saving.energy->mean < 0)
            saving.by_one_clock =
                gain.mean * ((saving.energy->mean - saving.beyond_one_clock->mean) /
                             (saving.energy->mean * (1 + saving.beyond_one_clock->mean / 100)));
        saving.lost = lost.mean;
        saving.lost_high = lost.high;
        saving.budget = budget();
        return saving;
    }

private:
    using As = RunStep::As;
    struct Range {
        Seconds mean{0};
        Seconds high{0};
    };
    struct Gain {
        Joules mean{};
        Joules low{};
        Joules high{};
    };
    struct Slot {
        std::uint32_t triple = 0;
        As as = As::found;
    };
    /// A plan that kept its bound.
    struct Kept {
        double time_pct = 0;
        double energy_pct = 0;
        double stretch = 1;
    };
    /// What an iteration was run at, as far as levels differ.
    struct Clocks {
        As as = As::found;
        bool explored = false;
    };
    struct Triple {
        std::vector<BlockCost> planned{};
        std::optional<std::pair<As, BlockCost>> other{};
    };
    static constexpr std::uint32_t fewest_other = 5;  ///< iterations that show another program
    /// Iterations as found, once its clocks have come, to see what has changed.
    static constexpr std::uint32_t doubted = 12;
    static constexpr std::uint32_t looked_at = 8;  ///< the last of them
    static constexpr std::size_t most_plans = 64;
    static constexpr std::size_t most_kinds = 6;
    static constexpr std::size_t most_improved = 3;
    static constexpr std::size_t most_doubted = 3;  ///< plans that learn how late clocks change
    /// A plan's first iterations, at which its follower sees whether it is the program's own.
    static constexpr std::uint32_t judged_by_follower = 4;

    // Accounts.

    [[nodiscard]] Seconds budget() const {
        return options_.start_loss + options_.max_slowdown * (passed_ - lost().mean);
    }
    /// Exploring's loss is measured block by block; a plan's is its time by the comparison.
    [[nodiscard]] Range lost() const {
        if (options_.measure_only) return {};
        const auto of_plan = [&](double percent) {
            const double other = of_one_clock(percent, beyond_one_clock_.time);
            return plan_time_ * (1 - 1 / (1 + percent / 100)) +
                   one_clock_time_ * (1 - 1 / (1 + other / 100));
        };
        const Seconds explored = explored_lost_ + exploring_lost_;
        Range lost{explored + plans_lost_.mean, explored + plans_lost_.high};
        if (const auto change = change_.time.change()) {
            lost.mean += of_plan(change->mean);
            lost.high += of_plan(std::max(change->high, 0.0));
        } else {
            const double guess =
                change_.time.pairs() < 2 ? 100 * plan_bound() : change_.time.mean();
            lost.mean += of_plan(guess);
            lost.high += of_plan(std::max(100 * options_.max_slowdown, 2 * guess));
        }
        return lost;
    }
    [[nodiscard]] Gain gain() const {
        const Joules explored = explored_used_ + exploring_used_;
        Gain gain{gained_.mean - explored, gained_.low - explored, gained_.high - explored};
        const auto saved = [&](double percent) {
            const double other = of_one_clock(percent, beyond_one_clock_.energy);
            return watts(As::planned) * plan_time_ * (1 / (1 + percent / 100) - 1) +
                   watts(As::one_clock) * one_clock_time_ * (1 / (1 + other / 100) - 1);
        };
        const PairedComparison& energy = change_.energy;
        const auto change = energy.change();
        if (!change) {
            if (options_.measure_only || energy.pairs() == 0) return gain;
            // Hardly known: from nothing to twice as much.
            const Joules guess = saved(energy.mean());
            gain.mean += guess;
            gain.low += std::min(guess * 2, Joules{});
            gain.high += std::max(guess * 2, Joules{});
            return gain;
        }
        gain.mean += options_.measure_only ? Joules{} : saved(change->mean);
        gain.low += saved(change->high);
        gain.high += saved(change->low);
        return gain;
    }

    /// What one clock changes, in percent, where the plan changes it by so much.
    static double of_one_clock(double plan_pct, const PairedComparison& beyond) {
        return 100 * ((100 + plan_pct) / (100 + beyond.mean()) - 1);
    }
    [[nodiscard]] Watts watts(As as) const { return watts_[static_cast<std::size_t>(as)]; }

    void account(const SeenIteration& seen) {
        passed_ += seen.time;
        if (seen.as == As::planned) plan_time_ += seen.time;
        if (seen.as == As::one_clock) one_clock_time_ += seen.time;
        if (slot_ != slots && seen.as == As::found) compared_time_ += seen.time;
        slot_time_ += seen.time;
        const bool is_known = change_.energy.change() || gained_.high != gained_.low;
        if (!is_known || watts(As::found).count <= 0) return;
        const bool positive = (gain().mean - watts(As::found) * lost().mean).count > 0;
        if (!positive)
            paid_back_.reset();
        else if (!paid_back_)
            paid_back_ = passed_;
    }

    // What has changed.

    [[nodiscard]] Seconds least_to_explore() const { return options_.start_loss * 0.25; }

    /// Launches show another program whatever the clock.
    void note_launches(const SeenIteration& seen) {
        if (seen.launches > 0) {
            const bool alike = is_of_known_kind(seen, 0.1);
            steady_ = alike && seen.unfamiliar == 0 ? steady_ + 1 : 0;
            if (!alike && phase_ == RunPhase::warm_up) {
                if (kinds_.size() == most_kinds) kinds_.erase(kinds_.begin());
                kinds_.push_back(seen.launches);
            }
        }
        if (phase_ != RunPhase::doubt)
            other_launches_ =
                phase_ != RunPhase::warm_up && differs(seen) ? other_launches_ + 1 : 0;
    }
    void detect(const SeenIteration& seen) {
        note_launches(seen);
        note_clocks(seen);
        if (phase_ == RunPhase::doubt) return doubt(seen);
        if (other_launches_ >= fewest_other) return learn_again();
        const bool unusual = seen.explored || seen.as == As::one_clock;
        if (!settled_since_switch() || unusual || seen.time <= Seconds{0}) return;
        LevelShift& level = seen.as == As::planned ? planned_level_ : found_level_;
        const bool moved = level.add(seen.time.count());
        if (phase_ == RunPhase::warm_up) {
            if (moved) restart_warm_up();
            return;
        }
        if (!moved) return;
        if (seen.as != As::planned) return learn_again();
        begin_doubt();
    }
    /// Clocks change some time after they are asked for, and a host may be iterations ahead of its
    /// GPU: what comes right behind a change says nothing of the level.
    void note_clocks(const SeenIteration& seen) {
        const bool same = seen.as == before_.as && seen.explored == before_.explored;
        since_switch_ = same ? since_switch_ + 1 : 0;
        since_switch_time_ = same ? since_switch_time_ + seen.time : Seconds{0};
        before_ = {seen.as, seen.explored};
    }
    [[nodiscard]] bool settled_since_switch() const {
        return since_switch_ >= 2 && since_switch_time_ >= options_.settle;
    }
    [[nodiscard]] bool differs(const SeenIteration& seen) const {
        return seen.unfamiliar > 0.1 * seen.launches || !is_of_known_kind(seen, 0.25);
    }
    /// Whether an iteration launches about as much as others have: a step of the optimiser, or a
    /// validation, is another kind.
    [[nodiscard]] bool is_of_known_kind(const SeenIteration& seen, double tolerance) const {
        return std::any_of(kinds_.begin(), kinds_.end(), [&](double launches) {
            return std::abs(seen.launches - launches) <= tolerance * launches;
        });
    }
    void begin_doubt() {
        phase_ = RunPhase::doubt;
        doubt_.clear();
        abandon_blocks();
    }
    void doubt(const SeenIteration& seen) {
        other_launches_ = differs(seen) ? other_launches_ + 1 : 0;
        if (seen.as != As::found || !settled_since_switch()) return;
        doubt_.push_back(seen.time.count());
        if (doubt_.size() < doubted) return;
        double sum = 0;
        for (std::size_t i = doubt_.size() - looked_at; i < doubt_.size(); ++i) sum += doubt_[i];
        const bool same = found_level_.has_level() && other_launches_ == 0 &&
                          found_level_.is_usual(sum / looked_at, looked_at);
        if (!same) return learn_again();
        phase_ = RunPhase::follow;
        planned_level_ = {};
    }

    /// Another program, or another board: what was learned does not hold.
    void learn_again() {
        end_plan();
        if (phase_ == RunPhase::explore) explored();
        ++changes_;
        // A program that changes all the time is left alone for longer and longer.
        const bool soon = passed_ < changed_ + Seconds{1800};
        patience_ = soon ? std::min(2 * patience_, Seconds{3600}) : Seconds{5};
        changed_ = passed_;
        not_before_ = passed_ + patience_;
        retreats_ = 0;
        improved_ = 0;
        stretch_ = kept_stretch_ = 1;
        kept_.reset();
        keeps_last_ = takes_back_ = settled_ = false;
        outcome_.reset();
        phase_ = RunPhase::warm_up;
        note_.clear();
        restart_warm_up();
    }
    void restart_warm_up() {
        steady_ = 0;
        other_launches_ = 0;
        kinds_.clear();
        found_level_ = {};
        planned_level_ = {};
    }

    // Plans.

    void begin_plan() {
        forget_change();
        planned_level_ = {};
        held_ = false;
        plan_iterations_ = 0;
        ++plans_;
    }
    /// Closes the accounts of the plan that was followed.
    void end_plan() {
        const Range before = lost();
        const Gain gained = gain();
        const Joules explored = explored_used_ + exploring_used_;
        gained_ = {gained.mean + explored, gained.low + explored, gained.high + explored};
        const Seconds lost = explored_lost_ + exploring_lost_;
        plans_lost_ = {before.mean - lost, before.high - lost};
        followed_ += std::exchange(plan_time_, Seconds{0});
        one_clock_before_ += std::exchange(one_clock_time_, Seconds{0});
        forget_change();
        abandon_blocks();
    }
    void forget_change() {
        change_ = beyond_one_clock_ = {};
        one_clock_ = OneClock::unknown;
    }
    RunPhase follow_nothing() {
        begin_plan();
        note_ = "clocks cannot be set: measured only";
        return RunPhase::follow;
    }
    void rest(const std::string& why, double at_most_pct) {
        end_plan();
        phase_ = RunPhase::rest;
        note_ = why;
        if (at_most_pct > 0) note_ += kdvfs::io::format_text(": at most %.2f %% here", at_most_pct);
    }
    /// Drops the plan where evidence speaks against it.
    void judge() {
        const auto time = change_.time.change();
        const auto energy = change_.energy.change();
        if (options_.measure_only || obeys_ || phase_ != RunPhase::follow || !time || !energy)
            return;
        // Slower, or less saved, than was promised: clocks may change later than they were taken
        // to.
        constexpr double less = 0.85;
        constexpr double slower_by_pct = 0.1;
        constexpr double used = 0.95;
        const bool slower = time->low > 100 * options_.max_slowdown;
        const bool as_promised = -energy->low >= less * -promised_.energy_pct &&
                                 time->low <= promised_.time_pct + slower_by_pct;
        if (!slower && -energy->low < options_.least_saving_pct)
            return kept_ ? take_back() : rest("nothing to gain", -energy->low);
        if (slower && stretch_ > 1) {  // too bold
            stretch_ = less_bold(time->mean, used * 100 * options_.max_slowdown);
            improved_ = most_improved;
            return plan_again();
        }
        if (slower && kept_) return take_back();
        const bool switches = one_clock_ != OneClock::is_plan;
        const bool saves = -energy->high >= options_.least_saving_pct;
        const bool less_than_promised = options_.learns && !settled_ && saves && !as_promised;
        if ((slower || less_than_promised) && switches && !options_.switches_known &&
            doubted_switches_ < most_doubted) {
            ++doubted_switches_;
            if (time->mean <= 100 * options_.max_slowdown) keep();
            return plan_again();
        }
        if (slower) {
            ++retreats_;
            stretch_ = 1;
            if (retreats_ > 2) {
                end_plan();
                return rest("no plan kept its bound", 0);
            }
            return plan_again();
        }
        // Much less slowdown than the bound: a plan that uses more of it saves more. First with
        // what has been learned of switches.
        // One that has been measured for long is replaced for much alone: its proof begins again.
        const bool is_new = change_.time.pairs() <= 2 * PairedComparison::fewest_pairs;
        const double likely = time->mean + change_.time.error();
        const double factor = used * 100 * options_.max_slowdown / std::max(likely, 0.1);
        if (saves && factor > (is_new ? 1.1 : 1.25) && improved_ < most_improved &&
            retreats_ == 0 && !settled_) {
            keep();
            kept_stretch_ = stretch_;
            if (++improved_ > 1 || options_.switches_known) stretch_ *= std::min(factor, 1.5);
            return plan_again();
        }
        if (kept_ && energy->low > kept_->energy_pct) take_back();
    }
    /// The stretch that takes the bound's time: between that of the plan that is too slow and that
    /// of the one that was kept, where there is one.
    [[nodiscard]] double less_bold(double slow_pct, double wanted_pct) {
        if (!kept_ || kept_->time_pct >= wanted_pct || kept_->stretch >= stretch_)
            return std::max(std::exchange(kept_stretch_, 1), stretch_ * wanted_pct / slow_pct);
        const double way = (wanted_pct - kept_->time_pct) / (slow_pct - kept_->time_pct);
        return kept_->stretch + way * (stretch_ - kept_->stretch);
    }
    /// The plan that is followed is the one to go back to, unless one before it saved more.
    void keep() {
        if (!options_.learns || (kept_ && kept_->energy_pct <= change_.energy.mean())) return;
        kept_ = {change_.time.mean(), change_.energy.mean(), stretch_};
        keeps_last_ = true;
    }
    void take_back() {
        go_back_to_kept();
        plan_again();
    }
    /// Where no plan since was better, or none could be made: that one is wanted again.
    void go_back_to_kept() {
        stretch_ = kept_->stretch;
        kept_.reset();
        settled_ = takes_back_ = true;
        keeps_last_ = false;
    }
    void plan_again() {
        outcome_ = {change_.time.mean(), change_.energy.mean(), change_.time.error(),
                    change_.energy.error()};
        end_plan();
        if (plans_ >= most_plans) return rest("no plan was kept", 0);
        phase_ = RunPhase::plan;
    }

    // Steps.

    [[nodiscard]] RunStep choose() {
        switch (phase_) {
            case RunPhase::explore: return {As::explored};
            case RunPhase::follow: return follow();
            case RunPhase::warm_up:
            case RunPhase::plan:
            case RunPhase::doubt:
            case RunPhase::rest: break;
        }
        return {As::found};
    }

    RunStep follow() {
        if (plan_iterations_ < judged_by_follower) {
            ++plan_iterations_;
            return {As::planned};
        }
        const Seconds left = this->left();
        held_ = held_ ? left < 0.1 * budget() : left <= Seconds{0};
        if (held_) {
            abandon_blocks();
            return {As::found};
        }
        if (slot_ == slots) {
            const bool to_one_clock = may_try_one_clock();
            if (!to_one_clock && !may_compare()) return {As::planned};
            slot_ = 0;
            ++triple_;
            other_ = to_one_clock ? As::one_clock : As::found;
            if (!to_one_clock) compared_at_ = passed_;
            other_slot_ = static_cast<std::uint32_t>(random_() % slots);
            begin_slot();
        } else if (block_ == 0 && slot_time_ >= options_.settle && slot_iterations_ > 0) {
            block_ = ++blocks_;
            slots_[block_] = {triple_, as_in_slot()};
            slot_time_ = Seconds{0};
        } else if (block_ != 0 && slot_time_ >= options_.block) {
            if (++slot_ == slots) return {As::planned};
            begin_slot();
        }
        ++slot_iterations_;
        return {as_in_slot(), block_, triple_};
    }
    [[nodiscard]] As as_in_slot() const { return slot_ == other_slot_ ? other_ : As::planned; }
    void begin_slot() {
        block_ = 0;
        slot_time_ = Seconds{0};
        slot_iterations_ = 0;
    }
    /// Comparison blocks as found have a share of the time; the first come early, and a plan of
    /// which nothing is known is only followed beside them.
    [[nodiscard]] bool may_compare() const {
        if (change_.time.pairs() + triples_.size() < PairedComparison::fewest_pairs) return true;
        if (change_.is_within(options_.precise_pct) &&
            passed_ < compared_at_ + options_.block / options_.precise_as_found)
            return false;
        constexpr Seconds hour{3600};
        constexpr double early = 0.4;  // of the first hour's share
        const Seconds since = passed_;
        const Seconds first = hour * options_.first_hour_as_found;
        const Seconds allowed =
            std::min(first, first * early + since * (options_.first_hour_as_found * (1 - early))) +
            std::max(since - hour, Seconds{0}) * options_.later_as_found;
        return compared_time_ + options_.settle + options_.block <= allowed;
    }

    /// Once the plan is known beside the clocks as found.
    [[nodiscard]] bool may_try_one_clock() const {
        if (one_clock_ != OneClock::other || !change_.time.change()) return false;
        const double less = beyond_one_clock_.is_within(options_.precise_pct) ? 0.25 : 1;
        return one_clock_before_ + one_clock_time_ + options_.settle + options_.block <=
               passed_ * (options_.at_one_clock * less);
    }

    void abandon_blocks() {
        slot_ = slots;
        block_ = 0;
        slots_.clear();
        triples_.clear();
    }

    static constexpr std::uint32_t slots = 3;

    RunOptions options_;
    std::mt19937_64 random_;
    RunPhase phase_ = RunPhase::warm_up;
    std::string note_;

    Seconds passed_{0};
    Seconds compared_time_{0};  ///< as found, while a plan is followed
    Seconds compared_at_{0};    ///< when the last blocks began
    Seconds followed_{0};       ///< by plans that were ended
    Seconds plan_time_{0};      ///< by the plan that is followed
    Seconds explored_lost_{0};
    Joules explored_used_{};
    Seconds exploring_lost_{0};  ///< since exploring began
    Joules exploring_used_{};
    Range plans_lost_;              ///< by plans that were ended
    Gain gained_;                   ///< likewise
    Seconds one_clock_time_{0};     ///< beside the plan that is followed
    Seconds one_clock_before_{0};   ///< beside plans that were ended
    std::array<Watts, 4> watts_{};  ///< by `RunStep::As`
    std::optional<Seconds> paid_back_;

    std::uint32_t steady_ = 0;
    std::vector<double> kinds_;  ///< of iterations, by how much they launch; the newest last
    std::uint32_t other_launches_ = 0;
    std::uint32_t since_switch_ = 0;  ///< iterations
    Seconds since_switch_time_{0};
    Clocks before_{};
    LevelShift found_level_;
    LevelShift planned_level_;
    std::vector<double> doubt_;
    std::size_t changes_ = 0;
    Seconds changed_{-1e9};
    Seconds patience_{5};
    Seconds not_before_{0};

    PlanChange change_;            ///< against the clocks as found
    PlanChange beyond_one_clock_;  ///< against the best clock for all kernels
    OneClock one_clock_ = OneClock::unknown;
    std::size_t plans_ = 0;
    std::size_t retreats_ = 0;
    std::size_t improved_ = 0;              ///< plans that have taken less time than they might
    double stretch_ = 1;                    ///< of the bound of plans, as those before were faster
    double kept_stretch_ = 1;               ///< of a plan that kept its bound
    BlockChange promised_;                  ///< by the plan that is followed
    std::size_t doubted_switches_ = 0;      ///< plans by which clocks seemed to change late
    std::optional<BlockChange> outcome_{};  ///< of the plan before
    std::optional<Kept> kept_{};            ///< the plan to go back to
    bool keeps_last_ = false;
    bool takes_back_ = false;
    bool settled_ = false;  ///< a plan was taken back: no other one is tried
    bool held_ = false;
    std::uint32_t plan_iterations_ = 0;  ///< the first ones, of the plan that is followed

    std::uint32_t slot_ = slots;    ///< of the triple under way; `slots`: there is none
    std::uint32_t other_slot_ = 0;  ///< which is not by the plan
    As other_ = As::found;
    std::uint32_t triple_ = 0;
    std::uint32_t block_ = 0;
    std::uint32_t blocks_ = 0;
    Seconds slot_time_{0};
    std::uint32_t slot_iterations_ = 0;
    std::map<std::uint32_t, Slot> slots_;      ///< by block: under way, or not measured yet
    std::map<std::uint32_t, Triple> triples_;  ///< of which not all is known

    bool obeys_ = false;  ///< another rank decides
    std::uint32_t epoch_ = 0;
    std::uint32_t plan_ = 0;
};

}  // namespace kdvfs::inline v0_3::tune::detail
