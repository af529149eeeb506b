// SPDX-License-Identifier: MIT
//
// Sessions of pipelines whose ranks are threads, each with a simulated GPU.
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/detail/train/pipeline_run.hpp>
#include <kdvfs/detail/train/stage_plan.hpp>
#include <kdvfs/train/folder_ranks.hpp>
#include <kdvfs/train/kernel_frontier.hpp>
#include <kdvfs/train/pipeline_case.hpp>
#include <kdvfs/train/schedules.hpp>
#include <kdvfs/train/session.hpp>

#include "simulated_pipeline.hpp"

#include <tests/restoring/temporary_folder.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <thread>

namespace training {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using train::Backward;
using train::Forward;
using Mode = tune::SessionMode;
using ThreadSession = train::Session<Policies, train::RankThreads::Rank>;

constexpr train::PipelineShape two_by_four{train::Schedule::one_f_one_b, 2, 1, 4};

const simulated::Board& board() {
    static const simulated::Board it = simulated::mi250x();
    return it;
}

const train::Pipeline& known() {
    static const train::Pipeline it = known_pipeline(board(), two_by_four);
    return it;
}

/// What an iteration took, and what all GPUs used in it.
struct Iteration {
    double seconds = 0;
    double joules = 0;
};

/// Runs `body(rank, stage, session ranks, channel)` on a thread for each stage of each copy.
template <class Body>
void on_threads(std::uint32_t copies, Duration latency, Body body) {
    const std::uint32_t count = two_by_four.stages * copies;
    train::RankThreads ranks{count};
    ThreadMail mail{count};
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < count; ++r)
        threads.emplace_back([&, r] {
            auto channel = mail.channel(r);
            auto rank = ranks.rank(r);
            Stage stage{known(), r / copies, r % copies, copies, latency};
            try {
                body(r, stage, rank, channel);
            } catch (const Error& error) {
                ADD_FAILURE() << "rank " << r << ": " << error.what();
            }
        });
    for (std::thread& thread : threads) thread.join();
}

/// Runs iterations, and adds up what they took and used on all ranks.
template <class Session, class Channel>
Iteration mean_of(int count, Stage& stage, Session& session, Channel& channel) {
    Iteration mean;
    const Joules before = stage.device().true_energy();
    for (int i = 0; i < count; ++i) mean.seconds += stage.run(session, channel).count() / count;
    mean.joules = (stage.device().true_energy() - before).count / count;
    return mean;
}

/// One rank of a pipeline of one stage.
struct Alone {
    train::PipelineShape shape{train::Schedule::gpipe, 1, 1, 2};
    train::Pipeline pipeline = known_pipeline(board(), shape);
    train::RankThreads ranks{1};
    train::RankThreads::Rank rank = ranks.rank(0);
    Stage stage{pipeline, 0, 0, 1, 0ns};
    StreamRef stream = stage.device().create_stream();

    template <class Op>
    void run(ThreadSession& session, std::uint32_t microbatch) {
        const train::OpScope<Op> scope{session, stream, 0, microbatch};
        stage.device().launch(stream, work_of(board(), 0, 1, Op::pass));
    }
};

std::string message_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing was thrown";
}

TEST(Operations, AWrongOneIsRefusedAndBothAreNamed) {
    Alone alone;
    ThreadSession session{alone.stage.gpu(), alone.rank, alone.pipeline};
    session.next_iteration();
    alone.run<Forward>(session, 0);
    EXPECT_THAT(message_of([&] { alone.run<Backward>(session, 0); }),
                AllOf(HasSubstr("begin the backward of microbatch 0, chunk 0, on stage 0"),
                      HasSubstr("the next operation is the forward of microbatch 1")));
    EXPECT_THAT(message_of([&] { alone.run<Forward>(session, 0); }),
                AllOf(HasSubstr("begin the forward of microbatch 0"),
                      HasSubstr("the next operation is the forward of microbatch 1")));
    alone.run<Forward>(session, 1);  // the place is not lost
    EXPECT_THAT(message_of([&] { session.next_iteration(); }),
                HasSubstr("the backward of microbatch 0, chunk 0, on stage 0, has not been run"));
    session.next_iteration();
    for (const std::uint32_t m : {0U, 1U}) alone.run<Forward>(session, m);
    {
        const train::OpScope<Backward> open{session, alone.stream, 0, 0};
        EXPECT_THAT(message_of([&] { alone.run<Backward>(session, 1); }),
                    HasSubstr("backward of microbatch 0, chunk 0, on stage 0, has not ended"));
    }
    alone.run<Backward>(session, 1);
    EXPECT_THAT(message_of([&] { alone.run<Forward>(session, 0); }), HasSubstr("next_iteration()"));
    session.check();
}

/// As after the hooks of a framework are lost, or where a program evaluates.
TEST(Operations, AnIterationWithoutAnyHoldsNoClockBeyondItself) {
    Alone alone;
    train::SessionOptions options;
    options.plan.slowdown = 0.1;
    ThreadSession session{alone.stage.gpu(), alone.rank, alone.pipeline, options};
    simulated::Device& device = alone.stage.device();
    const auto run_all = [&] {
        for (const std::uint32_t m : {0U, 1U}) alone.run<Forward>(session, m);
        for (const std::uint32_t m : {0U, 1U}) alone.run<Backward>(session, m);
        device.synchronize(alone.stream);
    };
    const auto clock_without_operations = [&] {
        session.next_iteration();
        device.launch(alone.stream, work_of(board(), 0, 1, train::Pass::forward));
        device.synchronize(alone.stream);
        return device.effective_clocks();
    };
    session.next_iteration();
    run_all();
    testing::internal::CaptureStderr();
    EXPECT_NE(clock_without_operations(), ClockPoint{}) << "that of the first operation";
    for (int i = 0; i < 3; ++i) EXPECT_EQ(clock_without_operations(), ClockPoint{});
    for (int i = 0; i < 2; ++i) {  // operations are as before
        session.next_iteration();
        run_all();
    }
    EXPECT_NE(clock_without_operations(), ClockPoint{});
    EXPECT_EQ(clock_without_operations(), ClockPoint{});
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("ran no operation"));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);

    session.next_iteration();
    alone.run<Forward>(session, 0);
    EXPECT_THAT(message_of([&] { session.next_iteration(); }), HasSubstr("has not been run"));
    EXPECT_EQ(clock_without_operations(), ClockPoint{}) << "after an iteration that broke off";
    session.check();
}

/// Two kernels in turn, one bound by the core and one by the memory, each at its own clock.
TEST(Operations, HaveClocksByKernel) {
    Alone alone;
    simulated::Device& device = alone.stage.device();
    const std::vector<simulated::KernelModel> kernels{
        {.core_time = Seconds{0.01}, .core_energy = {3}},
        {.core_time = Seconds{0.002}, .memory_time = Seconds{0.01}, .core_energy = {1}}};
    tune::CostTable table{"simulated", {}, {}, {}};
    for (const simulated::KernelModel& model : kernels) {
        tune::KernelCosts costs{{"k" + std::to_string(table.kernels.size()), {}}, "", 1, {}, 0};
        for (const Megahertz core : curve_clocks(board())) {
            const auto at = simulated::operate(board(), model, {core, auto_clock});
            costs.points.push_back({{core, auto_clock}, {at.time, at.power * at.time}});
        }
        costs.baseline = costs.points.size() - 1;
        table.baseline = costs.points.back().clock;
        table.kernels.push_back(std::move(costs));
    }
    const std::vector<std::size_t> launches{0, 1, 0, 1};
    const Watts blocking = simulated::idle_power(board(), {});
    const train::KernelFrontier frontier{table, launches, tune::SwitchCosts{}, blocking};
    const train::Pipeline pipeline = train::make_pipeline(
        alone.shape, {{{0, train::Pass::forward, 0}, 0}, {{0, train::Pass::backward, 0}, 1}},
        {frontier.curve("forward"), frontier.curve("backward")}, blocking);
    const std::vector<const train::KernelFrontier*> its{&frontier, &frontier};
    train::SessionOptions options;
    options.plan = {.slowdown = 0.05, .kernels = its};
    ThreadSession session{alone.stage.gpu(), alone.rank, pipeline, options};
    std::vector<ClockPoint> held;
    std::vector<ClockPoint> planned;
    session.next_iteration();
    const train::StagePlan& plan = session.first_plan();
    for (std::size_t k = 0; k < plan.operations.size(); ++k) {
        const train::Operation& operation = plan.operations[k].operation;
        train::OperationScope scope{session, alone.stream, operation.pass, 0, operation.microbatch};
        double whole = 0;
        for (const std::size_t l : launches)
            whole += table.kernels[l].points.back().cost.time.count();
        double done = 0;
        ClockPoint now = plan.operations[k].first;
        for (const std::size_t l : launches) {
            scope.reached(done / whole + 1e-12);
            for (const train::ClockChange& change : plan.changes[k])
                if (change.share <= done / whole + 1e-12) now = change.clock;
            device.launch(alone.stream, kernels[l]);
            device.call_back(alone.stream, [&] { held.push_back(device.effective_clocks()); });
            planned.push_back(now);
            done += table.kernels[l].points.back().cost.time.count();
        }
    }
    device.synchronize(alone.stream);
    EXPECT_EQ(held, planned);
    EXPECT_NE(planned[0], planned[1]);
    session.check();
}

/// A forward over a backward, and what runs once in an iteration.
TEST(Operations, OfAWholeIterationHaveScopes) {
    Alone alone;
    train::PipelineShape shape = train::parse_schedule("F0 B0+F1 B1");
    shape.before = {{train::Pass::embedding}};
    shape.after = {{train::Pass::collective}, {train::Pass::optimizer}};
    ThreadSession session{alone.stage.gpu(), alone.rank, shape};
    for (int iteration = 0; iteration < 2; ++iteration) {
        session.next_iteration();
        alone.run<train::Embedding>(session, 0);
        alone.run<Forward>(session, 0);
        EXPECT_THAT(message_of([&] { alone.run<Forward>(session, 1); }),
                    HasSubstr("forward_backward of microbatch 1, chunk 0, on stage 0, over the "
                              "backward of microbatch 0, chunk 0"));
        alone.run<train::ForwardBackward>(session, 1);
        alone.run<Backward>(session, 1);
        alone.run<train::StageCollective>(session, 0);
        EXPECT_THAT(message_of([&] { session.next_iteration(); }), HasSubstr("optimizer"));
        session.next_iteration();
        alone.run<train::Embedding>(session, 0);
        alone.run<Forward>(session, 0);
        alone.run<train::ForwardBackward>(session, 1);
        alone.run<Backward>(session, 1);
        alone.run<train::StageCollective>(session, 0);
        alone.run<train::Optimizer>(session, 0);
    }
    session.check();
}

/// As with zero bubbles, or a forward beside a backward: two operations are open at once on two
/// streams. The board is at the higher of their clocks, each is measured as its own, and the plan
/// is judged as one of operations in turn.
TEST(Operations, OfTwoStreamsMayOverlap) {
    Alone alone;
    simulated::Device& device = alone.stage.device();
    const StreamRef second = device.create_stream();
    train::PlannedClocks planned[2];
    {
        train::SessionOptions options;
        options.plan = {.slowdown = 0.2};
        ThreadSession session{alone.stage.gpu(), alone.rank, alone.pipeline, options};
        const auto work = work_of(board(), 0, 1, train::Pass::forward);
        std::vector<ClockPoint> held;
        const auto note = [&](StreamRef stream) {
            device.call_back(stream, [&] { held.push_back(device.effective_clocks()); });
        };
        for (int iteration = 0; iteration < 3; ++iteration) {
            session.next_iteration();
            for (int k = 0; k < 2; ++k) planned[k] = session.first_plan().operations[1 + k];
            alone.run<Forward>(session, 0);
            train::OpScope<Forward> forward{session, alone.stream, 0, 1};
            device.launch(alone.stream, work);
            note(alone.stream);
            train::OpScope<Backward> backward{session, second, 0, 0};
            EXPECT_THAT(message_of([&] { alone.run<Backward>(session, 1); }),
                        HasSubstr("forward of microbatch 1, chunk 0, on stage 0, has not ended"));
            device.launch(second, work);
            device.synchronize(alone.stream);
            device.synchronize(second);
            note(second);
            device.synchronize(second);
            forward.close();  // in another order than they began
            device.synchronize(alone.stream);
            device.advance(1ms);
            device.launch(second, work);
            note(second);
            backward.close();
            device.synchronize(second);
            alone.run<Backward>(session, 1);
            device.synchronize(alone.stream);
        }
        const auto highest = std::max(planned[0].first.core, planned[1].first.core);
        ASSERT_EQ(held.size(), 9U);
        for (std::size_t i = 0; i < held.size(); i += 3) {
            EXPECT_EQ(held[i + 1].core, highest);
            EXPECT_EQ(held[i + 2].core, planned[1].first.core);
        }
        session.check();
        std::map<std::string, std::uint64_t> calls;
        for (const auto& row : session.report().rows) calls[row.kernel.name] = row.calls;
        EXPECT_EQ(calls["forward"], 6U);
        EXPECT_EQ(calls["backward"], 6U);
    }
    // Nothing is asked for any more.
    alone.stage.device().advance(10ms);
    EXPECT_EQ(device.effective_clocks().core, auto_clock);
}

TEST(Operations, HaveTheClocksOfThePlanFromTheirFirstMomentToTheirLast) {
    for (const train::Clocks clocks : {train::Clocks::one, train::Clocks::two}) {
        Alone alone;
        train::SessionOptions options;
        options.plan = {.slowdown = 0.1, .clocks = clocks};
        ThreadSession session{alone.stage.gpu(), alone.rank, alone.pipeline, options};
        simulated::Device& device = alone.stage.device();
        std::vector<ClockPoint> held;
        std::vector<ClockPoint> planned;
        session.next_iteration();
        for (const train::PlannedClocks& plan : session.first_plan().operations) {
            const auto run = [&]<class Op>(Op) {
                train::OpScope<Op> scope{session, alone.stream, 0, plan.operation.microbatch};
                device.launch(alone.stream, {.core_time = Seconds{0.01}});
                device.call_back(alone.stream, [&] { held.push_back(device.effective_clocks()); });
                scope.reached(plan.share / 2);
                device.launch(alone.stream, {.core_time = Seconds{0.01}});
                device.call_back(alone.stream, [&] { held.push_back(device.effective_clocks()); });
                scope.reached(plan.share);
                device.launch(alone.stream, {.core_time = Seconds{0.01}});
                device.call_back(alone.stream, [&] { held.push_back(device.effective_clocks()); });
            };
            if (plan.operation.pass == train::Pass::forward)
                run(Forward{});
            else
                run(Backward{});
            planned.insert(planned.end(), {plan.first, plan.first, plan.second});
            device.synchronize(alone.stream);
        }
        EXPECT_EQ(held, planned);
        const bool has_two = std::any_of(
            session.first_plan().operations.begin(), session.first_plan().operations.end(),
            [](const train::PlannedClocks& plan) { return plan.first != plan.second; });
        EXPECT_EQ(has_two, clocks == train::Clocks::two);
        device.advance(1ms);
        EXPECT_EQ(device.effective_clocks(), ClockPoint{}) << "behind the last operation";
        session.check();
    }
}

TEST(Sessions, FollowAPlanInTheProgramAsItPromises) {
    std::array<Iteration, 2> live;
    std::array<Iteration, 2> before;
    train::StagePlan plan;
    on_threads(1, 1ms, [&](std::uint32_t r, Stage& stage, auto& rank, auto& channel) {
        {
            ThreadSession session{stage.gpu(), rank, known(), in_mode({Mode::Kind::measure, {}})};
            before[r] = mean_of(3, stage, session, channel);
            EXPECT_EQ(session.phase(), train::SessionPhase::measuring);
        }
        ThreadSession session{stage.gpu(), rank, known()};
        EXPECT_EQ(session.phase(), train::SessionPhase::following);
        live[r] = mean_of(4, stage, session, channel);
        if (r == 0) plan = session.first_plan();
        session.check();
        EXPECT_EQ(stage.gpu().report().scopes.refused, 0U);
    });
    const double joules = live[0].joules + live[1].joules;
    const double saved = 1 - joules / (before[0].joules + before[1].joules);
    const double promised = 1 - plan.total.count / (before[0].joules + before[1].joules);
    EXPECT_NEAR(live[0].seconds / plan.time.count(), 1, 0.005);
    EXPECT_NEAR(joules / plan.total.count, 1, 0.01);
    EXPECT_GT(promised, 0.02);
    EXPECT_GT(saved, 0.9 * promised);
}

/// The simulated boards' own joules, with waits at their clock and without it, at clocks that come
/// late. The plan is for the shortest iteration, so that waits are nearly all that differs.
struct Epoch : Kernel<"epoch"> {};

TEST(Sessions, LeaveAScopeAroundTheirIterationsWhole) {
    Alone alone;
    ThreadSession session{alone.stage.gpu(), alone.rank, alone.pipeline};
    for (int epoch = 0; epoch < 3; ++epoch) {
        const FrequencyScope<Epoch> around{alone.stage.gpu(), alone.stream};
        for (int i = 0; i < 4; ++i) {
            session.next_iteration();
            for (const std::uint32_t m : {0U, 1U}) alone.run<Forward>(session, m);
            for (const std::uint32_t m : {0U, 1U}) alone.run<Backward>(session, m);
        }
    }
    session.check();
    alone.stage.device().synchronize(alone.stream);
    const measure::Report report = alone.stage.gpu().report();
    const auto row = std::find_if(report.rows.begin(), report.rows.end(),
                                  [](const auto& each) { return each.kernel.name == "epoch"; });
    ASSERT_NE(row, report.rows.end());
    EXPECT_EQ(row->metered_calls, 3U);
    const auto level = std::find_if(report.levels.begin(), report.levels.end(),
                                    [](const auto& each) { return each.scope.name == "epoch"; });
    ASSERT_NE(level, report.levels.end());
    EXPECT_GE(level->runs, 2U) << "all but the last, which may end behind the last sample";
}

TEST(Sessions, WaitAtTheClockOfLeastPower) {
    constexpr train::PipelineShape shape{train::Schedule::one_f_one_b, 4, 1, 6};
    simulated::Board stays_up = board();
    stays_up.idle_core = auto_clock;
    for (const Duration latency : {Duration{1ms}, Duration{10ms}}) {
        std::array<Iteration, 2> live;
        std::array<train::StagePlan, 2> plans;
        for (const bool by_clock : {false, true}) {
            const train::Pipeline pipeline = known_pipeline(stays_up, shape, by_clock);
            train::RankThreads ranks{shape.stages};
            ThreadMail mail{shape.stages};
            std::mutex mutex;
            std::vector<std::thread> threads;
            for (std::uint32_t r = 0; r < shape.stages; ++r)
                threads.emplace_back([&, r] {
                    auto channel = mail.channel(r);
                    auto rank = ranks.rank(r);
                    Stage stage{pipeline, r, 0, 1, latency, stays_up};
                    train::SessionOptions options;
                    options.plan.switching = tune::SwitchDelay{latency, latency / 10};
                    ThreadSession session{stage.gpu(), rank, pipeline, options};
                    mean_of(1, stage, session, channel);
                    const Iteration mine = mean_of(4, stage, session, channel);
                    session.check();
                    EXPECT_EQ(session.phase(), train::SessionPhase::following);
                    const std::lock_guard lock{mutex};
                    live[by_clock].seconds = std::max(live[by_clock].seconds, mine.seconds);
                    live[by_clock].joules += mine.joules;
                    if (r == 0) plans[by_clock] = session.first_plan();
                });
            for (std::thread& thread : threads) thread.join();
        }
        const double saved = 1 - live[1].joules / live[0].joules;
        const double slower = live[1].seconds / live[0].seconds - 1;
        std::printf(
            "simulated MI250X whose clock stays up, 4 x 6, latency %g ms: waits at their clock "
            "save %.2f %% at %+.3f %% "
            "time; %.1f J of %.1f J planned\n",
            Seconds{latency}.count() * 1e3, 100 * saved, 100 * slower, live[1].joules,
            plans[1].total.count);
        EXPECT_LE(slower, 0.002);
        EXPECT_LE(live[1].seconds, 1.005 * plans[1].time.count());
        EXPECT_GT(saved, 0.003);
        EXPECT_NEAR(live[1].joules / plans[1].total.count, 1, 0.02);
    }
}

/// What `kdvfs measure-latency` has kept is obeyed by plans that are told of no latency.
TEST(Sessions, PlanForTheLatencyThatWasMeasuredOnThisGpu) {
    const TemporaryFolder folder;
    ::setenv("XDG_DATA_HOME", folder.at("data").c_str(), 1);
    train::PlanOptions options;
    options.switching = {Seconds{0.05}, Seconds{0.02}};
    const train::StagePlan late = train::parse_stage_plan(
        train::make_plan_text(train::Frontier{known()}, options), known(), 0);
    on_threads(1, 50ms, [&](std::uint32_t r, Stage& stage, auto& rank, auto&) {
        if (r == 0) {
            const auto path = tune::switch_latency_paths(gpu_name(stage.gpu().info())).front();
            std::filesystem::create_directories(path.parent_path());
            std::ofstream{path} << "from_core_mhz,from_mem_mhz,to_core_mhz,to_mem_mhz,latency_s,"
                                   "transition_s\n1700,-1,1350,-1,0.05,0.02\n";
        }
        ThreadSession session{stage.gpu(), rank, known()};
        ASSERT_EQ(session.phase(), train::SessionPhase::following);
        if (r == 0) {
            EXPECT_EQ(session.first_plan().total, late.total);
        }
    });
    ::unsetenv("XDG_DATA_HOME");
    const train::StagePlan prompt =
        train::parse_stage_plan(train::make_plan_text(train::Frontier{known()}, {}), known(), 0);
    EXPECT_GT(late.total, prompt.total) << "a late clock saves less";
}

TEST(Sessions, SweepTheirOperationsPlanAndGoOnWithThePlan) {
    const TemporaryFolder folder;
    const std::filesystem::path file = folder.at("case.json");
    train::SessionOptions options = in_mode({Mode::Kind::sweep, file});
    for (const std::uint32_t mhz : {1700U, 1500U, 1350U, 1200U, 1000U})
        options.sweep_clocks.push_back({mhz});
    std::array<Iteration, 2> live;
    train::StagePlan plan;
    on_threads(1, 1ms, [&](std::uint32_t r, Stage& stage, auto& rank, auto& channel) {
        ThreadSession session{stage.gpu(), rank, two_by_four, options};
        int iterations = 0;
        std::vector<ClockPoint> clocks;
        while (session.phase() != train::SessionPhase::following && ++iterations < 400)
            stage.run(session, channel);
        session.check();
        ASSERT_EQ(session.phase(), train::SessionPhase::following);
        EXPECT_EQ(session.blocks().second, 9U);  // four, and the stretches at 1700 MHz beside them
        stage.run(session, channel);
        live[r] = mean_of(3, stage, session, channel);
        if (r == 0) plan = session.first_plan();
        EXPECT_EQ(session.measured().has_value(), r == 0) << "rank 0 plans";
    });
    // What was measured is what the board's model says, and the file holds it.
    const train::Pipeline measured = train::read_pipeline_case(file).pipeline;
    for (const train::Operation& operation : measured.operations)
        for (const train::CurvePoint& point : measured.curves[operation.curve].points()) {
            const auto truth = simulated::operate(
                board(), work_of(board(), operation.stage, 2, operation.pass), point.clock);
            EXPECT_NEAR(point.time / truth.time, 1, 0.002) << to_string(operation);
            EXPECT_NEAR(point.energy / (truth.power * truth.time), 1, 0.02) << to_string(operation);
        }
    EXPECT_NEAR(measured.blocking_power.count, simulated::idle_power(board(), {}).count, 5);
    EXPECT_NEAR(live[0].seconds / plan.time.count(), 1, 0.005);
    EXPECT_NEAR((live[0].joules + live[1].joules) / plan.total.count, 1, 0.01);

    // The next run follows the file; one with other microbatches does not, and says why.
    options.mode = Mode{Mode::Kind::follow, file};
    on_threads(1, 0ns, [&](std::uint32_t, Stage& stage, auto& rank, auto&) {
        const ThreadSession session{stage.gpu(), rank, two_by_four, options};
        EXPECT_NEAR(session.first_plan().time / plan.time, 1, 1e-9);
        train::PipelineShape other = two_by_four;
        other.microbatches = 6;
        EXPECT_THAT(message_of([&] {
                        ThreadSession{stage.gpu(), rank, other, options};
                    }),
                    AllOf(HasSubstr("it is of another pipeline: 1f1b of 2 stages and 4"),
                          HasSubstr("the program runs 1f1b of 2 and 6")));
        train::SessionOptions again = options;
        again.mode = Mode{Mode::Kind::sweep, file};
        EXPECT_THAT(message_of([&] {
                        ThreadSession{stage.gpu(), rank, two_by_four, again};
                    }),
                    HasSubstr("exists already"));
    });
}

/// What a job of two stages did by itself.
struct TunedRun {
    std::vector<double> passed;  ///< seconds at each iteration's end
    std::vector<double> energy;  ///< joules of both ranks, likewise
    std::size_t first_low = 0;   ///< iteration that first ran at another clock than as found
    std::size_t planned = 0;     ///< in which a plan was followed first
    std::size_t swept = 0;       ///< iterations in which others were explored
    std::size_t low_after = 0;   ///< iterations behind the change until the plan was left
    std::optional<tune::Saving> saving;
    tune::Saving proven;           ///< the last that had an interval
    std::size_t proven_after = 0;  ///< iterations
};
TunedRun run_tuned(const Mode& mode, std::size_t iterations, double slower_after = 1) {
    train::SessionOptions options = in_mode(mode);
    for (const std::uint32_t mhz : {1700U, 1500U, 1350U, 1200U, 1000U})
        options.sweep_clocks.push_back({mhz});
    std::array<TunedRun, 2> runs;
    on_threads(1, 5ms, [&](std::uint32_t r, Stage& stage, auto& rank, auto& channel) {
        ThreadSession session{stage.gpu(), rank, two_by_four, options};
        TunedRun& run = runs[r];
        double passed = 0;
        const Joules before = stage.device().true_energy();
        for (std::size_t i = 0; i < iterations; ++i) {
            if (i == iterations / 2) stage.slow_down(slower_after);
            passed += stage.run(session, channel).count();
            const auto saving = session.saving();
            if (saving && saving->phase == tune::RunPhase::plan)
                std::this_thread::sleep_for(200ms);  // rank 0 plans in the host's time
            run.passed.push_back(passed);
            run.energy.push_back((stage.device().true_energy() - before).count);
            if (saving && saving->energy) {
                run.proven = *saving;
                run.proven_after = i;  // of those before it
            }
            run.swept += session.phase() == train::SessionPhase::sweeping ? 1 : 0;
            if (i == iterations / 2 + run.low_after &&
                session.phase() == train::SessionPhase::following)
                ++run.low_after;
            const bool low = session.phase() == train::SessionPhase::sweeping ||
                             session.phase() == train::SessionPhase::following;
            if (low && run.first_low == 0) run.first_low = i;
            if (session.phase() == train::SessionPhase::following && run.planned == 0)
                run.planned = i;
        }
        session.check();
        run.saving = session.saving();
    });
    for (std::size_t i = 0; i < iterations; ++i) runs[0].energy[i] += runs[1].energy[i];
    if (runs[0].saving) {
        EXPECT_EQ(runs[0].saving->saved.count, runs[1].saving->saved.count) << "all know the same";
    }
    return runs[0];
}

TEST(Sessions, TuneThemselvesWithinARunAndTheNextOneBeginsWithWhatIsKnown) {
    const TemporaryFolder folder;
    ::setenv("KDVFS_STORE", folder.at("store").c_str(), 1);
    constexpr std::size_t iterations = 1300;
    const TunedRun found = run_tuned({Mode::Kind::measure, {}}, iterations);
    for (const bool second : {false, true}) {
        const TunedRun run = run_tuned({Mode::Kind::tune, {}}, iterations);
        ASSERT_TRUE(run.saving);
        const tune::Saving& saving = *run.saving;
        const double saved = found.energy.back() - run.energy.back();
        double beyond = -1e9;
        for (std::size_t i = 0; i < iterations; ++i) {
            const double lost = run.passed[i] - found.passed[i];
            beyond = std::max(beyond, lost - 20 - 0.01 * found.passed[i]);
        }
        std::printf(
            "simulated, 2 x 4, %s run of %.0f s: plan after %.0f s, saved %.0f J in truth "
            "(%.2f %%), lost %.1f s; %s\n",
            second ? "second" : "first", run.passed.back(), run.passed[run.planned], saved,
            100 * saved / found.energy.back(), run.passed.back() - found.passed.back(),
            to_string(saving).c_str());
        ASSERT_GT(run.proven_after, 0U);
        const std::size_t at = run.proven_after - 1;
        const double truth = found.energy[at] - run.energy[at];
        EXPECT_GE(run.first_low, 20U) << "steady first";
        EXPECT_LT(beyond, 0);
        EXPECT_GT(saved, 0.02 * found.energy.back());
        EXPECT_GT(run.proven.saved_low.count, 0) << "known";
        EXPECT_LE(run.proven.saved_low.count, truth);
        EXPECT_GE(run.proven.saved_high.count, truth);
        EXPECT_EQ(run.swept > 0, !second);
    }
    // All operations become slower: the plan is left, and another one is made.
    const TunedRun changed = run_tuned({Mode::Kind::tune, {}}, 1000, 1.2);
    ASSERT_TRUE(changed.saving);
    EXPECT_EQ(changed.saving->changes, 1U);
    EXPECT_GT(changed.low_after, 0U);
    EXPECT_LE(changed.low_after, 20U);
    EXPECT_GT(changed.swept, 0U);
    ::unsetenv("KDVFS_STORE");
}

/// Runs with a store that has the case of `known()`, until it explores or follows a plan.
/// @param times what operations take, by stage, against those of `known()`
train::SessionPhase phase_with_stored(std::array<double, 2> times) {
    const TemporaryFolder folder;
    ::setenv("KDVFS_STORE", folder.at("store").c_str(), 1);
    train::SessionOptions options = in_mode({Mode::Kind::tune, {}});
    options.sweep_clocks = {{1700}, {1500}, {1350}, {1200}, {1000}};
    train::SessionPhase reached = train::SessionPhase::off;
    on_threads(1, 5ms, [&](std::uint32_t r, Stage& stage, auto& rank, auto& channel) {
        ThreadSession session{stage.gpu(), rank, two_by_four, options};
        if (r == 0)
            for (const auto& entry : std::filesystem::directory_iterator{folder.at("store")})
                kdvfs::detail::write_file_atomically(entry.path() / "profile.pipeline.json",
                                                     train::to_case_text(known(), "stored"));
        stage.slow_down(times[r]);
        const auto is_reached = [&] {
            return session.phase() == train::SessionPhase::sweeping ||
                   session.phase() == train::SessionPhase::following;
        };
        for (int i = 0; i < 200 && !is_reached(); ++i) {
            stage.run(session, channel);
            // rank 0 plans in the host's time
            if (session.saving()->phase == tune::RunPhase::plan) std::this_thread::sleep_for(50ms);
        }
        if (r == 0) reached = session.phase();
        session.check();
    });
    ::unsetenv("KDVFS_STORE");
    return reached;
}

TEST(Sessions, TakeTheStoredCaseOfTheSameProgramAlone) {
    EXPECT_EQ(phase_with_stored({1, 1}), train::SessionPhase::following);
    EXPECT_EQ(phase_with_stored({0.6, 0.63}), train::SessionPhase::sweeping) << "shorter";
    EXPECT_EQ(phase_with_stored({1, 1.1}), train::SessionPhase::sweeping) << "one stage";
}

/// Runs a program until it follows a plan.
/// @param slower what its operations take, against those of `known()`
/// @returns the iterations in which it explored
int explored_by(double slower) {
    train::SessionOptions options = in_mode({Mode::Kind::tune, {}});
    options.sweep_clocks = {{1700}, {1500}, {1350}};
    int explored = 0;
    on_threads(1, 5ms, [&](std::uint32_t r, Stage& stage, auto& rank, auto& channel) {
        stage.slow_down(slower);
        ThreadSession session{stage.gpu(), rank, two_by_four, options};
        for (int i = 0; i < 400 && session.phase() != train::SessionPhase::following; ++i) {
            stage.run(session, channel);
            // rank 0 plans in the host's time
            if (session.saving()->phase == tune::RunPhase::plan) std::this_thread::sleep_for(20ms);
            if (r == 0 && session.phase() == train::SessionPhase::sweeping) ++explored;
        }
        session.check();
        EXPECT_EQ(session.phase(), train::SessionPhase::following);
    });
    return explored;
}

/// `known()` as a board without its highest clocks has measured it.
train::Pipeline without_clocks_above(Megahertz highest) {
    train::Pipeline pipeline = known();
    for (train::Curve& curve : pipeline.curves) {
        std::vector<train::CurvePoint> points{curve.points().begin(), curve.points().end()};
        std::erase_if(points, [&](const auto& point) { return point.clock.core > highest; });
        curve = train::Curve{curve.name(), std::move(points), pipeline.blocking_power};
    }
    return pipeline;
}

TEST(Sessions, TakeTheCaseThatIsClosest) {
    // An operation may be faster than a case of lower clocks says: that of another model, too.
    std::vector<train::RankCurves> found(known().stages);
    for (const train::Operation& operation : known().operations) {
        train::RankCurves& rank = found[operation.stage];
        rank.stage = operation.stage;
        rank.add_found({operation.pass, operation.chunk},
                       known().curves[operation.curve].points().front().time);
    }
    const Megahertz highest = known().curves.front().points().front().clock.core;
    EXPECT_NEAR(train::distance_to_case(known(), found, highest).value_or(1), 0, 1e-9);
    const auto slower = train::distance_to_case(
        without_clocks_above(Megahertz{highest.count * 9 / 10}), found, highest);
    ASSERT_TRUE(slower);
    EXPECT_GT(*slower, 0.05);
}

TEST(Sessions, KeepTheCasesOfSeveralModelsOfOneSchedule) {
    const TemporaryFolder folder;
    ::setenv("KDVFS_STORE", folder.at("store").c_str(), 1);
    EXPECT_GT(explored_by(1), 0);
    EXPECT_GT(explored_by(1.2), 0) << "another model";
    EXPECT_EQ(explored_by(1), 0);
    EXPECT_EQ(explored_by(1.2), 0);
    ::unsetenv("KDVFS_STORE");
}

/// A run that follows a plan beside a slow stage, in iterations of a second.
TEST(Sessions, KeepTheirAccountBesideASlowStage) {
    train::detail::PipelineRun run{{}, 0, 1};
    const std::array figures{1.0, 0.0, 0.0, 0.0};
    TimePoint now{};
    const auto step = [&](bool comparable) {
        run.take(figures, comparable);
        now += 1s;
        return run.next(now);
    };
    while (run.phase() == tune::RunPhase::warm_up) step(true);
    run.end_exploring();
    run.schedule().planned(5, 0.75);
    ASSERT_EQ(run.phase(), tune::RunPhase::follow);
    const double before = run.saving().passed.count();
    int found = 0;
    const int iterations = 6000;
    for (int i = 0; i < iterations; ++i)
        found += step(false).as == train::detail::PipelineRun::As::found ? 1 : 0;
    const tune::Saving saving = run.saving();
    EXPECT_EQ(run.phase(), tune::RunPhase::follow);
    EXPECT_EQ(saving.passed.count(), before + iterations);
    EXPECT_GT(saving.lost, Seconds{0});
    EXPECT_LE(saving.lost_high, saving.budget * 1.01);
    EXPECT_GT(found, 0) << "too much may be lost";
    EXPECT_GT(saving.followed.count(), iterations / 2);
}

TEST(Sessions, SayWhichSettingsOfRanksDiffer) {
    std::array<std::string, 2> samples;
    std::array<std::string, 2> slowdown;
    on_threads(1, 0ns, [&](std::uint32_t r, Stage& stage, auto& rank, auto&) {
        train::SessionOptions options = in_mode({Mode::Kind::tune, {}});
        options.samples = 1 + r;
        samples[r] = message_of([&] { ThreadSession{stage.gpu(), rank, two_by_four, options}; });
        options.samples = 1;
        options.plan.slowdown = 0.01 * (1 + r);
        slowdown[r] = message_of([&] { ThreadSession{stage.gpu(), rank, two_by_four, options}; });
    });
    EXPECT_THAT(
        samples,
        testing::Each(HasSubstr("rank 1 has other settings (samples 2; rank 0: samples 1)")));
    EXPECT_THAT(slowdown, testing::Each(HasSubstr(
                              "rank 1 has other settings (slowdown 0.02; rank 0: slowdown 0.01)")));
}

TEST(Sessions, OfAStageThatIsNoneOrOfNoStagesAreRefused) {
    Alone alone;
    train::SessionOptions options = in_mode({Mode::Kind::measure, {}});
    options.stage = 7;
    EXPECT_THAT(message_of([&] {
                    ThreadSession{alone.stage.gpu(), alone.rank, alone.pipeline, options};
                }),
                HasSubstr("rank 0: stage 7 is none"));
    EXPECT_THAT(message_of([&] {
                    ThreadSession{alone.stage.gpu(), alone.rank, train::Pipeline{}, options};
                }),
                HasSubstr("it has no stages"));
}

TEST(Ranks, ThatAreThreadsAndSendSomethingElseThanNumbersAreRefused) {
    train::RankThreads ranks{2};
    std::array rank{ranks.rank(0), ranks.rank(1)};
    rank[0].begin_max(std::array{1.0});
    rank[1].begin_max(std::array{1.0, 2.0});
    for (auto& each : rank)
        EXPECT_THAT(message_of([&] { static_cast<void>(each.end_max(5s)); }),
                    HasSubstr("a rank has sent something else"));
}

TEST(Ranks, InAFolderThatSendSomethingElseThanNumbersAreRefused) {
    const TemporaryFolder folder;
    for (const bool longer : {true, false}) {
        std::array<std::string, 2> said;
        std::vector<std::thread> threads;
        for (std::uint32_t r = 0; r < 2; ++r)
            threads.emplace_back([&, r] {
                train::FolderRanks ranks{folder.path(), longer ? "longer" : "shorter", r, 2};
                const std::vector<double> numbers((r == 1) == longer ? 3 : 2, 1.0);
                ranks.begin_max(numbers);
                said[r] = message_of([&] { static_cast<void>(ranks.end_max(5s)); });
            });
        for (std::thread& thread : threads) thread.join();
        EXPECT_THAT(said[0], HasSubstr("a rank has sent something else"));
        EXPECT_THAT(said[1], HasSubstr("agree with the other ranks"));
    }
}

TEST(Sessions, OfAWorldOfAnotherSizeOrOfDifferentProgramsEndOnAllRanks) {
    train::RankThreads ranks{3};
    std::array<std::string, 3> said;
    std::array<std::string, 3> other;
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < 3; ++r)
        threads.emplace_back([&, r] {
            auto rank = ranks.rank(r);
            Stage stage{known(), 0, 0, 1, 0ns};
            said[r] = message_of([&] { ThreadSession{stage.gpu(), rank, known()}; });
            train::PipelineShape shape{train::Schedule::gpipe, 1, 1, r == 2 ? 5U : 4U};
            const train::SessionOptions options = in_mode({Mode::Kind::measure, {}});
            other[r] = message_of([&] { ThreadSession{stage.gpu(), rank, shape, options}; });
        });
    for (std::thread& thread : threads) thread.join();
    for (std::uint32_t r = 0; r < 3; ++r) {
        EXPECT_THAT(said[r], HasSubstr("2 stages do not divide the ranks"));
        EXPECT_THAT(other[r], HasSubstr("rank 2 runs another pipeline than rank 0"));
    }
}

TEST(Sessions, AnswerAStragglerWhoseTimeIsGivenAndComeBack) {
    // Two copies of the pipeline; nothing is slow, but rank 1, of the second copy, is said to be.
    on_threads(2, 0ns, [&](std::uint32_t r, Stage& stage, auto& rank, auto& channel) {
        ThreadSession session{stage.gpu(), rank, known()};
        const Seconds wanted = session.first_plan().time;
        const auto until = [&](bool answered) {
            int count = 0;
            while (session.answers_straggler() != answered && ++count < 2000) {
                stage.run(session, channel);
                std::this_thread::sleep_for(2ms);  // rank 0 plans in the host's time
            }
            return count;
        };
        for (int i = 0; i < 3; ++i) stage.run(session, channel);
        if (r == 1) session.straggler(1, wanted * 1.2);
        EXPECT_LT(until(true), 2000) << r;
        if (r % 2 == 0) {
            EXPECT_LE(session.plan().time, wanted * 1.2);
            EXPECT_GE(session.plan().time, wanted * 1.18);
        } else {
            EXPECT_EQ(session.plan().time, wanted) << "the straggler itself";
        }
        if (r == 1) session.straggler(1, Seconds{0});
        EXPECT_LE(until(false), 3) << r;
        session.check();
    });
}

TEST(Sessions, ASlowStageIsAnsweredByAllCopiesAndOnceItIsOverTheyComeBack) {
    constexpr std::uint32_t slow_rank = 2;  // the last stage of the first copy
    std::array<Iteration, 4> alone;
    std::array<Iteration, 4> answered;
    std::array<int, 4> iterations_back{};
    on_threads(2, 0ns, [&](std::uint32_t r, Stage& stage, auto& rank, auto& channel) {
        ThreadSession session{stage.gpu(), rank, known()};
        for (int i = 0; i < 3; ++i) stage.run(session, channel);
        if (r == slow_rank) stage.slow_down(1.2);
        stage.run(session, channel);
        alone[r] = mean_of(1, stage, session, channel);  // nobody knows of it yet
        int count = 0;
        while (!session.answers_straggler() && ++count < 2000) {
            stage.run(session, channel);
            std::this_thread::sleep_for(2ms);  // rank 0 plans in the host's time
        }
        ASSERT_LT(count, 2000);
        stage.run(session, channel);
        answered[r] = mean_of(4, stage, session, channel);
        EXPECT_TRUE(session.answers_straggler());
        if (r == slow_rank) stage.slow_down(1);
        while (session.answers_straggler() && ++iterations_back[r] < 50)
            stage.run(session, channel);
        session.check();
    });
    double before = 0;
    double after = 0;
    for (std::uint32_t r = 0; r < 4; ++r) {
        EXPECT_LE(answered[r].seconds, 1.001 * alone[r].seconds) << r;
        EXPECT_LE(iterations_back[r], 3) << r;
        before += alone[r].joules;
        after += answered[r].joules;
    }
    std::cout << "simulated, one of 2 x 2 stages x 1.2: energy " << 100 * (after / before - 1)
              << " %, time " << 100 * (answered[0].seconds / alone[0].seconds - 1) << " %\n";
    EXPECT_LT(after, 0.97 * before);
}

TEST(Sessions, NameASilentRankAndGoOnAtAuto) {
    train::SessionOptions options;
    options.silence = 100ms;
    on_threads(2, 0ns, [&](std::uint32_t r, Stage& stage, auto& rank, auto& channel) {
        ThreadSession session{stage.gpu(), rank, known(), options};
        for (int i = 0; i < 3; ++i) stage.run(session, channel);
        if (r == 3) return;  // it stops here
        // The others' own messages would wait for it, too: they only begin iterations.
        for (int i = 0; i < 2; ++i) session.next_iteration();
        EXPECT_EQ(session.phase(), train::SessionPhase::alone);
        EXPECT_THAT(message_of([&] { session.check(); }), HasSubstr("rank 3: silent for 0.1"));
        session.check();  // said once
        stage.device().advance(1ms);
        EXPECT_EQ(stage.device().effective_clocks(), ClockPoint{});
    });
}

/// The curves of the pipeline with times that are off, by how much at each clock.
train::Pipeline with_times(const std::function<double(const train::Operation&, double)>& off) {
    train::Pipeline wrong = known();
    std::map<std::uint32_t, train::Operation> of;
    for (const train::Operation& operation : wrong.operations) of[operation.curve] = operation;
    for (std::uint32_t c = 0; c < wrong.curves.size(); ++c) {
        const train::Curve& curve = known().curves[c];
        std::vector<train::CurvePoint> points{curve.points().begin(), curve.points().end()};
        double top = 0;
        for (const train::CurvePoint& point : points)
            top = std::max(top, static_cast<double>(point.clock.core.count));
        for (train::CurvePoint& point : points)
            point.time = point.time * off(of[c], point.clock.core.count / top);
        wrong.curves[c] = train::Curve{curve.name(), points, wrong.blocking_power};
    }
    return wrong;
}

/// Follows a pipeline's plan until it is judged. @returns what rank 0 found out about it
train::PlanVerdict verdict_of(const train::Pipeline& pipeline, int iterations,
                              std::vector<train::SessionPhase>& phases) {
    train::PlanVerdict verdict;
    phases.assign(2, train::SessionPhase::off);
    on_threads(1, 0ns, [&](std::uint32_t r, Stage& stage, auto& rank, auto& channel) {
        ThreadSession session{stage.gpu(), rank, pipeline};
        const auto is_open = [&] {
            return session.verdict().kind == train::PlanVerdict::Kind::unresolved;
        };
        for (int i = 0; i < iterations && is_open(); ++i) stage.run(session, channel);
        phases[r] = session.phase();
        if (r == 0) verdict = session.verdict();
        session.check();
        if (session.phase() != train::SessionPhase::measuring) return;
        stage.device().advance(1ms);
        EXPECT_EQ(stage.device().effective_clocks(), ClockPoint{}) << r;
        session.next_iteration();  // and go on
    });
    return verdict;
}

TEST(Verdicts, APlanThatKeepsItsTimeIsFollowedOn) {
    std::vector<train::SessionPhase> phases;
    const train::PlanVerdict verdict = verdict_of(known(), 60, phases);
    std::cout << "simulated, true curves: " << to_string(verdict) << '\n';
    EXPECT_EQ(verdict.kind, train::PlanVerdict::Kind::kept);
    EXPECT_THAT(phases, testing::Each(train::SessionPhase::following));
    ASSERT_TRUE(verdict.operations && verdict.iterations);
    EXPECT_NEAR(verdict.operations->mean, 0, 0.1);
    EXPECT_NEAR(verdict.iterations->mean, 0, 0.2);
}

TEST(Verdicts, OperationsThreePercentLongerThanPlannedEndThePlanOnAllRanks) {
    std::vector<train::SessionPhase> phases;
    const train::PlanVerdict verdict =
        verdict_of(with_times([](const auto&, double) { return 1 / 1.03; }), 20, phases);
    std::cout << "simulated, all times 3 % too short: " << to_string(verdict) << '\n';
    EXPECT_EQ(verdict.kind, train::PlanVerdict::Kind::broken);
    EXPECT_THAT(phases, testing::Each(train::SessionPhase::measuring));
    ASSERT_TRUE(verdict.operations);
    EXPECT_NEAR(verdict.operations->mean, 3, 0.1);
}

TEST(Verdicts, AnIterationCountsOnceHoweverFarTheHostIsAhead) {
    Alone alone;
    ThreadSession session{alone.stage.gpu(), alone.rank, alone.pipeline};
    for (int i = 0; i < 60; ++i) {
        session.next_iteration();
        for (const bool forward : {true, false})
            for (const std::uint32_t m : {0U, 1U}) {
                const train::Pass pass = forward ? train::Pass::forward : train::Pass::backward;
                const train::OperationScope scope{session, alone.stream, pass, 0, m};
                alone.stage.device().launch(alone.stream,
                                            work_of(board(), 0, 1, pass, i == 0 ? 1.02 : 1));
            }
        if (i % 20 == 0) alone.stage.device().synchronize(alone.stream);
    }
    EXPECT_EQ(session.phase(), train::SessionPhase::following) << to_string(session.verdict());
    session.check();
}

TEST(Verdicts, OneStageWhoseLowClocksAreSlowerThanMeasuredEndsThePlan) {
    // At the top its times are right, so iterations as found are shorter. The stage is taken for a
    // slow one first, and answered: the answer is no better.
    const auto off = [](const train::Operation& operation, double clock) {
        return operation.stage == 1 && clock < 0.85 ? 1 / 1.1 : 1.0;
    };
    std::vector<train::SessionPhase> phases;
    const train::PlanVerdict verdict = verdict_of(with_times(off), 5000, phases);
    std::cout << "simulated, one stage's low clocks 9 % too short: " << to_string(verdict) << '\n';
    EXPECT_EQ(verdict.kind, train::PlanVerdict::Kind::broken);
    EXPECT_THAT(phases, testing::Each(train::SessionPhase::measuring));
    ASSERT_TRUE(verdict.iterations);
    EXPECT_GT(verdict.iterations->low, 0.5);
}

TEST(Verdicts, NoisyIterationsSeldomEndAGoodPlanAndSoonABrokenOne) {
    std::mt19937_64 random{7};
    std::normal_distribution<double> normal;
    const auto run = [&](double longer, double late) {
        train::PlanWatch watch{{}, 0};
        for (int i = 0; i < 1000; ++i) {
            const train::PlanWatch::Step step = watch.next(true);
            const double length =
                (step.as_found ? 1 : 1 + longer) * std::exp(0.005 * normal(random));
            if (step.pair) watch.measured(*step.pair, step.as_found, Seconds{length});
            const std::array slowness{late * std::exp(0.005 * normal(random)), 1.3};
            if (watch.look(slowness, watch.own_figures(true)).kind ==
                train::PlanVerdict::Kind::broken)
                return i;
        }
        return 1000;
    };
    int ended = 0;
    for (int i = 0; i < 200; ++i) ended += run(0.003, 1.005) < 1000 ? 1 : 0;
    EXPECT_LE(ended, 20) << "of 200 plans within what is allowed";
    for (int i = 0; i < 50; ++i) {
        EXPECT_LE(run(0.03, 1), 60) << "a slow iteration";
        EXPECT_LE(run(0, 1.03), 16) << "slow operations";
    }
}

TEST(Verdicts, OperationsMuchShorterThanPlannedEndThePlan) {
    const auto kind = [](double first, double second) {
        train::PlanWatch watch{{}, 0};
        for (int i = 0; i < 20; ++i) watch.look(std::array{first, second}, watch.own_figures(true));
        return watch.verdict().kind;
    };
    EXPECT_EQ(kind(0.6, 0.63), train::PlanVerdict::Kind::broken);
    EXPECT_EQ(kind(0.95, 0.93), train::PlanVerdict::Kind::unresolved);
    EXPECT_EQ(kind(0.6, 1), train::PlanVerdict::Kind::unresolved);
}

TEST(Stragglers, AreFoundInFiguresOfAllStages) {
    train::StageReports reports;
    using Slowness = std::vector<double>;
    const auto add = [&](double first, double second, double excess) {
        const auto figures = reports.add(std::array{first, second}, excess);
        EXPECT_EQ(figures.excess > 0, figures.slowness[0] > 0);
        return figures.slowness;
    };
    EXPECT_EQ(add(0, 0, 0), (Slowness{0, 0}));
    EXPECT_EQ(add(1, 1.2, 1), (Slowness{1, 1.2}));
    EXPECT_EQ(add(0, 1.2, 1), (Slowness{0, 0})) << "the first has said nothing new";
    EXPECT_EQ(add(1.1, 0, 1), (Slowness{1.1, 1.2}));
    EXPECT_EQ(add(0, 0, 0), (Slowness{0, 0}));
}

TEST(Stragglers, AreRoundedDownAndSmallDifferencesAreNone) {
    train::StragglerWatch watch{2, 2};
    const std::array<double, 2> given{};
    const auto look = [&](double a, double b, double c, double d) {
        return watch.look(std::array{a, b, c, d}, given).slowness;
    };
    using Slowness = std::vector<double>;
    EXPECT_EQ(look(1, 1.019, 1, 1), (Slowness{1, 1, 1, 1}));
    EXPECT_EQ(look(1.1, 1.1, 1.1, 1.1), (Slowness{1, 1, 1, 1})) << "all alike";
    const Slowness slow = look(1, 1, 1, 1.3024);
    EXPECT_NEAR(slow[3], 1.3, 1e-9) << "rounded down";
    EXPECT_EQ(look(1, 1, 1, 1.2985), slow) << "no new plan for noise";
    EXPECT_EQ(look(1, 1, 1, 1.309), slow);
    EXPECT_EQ(look(1, 0, 1, 0), slow) << "what is not known changes nothing";
    EXPECT_NEAR(look(1, 1, 1, 1.2)[3], 1.2, 0.0051);
    EXPECT_TRUE(watch.look(std::array{1.0, 1.0, 1.0, 1.0}, given).none());
    EXPECT_FALSE(watch.look(std::array{1.0, 1.0, 1.0, 1.0}, std::array{0.0, 2.0}).none());
}

TEST(Stragglers, AnAnswerThatTakesLongerThanItSaysIsBroken) {
    train::StragglerWatch watch{1, 2};
    // Messages take time: iterations by the first plan are 4 % longer than it says.
    for (int i = 0; i < 50; ++i) EXPECT_FALSE(watch.is_broken(1.04, false));
    for (int i = 0; i < 50; ++i) EXPECT_FALSE(watch.is_broken(1.05, true));
    EXPECT_FALSE(watch.is_broken(1.1, true));
    EXPECT_FALSE(watch.is_broken(1.1, true));
    EXPECT_FALSE(watch.is_broken(0, true)) << "not known";
    EXPECT_TRUE(watch.is_broken(1.1, true));
}

}  // namespace
}  // namespace training
