// SPDX-License-Identifier: MIT
#include <kdvfs/detail/measure/gap_columns.hpp>
#include <kdvfs/detail/measure/limited_sample.hpp>
#include <kdvfs/detail/measure/possible_power.hpp>
#include <kdvfs/detail/measure/sensor_finding.hpp>
#include <kdvfs/detail/measure/sensor_posterior.hpp>
#include <kdvfs/detail/measure/sensor_sample.hpp>
#include <kdvfs/detail/measure/unlike_runs.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace kdvfs::measure {
namespace {

/// What a sensor shows at the end of a load of 1 W that has lasted for `age`, stepped through.
double stepped(const Sensor& sensor, double window, double age) {
    constexpr double step = 1e-6;
    double board = 0;
    double filtered = 0;
    double sum = 0;
    const auto steps = static_cast<int>(std::lround(age / step));
    for (int i = 0; i < steps; ++i) {
        board += (1 - board) * (sensor.rise > 0 ? 1 - std::exp(-step / sensor.rise) : 1);
        filtered +=
            (board - filtered) * (sensor.memory > 0 ? 1 - std::exp(-step / sensor.memory) : 1);
        if (static_cast<double>(steps - i) * step <= window) sum += filtered * step;
    }
    return window > 0 ? sum / window : filtered;
}

TEST(StepResponse, IsThatOfTheFiltersOneBehindAnother) {
    for (const double rise : {0.0, 0.3e-3, 2e-3}) {
        for (const double memory : {0.0, 2e-3, 12.8e-3}) {
            for (const double window : {0.0, 1e-3, 20e-3}) {
                const Sensor sensor{.memory = memory, .rise = rise};
                const StepResponse response{sensor, window};
                EXPECT_EQ(response(-1e-3), 0);
                for (const double age : {0.5e-3, 3e-3, 30e-3}) {
                    EXPECT_NEAR(response(age), stepped(sensor, window, age), 2e-3)
                        << rise << ' ' << memory << ' ' << window << ' ' << age;
                }
            }
        }
    }
}

/// Four kernels in a fixed step of 37.7 ms, seen by a sensor through `stepped` responses of its
/// own.
class FixedStep : public testing::Test {
protected:
    static constexpr std::size_t kernels = 4;
    static constexpr double lengths[kernels] = {9.1e-3, 4.3e-3, 16.2e-3, 8.1e-3};
    static constexpr double watts[kernels] = {640, 310, 480, 250};

    static TimePoint at(double seconds) {
        return TimePoint{std::chrono::duration_cast<Duration>(Seconds{seconds})};
    }
    /// @param seconds how long it runs
    /// @param outside W that something else draws in every other second
    /// @param unknown s before each block of the sample of which nothing is known, but for what
    ///                ends in the last 12 ms
    static SensorSample seen(double seconds, double delay, double memory, double noise,
                             double outside = 0, double unknown = 0) {
        constexpr double block = 64 * 20e-3;
        constexpr double grain = 1e-5;
        std::vector<double> shown;
        SensorSample sample;
        sample.begin(std::chrono::milliseconds{20});
        std::mt19937_64 random{5};
        std::normal_distribution<double> normal{0, noise};
        double now = 0;
        double filtered = 400;
        for (std::size_t i = 0; now < seconds; ++i) {
            const double end = now + lengths[i % kernels];
            const bool is_known = block - std::fmod(now, block) > unknown ||
                                  std::fmod(end, block) > block - 12e-3 ||
                                  std::fmod(end, block) < std::fmod(now, block);
            if (is_known) {
                sample.pass(at(now), at(end));
                sample.add(i % kernels + 1, end - now);
            }
            while (static_cast<double>(shown.size()) * grain < end) {
                filtered += (watts[i % kernels] - filtered) * (1 - std::exp(-grain / memory));
                shown.push_back(filtered);
            }
            now = end;
        }
        for (double stamp = 0.2; stamp < seconds - 0.1; stamp += 20.03e-3) {
            const auto place = static_cast<std::size_t>((stamp - delay) / grain);
            const double others = std::fmod(stamp, 2) < 1 ? outside : 0;
            sample.read(at(stamp), Seconds{0}, shown[place] + others + normal(random));
        }
        return sample;
    }
};

TEST_F(FixedStep, ASensorAndThePowersBehindItAreFoundTogether) {
    const SensorSample sample = seen(12, 4.2e-3, 21e-3, 2);
    const SensorPosterior posterior{sample, false, ColumnPrior::around(430, kernels + 1)};
    ASSERT_TRUE(posterior.solved());
    const Sensor found = posterior.likely();
    EXPECT_NEAR(found.delay + found.rise, 4.2e-3, 0.4e-3);
    EXPECT_NEAR(found.memory, 21e-3, 3e-3);
    const SymmetricMatrix noise = posterior.noise(found);
    for (std::size_t k = 0; k < kernels; ++k) {
        double sum = 0;
        double squares = 0;
        for (const SensorGuess& guess : posterior.cloud()) {
            const double each = posterior.watts(posterior.sensor(guess))[k + 1];
            sum += each;
            squares += each * each;
        }
        const auto count = static_cast<double>(posterior.cloud().size());
        const double mean = sum / count;
        const double sensor = squares / count - mean * mean;
        const double deviation = std::sqrt(sensor + noise(k + 1, k + 1));
        EXPECT_NEAR(mean, watts[k], 3 * deviation) << k;
        // Kernels far shorter than the memory are known less well.
        if (k == 2) {
            EXPECT_LT(deviation, 0.05 * watts[k]);
        }
        EXPECT_GT(sensor, 0.1 * noise(k + 1, k + 1)) << "an unknown sensor is part of the interval";
    }
}

/// A counter of 1 ms that is 1.7 ms late, and of whose readings every 400th is a fault.
/// Where much is unknown, what is known may begin shortly before the next reading's block.
TEST_F(FixedStep, BlocksWithoutAReadingAreNoFirstOnes) {
    const SensorSample sample = seen(40, 4.2e-3, 21e-3, 2, 0, 0.1);
    const auto& blocks = sample.blocks();
    const auto rows = sample.rows();
    const auto begins_empty = std::count_if(rows.begin(), rows.end(), [&](const auto& row) {
        return blocks[row.since].readings.empty();
    });
    EXPECT_GT(begins_empty, 0);
    for (const auto& row : rows) EXPECT_LE(row.first_at, row.at);
    const SensorPosterior posterior{sample, false, ColumnPrior::around(430, kernels + 1)};
    ASSERT_TRUE(posterior.solved());
    EXPECT_NEAR(posterior.likely().memory, 21e-3, 3e-3);
}

TEST_F(FixedStep, PowersAreOfAllRowsOfAFineCounterAndTheSensorOfAPart) {
    constexpr double seconds = 40;
    constexpr double late = 1.7e-3;
    constexpr double period = 1e-3;
    SensorSample sample;
    sample.begin(std::chrono::milliseconds{1});
    std::vector<double> ends{0};
    std::vector<double> joules{0};
    const auto joules_until = [&](double time) {
        const auto next = static_cast<std::size_t>(
            std::upper_bound(ends.begin(), ends.end(), time) - ends.begin());
        return joules[next - 1] + (time - ends[next - 1]) * watts[(next - 1) % kernels];
    };
    std::mt19937_64 random{5};
    std::normal_distribution<double> noise{0, 5};
    int reading = 4;
    for (std::size_t i = 0; ends.back() < seconds; ++i) {
        const double end = ends.back() + lengths[i % kernels];
        sample.pass(at(ends.back()), at(end));
        sample.add(i % kernels + 1, end - ends.back());
        joules.push_back(joules.back() + watts[i % kernels] * lengths[i % kernels]);
        ends.push_back(end);
        for (; reading * period < end; ++reading) {
            const double shows = reading * period - late;
            const double mean = (joules_until(shows) - joules_until(shows - period)) / period;
            sample.read(at(reading * period), Seconds{period},
                        reading % 400 == 7 ? 5000 : mean + noise(random));
        }
    }
    const auto found = find_sensor(sample, kernels + 1, true);
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->likely.delay + found->likely.rise, late, 0.1e-3);
    EXPECT_NEAR(found->rows.rows, seconds / period, 0.01 * seconds / period);
    EXPECT_GT(found->rows.level.gram(1, 1), 1.5 * found->assumed.gram(1, 1));
    const std::vector<std::size_t> columns{1, 2, 3, 4};
    const std::vector<double> least = found->least_watts(columns);
    for (std::size_t k = 0; k < kernels; ++k) EXPECT_NEAR(least[k], watts[k], 1.5) << k;
}

TEST_F(FixedStep, AtTheLimitErrorsHoldThatMergedKernelsAreUnlike) {
    const std::vector<std::size_t> whole{0, 1, 2, 3, 3};
    const SplitSample apart{seen(3, 4.2e-3, 21e-3, 2), whole};
    SensorSample merged = apart.sample;
    merged.merge({whole, 4});
    const auto found = find_sensor(merged, 4, false, {}, 440, &apart);
    ASSERT_TRUE(found);
    ASSERT_EQ(found->unlike.size(), 4U);
    for (std::size_t k = 1; k < 3; ++k) EXPECT_GT(found->unlike(k, k), 25) << k;
}

TEST_F(FixedStep, LoadFromOutsideMakesThePowerWander) {
    const auto wanders = [](double outside) {
        const SensorSample sample = seen(24, 4.2e-3, 21e-3, 2, outside);
        const SensorPosterior posterior{sample, false, ColumnPrior::around(430, kernels + 1)};
        return posterior.wanders(posterior.likely());
    };
    EXPECT_LT(wanders(0), 1);
    EXPECT_NEAR(wanders(40), 20, 5);
}

/// Two kernels by turns on a board whose limiter holds 400 W in the mean, stepped through.
TEST(LimitedPowers, WeighTimeByWhatALimiterLetsKernelsDraw) {
    constexpr double grain = 1e-5;
    constexpr double idle = 100;
    constexpr double free[] = {620, 280};
    constexpr double lengths[] = {20e-3, 15e-3};
    SensorSample sample;
    sample.begin(std::chrono::milliseconds{20});
    double state = 0;
    double now = 0;
    double joules[] = {0, 0};
    double seconds[] = {0, 0};
    double first = 0;  // W of the hungry kernel, in the first millisecond and in the last
    double last = 0;
    for (std::size_t i = 0; now < 8; ++i) {
        const std::size_t k = i % 2;
        const auto at = [](double s) {
            return TimePoint{std::chrono::duration_cast<Duration>(Seconds{s})};
        };
        sample.pass(at(now), at(now + lengths[k]));
        sample.add(k + 1, lengths[k]);
        for (double in = 0; in < lengths[k]; in += grain) {
            const double power = idle + (free[k] - idle) * std::exp(state);
            state = std::min(state + 30 * (1 - power / 400) * grain, 0.0);
            joules[k] += power * grain;
            seconds[k] += grain;
            if (k == 0 && in < 1e-3) first = power;
            if (k == 0) last = power;
        }
        now += lengths[k];
    }
    const std::vector<double> watts{idle, joules[0] / seconds[0], joules[1] / seconds[1]};
    const SensorSample weighed = LimitedPowers{sample, watts, 400, 30}.sample();
    double before = 0;
    double after = 0;
    for (const auto& block : sample.blocks()) {
        for (const auto& entry : block.entries) before += entry.column == 1 ? entry.share : 0;
    }
    for (const auto& block : weighed.blocks()) {
        for (const auto& entry : block.entries) after += entry.column == 1 ? entry.share : 0;
    }
    EXPECT_NEAR(after, before, 1e-6 * before) << "the mean power is that of all time";
    // The last whole run of the hungry kernel: its first piece and its last.
    const auto& block = weighed.blocks()[weighed.blocks().size() - 2];
    double begin = 0;
    double end = 0;
    for (const auto& piece : block.stretches) {
        const auto& entry = block.entries[piece.first];
        if (entry.column != 1 || piece.run_to - piece.run_from < 19e-3) continue;
        const double drawn = watts[1] * entry.share / (piece.to - piece.from);
        if (piece.from == piece.run_from) begin = drawn;
        if (piece.to > piece.run_to - 1e-9) end = drawn;
    }
    EXPECT_GT(first - last, 60);
    EXPECT_NEAR(begin, first, 0.03 * first);
    EXPECT_NEAR(end, last, 0.03 * last);
}

TEST(RoomOfRuns, IsWhatALimiterLendsToARunFromTwiceTheLimit) {
    for (const double length : {1e-3, 76e-3, 0.4}) {
        constexpr double step = 1e-6;
        double power = 2;
        double sum = 0;
        for (double at = 0; at < length; at += step) {
            sum += power * step;
            power -= 30 * power * (power - 1) * step;
        }
        RoomOfRuns room;
        for (int i = 0; i < 3; ++i) {
            room.run(1, length / 2);
            room.run(1, length / 2);
            room.rest(0.01);
        }
        EXPECT_NEAR(room.by_column().at(1), sum / length - 1, 2e-3) << length;
    }
    const PossiblePower board{.lowest = 100, .limit = 700};
    EXPECT_EQ(board.beyond(903, 0.28), 0);
    EXPECT_GT(board.beyond(903, 0.1), 0);
    EXPECT_LT(board.beyond(40, 0), 0);
}

TEST(GapColumns, LongGapsBehindAKernelHaveAColumn) {
    GapColumns gaps;
    std::size_t columns = 3;
    const auto add = [&] { return columns++; };
    for (int i = 0; i < 100; ++i) {
        gaps.run(1, 10e-3);
        gaps.rest(0, 5e-6, true, add);  // until the next launch
        gaps.run(2, 10e-3);
        gaps.rest(0, 2e-3, true, add);
        gaps.run(1, 10e-3);
    }
    ASSERT_EQ(gaps.gaps().size(), 1U);
    const KernelGap& gap = gaps.gaps().front();
    EXPECT_EQ(gap.column, 3U);
    EXPECT_EQ(gap.after, 2U);
    EXPECT_TRUE(gap.lies_beside(1));
    EXPECT_NEAR(gap.seconds, 0.15, 0.01);
    gaps.run(2, 10e-3);
    EXPECT_EQ(gaps.rest(0, 2e-3, true, add), 3U);
    EXPECT_EQ(gaps.rest(0, 0.1, true, add), RowSums::idle_column) << "it rests";
    std::vector<double> seconds{1, 2, 3, 4};
    gaps.fold(seconds);
    EXPECT_EQ(seconds, (std::vector<double>{5, 2, 3, 0}));
}

TEST_F(FixedStep, WithTooFewReadingsNothingIsSaid) {
    const SensorSample sample = seen(0.4, 4.2e-3, 21e-3, 2);
    EXPECT_FALSE((SensorPosterior{sample, false, ColumnPrior::around(430, kernels + 1)}.solved()));
}

TEST(SensorSample, HoldsALongRunInBoundedMemory) {
    SensorSample sample;
    sample.begin(std::chrono::milliseconds{1});
    constexpr int milliseconds = 200'000;
    for (int i = 0; i < milliseconds; ++i) {
        for (int part = 0; part < 4; ++part) {  // of a millisecond
            const TimePoint from{std::chrono::microseconds{1000 * i + 250 * part}};
            sample.pass(from, from + std::chrono::microseconds{250});
            sample.add(static_cast<std::size_t>(part), 250e-6);
        }
        sample.read(TimePoint{std::chrono::milliseconds{i + 1}}, Seconds{1e-3}, 400);
    }
    std::size_t stretches = 0;
    std::size_t readings = 0;
    for (const auto& block : sample.blocks()) {
        stretches += block.stretches.size();
        readings += block.readings.size();
    }
    EXPECT_LT(stretches, 140'000U);
    EXPECT_LT(readings, 66'000U);  // a minute of a fine counter
    EXPECT_GT(readings, 1'000U);
    EXPECT_GT(sample.blocks().back().begin(), 100) << "all of the run, not its beginning";
}

}  // namespace
}  // namespace kdvfs::measure
