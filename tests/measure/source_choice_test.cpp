// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/detail/measure/source_choice.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

/// A board that runs three kernels in random order, 2 to 30 ms each, with a pause now and then, or
/// always the same 12.3, 8 and 15 ms. Its counter moves every 100 ms; its power log has a sample
/// every 20 ms and shows less.
class LoggedBoard {
public:
    struct Log {
        Duration period = 20ms;
        Duration window = 20ms;
        Duration delay = 30ms;
        Duration memory{0};  ///< instead of the window
        Duration late{0};    ///< every fifth stamp
        double less = 1.03;
        double noise = 4;  ///< W
        bool nonsense = false;
    };

    LoggedBoard(std::array<double, 3> watts, double idle, bool fixed = false,
                Duration length_of_all = 20s)
        : watts_{watts}, idle_{idle}, length_{length_of_all}, random_{1} {
        std::uniform_int_distribution<int> microseconds{2'000, 30'000};
        Duration now{0};
        for (std::size_t i = 0; now < length_; ++i) {
            const std::size_t kernel = (fixed ? i : random_()) % watts_.size();
            const Duration length = std::chrono::microseconds{microseconds(random_)};
            add(now, fixed ? std::array<Duration, 3>{12300us, 8ms, 15ms}[kernel] : length, kernel);
            if (fixed ? kernel == 2 : random_() % 4 == 0) now += 5ms;
        }
    }

    /// All of it, in slices of 250 ms, as a program tells it.
    void tell(EnergyAccumulator& accumulator, const Log& log, bool has_counter = true) {
        std::normal_distribution<double> noise{0, log.noise};
        std::uniform_real_distribution<double> any{100, 700};
        std::uniform_int_distribution<int> late{0, 10'000};  // it is looked at every 10 ms
        std::size_t run = 0;
        Duration counted{0};
        Duration logged = 200ms;
        for (Duration until{0}; until < length_; until += 250ms) {
            for (; run < runs_.size() && runs_[run].start < TimePoint{until}; ++run) {
                accumulator.add(runs_[run]);
            }
            for (; has_counter && counted <= until; counted += 100ms) {
                const TimePoint seen{counted + std::chrono::microseconds{late(random_)}};
                accumulator.add(EnergySample{seen, {joules_until(counted)}, 0});
            }
            for (; logged <= until; logged += log.period) {
                const Duration end = logged - log.delay;
                const double mean = log.memory > 0ms
                                        ? faded_watts(end, log.memory)
                                        : (joules_until(end) - joules_until(end - log.window)) /
                                              Seconds{log.window}.count();
                const double shown = log.nonsense ? any(random_) : mean / log.less + noise(random_);
                const Duration stamp = logged + (logged / 20ms % 5 == 0 ? log.late : Duration{0});
                accumulator.add(PowerReading{{shown}, TimePoint{stamp}, ReadingStatus::ok});
            }
            accumulator.advance(TimePoint{until - 100ms});
        }
    }
    [[nodiscard]] double watts(std::size_t kernel) const { return watts_[kernel]; }

private:
    void add(Duration& now, Duration length, std::size_t kernel) {
        KernelInterval& interval = runs_.emplace_back();
        interval.kernel = {static_cast<std::uint32_t>(kernel)};
        interval.start = TimePoint{now};
        interval.end = TimePoint{now + length};
        now += length;
    }
    [[nodiscard]] double joules_until(Duration time) const {
        double joules = idle_ * Seconds{time}.count();
        for (const KernelInterval& run : runs_) {
            if (run.start >= TimePoint{time}) break;
            const Seconds ran = std::min(run.end, TimePoint{time}) - run.start;
            joules += (watts_[run.kernel.value] - idle_) * ran.count();
        }
        return joules;
    }

    [[nodiscard]] double faded_watts(Duration time, Duration memory) const {
        const auto left = [&](TimePoint at) {
            return std::exp(-(Seconds{TimePoint{time} - at} / Seconds{memory}));
        };
        double watts = idle_;
        for (const KernelInterval& run : runs_) {
            if (run.start >= TimePoint{time}) break;
            const TimePoint end = std::min(run.end, TimePoint{time});
            watts += (watts_[run.kernel.value] - idle_) * (left(end) - left(run.start));
        }
        return watts;
    }

    std::array<double, 3> watts_;
    double idle_;
    Duration length_;
    std::mt19937_64 random_;
    std::vector<KernelInterval> runs_;
};

TEST(LogClock, TakesLateStampsBackToTheirTicks) {
    std::mt19937_64 random{3};
    std::uniform_int_distribution<int> scatter{-100, 100};
    std::vector<TimePoint> ticks;
    std::vector<TimePoint> stamps;
    for (int i = 0; i < 1000; ++i) {
        if (i % 97 == 5) continue;  // missing
        ticks.push_back(TimePoint{7ms + i * 20001us});
        const Duration late = i % 5 == 2 ? 9200us : 0us;
        stamps.push_back(ticks.back() + late + std::chrono::microseconds{scatter(random)});
    }
    LogClock clock{stamps};
    ASSERT_TRUE(clock.regular());
    std::size_t taken = 0;
    for (std::size_t i = 0; i < stamps.size(); ++i) {
        const auto at = clock.taken(stamps[i]);
        if (!at) continue;
        ++taken;
        ASSERT_LT(std::abs(Seconds{*at - ticks[i]}.count()), 0.4e-3) << i;
    }
    EXPECT_EQ(taken, stamps.size()) << "single late stamps are no fault";
    // Two late ones in a row: nobody knows of when the second is.
    const TimePoint next{7ms + 1000 * 20001us};
    EXPECT_TRUE(clock.taken(next + 7ms));
    EXPECT_FALSE(clock.taken(next + 20ms + 15ms));
}

TEST(LogClock, HasNoTicksWhereStampsAreAnywhere) {
    std::mt19937_64 random{3};
    std::uniform_int_distribution<int> gap{5'000, 35'000};
    std::vector<TimePoint> stamps{TimePoint{}};
    for (int i = 0; i < 300; ++i) {
        stamps.push_back(stamps.back() + std::chrono::microseconds{gap(random)});
    }
    LogClock clock{stamps};
    EXPECT_FALSE(clock.regular());
    EXPECT_EQ(clock.taken(stamps[7]), stamps[7]);
}

TEST(LogMemories, OfTheUsualLogAreDoubtedOnlyWhereMeansExplainFarMore) {
    // Long runs of 600 W and as long pauses, as a log with a memory of 12.8 ms and noise shows
    // them.
    std::mt19937_64 random{1};
    std::normal_distribution<double> noise{0, 20};
    std::vector<KernelInterval> runs;
    std::vector<TimedReading> samples;
    double shown = 0;
    for (int tick = 0; tick < 200; ++tick) {
        const bool on = tick % 10 < 5;
        if (tick % 10 == 0) {
            runs.push_back(
                {.start = TimePoint{tick * 20ms}, .end = TimePoint{tick * 20ms + 100ms}});
        }
        const double kept = std::exp(-20 / 12.8);
        shown = kept * shown + (1 - kept) * (on ? 600 : 0);
        samples.push_back({TimePoint{(tick + 1) * 20ms + 3400us}, shown + noise(random)});
    }
    FoundResponse plain{{20ms, 10ms}, 1e9, 199};
    const FoundResponse memory = LogMemories{samples, runs}.or_better(plain);
    EXPECT_EQ(memory.response.memory, 12800us);
    plain.unexplained = 0.9 * memory.unexplained;
    EXPECT_EQ((LogMemories{samples, runs}.or_better(plain).response.memory), 12800us);
    plain.unexplained = 0.6 * memory.unexplained;
    EXPECT_EQ((LogMemories{samples, runs}.or_better(plain).response.memory), 0us);
}

class SourceChoosing : public testing::Test {
protected:
    SourceChoosing() {
        for (const char* name : {"gemm", "copy", "gelu"}) (void)table.id(name);
    }
    Report resolved(LoggedBoard from, const LoggedBoard::Log& log, bool has_counter = true) {
        EnergyAccumulator accumulator{table, {.counter_period = 100ms, .sensor_may_lag = true}};
        from.tell(accumulator, log, has_counter);
        Report report;
        accumulator.fill(report);
        choice.reset();
        if (const SourceChoice* chosen = accumulator.source()) choice = *chosen;
        return report;
    }
    KernelTable table;
    std::optional<SourceChoice> choice;
    const LoggedBoard board{{650, 420, 550}, 120};
};

TEST_F(SourceChoosing, APowerLogFinerThanTheCounterTellsKernelsApartByTheCountersJoules) {
    const Report report = resolved(board, {});
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::both) << choice->reason;
    EXPECT_EQ(choice->response.window, 20ms);
    EXPECT_NEAR(Seconds{choice->response.delay}.count(), 0.030, 0.003);
    EXPECT_EQ(report.fit.source, to_string(EnergyFrom::both));
    EXPECT_GT(report.fit.rows, 800U);
    for (std::size_t k = 0; k < report.rows.size(); ++k) {
        const auto& row = report.rows[k];
        ASSERT_TRUE(row.energy.resolved) << k;
        const double truth = board.watts(k) * row.counted_time.count();
        EXPECT_NEAR(row.energy.joules.count, truth, row.energy.half_width.count) << k;
        EXPECT_LT(row.energy.half_width.count, 0.02 * truth) << k;
    }
    const EnergyTotals& totals = report.totals;
    EXPECT_NEAR(totals.together.joules.count + totals.unexplained.count, totals.counter.count,
                1e-6 * totals.counter.count);
    bool noted = false;
    for (const std::string& note : report.notes) noted |= note.find("power samples") < note.size();
    EXPECT_TRUE(noted);
}

TEST_F(SourceChoosing, AFixedMixThatTheCounterCannotTellIsToldByTheLog) {
    const LoggedBoard step{{650, 420, 550}, 120, true};
    const auto kernels_told = [](const Report& report) {
        return std::count_if(report.rows.begin(), report.rows.end(),
                             [](const ReportRow& row) { return row.energy.resolved; });
    };
    EXPECT_LT(kernels_told(resolved(step, {.nonsense = true})), 2);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::counter) << choice->reason;
    const Report report = resolved(step, {});
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::both) << choice->reason;
    ASSERT_EQ(kernels_told(report), 3);
    for (std::size_t k = 0; k < report.rows.size(); ++k) {
        const auto& row = report.rows[k];
        EXPECT_NEAR(row.energy.joules.count, step.watts(k) * row.counted_time.count(),
                    row.energy.half_width.count)
            << k;
    }
}

TEST_F(SourceChoosing, ALogWithAMemoryAndLateStampsTellsAFixedMix) {
    // As an H100's is.
    const LoggedBoard::Log log{.delay = 3400us, .memory = 12800us, .late = 9ms};
    for (const bool fixed : {true, false}) {
        const LoggedBoard step{{650, 420, 550}, 120, fixed};
        const Report report = resolved(step, log);
        ASSERT_TRUE(choice);
        EXPECT_EQ(choice->source, EnergyFrom::both) << choice->reason;
        EXPECT_EQ(choice->response.memory, 12800us);
        EXPECT_GT(report.fit.rows, 950U) << "late stamps break no rows";
        for (std::size_t k = 0; k < report.rows.size(); ++k) {
            const auto& row = report.rows[k];
            ASSERT_TRUE(row.energy.resolved) << k;
            const double truth = step.watts(k) * row.counted_time.count();
            EXPECT_NEAR(row.energy.joules.count, truth, row.energy.half_width.count) << k;
            EXPECT_LT(row.energy.half_width.count, 0.05 * truth) << k;
        }
    }
}

TEST_F(SourceChoosing, ALogOfAnotherDelayAndMemoryIsNotTakenForTheUsualOne) {
    const LoggedBoard step{{650, 420, 550}, 120, true, 30s};
    const Report report = resolved(step, {.delay = 7ms, .memory = 22ms, .noise = 2});
    ASSERT_TRUE(report.fit.sensor);
    EXPECT_NEAR((report.fit.sensor->delay + report.fit.sensor->rise).count(), 7e-3, 0.5e-3);
    EXPECT_NEAR(report.fit.sensor->memory.count(), 22e-3, 3e-3);
    int told = 0;
    for (std::size_t k = 0; k < report.rows.size(); ++k) {
        const auto& [joules, half_width, is_resolved, of_sensor] = report.rows[k].energy;
        if (!is_resolved) continue;
        ++told;
        const double truth = step.watts(k) * report.rows[k].counted_time.count();
        EXPECT_NEAR(joules.count, truth, half_width.count) << k;
        EXPECT_GT(of_sensor, half_width * 0.1) << "a sensor that nobody knows is in the interval";
        EXPECT_LT(of_sensor, half_width);
        const double noise = report.rows[k].energy.noise_half_width().count;
        EXPECT_NEAR(std::hypot(noise, of_sensor.count), half_width.count, 1e-9 * half_width.count);
    }
    EXPECT_GE(told, 2);
    // Where kernels are repeated, it is not sought.
    EnergyAccumulator repeats{
        table, {.counter_period = 100ms, .kernels_repeat = true, .sensor_may_lag = true}};
    LoggedBoard{step}.tell(repeats, {});
    Report repeated;
    repeats.fill(repeated);
    EXPECT_FALSE(repeated.fit.sensor);
}

TEST_F(SourceChoosing, ALogThatMissesMostOfTheTimeIsNotTaken) {
    const Report report = resolved(board, {.window = 5ms});
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::counter) << choice->reason;
    EXPECT_EQ(report.fit.source, "energy counter");
    EXPECT_GT(report.fit.rows, 150U) << "what was held back meanwhile is not lost";
}

TEST_F(SourceChoosing, ACounterThatMovesIsNotDeadBesideASlowLog) {
    resolved(board, {.period = 50ms, .window = 50ms});
    ASSERT_TRUE(choice);
    EXPECT_NE(choice->source, EnergyFrom::power) << choice->reason;
    EXPECT_EQ(choice->reason.find("did not move"), std::string::npos) << choice->reason;
}

TEST_F(SourceChoosing, ALogThatDoesNotFollowTheKernelsIsNotTaken) {
    resolved(board, {.nonsense = true});
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::counter) << choice->reason;
    resolved(LoggedBoard{{500, 500, 500}, 500}, {});
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::counter) << "nothing shows what its samples are means of";
}

TEST_F(SourceChoosing, ALogThatIsOffByAFactorIsTakenForWrongWhereTheCounterMoves) {
    resolved(board, {.less = 2});
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::counter) << choice->reason;
    EXPECT_NE(choice->reason.find("factor"), std::string::npos) << choice->reason;
}

TEST_F(SourceChoosing, WithoutACounterTheLogIsAllThereIs) {
    const Report report = resolved(board, {.less = 1}, false);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::power) << choice->reason;
    EXPECT_EQ(report.fit.source, to_string(EnergyFrom::power));
    ASSERT_TRUE(report.rows[0].energy.resolved);
    EXPECT_NEAR((report.rows[0].energy.joules / report.rows[0].counted_time).count, 650, 13);
}

}  // namespace
}  // namespace kdvfs::measure
