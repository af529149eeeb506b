// SPDX-License-Identifier: MIT
#include <kdvfs/measure/energy_accumulator.hpp>
#include <kdvfs/measure/source_choice.hpp>

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
/// always the same 12.3, 8 and 15 ms. Its counter moves every 100 ms; its power log has a mean
/// every 20 ms and shows less.
class LoggedBoard {
public:
    struct Log {
        Duration window = 20ms;
        Duration delay = 30ms;
        double less = 1.03;
        double noise = 4;  ///< W
        bool nonsense = false;
    };

    LoggedBoard(std::array<double, 3> watts, double idle, bool fixed = false)
        : watts_{watts}, idle_{idle}, random_{1} {
        std::uniform_int_distribution<int> microseconds{2'000, 30'000};
        Duration now{0};
        for (std::size_t i = 0; now < 20s; ++i) {
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
        for (Duration until{0}; until < 20s; until += 250ms) {
            for (; run < runs_.size() && runs_[run].start < TimePoint{until}; ++run) {
                accumulator.add(runs_[run]);
            }
            for (; has_counter && counted <= until; counted += 100ms) {
                const TimePoint seen{counted + std::chrono::microseconds{late(random_)}};
                accumulator.add(EnergySample{seen, {joules_until(counted)}, 0});
            }
            for (; logged <= until; logged += 20ms) {
                const Duration end = logged - log.delay;
                const double mean = (joules_until(end) - joules_until(end - log.window)) /
                                    Seconds{log.window}.count();
                const double shown = log.nonsense ? any(random_) : mean / log.less + noise(random_);
                accumulator.add(PowerReading{{shown}, TimePoint{logged}, ReadingStatus::ok});
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

    std::array<double, 3> watts_;
    double idle_;
    std::mt19937_64 random_;
    std::vector<KernelInterval> runs_;
};

class SourceChoosing : public testing::Test {
protected:
    SourceChoosing() {
        for (const char* name : {"gemm", "copy", "gelu"}) (void)table.id(name);
    }
    Report told(LoggedBoard from, const LoggedBoard::Log& log, bool has_counter = true) {
        EnergyAccumulator accumulator{table, {.counter_period = 100ms}};
        from.tell(accumulator, log, has_counter);
        Report report;
        accumulator.fill(report);
        choice = accumulator.source();
        return report;
    }
    KernelTable table;
    std::optional<SourceChoice> choice;
    const LoggedBoard board{{650, 420, 550}, 120};
};

TEST_F(SourceChoosing, APowerLogFinerThanTheCounterTellsKernelsApartByTheCountersJoules) {
    const Report report = told(board, {});
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
    EXPECT_NEAR(totals.kernels.joules.count + totals.idle.joules.count + totals.unexplained.count,
                totals.counter.count, 1e-6 * totals.counter.count);
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
    EXPECT_LT(kernels_told(told(step, {.nonsense = true})), 2);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::counter) << choice->reason;
    const Report report = told(step, {});
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

TEST_F(SourceChoosing, ALogThatMissesMostOfTheTimeIsNotTaken) {
    const Report report = told(board, {.window = 5ms});
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::counter) << choice->reason;
    EXPECT_EQ(report.fit.source, "energy counter");
    EXPECT_GT(report.fit.rows, 150U) << "what was held back meanwhile is not lost";
}

TEST_F(SourceChoosing, ALogThatDoesNotFollowTheKernelsIsNotTaken) {
    told(board, {.nonsense = true});
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::counter) << choice->reason;
    told(LoggedBoard{{500, 500, 500}, 500}, {});
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::counter) << "nothing shows what its samples are means of";
}

TEST_F(SourceChoosing, ALogThatIsOffByAFactorIsTakenForWrongWhereTheCounterMoves) {
    told(board, {.less = 2});
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::counter) << choice->reason;
    EXPECT_NE(choice->reason.find("factor"), std::string::npos) << choice->reason;
}

TEST_F(SourceChoosing, WithoutACounterTheLogIsAllThereIs) {
    const Report report = told(board, {.less = 1}, false);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->source, EnergyFrom::power) << choice->reason;
    EXPECT_EQ(report.fit.source, to_string(EnergyFrom::power));
    ASSERT_TRUE(report.rows[0].energy.resolved);
    EXPECT_NEAR((report.rows[0].energy.joules / report.rows[0].counted_time).count, 650, 13);
}

}  // namespace
}  // namespace kdvfs::measure
