// SPDX-License-Identifier: MIT
//
// Sessions of pipelines whose ranks are threads, each with a simulated GPU.
#include <kdvfs/detail/io/files.hpp>
#include <kdvfs/train/session.hpp>

#include "simulated_pipeline.hpp"

#include <tests/restoring/temporary_folder.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
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
    ThreadSession session{alone.stage.gpu(), alone.rank, alone.pipeline, plans()};
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

TEST(Operations, HaveTheClocksOfThePlanFromTheirFirstMomentToTheirLast) {
    for (const train::Clocks clocks : {train::Clocks::one, train::Clocks::two}) {
        Alone alone;
        train::SessionOptions options;
        options.plan = {.slowdown = 0.1, .clocks = clocks, .rungs = 1};
        ThreadSession session{alone.stage.gpu(), alone.rank, alone.pipeline, options};
        simulated::Device& device = alone.stage.device();
        std::vector<ClockPoint> held;
        std::vector<ClockPoint> planned;
        session.next_iteration();
        for (const train::PlannedClocks& plan : session.ladder().rungs()[0].operations) {
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
        const bool has_two =
            std::any_of(session.ladder().rungs()[0].operations.begin(),
                        session.ladder().rungs()[0].operations.end(),
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
        ThreadSession session{stage.gpu(), rank, known(), plans()};
        EXPECT_EQ(session.phase(), train::SessionPhase::following);
        live[r] = mean_of(4, stage, session, channel);
        if (r == 0) plan = session.ladder().rungs()[0];
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

TEST(Ladders, RiseWhereClocksComeLate) {
    train::LadderOptions options;
    options.switching = {Seconds{0.05}, Seconds{0.02}};
    const train::Frontier frontier{known()};
    const train::PlanLadder ladder =
        train::parse_ladder(train::make_ladder_text(frontier, options), known(), 0);
    ASSERT_GT(ladder.rungs().size(), 4U);
    for (std::size_t k = 1; k < ladder.rungs().size(); ++k) {
        EXPECT_GT(ladder.rungs()[k].time, ladder.rungs()[k - 1].time);
        const double factor = ladder.rungs()[k].time / ladder.rungs()[0].time;
        EXPECT_EQ(ladder.rung_for(factor), k);
    }
}

/// What `kdvfs measure-latency` has kept is obeyed by plans that are told of no latency.
TEST(Sessions, PlanForTheLatencyThatWasMeasuredOnThisGpu) {
    const TemporaryFolder folder;
    ::setenv("XDG_DATA_HOME", folder.at("data").c_str(), 1);
    train::LadderOptions options = plans().plan;
    options.switching = {Seconds{0.05}, Seconds{0.02}};
    const train::PlanLadder late =
        train::parse_ladder(train::make_ladder_text(train::Frontier{known()}, options), known(), 0);
    on_threads(1, 50ms, [&](std::uint32_t r, Stage& stage, auto& rank, auto&) {
        if (r == 0) {
            const auto path = tune::switch_latency_paths(gpu_name(stage.gpu().info())).front();
            std::filesystem::create_directories(path.parent_path());
            std::ofstream{path} << "from_core_mhz,from_mem_mhz,to_core_mhz,to_mem_mhz,latency_s,"
                                   "transition_s\n1700,-1,1350,-1,0.05,0.02\n";
        }
        ThreadSession session{stage.gpu(), rank, known(), plans()};
        ASSERT_EQ(session.phase(), train::SessionPhase::following);
        if (r == 0) {
            EXPECT_EQ(session.ladder().rungs()[0].total, late.rungs()[0].total);
        }
    });
    ::unsetenv("XDG_DATA_HOME");
    const train::PlanLadder prompt = train::parse_ladder(
        train::make_ladder_text(train::Frontier{known()}, plans().plan), known(), 0);
    EXPECT_GT(late.rungs()[0].total, prompt.rungs()[0].total) << "a late clock saves less";
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
        EXPECT_EQ(session.blocks().second, 5U);
        stage.run(session, channel);
        live[r] = mean_of(3, stage, session, channel);
        if (r == 0) plan = session.ladder().rungs()[0];
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
        EXPECT_NEAR(session.ladder().rungs()[0].time / plan.time, 1, 1e-9);
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

TEST(Sessions, AnswerAStragglerThatTheyAreToldOfAndComeBack) {
    // Two copies of the pipeline; nothing is slow, but rank 1, of the second copy, is said to be.
    std::array<std::vector<std::size_t>, 4> rungs;
    std::atomic<std::size_t> answer{0};
    on_threads(2, 0ns, [&](std::uint32_t r, Stage& stage, auto& rank, auto& channel) {
        ThreadSession session{stage.gpu(), rank, known(), plans(9)};
        const Seconds wanted = session.ladder().rungs().front().time;
        for (int i = 0; i < 12; ++i) {
            if (r == 1 && i == 3) session.straggler(1, wanted * 1.2);
            if (r == 1 && i == 7) session.straggler(1, Seconds{0});
            stage.run(session, channel);
            rungs[r].push_back(session.rung());
        }
        EXPECT_LE(session.ladder().rungs()[session.ladder().rung_for(1.2)].time, wanted * 1.2);
        answer = session.ladder().rung_for(1.2);
        session.check();
    });
    EXPECT_GT(answer, 0U);
    for (std::uint32_t r = 0; r < 4; ++r)
        for (std::size_t i = 0; i < 12; ++i) {
            const bool slowed = r % 2 == 0 && i >= 4 && i < 8;  // given away at 3, answered at 4
            EXPECT_EQ(rungs[r][i], slowed ? answer.load() : 0) << r << ' ' << i;
        }
}

TEST(Sessions, NameASilentRankAndGoOnAtAuto) {
    train::SessionOptions options = plans();
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

TEST(Stragglers, AreAnsweredAtOnceAndSmallDifferencesAreNot) {
    train::StragglerWatch watch{0};
    const auto answer = [&](double own, double other) {
        const std::array slowness{own, other};
        return watch.answer(slowness);
    };
    EXPECT_EQ(answer(1, 1.019), 1);
    EXPECT_EQ(answer(1, 1.3), 1.3);
    EXPECT_EQ(answer(1, 1.303), 1.3) << "no new plan for noise";
    EXPECT_NEAR(answer(1.02, 1.5), 1.47, 0.01);
    EXPECT_NEAR(answer(0, 1.2), 1.47, 0.01) << "what is not known changes nothing";
    EXPECT_EQ(answer(1, 1), 1);
    EXPECT_EQ(answer(1.4, 1), 1) << "the straggler itself runs as fast as it can";
}

TEST(Stragglers, ALookUpTakesNoTime) {
    std::vector<train::StagePlan> rungs(64);
    for (std::size_t k = 0; k < rungs.size(); ++k)
        rungs[k].time = Seconds{1 + 0.01 * static_cast<double>(k)};
    const train::PlanLadder ladder{rungs};
    EXPECT_EQ(ladder.rung_for(1), 0U);
    EXPECT_EQ(ladder.rung_for(0.5), 0U);
    EXPECT_EQ(ladder.rung_for(1.0999), 9U);
    EXPECT_EQ(ladder.rung_for(1.1), 10U);
    EXPECT_EQ(ladder.rung_for(99), 63U);
    const auto begin = std::chrono::steady_clock::now();
    std::size_t sum = 0;
    for (int i = 0; i < 1000; ++i) sum += ladder.rung_for(1 + 1e-3 * i);
    const auto each = (std::chrono::steady_clock::now() - begin) / 1000;
    EXPECT_GT(sum, 0U);
    EXPECT_LT(each, 1ms);
}

}  // namespace
}  // namespace training
