// SPDX-License-Identifier: MIT
// Boards with a counter of 1 ms whose kernels are not as the sensor's model has them: intervals
// hold, or the report says so.
#include <kdvfs/detail/measure/energy_accumulator.hpp>
#include <kdvfs/detail/measure/energy_counter.hpp>
#include <kdvfs/detail/measure/kernel_interval.hpp>
#include <kdvfs/kernel.hpp>
#include <kdvfs/report.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kdvfs::measure {
namespace {

using namespace std::chrono_literals;

class UnlikeBoard : public testing::Test {
protected:
    struct Part {
        double seconds;
        double watts;
    };

    void SetUp() override {
        for (std::size_t k = 0; k < lengths.size(); ++k) {
            ids.push_back(table.id("kernel " + std::to_string(k)));
        }
        rest(2);
    }
    double normal() { return std::normal_distribution<double>{}(random); }
    double uniform() { return std::uniform_real_distribution<double>{}(random); }
    /// How long the next call of a kernel is, s.
    double length(std::size_t k) { return lengths[k] * (1 + 0.003 * normal()); }

    void rest(double lasts, double draws = idle_watts) { pass({lasts, draws}); }
    void run(std::size_t k, const std::vector<Part>& parts) {
        const double from = now();
        for (const Part& part : parts) {
            joules[k] += part.seconds * part.watts;
            seconds[k] += part.seconds;
            pass(part);
        }
        calls.push_back({.kernel = ids[k], .start = at(from), .end = at(now())});
    }

    /// The counter moves every millisecond, is late, and is read every tenth one.
    [[nodiscard]] Report report() {
        rest(1);
        EnergyAccumulator accumulator{
            table, {.counter_period = 1ms, .sensor_may_lag = true, .power_limit = {900}}};
        std::size_t call = 0;
        for (double read = 0.1; read < now() - 0.1; read += 0.01) {
            for (; call < calls.size() && calls[call].end <= at(read); ++call) {
                accumulator.add(calls[call]);
            }
            const double noisy = joules_at(read - delay) + 1e-5 * normal();
            accumulator.add(EnergySample{at(read), {noisy}, 0});
            if (call < calls.size()) accumulator.advance(std::min(at(read), calls[call].start));
        }
        Report found;
        accumulator.fill(found);
        return found;
    }
    /// How many half-widths the worst resolved kernel lies beside its mean power.
    [[nodiscard]] double worst(const Report& found) const {
        double most = 0;
        for (std::size_t k = 0; k < ids.size(); ++k) {
            const EnergyEstimate& energy = found.rows.at(k).energy;
            if (!energy.resolved) continue;
            const double off =
                energy.joules.count / found.rows[k].counted_time.count() - joules[k] / seconds[k];
            most = std::max(
                most, std::abs(off) * found.rows[k].counted_time.count() / energy.half_width.count);
        }
        return most;
    }
    [[nodiscard]] static std::size_t resolved(const Report& found) {
        return static_cast<std::size_t>(
            std::count_if(found.rows.begin(), found.rows.end(),
                          [](const ReportRow& row) { return row.energy.resolved; }));
    }

    [[nodiscard]] static bool has_note(const Report& found, const std::string& words) {
        return std::any_of(found.notes.begin(), found.notes.end(), [&](const std::string& note) {
            return note.find(words) != std::string::npos;
        });
    }

    static constexpr double idle_watts = 90;
    static constexpr double delay = 1.3e-3;
    const std::vector<double> lengths{16e-3, 5e-3, 9e-3, 3e-3, 12e-3};
    const std::vector<double> watts{300, 540, 200, 600, 420};
    KernelTable table;
    std::vector<KernelId> ids;
    std::mt19937_64 random{7};
    std::vector<KernelInterval> calls;
    std::vector<double> joules = std::vector<double>(5);
    std::vector<double> seconds = std::vector<double>(5);

    [[nodiscard]] double now() const { return ends_.back().first; }

private:
    static TimePoint at(double moment) {
        return TimePoint{1000s} + std::chrono::duration_cast<Duration>(Seconds{moment});
    }
    void pass(const Part& part) {
        ends_.push_back(
            {ends_.back().first + part.seconds, ends_.back().second + part.seconds * part.watts});
    }
    [[nodiscard]] double joules_at(double when) const {
        const auto next =
            std::upper_bound(ends_.begin() + 1, ends_.end() - 1, std::pair{when, 0.0});
        const auto before = next - 1;
        return before->second + (next->second - before->second) * (when - before->first) /
                                    (next->first - before->first);
    }

    std::vector<std::pair<double, double>> ends_{{0, 0}};  // s, J
};

/// The calls that draw most are the kernel's, and no faults.
TEST_F(UnlikeBoard, AKernelWithTwoModesKeepsBoth) {
    while (now() < 25) {
        for (std::size_t k = 0; k < lengths.size(); ++k) {
            const double mode = k == 0 && uniform() < 0.3 ? 1.4 : 1;
            run(k, {{length(k), watts[k] * mode * (1 + 0.02 * normal())}});
        }
        rest(2e-3);
    }
    const Report found = report();
    EXPECT_EQ(resolved(found), lengths.size());
    EXPECT_LT(worst(found), 1.2);
}

/// In an order that changes, what depends on the kernel before does not average out.
TEST_F(UnlikeBoard, IntervalsHaveWhatTheKernelBeforeDoes) {
    random.seed(3);
    std::vector<std::vector<double>> after(5, std::vector<double>(5));
    for (auto& row : after) {
        for (double& each : row) each = 0.9 + 0.2 * uniform();
    }
    std::vector<std::size_t> order{0, 1, 2, 3, 4};
    std::size_t before = 0;
    while (now() < 25) {
        std::shuffle(order.begin(), order.end(), random);
        for (const std::size_t k : order) {
            run(k, {{0.5 * length(k), watts[k] * after[before][k] * (1 + 0.01 * normal())}});
            before = k;
        }
        rest(2e-3);
    }
    const Report found = report();
    EXPECT_EQ(resolved(found), lengths.size());
    EXPECT_LT(worst(found), 1.1);
}

/// A power that rises inside each run looks like a sensor that is late.
TEST_F(UnlikeBoard, PowersThatChangeInsideRunsResolveNothing) {
    while (now() < 15) {
        for (std::size_t k = 0; k < lengths.size(); ++k) {
            const double third = length(k) / 3;
            run(k, {{third, 0.7 * watts[k]}, {third, watts[k]}, {third, 1.3 * watts[k]}});
        }
        rest(2e-3);
    }
    const Report found = report();
    EXPECT_EQ(resolved(found), 0U);
    EXPECT_TRUE(has_note(found, "inside runs"));
}

/// A copy at the end of each wait, in phase with the step: it has no power of its own.
TEST_F(UnlikeBoard, ACopyInTheLastPartOfGapsIsNoticed) {
    while (now() < 15) {
        for (std::size_t k = 0; k < lengths.size(); ++k) run(k, {{length(k), watts[k]}});
        const double next = 0.1 * std::ceil(now() / 0.1 + 0.1);
        rest(next - now() - 4e-3);
        rest(4e-3, idle_watts + 80);
    }
    const Report found = report();
    EXPECT_LT(worst(found), 1.5);
    EXPECT_TRUE(has_note(found, "inside gaps"));
}

/// What is as the model has it is resolved, without a note.
TEST_F(UnlikeBoard, AnEvenBoardIsResolved) {
    while (now() < 15) {
        for (std::size_t k = 0; k < lengths.size(); ++k) {
            run(k, {{length(k), watts[k] * (1 + 0.01 * normal())}});
        }
        rest(2e-3);
    }
    const Report found = report();
    EXPECT_EQ(resolved(found), lengths.size());
    EXPECT_LT(worst(found), 1.1);
    EXPECT_FALSE(has_note(found, "inside"));
}

}  // namespace
}  // namespace kdvfs::measure
