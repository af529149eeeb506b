// SPDX-License-Identifier: MIT
// Clocks asked for without a stream.
#include <kdvfs/detail/gpu/prepared_points.hpp>

#include <tests/gpu/rig.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace rig;

class StandingRequests : public OnSimulatedGpu {
protected:
    StandingRequests() : gpu{simulated::open(device, gpu_options()).with<Policies>()} {}
    [[nodiscard]] ClockPoint clocks() {
        device.advance(1ms);
        return device.effective_clocks();
    }

    BoundGpu<Policies> gpu;
};

TEST_F(StandingRequests, HoldTheClockFromBeginToEnd) {
    {
        const auto request = gpu.request(1100_MHz);
        EXPECT_EQ(clocks(), middle);
        run(stream, 5);
        device.synchronize(stream);
        EXPECT_EQ(probed, Clocks{middle}) << "work outside scopes runs at it";
    }
    EXPECT_EQ(clocks(), as_found);
}

TEST_F(StandingRequests, ChangeInTheHostsOrder) {
    auto request = gpu.request(ClockPoint{.core = {1100}});
    EXPECT_EQ(clocks(), middle);
    request.change(800_MHz);
    EXPECT_EQ(clocks(), slow);
    request.change(ClockPoint{});
    EXPECT_EQ(clocks(), as_found);
}

TEST_F(StandingRequests, VoteAsScopesDo) {
    auto low = std::make_optional<StandingRequest>(gpu, slow);
    {
        const StandingRequest higher{gpu, middle};
        EXPECT_EQ(clocks(), middle);
        const FrequencyScope<Free> scope{gpu, stream};
        device.synchronize(stream);
        EXPECT_EQ(clocks(), as_found) << "a scope's auto is the highest request";
    }
    device.synchronize(stream);
    EXPECT_EQ(clocks(), slow) << "only the low request is left";
    low.reset();
    EXPECT_EQ(clocks(), as_found);
    // Numbers of requests that have ended are used again, and mean the new ones.
    const auto first = gpu.request(1100_MHz);
    const auto second = gpu.request(800_MHz);
    EXPECT_EQ(clocks(), middle);
}

TEST_F(StandingRequests, ForClocksThatTheDeviceDoesNotListAreRefused) {
    try {
        const auto request = gpu.request(99999_MHz);
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_input);
        EXPECT_NE(std::string{error.what()}.find("99999"), std::string::npos) << error.what();
    }
    auto request = gpu.request(800_MHz);
    EXPECT_THROW(request.change(Megahertz{99999}), Error);
    EXPECT_EQ(clocks(), slow) << "what held before still does";
}

TEST_F(StandingRequests, KeepTheGpuOpenAndEndWithClose) {
    auto request = std::make_optional<StandingRequest>(gpu, slow);
    EXPECT_EQ(clocks(), slow);
    gpu.close();
    EXPECT_EQ(clocks(), as_found);
    request->change(middle);
    EXPECT_EQ(clocks(), as_found) << "closed is closed";
    request.reset();
}

TEST_F(StandingRequests, DoNothingInAForkedChild) {
    auto request = std::make_unique<StandingRequest>(gpu, slow);
    EXPECT_EQ(clocks(), slow);
    const pid_t child = fork();
    if (child == 0) {
        request->change(middle);
        request.reset();
        device.advance(1ms);
        _exit(device.effective_clocks() == slow ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

simulated::DeviceOptions with_points(std::vector<Watts> points) {
    simulated::DeviceOptions options = device_options();
    options.prepared_points = std::move(points);
    return options;
}

TEST(PreparedPoints, OfASimulatedGpuBoundWhatItDraws) {
    simulated::Device device{simulated::mi210(), with_points({{300}, {160}, {200}})};
    simulated::Stream* const stream = device.create_stream();
    const auto watts_of_a_run = [&] {
        const Joules before = device.true_energy();
        device.launch(stream,
                      simulated::roofline(device.board(), {.matrix_flops = 4e12}, {.matrix = 0.9}));
        const TimePoint began = device.now();
        device.synchronize(stream);
        return (device.true_energy() - before) / Seconds{device.now() - began};
    };
    const Gpu gpu = simulated::open(device, gpu_options());
    EXPECT_EQ(gpu.info().prepared_points, (std::vector<PreparedPoint>{{0}, {1}, {2}}));
    EXPECT_EQ(gpu.info().operating_point, "point 0 (300 W)");
    const Watts free = watts_of_a_run();
    EXPECT_GT(free.count, 210);
    auto outer = std::make_optional<StandingPoint>(gpu, PreparedPoint{1});
    EXPECT_LT(watts_of_a_run().count, 161);
    {
        const auto inner = gpu.request(PreparedPoint{2});
        EXPECT_NEAR(watts_of_a_run().count, 200, 2);
        outer.reset();  // in any order
        EXPECT_NEAR(watts_of_a_run().count, 200, 2);
    }
    EXPECT_NEAR(watts_of_a_run().count, free.count, 1e-6);
    EXPECT_THROW(static_cast<void>(gpu.request(PreparedPoint{3})), Error);
    const auto held = gpu.request(PreparedPoint{2});
    gpu.close();
    EXPECT_EQ(device.read_power_limit(), Watts{300});

    simulated::Device without{simulated::mi210(), device_options()};
    const Gpu plain = simulated::open(without, gpu_options());
    try {
        static_cast<void>(plain.request(PreparedPoint{0}));
        ADD_FAILURE() << "it has none";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_supported);
    }
}

/// What a test sees of a board that may accept a switch and not do it.
struct PointBoard {
    std::uint32_t held = 0;
    bool deaf = false;
};

class Points {
public:
    explicit Points(PointBoard& board) : board_{board} {}

    [[nodiscard]] const DeviceInfo& info() const { return info_; }
    [[nodiscard]] const SupportedClocks& supported_clocks() const { return none_; }
    [[nodiscard]] static std::vector<PreparedPoint> prepared_points() { return {{0}, {2}, {3}}; }
    [[nodiscard]] std::string read_operating_point() const { return std::to_string(board_.held); }
    [[nodiscard]] static ClockState state_of(PreparedPoint point) {
        return operating_point_state(point.number);
    }
    [[nodiscard]] ClockState read_clock_state() const { return state_of({board_.held}); }
    void apply(ClockPoint point) {
        if (!board_.deaf) board_.held = point.core.count;
    }
    void restore(const ClockState& state) { apply(state.cap); }

private:
    PointBoard& board_;
    DeviceInfo info_{"Board of points", "0000:c1:00.0-point", "", ""};
    SupportedClocks none_{};
};

TEST(PreparedPoints, ThatWerePutBackInVainAreNotTakenForTheFoundOne) {
    PointBoard board;
    kdvfs::detail::PreparedPointRequests requests{[&] {
        using Switch = kdvfs::detail::DevicePointSwitch<Points, Points&>;
        return std::make_unique<Switch>(std::make_unique<Points>(board));
    }};
    const std::uint64_t first = requests.begin({2});
    board.deaf = true;
    EXPECT_THROW(requests.end(first), Error);
    EXPECT_EQ(board.held, 2U);
    board.deaf = false;
    const std::uint64_t second = requests.begin({3});
    requests.end(second);
    EXPECT_EQ(board.held, 0U);
    board.held = 2;  // somebody else's, and left by the request before
    const std::uint64_t third = requests.begin({3});
    requests.end(third);
    EXPECT_EQ(board.held, 2U);
    EXPECT_FALSE(requests.close());
    EXPECT_EQ(board.held, 2U);
}

TEST(PreparedPoints, ThatWerePutBackInVainAreTriedAgainAtTheEnd) {
    PointBoard board;
    kdvfs::detail::PreparedPointRequests requests{[&] {
        using Switch = kdvfs::detail::DevicePointSwitch<Points, Points&>;
        return std::make_unique<Switch>(std::make_unique<Points>(board));
    }};
    const std::uint64_t request = requests.begin({2});
    board.deaf = true;
    EXPECT_THROW(requests.end(request), Error);
    board.deaf = false;
    EXPECT_FALSE(requests.close());
    EXPECT_EQ(board.held, 0U);
}

}  // namespace
