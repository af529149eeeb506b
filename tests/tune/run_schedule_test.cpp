// SPDX-License-Identifier: MIT
#include <kdvfs/detail/tune/iteration_kinds.hpp>
#include <kdvfs/detail/tune/run_schedule.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::tune::detail {
namespace {

using As = RunStep::As;

std::uint64_t runs() { return std::getenv("KDVFS_SOAK") != nullptr ? 500 : 60; }

/// A program on a board, as its host sees it: iterations as found, by a plan, and at clocks that
/// are tried. Every figure is a mean; iterations scatter around it.
struct SimulatedProgram {
    double iteration = 1;      ///< seconds, as found
    double scatter = 0.01;     ///< of an iteration
    double slow = 0.005;       ///< by the plan, as a fraction of the time
    double slow_of_bound = 0;  ///< likewise, of the bound that it is made for; 0: `slow` always
    double stretch = 1;        ///< of that bound, as a run before has ended
    double saved = 0.06;       ///< by the plan, as a fraction of the energy
    double saved_by_later_plans = 0;  ///< likewise, where it is not 0
    double promised = 0.06;
    std::optional<double> promised_later{};  ///< by plans after the first; 0: none can be made
    OneClock one_clock = OneClock::unknown;
    double one_clock_slow = 0.008;   ///< by the best clock for all
    double one_clock_saved = 0.035;  ///< likewise
    double trial_seconds = 400;      ///< that exploring takes, with its stretches as found
    double trial_loss = 8;           ///< seconds that exploring loses, at most what is left
    double launches = 100;
    double heat = 0;  ///< of the time, over an hour
    double watts = 400;
};

/// The program changes to another at a moment.
struct Change {
    double at = 1e12;  ///< seconds
    SimulatedProgram to{};
};

struct RunOutcome {
    double worst_excess = 0;     ///< seconds lost beyond the budget, at any moment
    double worst_allowed = 0;    ///< by how much it is beyond 0.3 % of the time passed and 5 s
    bool saving_held = true;     ///< at every moment
    bool beyond_held = true;     ///< what the plan saves beyond one clock, likewise
    double at_one_clock = 0;     ///< seconds
    std::uint32_t harmed = 0;    ///< iterations by the old plan after the program has changed
    std::uint64_t moved_at = 0;  ///< iteration at which a clock moved first
    double true_saved = 0;       ///< joules
    double as_found = 0;         ///< joules of the twin
    double lost = 0;
    std::uint32_t taken_back = 0;  ///< plans that were followed again
    Saving saving;
};

/// Runs a schedule for so many seconds beside a twin that has the same noise and stays as found.
RunOutcome simulate(const RunOptions& options, SimulatedProgram program, Change change,
                    double seconds) {
    std::mt19937_64 random{options.seed};
    RunSchedule schedule{options};
    schedule.begin_with_stretch(program.stretch);
    RunOutcome outcome;
    SeenIteration seen;
    double passed = 0;
    double twin = 0;
    double tried = 0;
    double tried_loss = 0;
    struct Measured {
        std::uint32_t number = 0;
        double time = 0;
        double energy = 0;
        std::uint32_t iterations = 0;
        std::uint64_t due = 0;
    };
    std::deque<Measured> blocks;
    bool changed = false;
    const double saved_by_first_plan = program.saved;
    for (std::uint64_t i = 0; passed < seconds; ++i) {
        if (!changed && passed > change.at) {
            program = change.to;
            changed = true;
            outcome.harmed = 0;
        }
        if (schedule.phase() == RunPhase::explore && tried > program.trial_seconds) {
            schedule.explored();
            tried = tried_loss = 0;
        }
        if (schedule.phase() == RunPhase::plan && program.slow_of_bound > 0)
            program.slow = program.slow_of_bound * schedule.plan_bound();
        if (schedule.phase() == RunPhase::plan) {
            outcome.taken_back += schedule.takes_back() ? 1 : 0;
            const bool is_first = schedule.plans() == 0 || schedule.takes_back();
            if (program.saved_by_later_plans != 0)
                program.saved = is_first ? saved_by_first_plan : program.saved_by_later_plans;
            const double promised =
                is_first ? program.promised : program.promised_later.value_or(program.promised);
            if (promised > 0)
                schedule.planned(100 * promised, 100 * schedule.plan_bound(), program.one_clock);
            else
                schedule.cannot_plan("no plan keeps the bound");
        }
        const RunStep step = schedule.next(seen);
        if (step.as != As::found && outcome.moved_at == 0) outcome.moved_at = i;
        const double noise = std::exp(std::normal_distribution<double>{0, program.scatter}(random));
        const double base =
            program.iteration * noise * (1 + program.heat * (1 - std::exp(-passed / 3600)));
        double time = base;
        double energy = base * program.watts;
        bool off = false;
        if (step.as == As::planned && !options.measure_only) {
            time *= 1 + program.slow;
            energy *= 1 - program.saved;
            outcome.true_saved += base * program.watts * program.saved;
            if (changed && passed < change.at + 3600) ++outcome.harmed;
        } else if (step.as == As::one_clock) {
            time *= 1 + program.one_clock_slow;
            energy *= 1 - program.one_clock_saved;
            outcome.true_saved += base * program.watts * program.one_clock_saved;
            outcome.at_one_clock += time;
        } else if (step.as == As::explored) {
            tried += base;
            const double share = std::max(program.trial_loss, 0.0) / program.trial_seconds;
            const double loss = std::min(base * share, std::max(0.0, schedule.left().count()));
            off = loss > 0;
            time += loss;
            tried_loss += loss;
            schedule.exploring(Seconds{tried_loss}, Joules{});
        }
        outcome.as_found += base * program.watts;
        passed += time;
        twin += base;
        if (step.block != 0) {
            if (blocks.empty() || blocks.back().number != step.block)
                blocks.push_back({step.block});
            Measured& block = blocks.back();
            block.time += time;
            block.energy += energy;
            ++block.iterations;
            block.due = i + 3;
        }
        while (!blocks.empty() && blocks.front().due < i) {
            const Measured& block = blocks.front();
            schedule.measured(block.number, {Seconds{block.time / block.iterations},
                                             Joules{block.energy / block.iterations}});
            blocks.pop_front();
        }
        seen = {Seconds{time}, program.launches, 0, off, step.as};
        outcome.lost = passed - twin;
        const double budget = options.start_loss.count() + options.max_slowdown * twin;
        const double excess = outcome.lost - budget;
        outcome.worst_excess = std::max(outcome.worst_excess, excess);
        outcome.worst_allowed = std::max(outcome.worst_allowed, excess - 0.003 * passed - 5);
        if (i % 16 == 0) {
            const Saving saving = schedule.saving();
            if (saving.energy && !changed)
                outcome.saving_held =
                    outcome.saving_held &&
                    saving.energy->contains(options.measure_only ? 0 : -100 * program.saved);
            if (saving.beyond_one_clock)
                outcome.beyond_held =
                    outcome.beyond_held &&
                    saving.beyond_one_clock->contains(
                        100 * ((1 - program.saved) / (1 - program.one_clock_saved) - 1));
        }
    }
    outcome.saving = schedule.saving();
    return outcome;
}

RunOptions options_of(std::uint64_t seed) {
    RunOptions options;
    options.seed = seed;
    return options;
}

/// A program drawn from ranges: what it does, and how wrong its plan is.
SimulatedProgram drawn(std::uint64_t seed) {
    std::mt19937_64 random{seed * 7919};
    const auto between = [&](double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random);
    };
    SimulatedProgram program;
    program.iteration = std::exp(between(std::log(0.1), std::log(4.0)));
    program.scatter = between(0.001, 0.02);
    program.slow = between(-0.002, 0.02);
    program.saved = between(0.01, 0.12);
    program.promised = program.saved;
    program.trial_loss = between(0, 16);
    program.heat = between(0, 0.03);
    return program;
}

TEST(RunSchedule, MovesNoClockBeforeTheProgramIsSteady) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        RunSchedule schedule{options_of(seed)};
        // An autotuner launches other kernels in its first steps, each of which is new.
        for (int i = 0; i < 17; ++i)  // then it measures as found
            ASSERT_EQ(schedule.next({Seconds{1}, 100, i < 10 ? 3.0 : 0.0, false}).as, As::found);
        EXPECT_EQ(schedule.next({Seconds{1}, 100, 0, false}).as, As::explored);
    }
}

TEST(RunSchedule, KeepsItsBudgetAtEveryMoment) {
    std::uint64_t beyond = 0;
    double worst = 0;
    double most = 0;
    for (std::uint64_t seed = 1; seed <= runs(); ++seed) {
        Change change;
        if (seed % 2 == 0) {
            change.to = drawn(seed + 5000);
            change.at = 600 + 97.0 * static_cast<double>(seed % 100);
        }
        const RunOutcome outcome = simulate(options_of(seed), drawn(seed), change, 4 * 3600);
        beyond += outcome.worst_excess > 0 ? 1 : 0;
        most = std::max(most, outcome.worst_excess);
        worst = std::max(worst, outcome.worst_allowed);
    }
    std::printf("time lost beyond the budget: in %ju of %ju runs, at most %.2f s\n",
                static_cast<std::uintmax_t>(beyond), static_cast<std::uintmax_t>(runs()), most);
    EXPECT_LE(beyond, runs() / 50);
    EXPECT_EQ(worst, 0);
}

TEST(RunSchedule, ItsIntervalHoldsTheTruthAtEveryMoment) {
    std::uint64_t held = 0;
    std::vector<double> shares;
    for (std::uint64_t seed = 1; seed <= runs(); ++seed) {
        SimulatedProgram program = drawn(seed);
        program.slow = 0.004;
        const RunOutcome outcome = simulate(options_of(seed), program, {}, 4 * 3600);
        held += outcome.saving_held ? 1 : 0;
        shares.push_back(outcome.true_saved / (outcome.as_found * program.saved));
        EXPECT_GE(outcome.saving.pairs, PairedComparison::fewest_pairs);
    }
    std::sort(shares.begin(), shares.end());
    std::printf(
        "interval held in %ju of %ju runs; of a plan followed from the start, %.1f %% saved\n",
        static_cast<std::uintmax_t>(held), static_cast<std::uintmax_t>(runs()),
        100 * shares[shares.size() / 2]);
    EXPECT_GE(held, runs() * 465 / 500);
    EXPECT_GT(shares[shares.size() / 2], 0.85);
}

TEST(RunSchedule, ComparesItsPlanWithOneClockForAllInASmallShareOfTheTime) {
    std::uint64_t held = 0;
    std::uint64_t known = 0;
    std::vector<double> cost;
    for (std::uint64_t seed = 1; seed <= runs(); ++seed) {
        SimulatedProgram program = drawn(seed);
        program.slow = 0.006;
        const RunOutcome without = simulate(options_of(seed), program, {}, 4 * 3600);
        program.one_clock = OneClock::other;
        program.one_clock_saved = 0.6 * program.saved;
        const RunOutcome outcome = simulate(options_of(seed), program, {}, 4 * 3600);
        EXPECT_FALSE(without.saving.by_one_clock) << seed;
        // A block ends, and its clock has settled, with an iteration.
        EXPECT_LE(outcome.at_one_clock,
                  0.015 * outcome.saving.passed.count() + 2 * program.iteration)
            << seed;
        EXPECT_LE(outcome.worst_allowed, 0) << seed;
        held += outcome.beyond_held ? 1 : 0;
        cost.push_back(
            100 * (without.true_saved / without.as_found - outcome.true_saved / outcome.as_found));
        if (!outcome.saving.by_one_clock) continue;
        ++known;
        const double truth = outcome.true_saved * 0.6;
        EXPECT_NEAR(outcome.saving.by_one_clock->count, truth, 0.3 * outcome.true_saved) << seed;
    }
    std::sort(cost.begin(), cost.end());
    std::printf(
        "beside one clock: known in %ju of %ju runs of 4 h, interval held in %ju; costs %.3f "
        "points of the saving in the median, %.3f in the mean\n",
        static_cast<std::uintmax_t>(known), static_cast<std::uintmax_t>(runs()),
        static_cast<std::uintmax_t>(held), cost[cost.size() / 2],
        std::accumulate(cost.begin(), cost.end(), 0.0) / static_cast<double>(cost.size()));
    EXPECT_GE(known, runs() * 8 / 10);  // those that are held at the clocks as found compare less
    EXPECT_GE(held, runs() * 465 / 500);
    EXPECT_LE(cost[cost.size() / 2], 0.1);
}

TEST(RunSchedule, LeavesThePlanOfAnotherProgramWithinTwentyIterations) {
    std::uint64_t once = 0;
    for (std::uint64_t seed = 1; seed <= runs(); ++seed) {
        SimulatedProgram program = drawn(seed);
        program.slow = 0.004;
        Change change{.at = 3600 + 31.0 * static_cast<double>(seed), .to = program};
        if (seed % 2 == 0)
            change.to.iteration *= seed % 4 == 0 ? 1.3 : 0.7;  // another batch size
        else
            change.to.launches *= 1.5;  // another phase of the program
        // The old plan is bad for the new program.
        change.to.slow = 0.1;
        const RunOutcome outcome =
            simulate(options_of(seed), program, change, change.at + 60 * program.iteration + 60);
        EXPECT_LE(outcome.harmed, 20U) << seed;
        EXPECT_GE(outcome.saving.changes, 1U) << seed;
        once += outcome.saving.changes == 1 ? 1 : 0;
    }
    EXPECT_GE(once, runs() * 97 / 100);
}

TEST(RunSchedule, RestsWhereNothingIsToBeGained) {
    std::uint64_t rested = 0;
    std::uint64_t lost_little = 0;
    for (std::uint64_t seed = 1; seed <= runs(); ++seed) {
        SimulatedProgram program = drawn(seed);
        program.saved = 0.0005;
        program.promised = 0.01;  // too optimistic
        program.slow = 0.002;
        program.scatter = 0.005;
        program.trial_loss = 10;
        const RunOutcome outcome = simulate(options_of(seed), program, {}, 4 * 3600);
        rested += outcome.saving.phase == RunPhase::rest ? 1 : 0;
        lost_little += outcome.lost <= 20 ? 1 : 0;
        if (outcome.saving.phase != RunPhase::rest) continue;
        EXPECT_NE(outcome.saving.note.find("nothing to gain: at most"), std::string::npos);
    }
    std::printf("nothing to gain: %ju of %ju runs rest, %ju lose at most 20 s in 4 h\n",
                static_cast<std::uintmax_t>(rested), static_cast<std::uintmax_t>(runs()),
                static_cast<std::uintmax_t>(lost_little));
    EXPECT_GE(rested, runs() * 9 / 10);
    EXPECT_GE(lost_little, runs() * 95 / 100);
}

TEST(RunSchedule, DropsAPlanThatBreaksItsBound) {
    SimulatedProgram program;
    program.scatter = 0.003;
    program.slow = 0.03;
    const RunOutcome outcome = simulate(options_of(3), program, {}, 3 * 3600);
    EXPECT_GE(outcome.saving.plans, 2U);
    EXPECT_EQ(outcome.saving.phase, RunPhase::rest) << to_string(outcome.saving);
    EXPECT_LE(outcome.worst_excess, 0);
}

/// It changes no clock, so that late switches explain nothing.
TEST(RunSchedule, DoesNotBlameSwitchesForWhatOneClockCosts) {
    SimulatedProgram program;
    program.slow = 0.04;
    program.one_clock = OneClock::is_plan;
    const RunOutcome outcome = simulate(options_of(4), program, {}, 4 * 3600);
    EXPECT_EQ(outcome.saving.phase, RunPhase::rest);
    EXPECT_EQ(outcome.saving.plans, 3U) << to_string(outcome.saving);
    EXPECT_LE(outcome.worst_excess, 0);
}

/// A run before has ended with a bound that is too wide here.
TEST(RunSchedule, MakesAPlanThatIsTooBoldLessSoByAsMuchAsItIsTooSlow) {
    SimulatedProgram program;
    program.scatter = 0.003;
    program.stretch = 2;
    program.slow_of_bound = 1;  // 1.5 % at first
    const RunOutcome outcome = simulate(options_of(5), program, {}, 3600);
    EXPECT_EQ(outcome.saving.plans, 2U) << to_string(outcome.saving);
    EXPECT_EQ(outcome.saving.phase, RunPhase::follow);
    ASSERT_TRUE(outcome.saving.time);
    EXPECT_NEAR(outcome.saving.time->mean, 0.95, 0.1);
    EXPECT_LE(outcome.worst_excess, 0);
}

/// Less was saved than was promised, and what was learned from it made it worse.
TEST(RunSchedule, GoesBackToThePlanThatSavedMore) {
    SimulatedProgram program;
    program.scatter = 0.003;
    program.promised = 0.08;
    program.saved = 0.06;
    RunOptions options = options_of(6);
    options.learns = true;
    for (const double later : {0.03, 0.07}) {
        program.saved_by_later_plans = later;
        const RunOutcome outcome = simulate(options, program, {}, 4 * 3600);
        EXPECT_EQ(outcome.taken_back, later < program.saved ? 1 : 0) << later;
        EXPECT_EQ(outcome.saving.phase, RunPhase::follow) << later;
        ASSERT_TRUE(outcome.saving.energy) << later;
        EXPECT_NEAR(outcome.saving.energy->mean, -100 * std::max(later, program.saved), 0.5)
            << later;
        EXPECT_LE(outcome.saving.plans, 8U) << later;  // three of each kind, and the first again
    }
    options.learns = false;
    program.saved_by_later_plans = 0.03;
    const RunOutcome outcome = simulate(options, program, {}, 4 * 3600);
    EXPECT_EQ(outcome.taken_back, 0);
}

/// What was learned from a plan that saves less than it promised makes the next one worthless.
TEST(RunSchedule, GoesBackToThePlanThatSavesWhereNoOtherOneIsMade) {
    SimulatedProgram program;
    program.scatter = 0.003;
    program.promised = 0.08;
    program.saved = 0.03;
    RunOptions options = options_of(8);
    options.learns = true;
    for (const double later : {0.002, 0.0}) {
        program.promised_later = later;
        const RunOutcome outcome = simulate(options, program, {}, 2 * 3600);
        EXPECT_EQ(outcome.taken_back, 1U) << later;
        EXPECT_EQ(outcome.saving.phase, RunPhase::follow) << to_string(outcome.saving);
        EXPECT_EQ(outcome.saving.plans, 2U) << later;
    }
}

/// Clocks come back 50 ms after a block, which are 25 iterations here.
TEST(RunSchedule, DoesNotTakeClocksThatChangeLateForAnotherProgram) {
    RunSchedule schedule{options_of(9)};
    std::mt19937_64 random{9};
    std::normal_distribution<double> noise{0, 0.004};
    const auto run = [&](int iterations, double slow, bool explored, As as) {
        for (int i = 0; i < iterations; ++i) {
            const Seconds time{0.002 * slow * std::exp(noise(random))};
            static_cast<void>(schedule.next({time, 100, 0, explored, as}));
        }
    };
    while (schedule.phase() == RunPhase::warm_up) run(1, 1, false, As::found);
    for (int block = 0; block < 5; ++block) {
        run(100, 1.2, true, As::explored);
        run(25, 1.2, false, As::explored);
        run(700, 1, false, As::explored);
    }
    EXPECT_EQ(schedule.changes(), 0U);
    run(700, 1.2, false, As::explored);
    EXPECT_EQ(schedule.changes(), 1U);
}

/// A stall under a plan puts the program in doubt. Clocks come back 150 ms later, in which 19
/// iterations run at those of the plan.
TEST(RunSchedule, DoesNotDoubtAProgramByIterationsBeforeItsClocksAreBack) {
    RunSchedule schedule{options_of(10)};
    std::mt19937_64 random{10};
    std::normal_distribution<double> noise{0, 0.002};
    std::deque<As> late(19, As::found);
    SeenIteration seen;
    const auto run = [&](double slow) {
        if (schedule.phase() == RunPhase::explore) schedule.explored();
        if (schedule.phase() == RunPhase::plan) schedule.planned(10, 0.5);
        const As as = schedule.next(seen).as;
        late.push_back(as);
        const double by_plan = late.front() == As::planned ? 1.008 : 1;
        late.pop_front();
        seen = {Seconds{0.008 * slow * by_plan * std::exp(noise(random))}, 100};
        seen.as = as;
    };
    for (int i = 0, planned = 0; i < 10'000 || planned < 500; ++i) {  // compares as found, too
        run(1);
        planned = seen.as == As::planned ? planned + 1 : 0;
    }
    ASSERT_EQ(schedule.phase(), RunPhase::follow);
    for (int i = 0; i < 20 && schedule.phase() == RunPhase::follow; ++i) run(3);
    ASSERT_EQ(schedule.phase(), RunPhase::doubt);
    for (int i = 0; i < 300 && schedule.phase() == RunPhase::doubt; ++i) run(1);
    EXPECT_EQ(schedule.phase(), RunPhase::follow);
    EXPECT_EQ(schedule.changes(), 0U);
}

TEST(IterationKinds, AreCountedAlikeWhateverFirstStepsAndStallsTake) {
    IterationKinds kinds;
    kinds.add(10, Seconds{100});
    for (int i = 0; i < 8; ++i) {
        kinds.add(10, Seconds{1});
        kinds.add(5, Seconds{0.5});
    }
    kinds.add(5, Seconds{30});
    kinds.fix();
    EXPECT_EQ(kinds.as_found(10), Seconds{1});
    EXPECT_EQ(kinds.as_found(5), Seconds{0.5});
    EXPECT_EQ(kinds.as_found(20), Seconds{2});
    for (int i = 0; i < 40; ++i) kinds.add(10, Seconds{2});
    EXPECT_EQ(kinds.as_found(10), Seconds{1});
    kinds.fix();
    EXPECT_EQ(kinds.as_found(10), Seconds{2});
}

TEST(RunSchedule, SaysZeroOfAGpuThatIsOnlyMeasured) {
    std::uint64_t held = 0;
    for (std::uint64_t seed = 1; seed <= runs(); ++seed) {
        RunOptions options = options_of(seed);
        options.measure_only = true;
        const RunOutcome outcome = simulate(options, drawn(seed), {}, 3600);
        EXPECT_EQ(outcome.true_saved, 0);
        EXPECT_EQ(outcome.saving.saved, Joules{});
        EXPECT_EQ(outcome.saving.lost, Seconds{0});
        ASSERT_TRUE(outcome.saving.energy);
        EXPECT_EQ(to_string(outcome.saving).find("95 % interval 0.00 to 0.00"), std::string::npos)
            << to_string(outcome.saving);
        held += outcome.saving_held ? 1 : 0;
    }
    EXPECT_GE(held, runs() * 465 / 500);
}

}  // namespace
}  // namespace kdvfs::tune::detail
