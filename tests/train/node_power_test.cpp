// SPDX-License-Identifier: MIT
//
// Watts moved between the GPUs of a node, on models of nodes: the optimum is found apart from the
// controller, by the common compute time that the cap allows.
#include <kdvfs/train/node_power.hpp>

#include <examples/gpt3_xl/node.hpp>
#include <tests/train/power_limit_double.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

namespace kdvfs::train {
namespace {

constexpr double exponent = 2.2;  // of watts by clock
constexpr double found_limit = 650;
constexpr double cap = 8 * found_limit;
constexpr PowerRange mi300x_range{{300}, {750}};  // of an MI300X, whose data sheet has 750 W

/// 8 GPUs, the last one 6 % lower in clock at equal watts, whose watts are clock^2.2; so much of
/// the compute time follows the clock at 650 W (0.8: an assumption).
struct ModelNode {
    double compute_share = 1;
    std::vector<double> clocks{1, 1, 1, 1, 1, 1, 1, 0.94};

    [[nodiscard]] double seconds(std::size_t gpu, double watts) const {
        const double clock = clocks[gpu] * std::pow(watts / found_limit, 1 / exponent);
        return compute_share / clock + (1 - compute_share);
    }
    [[nodiscard]] double slowest(const std::vector<double>& watts) const {
        double longest = 0;
        for (std::size_t i = 0; i < clocks.size(); ++i)
            longest = std::max(longest, seconds(i, watts[i]));
        return longest;
    }
};

/// The least watts with which a GPU computes within this time, by bisection.
double least_watts(const std::function<double(double)>& seconds, double within) {
    double low = mi300x_range.low.count;
    double high = mi300x_range.high.count;
    if (seconds(low) <= within) return low;
    for (int i = 0; i < 40; ++i)
        (seconds((low + high) / 2) <= within ? high : low) = (low + high) / 2;
    return high;
}

/// The shortest common compute time whose least watts sum up to the cap, by bisection.
/// @param seconds of the last GPU, or of one of the seven others, by its watts
double best_seconds(const std::function<double(bool last, double watts)>& seconds, double low,
                    double high) {
    for (int i = 0; i < 40; ++i) {
        const double middle = (low + high) / 2;
        const auto least = [&](bool last) {
            return least_watts([&](double watts) { return seconds(last, watts); }, middle);
        };
        (7 * least(false) + least(true) <= cap ? high : low) = middle;
    }
    return high;
}

/// Boards that hold what they are told, and a controller of them.
struct Bed {
    NodePower power;
    std::vector<double> held;

    explicit Bed(const NodePowerOptions& options = {}, std::size_t gpus = 8)
        : power{std::vector<NodeGpu>(gpus, NodeGpu{mi300x_range, {found_limit}}), options},
          held(gpus, found_limit) {}

    void write() {
        while (const auto next = power.next_write()) {
            held[next->gpu] = next->limit.count;
            EXPECT_LE(std::accumulate(held.begin(), held.end(), 0.0), power.cap().count);
            power.written(next->limit);
        }
    }
    [[nodiscard]] double sum() const { return std::accumulate(held.begin(), held.end(), 0.0); }
};

/// Iterations whose compute times scatter.
void run(Bed& bed, const ModelNode& node, int iterations, double noise = 0.003) {
    std::mt19937_64 random{1};
    std::normal_distribution<double> scatter{1, noise};
    for (int k = 0; k < iterations; ++k) {
        std::vector<std::optional<GpuIteration>> all;
        for (std::size_t i = 0; i < bed.held.size(); ++i)
            all.push_back(GpuIteration{Seconds{node.seconds(i, bed.held[i]) * scatter(random)},
                                       Seconds{0},
                                       {bed.held[i]},
                                       {}});
        bed.power.add_iteration(all);
        bed.write();
    }
}

/// One iteration in which the last GPU is slower.
std::vector<std::optional<GpuIteration>> one_slow(double watts,
                                                  std::optional<GpuTemperature> temperature = {}) {
    std::vector<std::optional<GpuIteration>> all(8,
                                                 GpuIteration{Seconds{1}, Seconds{0}, {750}, {}});
    all.back() = GpuIteration{Seconds{1.1}, Seconds{0}, {watts}, temperature};
    return all;
}

TEST(NodePower, FindsTheOptimumOfTheModelForSpeed) {
    for (const double share : {1.0, 0.8}) {
        const ModelNode node{share};
        const double found = node.slowest(std::vector<double>(8, found_limit));
        Bed bed;
        run(bed, node, 600);
        const double reached = node.slowest(bed.held);
        const double best = best_seconds(
            [&](bool last, double watts) { return node.seconds(last ? 7 : 0, watts); }, 0.5, 2);
        std::printf(
            "simulated, 8 GPUs, watts as clock^2.2, %.0f %% of the time computes: %+.2f %% "
            "speed at the same cap (%.2f the optimum)\n",
            100 * share, 100 * (found / reached - 1), 100 * (found / best - 1));
        EXPECT_GE(found / reached - 1, 0.04);
        EXPECT_LE(reached, best * 1.004);
        EXPECT_GE(reached, best);
        EXPECT_LE(bed.power.highest_sum().count, cap);
    }
}

TEST(NodePower, SavesWattsAtTheSameSpeed) {
    const ModelNode node{0.8};
    const double found = node.slowest(std::vector<double>(8, found_limit));
    NodePowerOptions options;
    options.goal = NodeGoal::power;
    Bed bed{options};
    run(bed, node, 600);
    double least = 0;
    for (std::size_t i = 0; i < 8; ++i)
        least += least_watts([&](double watts) { return node.seconds(i, watts); }, found);
    std::printf("simulated, 8 GPUs: %+.2f %% watts (%.2f the optimum) at %+.2f %% time\n",
                100 * (bed.sum() / cap - 1), 100 * (least / cap - 1),
                100 * (node.slowest(bed.held) / found - 1));
    EXPECT_LE(bed.sum() / cap - 1, -0.06);
    EXPECT_LE(node.slowest(bed.held), found * 1.005);
    EXPECT_LE(bed.sum(), least * 1.02);
}

TEST(NodePower, HasNothingToMoveWhereTheSlowestIsAtItsHighestLimit) {
    NodePower power{std::vector<NodeGpu>(8, NodeGpu{mi300x_range, mi300x_range.high})};
    for (int i = 0; i < 40; ++i) power.add_iteration(one_slow(740));
    EXPECT_FALSE(power.next_write());
}

TEST(NodePower, MovesWattsOnSimulatedBoards) {
    const gpt3::Node node{*gpt3::find_case("mi300x"), 8, 0.06};
    const auto longest = [&](const std::vector<double>& watts) {
        std::vector<Watts> limits;
        for (const double each : watts) limits.push_back({each});
        const auto all = node.iterate(limits);
        return all[0].compute + all[0].waited;
    };
    const auto found = node.iterate(std::vector<Watts>(8, {found_limit}));
    Bed bed;
    const Seconds before = longest(bed.held);
    for (int i = 0; i < 150; ++i) {
        std::vector<Watts> limits;
        for (const double each : bed.held) limits.push_back({each});
        const auto now = node.iterate(limits);
        bed.power.add_iteration(std::vector<std::optional<GpuIteration>>{now.begin(), now.end()});
        bed.write();
    }
    const double faster = before / longest(bed.held) - 1;
    const Seconds transfer = found.back().waited;
    const gpt3::Node pair{*gpt3::find_case("mi300x"), 2, 0.06};
    const double best = best_seconds(
        [&](bool last, double watts) {
            const auto all = pair.iterate({{watts}, {watts}});
            return (last ? all.back() : all.front()).compute.count();
        },
        0.6, 1);
    const double possible = before / (Seconds{best} + transfer) - 1;
    std::printf(
        "simulated, 8 x MI300X, GPT-3-XL: %+.2f %% speed at the same cap (%.2f the optimum); "
        "the hot GPU computes %.2f %% longer\n",
        100 * faster, 100 * possible, 100 * (found.back().compute / found.front().compute - 1));
    EXPECT_GE(faster, 0.9 * possible);
    EXPECT_LE(faster, possible);
    const NodeForecast forecast = forecast_node(found, std::vector<PowerRange>(8, mi300x_range));
    EXPECT_EQ(forecast.slowest, 7U);
    EXPECT_NEAR(forecast.faster, faster, 0.002);
}

TEST(NodePower, ForecastsTheModelExactly) {
    std::vector<GpuIteration> all;
    const ModelNode node;
    for (std::size_t i = 0; i < 8; ++i)
        all.push_back({Seconds{node.seconds(i, found_limit)}, Seconds{0}, {found_limit}, {}});
    const NodeForecast forecast = forecast_node(all, std::vector<PowerRange>(8, mi300x_range));
    EXPECT_EQ(forecast.slowest, 7U);
    EXPECT_NEAR(forecast.faster, 0.0551, 1e-4);  // 0.94^-1 / ((7 + 0.94^-2.2) / 8)^(1 / 2.2)
    EXPECT_NEAR(forecast.saved, 0.1113, 1e-4);   // 7 / 8 of 1 - 0.94^2.2
    all[3].compute = Seconds{std::numeric_limits<double>::quiet_NaN()};
    EXPECT_THROW(forecast_node(all, std::vector<PowerRange>(8, mi300x_range)), Error);
}

TEST(NodePower, GivesNoWattsToAGpuThatCannotUseThem) {
    const auto writes = [](const std::vector<std::optional<GpuIteration>>& all) {
        NodePowerOptions options;
        options.hottest_celsius = 100;
        Bed bed{options};
        for (int i = 0; i < 20; ++i) bed.power.add_iteration(all);
        return bed.power.next_write();
    };
    EXPECT_TRUE(writes(one_slow(640)));
    EXPECT_FALSE(writes(one_slow(400))) << "its limit does not hold it";
    EXPECT_FALSE(writes(one_slow(640, GpuTemperature{101}))) << "too hot";
    EXPECT_TRUE(writes(one_slow(640, GpuTemperature{99})));
    EXPECT_TRUE(writes(one_slow(640, GpuTemperature{101, Seconds{60}}))) << "never known";
}

TEST(NodePower, GivesNoWattsOnAStaleTemperature) {
    Bed bed;
    for (int i = 0; i < 12; ++i) bed.power.add_iteration(one_slow(640, GpuTemperature{60}));
    for (int i = 0; i < 20; ++i)
        bed.power.add_iteration(one_slow(640, GpuTemperature{60, Seconds{60}}));
    EXPECT_FALSE(bed.power.next_write());
}

TEST(NodePower, LowersBeforeItRaisesAndWaitsForEachAnswer) {
    Bed bed;
    for (int i = 0; i < 16; ++i) bed.power.add_iteration(one_slow(640));
    for (int lowered = 0; lowered < 7; ++lowered) {
        const auto next = bed.power.next_write();
        ASSERT_TRUE(next);
        EXPECT_LT(next->gpu, 7U);
        EXPECT_EQ(bed.power.next_write(), next) << "before the answer";
        bed.power.written(next->gpu == 2 ? Watts{found_limit} : next->limit);  // one does not take
        if (next->gpu == 2) --lowered;
        if (bed.power.refused() == 3) break;
    }
    EXPECT_EQ(bed.power.refused(), 3U) << "then it is left alone";
    while (const auto next = bed.power.next_write()) bed.power.written(next->limit);
    EXPECT_EQ(bed.power.limit(2), Watts{found_limit});
    EXPECT_GT(bed.power.limit(7), Watts{found_limit});
    EXPECT_LE(bed.power.highest_sum(), bed.power.cap());
}

TEST(NodePower, LowersOthersWhereALimitWasRaisedFromOutside) {
    Bed bed;
    bed.power.observe(0, {740});
    while (const auto next = bed.power.next_write()) {
        EXPECT_NE(next->gpu, 0U) << "it is somebody else's";
        bed.power.written(next->limit);
    }
    EXPECT_LE(bed.power.highest_sum(), bed.power.cap());
}

TEST(NodePower, LowersLimitsThatWereFoundAboveTheCap) {
    NodePowerOptions options;
    options.cap = {4800};
    NodePower power{std::vector<NodeGpu>(8, NodeGpu{mi300x_range, {found_limit}}), options};
    while (const auto next = power.next_write()) power.written(next->limit);
    EXPECT_EQ(power.highest_sum(), Watts{4800});
    options.cap = {2000};
    EXPECT_THROW(NodePower(std::vector<NodeGpu>(8, NodeGpu{mi300x_range, {found_limit}}), options),
                 Error);
    EXPECT_THROW(NodePower(std::vector<NodeGpu>(1, NodeGpu{mi300x_range, {found_limit}})), Error);
    EXPECT_THROW(power.add_iteration({}), Error);
}

/// A board whose limit goes wrong in every way.
struct FaultyBoard {
    double held = found_limit;
    std::optional<double> late{};  ///< comes to hold later
    bool gone = false;
    bool deaf = false;  ///< takes no limit

    void set(double limit, unsigned luck) {
        if (gone) return;
        late.reset();
        if (deaf || luck % 8 == 0) return;  // reports success, or fails
        if (luck % 8 == 1)
            late = limit;
        else if (luck % 512 == 2)
            held = 250;  // below its range
        else
            held = limit;
    }
    void pass() {
        if (late && !gone) held = *std::exchange(late, std::nullopt);
    }
};

TEST(NodePower, NeverExceedsTheCapWhateverFails) {
    constexpr int steps = 1'000'000;
    const ModelNode node{0.8};
    NodePowerOptions options;
    options.window = 3;
    options.settle = 0;
    options.retry_after = 10;
    options.hottest_celsius = 95;
    Bed bed{options};
    std::vector<FaultyBoard> boards(8);
    std::mt19937 random{3};
    double highest = 0;
    std::size_t writes = 0;
    const auto check = [&] {
        double sum = 0;
        for (const FaultyBoard& board : boards) sum += board.held;
        highest = std::max(highest, sum);
    };
    std::vector<std::optional<GpuIteration>> all(8);
    std::vector<double> seconds(8);
    for (int step = 0; step < steps; ++step) {
        for (std::size_t i = 0; i < 8; ++i) {
            const auto luck = static_cast<unsigned>(random());
            FaultyBoard& board = boards[i];
            board.pass();
            if (luck % (board.gone ? 64 : 4096) == 0) board.gone = !board.gone;
            if (luck % (board.deaf ? 64 : 4096) == 1) board.deaf = !board.deaf;
            // The model's time, to first order: a power function for each would take seconds.
            const double clock = node.clocks[(i + static_cast<std::size_t>(step) / 50) % 8];
            const double time = 1 / clock - 0.4 * (board.held / found_limit - 1);
            const std::optional<GpuTemperature> temperature =
                luck % 64 == 2 ? std::nullopt
                               : std::optional{GpuTemperature{60.0 + luck % 37,
                                                              Seconds{luck % 128 == 3 ? 99.0 : 0}}};
            all[i] = GpuIteration{Seconds{time}, Seconds{0}, {board.held}, temperature};
            if (luck % 16 == 4) all[i] = std::nullopt;
            if (luck % 16 == 5) all[i]->compute = Seconds{std::numeric_limits<double>::quiet_NaN()};
            if (luck % 1024 == 6) all[i]->compute = Seconds{-1};
            if (luck % 1024 == 7) all[i]->power = {std::numeric_limits<double>::infinity()};
        }
        check();
        bed.power.add_iteration(all);
        while (const auto next = bed.power.next_write()) {
            FaultyBoard& board = boards[next->gpu];
            board.set(next->limit.count, static_cast<unsigned>(random()));
            ++writes;
            check();
            if (board.gone || random() % 32 == 0)
                bed.power.written(std::nullopt);
            else if (random() % 64 == 0)
                bed.power.written(Watts{0});
            else
                bed.power.written(Watts{board.held});
        }
    }
    std::printf(
        "simulated, %d steps with faults: %zu writes, %zu did not take, at most %.0f of "
        "%.0f W\n",
        steps, writes, bed.power.refused(), highest, bed.power.cap().count);
    EXPECT_LE(highest, bed.power.cap().count);
    EXPECT_GT(highest, 0.99 * bed.power.cap().count);
    EXPECT_GT(writes, 100'000U);
    EXPECT_GT(bed.power.refused(), 10'000U);

    // Nothing is lost for good: once all goes well, the optimum is found.
    for (int step = 0; step < 1000; ++step) {
        for (std::size_t i = 0; i < 8; ++i)
            all[i] = GpuIteration{Seconds{node.seconds(i, boards[i].held)},
                                  Seconds{0},
                                  {boards[i].held},
                                  GpuTemperature{60}};
        bed.power.add_iteration(all);
        while (const auto next = bed.power.next_write()) {
            boards[next->gpu].held = next->limit.count;
            bed.power.written(next->limit);
        }
    }
    const double best = best_seconds(
        [&](bool last, double watts) { return node.seconds(last ? 7 : 0, watts); }, 0.5, 2);
    std::vector<double> held;
    for (const FaultyBoard& board : boards) held.push_back(board.held);
    EXPECT_LE(node.slowest(held), 1.005 * best);
}

TEST(NodePower, CountsWhatABoardRoundsUp) {
    Bed bed;
    const auto write = [&](double rounding) {
        while (const auto next = bed.power.next_write()) {
            bed.held[next->gpu] = next->limit.count + rounding;
            bed.power.written(Watts{bed.held[next->gpu]});
        }
    };
    for (int i = 0; i < 100; ++i) {
        bed.power.add_iteration(one_slow(640));
        write(0.6);
    }
    EXPECT_GT(bed.held[7], found_limit);
    EXPECT_LE(bed.sum(), bed.power.cap().count);
    EXPECT_EQ(bed.power.highest_sum(), Watts{bed.sum()});
}

/// A board that says when its limit was set.
struct WatchedLimit : PowerLimitDouble {
    std::function<void()> was_set{};

    void set_power_limit(Watts limit) {
        PowerLimitDouble::set_power_limit(limit);
        if (was_set) was_set();
    }
};

TEST(NodePowerGuard, MovesAndRestoresTheLimitsOfBoards) {
    std::vector<WatchedLimit> boards(4);
    std::vector<WatchedLimit*> devices;
    const auto sum = [&] {
        Watts total{};
        for (const WatchedLimit& board : boards) total = total + board.held;
        return total;
    };
    for (WatchedLimit& board : boards) {
        board.held = {250};
        board.was_set = [&] { EXPECT_LE(sum(), Watts{1000}); };
        devices.push_back(&board);
    }
    boards[1].lies = true;
    {
        NodePowerGuard<WatchedLimit> guard{devices};
        std::vector<std::optional<GpuIteration>> all(
            4, GpuIteration{Seconds{1}, Seconds{0}, {240}, {}});
        all[3]->compute = Seconds{1.2};
        for (int i = 0; i < 40; ++i) guard.add_iteration(all);
        EXPECT_GT(boards[3].held, Watts{260});
        EXPECT_LT(boards[0].held, Watts{245});
        EXPECT_GT(guard.power().refused(), 0U);
        guard.close();
        for (const WatchedLimit& board : boards) EXPECT_EQ(board.held, Watts{250});
        boards[0].held = {280};  // by somebody else
    }
    EXPECT_EQ(boards[0].held, Watts{280});
}

TEST(NodePowerGuard, LeavesNothingBehindWhereABoardFails) {
    std::vector<PowerLimitDouble> boards(2);
    std::vector<PowerLimitDouble*> devices{&boards[0], &boards[1]};
    NodePowerOptions options;
    options.cap = {500};
    boards[1].throws_after = true;
    NodePowerGuard<PowerLimitDouble> guard{devices, options};
    EXPECT_EQ(boards[0].held, Watts{250});
    EXPECT_EQ(boards[1].held, Watts{250}) << "what it holds was read back";
    EXPECT_THROW(guard.close(), Error);
    EXPECT_EQ(boards[0].held, Watts{300});
    boards[1].throws_after = false;
    guard.close();
    EXPECT_EQ(boards[1].held, Watts{300});
}

TEST(NodePowerGuard, LowersABoardThatFailedOnceItIsNoLongerLeftAlone) {
    std::vector<PowerLimitDouble> boards(2);
    std::vector<PowerLimitDouble*> devices{&boards[0], &boards[1]};
    NodePowerOptions options;
    options.cap = {500};
    options.retry_after = 10;
    boards[1].throws = true;
    NodePowerGuard<PowerLimitDouble> guard{devices, options};
    EXPECT_EQ(guard.power().left_alone(), 1U);
    EXPECT_EQ(boards[1].held, Watts{300});
    boards[1].throws = false;
    // Alike: nothing is decided.
    const std::vector<std::optional<GpuIteration>> all(
        2, GpuIteration{Seconds{1}, Seconds{0}, {190}, {}});
    for (int i = 0; i < 9; ++i) guard.add_iteration(all);
    EXPECT_EQ(boards[1].held, Watts{300});
    guard.add_iteration(all);
    EXPECT_EQ(guard.power().decisions(), 0U);
    EXPECT_LT(boards[1].held, Watts{300});
    EXPECT_LE(boards[0].held + boards[1].held, Watts{500});
}

TEST(NodePower, RefusesToRetryAfterNoIterations) {
    NodePowerOptions options;
    options.retry_after = 0;
    const std::vector<NodeGpu> gpus(2, NodeGpu{mi300x_range, {found_limit}});
    EXPECT_THROW((NodePower{gpus, options}), Error);
}

}  // namespace
}  // namespace kdvfs::train
