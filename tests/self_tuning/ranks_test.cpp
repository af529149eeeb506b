// SPDX-License-Identifier: MIT
#include <tests/measure/program_locale.hpp>
#include <tests/self_tuning/rank_bed.hpp>

#include <kdvfs/detail/tune/rank_messages.hpp>
#include <kdvfs/detail/tune/rank_profiles.hpp>
#include <kdvfs/train/rank_link.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

namespace self_tuning_bed {
namespace {

using namespace std::chrono_literals;
using Kind = tune::SessionMode::Kind;
constexpr std::size_t any_number = 1'000'000;

RankBed::Options eight_ranks(std::uint64_t seed) {
    RankBed::Options options;
    options.seed = seed;
    return options;
}

TEST(RanksTogether, LearnSoonerAndKeepTheBudget) {
    const simulated::Board board = simulated::mi210();
    const Program program = draw_program(board, 4);
    RankBed::Options one = eight_ranks(4);
    one.ranks = 1;
    one.until_plan = true;
    const RankBed::Course alone =
        RankBed{board, one}.run(program, Kind::tune, any_number, Seconds{3600});
    const RankBed bed{board, eight_ranks(4)};
    const RankBed::Course run = bed.run(program, Kind::tune, any_number, Seconds{600});
    const RankBed::Course twin = bed.run(program, Kind::off, run.passed.size(), Seconds{1e9});
    std::printf("simulated: first plan after %.0f s, alone %.0f s; %s\n", run.planned,
                alone.planned, to_string(run.savings[0]).c_str());
    ASSERT_GT(run.planned, 0);
    EXPECT_LE(run.planned, 0.7 * alone.planned);  // 30 iterations of both are warm-up
    for (std::size_t i = 0; i < run.passed.size(); ++i)
        ASSERT_LE(run.passed[i] - twin.passed[i], 20 + 0.01 * twin.passed[i]) << i;
    double saved = 0;
    for (const tune::Saving& saving : run.savings) saved += saving.saved.count;
    const double truth = twin.energy.back() - run.energy.back();
    EXPECT_GT(truth, 0.01 * twin.energy.back());
    EXPECT_NEAR(saved, truth, 0.15 * truth);  // each rank's own account
}

/// What a run of several ranks has learned is in rank 0's store, for all ranks of the next one.
TEST(RanksTogether, BeginWithWhatARunBeforeHasStored) {
    const OwnStore store;
    const simulated::Board board = simulated::mi210();
    const Program program = draw_program(board, 4);
    RankBed::Options options = eight_ranks(4);
    options.ranks = 4;
    const auto explored = [](const RankBed::Course& run) {
        double seconds = 0;
        for (std::size_t i = 0; i + 1 < run.phases.size(); ++i)
            if (run.phases[i].first == tune::RunPhase::explore)
                seconds += run.phases[i + 1].second - run.phases[i].second;
        return seconds;
    };
    options.until_plan = true;
    const RankBed::Course first =
        RankBed{board, options}.run(program, Kind::tune, any_number, Seconds{600});
    options.until_plan = false;
    options.seed = 5;  // other boards
    const RankBed bed{board, options};
    const RankBed::Course second = bed.run(program, Kind::tune, any_number, Seconds{400});
    const RankBed::Course twin = bed.run(program, Kind::off, second.passed.size(), Seconds{1e9});
    std::printf(
        "simulated, 4 ranks: first plan after %.0f s, explored for %.0f s; with what was stored "
        "%.0f s, %.0f s\n",
        first.planned, explored(first), second.planned, explored(second));
    ASSERT_GT(first.planned, 0);
    ASSERT_GT(second.planned, 0);
    EXPECT_LT(explored(second), 0.5 * explored(first));
    EXPECT_LT(second.energy.back(), 0.99 * twin.energy.back());
    for (std::size_t i = 0; i < second.passed.size(); ++i)
        ASSERT_LE(second.passed[i] - twin.passed[i], 20 + 0.01 * twin.passed[i]) << i;
}

/// 64 ranks cover all clocks at once; what three of them measure never arrives.
TEST(RanksTogether, WaitForSilentRanksOnlyBriefly) {
    const simulated::Board board = simulated::mi250x();
    RankBed::Options options = eight_ranks(1);
    options.ranks = 64;
    options.until_plan = true;
    const auto planned = [&](std::uint32_t silent) {
        options.silent = silent;
        return RankBed{board, options}
            .run(draw_program(board, 1), Kind::tune, any_number, Seconds{300})
            .planned;
    };
    const double all = planned(0);
    const double without = planned(3);
    std::printf("simulated, 64 ranks: first plan after %.0f s, %.0f s with 3 silent\n", all,
                without);
    ASSERT_GT(all, 0);
    EXPECT_LT(all, 60);  // iterations of 1 s, 20 of them before any clock moves
    ASSERT_GT(without, 0);
    EXPECT_LT(without, all + 40);
}

/// Messages that take longer than orders are given ahead.
TEST(RanksTogether, ManageWithSlowMessagesAndGoBackWhereTheProgramChanges) {
    const simulated::Board board = simulated::mi210();
    RankBed::Options options = eight_ranks(4);
    options.ranks = 4;
    options.message = Seconds{4};
    constexpr std::size_t at = 800;
    const Change change{at, draw_program(board, 6)};
    const RankBed::Course run = RankBed{board, options}.run(draw_program(board, 4), Kind::tune,
                                                            at + 50, Seconds{1e9}, change);
    EXPECT_GE(run.planned, 0);
    EXPECT_GT(*std::max_element(run.lowered.begin() + at - 20, run.lowered.begin() + at), 2U);
    for (std::size_t i = at + 20; i < at + 40; ++i) ASSERT_EQ(run.lowered[i], 0U) << i;
    for (const tune::Saving& saving : run.savings) EXPECT_GE(saving.changes, 1U);
}

/// The last rank's board is of another kind, or its clocks cannot be set.
TEST(RanksTogether, ExploreWithoutARankThatCannot) {
    const simulated::Board board = simulated::mi210();
    for (const bool refuses : {false, true}) {
        RankBed::Options options = eight_ranks(4);
        options.ranks = 3;
        options.until_plan = true;
        options.last_refuses = refuses;
        if (!refuses) options.last = simulated::mi300x();
        const RankBed::Course run = RankBed{board, options}.run(draw_program(board, 4), Kind::tune,
                                                                any_number, Seconds{600});
        EXPECT_GT(run.planned, 0) << refuses;
        EXPECT_EQ(*std::max_element(run.lowered.begin(), run.lowered.end()), 2U) << refuses;
    }
}

/// Its number is that of the next plan, and a rank would take the one for the other.
TEST(RanksTogether, AnnounceNoPlanThatIsNotFollowed) {
    const simulated::Board board = without_gain(simulated::mi210());
    RankBed::Options options = eight_ranks(4);
    options.ranks = 2;
    const RankBed::Course run =
        RankBed{board, options}.run(draw_program(board, 4), Kind::tune, any_number, Seconds{600});
    EXPECT_EQ(run.savings[0].phase, tune::RunPhase::rest);
    EXPECT_NE(run.savings[0].note.find("nothing to gain"), std::string::npos)
        << run.savings[0].note;
    EXPECT_EQ(run.plans, 0U);
}

/// What exploring the program before has cost is in a rank's account once.
TEST(RanksTogether, CountWhatTheyLoseOnceWhereTheProgramChanges) {
    const simulated::Board board = simulated::mi210();
    RankBed::Options options = eight_ranks(4);
    options.ranks = 2;
    const Change change{200, draw_program(board, 6)};
    const RankBed bed{board, options};
    const Program program = draw_program(board, 4);
    const RankBed::Course run = bed.run(program, Kind::tune, 360, Seconds{1e9}, change);
    const RankBed::Course twin = bed.run(program, Kind::off, 360, Seconds{1e9}, change);
    const double lost = run.passed.back() - twin.passed.back();
    for (const tune::Saving& saving : run.savings) {
        EXPECT_EQ(saving.changes, 1U);
        EXPECT_NEAR(saving.lost.count(), lost, 0.25 * lost) << to_string(saving);
    }
}

/// Ranks measured work whose time follows the clock, and waited for the slowest in a collective.
TEST(RankProfiles, LeaveOutWhatBoardsDifferByAndTimeThatWasWaited) {
    constexpr std::array<std::uint32_t, 5> clocks{0, 1500, 1200, 1000, 800};
    constexpr double top = 1500;
    std::vector<ClockPoint> points;
    for (const std::uint32_t clock : clocks) points.push_back({{clock}, auto_clock});
    tune::detail::RankProfiles profiles{"board", tune::SweepDesign{points, ClockPoint{}}};
    constexpr std::array<double, 4> boards{1, 1.02, 0.99, 1.01};
    constexpr double transfer = 0.01;
    for (const std::uint64_t stage : {1U, 2U, 3U, 4U}) {
        std::array<double, 4> work{};
        std::array<ClockPoint, 4> at{};
        for (std::size_t r = 0; r < 4; ++r) {
            if (stage % 2 == 0) at[r] = points[1 + (r + stage / 2) % 4];
            const double mhz = at[r].core == auto_clock ? top : at[r].core.count;
            work[r] = boards[r] * top / mhz;
        }
        const double last = *std::max_element(work.begin(), work.end());
        for (std::uint32_t r = 0; r < 4; ++r) {
            const double waited = last - work[r] + transfer;
            tune::detail::RankBlock block{stage, at[r], 4, Seconds{last + transfer}, {300}};
            block.rows.push_back({{"gemm", {}}, at[r], {Seconds{work[r]}, {250 * work[r]}}});
            block.rows.push_back({{"all_reduce", {}}, at[r], {Seconds{waited}, {90 * waited}}});
            profiles.add(r, std::move(block));
        }
    }
    ASSERT_EQ(profiles.waits().size(), 1U);
    EXPECT_EQ(profiles.waits()[0].name, "all_reduce");
    EXPECT_TRUE(profiles.are_equal(0, 3));
    const tune::Profile job = profiles.job();
    ASSERT_EQ(job.kernels().size(), 2U);
    const double base = (boards[0] + boards[1] + boards[2] + boards[3]) / 4;
    for (const tune::KernelProfile& kernel : job.kernels()) {
        for (const tune::ProfilePoint& point : kernel.points) {
            const double mhz = point.clock.core == auto_clock ? top : point.clock.core.count;
            const double time = kernel.key.name == "gemm" ? base * top / mhz : transfer;
            const double watts = kernel.key.name == "gemm" ? 250 : 90;
            EXPECT_NEAR(point.mean().time.count(), time, 1e-9 * time) << to_string(point.clock);
            EXPECT_NEAR(point.mean().energy.count, watts * time, 1e-9 * watts * time);
        }
    }
    // The fastest board could be slower by what the slowest takes longer.
    EXPECT_NEAR(profiles.slack().at(2),
                1.02 / 0.99 * (1 + transfer / 1.02) / (1 + transfer / 0.99) - 1, 1e-3);
    EXPECT_NEAR(profiles.slack().at(1), 0, 1e-9);
}

/// Another board has measured before: 1.3 times as slow, with twice the energy.
TEST(RankProfiles, TakeWhatIsStoredAgainstItsOwnBaseline) {
    const ClockPoint low{{1000}, auto_clock};
    tune::Profile stored{"board"};
    for (const std::uint32_t sample : {0U, 1U}) {
        stored.add({{"gemm", {}}, ClockPoint{}, {Seconds{0.13}, {20}}, "", 3, sample, true});
        stored.add({{"gemm", {}}, low, {Seconds{0.143}, {16}}, "", 3, sample, false});
    }
    tune::detail::RankBlock live{1, ClockPoint{}, 4, Seconds{0.3}, {100}};
    live.rows.push_back({{"gemm", {}}, ClockPoint{}, {Seconds{0.1}, {10}}, "", 3, 0, true});
    tune::detail::RankProfiles profiles{
        "board", tune::SweepDesign{std::vector<ClockPoint>{ClockPoint{}, low}, ClockPoint{}}};
    profiles.add_stored(0, tune::detail::blocks_of(stored, 8), live);
    profiles.add(0, live);
    const tune::Profile profile = profiles.of_rank(0);
    ASSERT_EQ(profile.kernels().size(), 1U);
    const tune::ProfilePoint* const found = profile.kernels()[0].find(ClockPoint{});
    const tune::ProfilePoint* const slow = profile.kernels()[0].find(low);
    ASSERT_TRUE(found && slow);
    EXPECT_EQ(found->samples.size(), 3U);
    EXPECT_NEAR(found->mean().time.count(), 0.1, 1e-9);
    EXPECT_NEAR(found->mean().energy.count, 10, 1e-9);
    EXPECT_NEAR(slow->mean().time.count(), 0.11, 1e-9);
    EXPECT_NEAR(slow->mean().energy.count, 8, 1e-9);
}

TEST(RankMessages, SurviveTheWayAndRefuseWhatIsNone) {
    using namespace tune::detail;
    RankOrder order{.from = 71, .epoch = 2, .phase = tune::RunPhase::explore};
    order.step = {RunStep::As::explored, 5, 2};
    order.metered = true;
    order.stage = 6;
    order.length = 130;
    order.clocks = {ClockPoint{{900}, auto_clock}, std::nullopt, ClockPoint{}};
    const std::string text = to_message(order);
    MessageReader words{text};
    EXPECT_EQ(words.word(), "order");
    const RankOrder read = read_order(words);
    EXPECT_TRUE(read.is_as(order));
    EXPECT_EQ(read.from, order.from);
    EXPECT_EQ(read.length, order.length);
    EXPECT_EQ(read.clocks, order.clocks);
    RankBlock block{4, {{900}, {1200}}, 3, Seconds{0.75}, {310}};
    block.rows.push_back(
        {{"a kernel<int, 3>", variant(2)}, block.clock, {Seconds{0.25}, {70}}, "", 2});
    const std::string measured = to_message(block);
    MessageReader of_block{measured};
    EXPECT_EQ(of_block.word(), "block");
    const RankBlock known = read_block(of_block);
    ASSERT_EQ(known.rows.size(), 1U);
    EXPECT_EQ(known.rows[0].key, block.rows[0].key);
    EXPECT_EQ(known.rows[0].cost.energy.count, 70);
    for (std::size_t cut = 6; cut + 40 < measured.size(); cut += 3) {
        MessageReader torn{std::string_view{measured}.substr(6, cut - 6)};
        EXPECT_THROW(static_cast<void>(read_block(torn)), Error) << cut;
    }
    MessageReader many{"1 0 0 0 0 0 0 0 0 0 0 99999999999"};
    EXPECT_THROW(static_cast<void>(read_order(many)), Error);
}

TEST(RankMessages, HaveNoGroupedDigitsWhateverTheProgramsLocaleIs) {
    using namespace tune::detail;
    RankOrder order{.from = 1'000, .ahead = 4'321, .epoch = 1'234};
    order.stage = 123'456;
    order.clocks = {ClockPoint{{1410}, {1593}}};
    const std::string classic = to_message(order);
    const GroupedNumbers grouped;
    EXPECT_EQ(to_message(order), classic);
    MessageReader words{classic};
    EXPECT_EQ(words.word(), "order");
    EXPECT_EQ(read_order(words).from, order.from);
}

TEST(CommunicatorLink, CarriesTextsInOrderAndSaysWhereARankIsSilent) {
    train::RankThreads all{3};
    using Link = train::CommunicatorLink<train::RankThreads::Rank>;
    std::vector<std::unique_ptr<Link>> links;
    for (std::uint32_t r = 0; r < 3; ++r)
        links.push_back(std::make_unique<Link>(
            std::make_unique<train::RankThreads::Rank>(all.rank(r)), 2ms, 300ms));
    links[2]->report("first");
    links[2]->report("second\nline");
    links[0]->announce("to all");
    std::vector<std::pair<std::uint32_t, std::string>> reports;
    std::vector<std::string> announced;
    const auto end = std::chrono::steady_clock::now() + 20s;
    while ((reports.size() < 2 || announced.empty()) && std::chrono::steady_clock::now() < end) {
        for (auto& report : links[0]->take_reports()) reports.push_back(std::move(report));
        for (auto& text : links[1]->take_announcements()) announced.push_back(std::move(text));
        std::this_thread::sleep_for(1ms);
    }
    const std::vector<std::pair<std::uint32_t, std::string>> expected{{2, "first"},
                                                                      {2, "second\nline"}};
    EXPECT_EQ(reports, expected);
    EXPECT_EQ(announced, std::vector<std::string>{"to all"});
    links[1].reset();  // its rank ends: so does the exchange, on all
    while (links[2]->works() && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(1ms);
    EXPECT_FALSE(links[2]->works());
    links.clear();
}

}  // namespace
}  // namespace self_tuning_bed
