// SPDX-License-Identifier: MIT
#include <kdvfs/device/simulated/kernel_model.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/train/power_limit.hpp>
#include <tests/train/power_limit_double.hpp>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace kdvfs::train {
namespace {

static_assert(!std::is_copy_constructible_v<PowerLimitGuard<PowerLimitDouble>>, "guards stay");
static_assert(!std::is_move_constructible_v<PowerLimitGuard<PowerLimitDouble>>, "guards stay");
static_assert(std::is_nothrow_destructible_v<PowerLimitGuard<PowerLimitDouble>>,
              "leaving a training loop never throws");

/// Counters of training steps: seconds fall and joules rise with the limit.
struct Training {
    Watts limit{300};
    RankWindow counters{{5000}, Seconds{70}};  // of any origin
    std::size_t steps = 0;

    [[nodiscard]] Seconds step_time() const { return Seconds{0.05 + 5 / limit.count}; }
    void step() {
        ++steps;
        counters.time += step_time();
        counters.energy += Watts{0.9 * limit.count} * step_time();
    }
    void set(std::optional<Watts> next) { limit = next.value_or(limit); }
};

TEST(PowerLimit, FindsTheLimitWithinAnEpoch) {
    Training training;
    PowerLimit search{{{100}, {300}}};
    std::vector<Watts> asked;
    for (int step = 0; step < 400; ++step) {
        const auto limit = search.begin_step(training.counters);
        if (limit) asked.push_back(*limit);
        training.set(limit);
        training.step();
        if (step < 49) {
            ASSERT_EQ(asked.size(), 1U) << "a window is cut at step " << step;
        }
    }
    ASSERT_TRUE(search.is_done());
    EXPECT_LE(search.profile().size(), 5U);
    EXPECT_EQ(training.limit, *search.best());
    EXPECT_EQ(asked.back(), *search.best());
    double least = std::numeric_limits<double>::infinity();
    Watts best{};
    for (double watts = 100; watts <= 300; watts += 25) {
        const Training at{{watts}};
        const double cost = (0.45 * watts + 150) * at.step_time().count();
        if (cost < least) best = {watts};
        least = std::min(least, cost);
    }
    EXPECT_EQ(*search.best(), best);
    EXPECT_NEAR(search.epoch_cost(1000), 1000 * least, 1e-6 * least * 1000);
    EXPECT_EQ(search.discarded(), 0U);
}

TEST(PowerLimit, WarmsUpBeforeItMeasures) {
    PowerLimit search{{{200}, {200}}, {.warmup_steps = 3, .measured_steps = 2}};
    double energy = 0;
    EXPECT_EQ(search.begin_step({{energy}, Seconds{0}}), Watts{200});
    // Warm-up steps take 100 J, the others 1 J.
    for (int step = 1; step <= 5; ++step) {
        energy += step <= 3 ? 100 : 1;
        EXPECT_FALSE(search.begin_step({{energy}, Seconds{0.1 * step}}));
    }
    ASSERT_EQ(search.profile().size(), 1U);
    EXPECT_DOUBLE_EQ(search.profile()[0].energy.count, 2);
    EXPECT_NEAR(search.profile()[0].time.count(), 0.2, 1e-12);
    EXPECT_TRUE(search.is_done());
}

TEST(PowerLimit, DiscardsWindowsThatAnEpochCuts) {
    Training training;
    PowerLimit search{{{100}, {300}}};
    for (int epoch = 0; epoch < 9; ++epoch) {
        for (int step = 0; step < 80; ++step) {
            training.set(search.begin_step(training.counters));
            training.step();
        }
        const auto between = search.end_epoch();
        EXPECT_EQ(between.value_or(training.limit), *search.best());
        training.set(between);
        training.counters.energy += Joules{1e6};  // validation
        training.counters.time += Seconds{1000};
    }
    ASSERT_TRUE(search.is_done());
    EXPECT_GT(search.discarded(), 0U);
    for (const LimitWindow& window : search.profile()) {
        const Training at{window.limit};
        EXPECT_NEAR(window.time.count(), 40 * at.step_time().count(), 1e-6);
    }
}

TEST(PowerLimit, SaysWhenEpochsAreTooShort) {
    PowerLimit search{{{100}, {300}}};
    const auto epoch = [&] {
        for (int step = 0; step < 30; ++step)
            search.begin_step({{double(step)}, Seconds{double(step)}});
        return search.end_epoch();
    };
    EXPECT_EQ(epoch(), Watts{300});  // nothing is known yet; it may have begun in the middle
    try {
        epoch();
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_input);
        EXPECT_NE(std::string{error.what()}.find("30 steps"), std::string::npos);
    }
}

TEST(PowerLimit, AddsRanksUp) {
    const std::vector<RankWindow> ranks{{{10}, Seconds{2}}, {{20}, Seconds{3}}, {{5}, Seconds{1}}};
    EXPECT_DOUBLE_EQ(combine(ranks).energy.count, 35);
    EXPECT_DOUBLE_EQ(combine(ranks).time.count(), 3);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (std::size_t broken = 0; broken < 3; ++broken) {
        auto bad = ranks;
        bad[broken].time = Seconds{nan};
        EXPECT_TRUE(std::isnan(combine(bad).energy.count)) << broken;
    }

    // Three ranks, the last of them 10 % slower: all take the same decisions.
    PowerLimitOptions options;
    options.ranks = 3;
    std::vector<PowerLimit> searches(3, PowerLimit{{{100}, {300}}, options});
    std::vector<Training> trainings(3);
    for (int step = 0; step < 400; ++step) {
        std::vector<RankWindow> own(3);
        for (std::size_t r = 0; r < 3; ++r) {
            auto counters = trainings[r].counters;
            if (r == 2) counters.time *= 1.1;
            // The all-reduce of lockstep ranks: a window's share is the same on each but for time.
            const auto limit = searches[r].begin_step(counters, [&](const RankWindow& mine) {
                const double slow = r == 2 ? mine.time.count() : 1.1 * mine.time.count();
                return RankWindow{mine.energy * 3, Seconds{slow}};
            });
            trainings[r].set(limit);
            trainings[r].step();
        }
        ASSERT_EQ(trainings[0].limit, trainings[2].limit);
    }
    EXPECT_TRUE(searches[2].is_done());
    EXPECT_NEAR(searches[0].profile()[0].energy.count, searches[2].profile()[0].energy.count, 1e-6);
}

TEST(PowerLimit, MeasuresAgainWhereReadingsMakeNoSense) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    Training training;
    PowerLimit search{{{100}, {300}}, {.warmup_steps = 0, .measured_steps = 1}};
    search.begin_step(training.counters);
    search.begin_step({{nan}, training.counters.time});  // counter gone
    search.begin_step(training.counters);                // back, but from no number
    EXPECT_EQ(search.discarded(), 2U);
    EXPECT_TRUE(search.profile().empty());
    EXPECT_THROW(search.begin_step({{0}, Seconds{0}}), Error);  // backwards, the third in a row
    EXPECT_THROW((PowerLimit{{{100}, {300}}, {.measured_steps = 0}}), Error);
}

TEST(PowerLimitGuard, LeavesThePreviousLimitBehind) {
    PowerLimitDouble device{.held = {230}};
    {
        PowerLimitGuard guard{device};
        EXPECT_EQ(guard.found(), Watts{230});
        guard.set({230});
        EXPECT_EQ(device.sets, 0U);
        guard.set({150});
        guard.set({175});
        EXPECT_EQ(device.held, Watts{175});
    }
    EXPECT_EQ(device.held, Watts{230});  // and not the highest
    try {
        PowerLimitGuard guard{device};
        guard.set({150});
        throw std::runtime_error{"out of memory"};
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(device.held, Watts{230});
    PowerLimitGuard guard{device};
    guard.set({150});
    guard.close();
    EXPECT_EQ(device.held, Watts{230});
    guard.close();
}

TEST(PowerLimitGuard, ReadsBackWhatItSets) {
    PowerLimitDouble device{.lies = true};
    PowerLimitGuard guard{device};
    try {
        guard.set({150});
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::refused);
    }
    EXPECT_NO_THROW(guard.close());
}

TEST(PowerLimitGuard, RestoresAfterASetThatThrewHalfWay) {
    PowerLimitDouble device{.held = {230}, .throws_after = true};
    {
        PowerLimitGuard guard{device};
        EXPECT_THROW(guard.set({150}), Error);
        EXPECT_EQ(device.held, Watts{150});
        device.throws_after = false;
    }
    EXPECT_EQ(device.held, Watts{230});
}

TEST(PowerLimitGuard, WritesALimitAgainWhoseWriteThrew) {
    PowerLimitDouble device{.held = {230}, .throws = true};
    PowerLimitGuard guard{device};
    EXPECT_THROW(guard.set({150}), Error);
    EXPECT_THROW(guard.set({150}), Error) << "it does not hold";
    device.throws = false;
    guard.set({150});
    EXPECT_EQ(device.held, Watts{150});
    guard.close();
    guard.set({150});
    EXPECT_EQ(device.held, Watts{150}) << "after the found limit was put back";
}

TEST(PowerLimitGuard, RestoresAfterWritesThatThrewWhicheverLimitHolds) {
    for (const double last : {200.0, 180.0}) {
        PowerLimitDouble device{.held = {230}};
        {
            PowerLimitGuard guard{device};
            guard.set({200});
            (last == 180 ? device.throws_after : device.throws) = true;
            EXPECT_THROW(guard.set({180}), Error);
            device.throws_after = false;
            device.throws = true;
            EXPECT_THROW(guard.set({160}), Error);
            EXPECT_EQ(device.held, Watts{last});
            device.throws = false;
        }
        EXPECT_EQ(device.held, Watts{230});
    }
}

TEST(PowerLimitGuard, TriesAgainAtItsEndWhereTheFoundLimitWasNotTaken) {
    PowerLimitDouble device{.held = {230}};
    {
        PowerLimitGuard guard{device};
        guard.set({150});
        device.lies = true;
        EXPECT_THROW(guard.close(), Error);
        EXPECT_EQ(device.held, Watts{150});
        device.lies = false;
    }
    EXPECT_EQ(device.held, Watts{230});
}

TEST(PowerLimitGuard, LeavesForeignLimitsAlone) {
    PowerLimitDouble device{.held = {230}};
    PowerLimitGuard guard{device};
    guard.set({150});
    device.held = {280};  // an administrator
    try {
        guard.close();
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::external_change);
    }
    EXPECT_EQ(device.held, Watts{280});
}

TEST(PowerLimitGuard, DoesNothingInAForkedChild) {
    PowerLimitDouble device{.held = {230}};
    PowerLimitGuard guard{device};
    guard.set({150});
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        guard.set({175});
        guard.close();
        ::_exit(device.held == Watts{150} ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

/// A simulated board whose power cap can be set, training with one kernel a step.
struct SimulatedBoard {
    simulated::Board board = simulated::h100();
    simulated::KernelModel kernel =
        simulated::roofline(board, {.matrix_flops = 2e15, .memory_bytes = 2e12});

    [[nodiscard]] Watts read_power_limit() const { return board.power_cap; }
    [[nodiscard]] PowerRange power_limit_range() const { return {{200}, {700}}; }
    void set_power_limit(Watts limit) { board.power_cap = limit; }

    [[nodiscard]] RankWindow step() const {
        const auto run = simulated::operate(board, kernel, {});
        return {run.power * run.time, run.time};
    }
};

TEST(PowerLimit, SavesEnergyOnASimulatedBoard) {
    SimulatedBoard board;
    const RankWindow before = board.step();
    RankWindow counters{};
    double found = 0;
    {
        PowerLimitGuard guard{board};
        PowerLimit search{guard.range(), {.choice = LimitChoice::energy()}};
        while (!search.is_done()) {
            if (const auto limit = search.begin_step(counters)) guard.set(*limit);
            const RankWindow step = board.step();
            counters.energy += step.energy;
            counters.time += step.time;
        }
        found = board.step().energy.count;
        EXPECT_LE(search.profile().size(), 12U);  // of 21
    }
    EXPECT_EQ(board.read_power_limit(), Watts{700});
    EXPECT_LT(found, 0.95 * before.energy.count);
    for (double watts = 200; watts <= 700; watts += 25) {
        board.set_power_limit({watts});
        EXPECT_GE(board.step().energy.count, 0.99 * found) << watts;
    }
}

}  // namespace
}  // namespace kdvfs::train
