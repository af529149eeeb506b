// SPDX-License-Identifier: MIT
#include <examples/gpt3_xl/iteration.hpp>
#include <kdvfs/detail/control/plan_follower.hpp>
#include <tests/follow/random_launches.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace kdvfs::detail {
namespace {

using namespace std::chrono_literals;
using follow_test::Launched;

constexpr ClockPoint low{.core = {800}};
constexpr ClockPoint middle{.core = {1100}};
constexpr ClockPoint high{};

/// Kernels "a" to "z" by their letters; `boundaries` likewise by place.
PlannedSequence sequence(const std::string& letters,
                         std::vector<PlannedSequence::Boundary> boundaries) {
    PlannedSequence plan;
    for (char letter = 'a'; letter <= 'z'; ++letter)
        plan.kernels.push_back({{std::string{letter}, {}}, 1ms});
    for (const char letter : letters)
        plan.launches.push_back(static_cast<std::uint32_t>(letter - 'a'));
    plan.boundaries = std::move(boundaries);
    return plan;
}

/// Follows launches by their letters, `?` being a kernel that no plan has.
class Follow {
public:
    explicit Follow(const PlannedSequence& plan) : track_{plan} {}

    /// The clocks asked for, a letter each: l, m, or a for auto. A blank begins an iteration.
    std::string operator()(const std::string& letters) {
        std::string asked;
        for (const char letter : letters) {
            if (letter == ' ') {
                follower_.begin_iteration();
                asked += ' ';
                continue;
            }
            const ClockPoint clock = track_.clocks()[follower_.launched(
                letter == '?' ? not_in_plan : static_cast<PlanKernel>(letter - 'a'))];
            EXPECT_TRUE(!follower_.lost() || clock.is_auto()) << "lowered while lost";
            asked += clock == low ? 'l' : clock == middle ? 'm' : 'a';
        }
        return asked;
    }
    [[nodiscard]] const FollowCounts& counts() const { return follower_.counts(); }
    [[nodiscard]] const PlanFollower& follower() const { return follower_; }

private:
    PlanTrack track_;
    PlanFollower follower_{track_};
};

PlannedSequence alphabet() { return sequence("abcdefghij", {{0, high}, {3, low}, {7, middle}}); }

TEST(PlanFollower, AsksForThePlansClocksIterationAfterIteration) {
    Follow follow{alphabet()};
    EXPECT_EQ(follow("abcdefghij abcdefghij"), "aaallllmmm aaallllmmm");
    EXPECT_EQ(follow("abcdefghijabcdefghij"), "aaallllmmmaaallllmmm")
        << "iterations not told apart";
    EXPECT_EQ(follow.counts().launches, 40U);
    EXPECT_EQ(follow.counts().time, 40ms);
    EXPECT_EQ(follow.counts().lost_launches, 0U);
    EXPECT_EQ(follow.counts().cut_short, 0U);
}

TEST(PlanFollower, WhatWasAskedForLastHoldsAtTheBeginning) {
    Follow follow{sequence("abcd", {{1, low}, {3, middle}})};
    EXPECT_EQ(follow("abcd abcd"), "mllm mllm");
}

TEST(PlanFollower, AddedLaunchesRunNoSlowerThanAnywhereInThePlan) {
    Follow follow{alphabet()};
    EXPECT_EQ(follow("abcde?fghij"), "aaallallmmm");
    EXPECT_EQ(follow(" abcdebfghij"), " aaallallmmm") << "b runs on auto";
    EXPECT_EQ(follow(" abcdeifghij"), " aaallmllmmm") << "i runs on middle";
    EXPECT_EQ(follow(" abcdeefghij"), " aaalllllmmm") << "e runs on low, here and there";
    EXPECT_EQ(follow.counts().added, 4U);
    EXPECT_EQ(follow.counts().times_lost, 0U);
}

TEST(PlanFollower, LaunchesMayBeLeftOut) {
    Follow follow{alphabet()};
    EXPECT_EQ(follow("abcefghij"), "aaaallmmm");
    EXPECT_EQ(follow.counts().left_out, 1U);
    EXPECT_EQ(follow(" abcghij"), " aaaammm");
    EXPECT_EQ(follow.counts().left_out, 4U);
    EXPECT_EQ(follow.counts().times_lost, 0U);
}

TEST(PlanFollower, KernelsThatThePlanKnowsAndDoesNotPlanArePassedOver) {
    Follow follow{alphabet()};  // x, y and z are in its list, and never launched
    EXPECT_EQ(follow("xabycdxefzghij"), "aaaaallllllmmm");
    EXPECT_EQ(follow.follower().in_a_row(), 10U);
}

TEST(PlanFollower, LaunchesMayBeSwappedOrReplaced) {
    Follow follow{alphabet()};
    EXPECT_EQ(follow("abcedfghij"), "aaaalllmmm");
    EXPECT_EQ(follow.counts().swapped, 1U);
    EXPECT_EQ(follow(" abc?efghij"), " aaaalllmmm");
    EXPECT_EQ(follow.counts().replaced, 1U);
    EXPECT_EQ(follow.counts().times_lost, 0U);
}

TEST(PlanFollower, TwoNamesThatDoNotFitLoseThePlaceAndThreeFindIt) {
    Follow follow{alphabet()};
    EXPECT_EQ(follow("abcd??efghij"), "aaalaaaalmmm");
    EXPECT_EQ(follow.counts().times_lost, 1U);
    EXPECT_EQ(follow.counts().lost_launches, 3U) << "the second of both, e and f";
    EXPECT_EQ(follow.counts().lost_time, 2ms) << "nobody knows how long the unknown one lasts";
}

TEST(PlanFollower, AnIterationThatBeginsIsAPlaceToGoOnFrom) {
    Follow follow{alphabet()};
    EXPECT_EQ(follow("abcd??? abcdef abcdefghij"), "aaalaaa aaalll aaallllmmm");
    EXPECT_EQ(follow.counts().cut_short, 1U) << "the second; in the first the place was lost";
    // An iteration of other kernels in between, told apart or not.
    EXPECT_EQ(follow(" ????????? abcdefghij"), " aaaaaaaaa aaallllmmm");
    EXPECT_EQ(follow("?????????abcdefghij"), "aaaaaaaaaaaallllmmm") << "the place is found at c";
}

TEST(PlanFollower, OtherNumbersOfMicrobatchesAreFollowed) {
    // Each microbatch is xyz, then comes the optimizer.
    Follow follow{sequence("abxyzxyzxyzop", {{0, high}, {3, low}, {11, high}})};
    EXPECT_EQ(follow("abxyzxyzxyzop"), "aaallllllllaa");
    const std::string longer = follow(" abxyzxyzxyzxyzxyzop");
    EXPECT_EQ(longer.size(), 20U);
    EXPECT_EQ(follow(" abxyzop"), " aaallaa");
    EXPECT_EQ(follow(" abxyzxyzxyzop"), " aaallllllllaa");
}

TEST(PlanFollower, FindsTheNearestOfManyPlacesThatLookAlike) {
    // Ten layers alike, of which the last five run low.
    std::string layers;
    for (int layer = 0; layer < 10; ++layer) layers += "abcde";
    Follow follow{sequence(layers, {{0, high}, {25, low}})};
    follow(layers.substr(0, 32) + "??" + layers.substr(34, 3));
    EXPECT_FALSE(follow.follower().lost());
    EXPECT_EQ(follow.follower().next(), 37U);
    follow(" " + layers.substr(0, 12) + "??" + layers.substr(14, 3));
    EXPECT_EQ(follow.follower().next(), 17U);
    follow(" " + layers.substr(0, 32) + "??cde");
    EXPECT_EQ(follow.follower().next(), 35U) << "two launches back are nearer than three on";
}

TEST(PlanFollower, WhatWasLeftOutOnceIsExpectedToBeLeftOutAgain) {
    std::string all;
    for (int part = 0; part < 9; ++part) all += "bcdefg";
    Follow follow{sequence("a" + all + "hijkl", {{0, low}})};
    // As a program does in which a graph has taken the launches' place.
    EXPECT_EQ(follow(" ahijkl"), " llalll");
    EXPECT_EQ(follow.counts().times_lost, 1U);
    EXPECT_EQ(follow(" ahijkl"), " llllll");
    EXPECT_EQ(follow.counts().times_lost, 1U);
    EXPECT_EQ(follow.counts().left_out, 54U);
}

TEST(PlanFollower, ASequenceOfOneLaunchIsFollowed) {
    Follow follow{sequence("a", {{0, low}})};
    EXPECT_EQ(follow("aaa a??aaaa"), "lll laaaall");
}

TEST(PlanFollower, GoesOnWhereAnotherOneIs) {
    const PlanTrack track{alphabet()};
    PlanFollower live{track};
    for (PlanKernel k = 0; k < 4; ++k) live.launched(k);
    PlanFollower captured{track};
    captured.go_on_from(live);
    EXPECT_EQ(captured.clock(), plan_auto);
    EXPECT_EQ(track.clocks()[captured.launched(4)], low);
    EXPECT_EQ(captured.counts().launches, 1U);
}

TEST(PlanFollower, PlansThatMakeNoSenseAreRefused) {
    const auto refused = [](const PlannedSequence& plan) { EXPECT_THROW(PlanTrack{plan}, Error); };
    refused(sequence("", {{0, low}}));
    refused(sequence("abc", {}));
    refused(sequence("abc", {{3, low}}));
    refused(sequence("abc", {{1, low}, {1, high}}));
    PlannedSequence unknown = sequence("abc", {{0, low}});
    unknown.launches[1] = 26;
    refused(unknown);
}

/// The clocks of a plan by kernel, so that there are hundreds of segments.
PlannedSequence by_kernel(std::vector<std::uint32_t> launches, std::vector<Duration> lasts) {
    PlannedSequence plan;
    for (std::size_t k = 0; k < lasts.size(); ++k)
        plan.kernels.push_back({{"kernel" + std::to_string(k), {}}, lasts[k]});
    plan.launches = std::move(launches);
    for (std::size_t place = 0; place < plan.launches.size(); ++place) {
        const ClockPoint clock = std::vector{high, low, middle, high}[plan.launches[place] % 4];
        if (plan.boundaries.empty() || plan.boundaries.back().clock != clock)
            plan.boundaries.push_back({place, clock});
    }
    return plan;
}

PlannedSequence gpt3_iteration() {
    const auto launches = gpt3::launch_sequence();
    std::vector<Duration> lasts;
    for (const auto& kernel : gpt3::published_table)
        lasts.push_back(std::chrono::nanoseconds{std::llround(1e6 * kernel.time_auto_ms)});
    return by_kernel({launches.begin(), launches.end()}, lasts);
}

/// Names as a framework gives them: few, and the same one many times in a row.
PlannedSequence framework_iteration() {
    std::mt19937_64 random{7};
    std::vector<std::uint32_t> launches;
    const auto layers = [&](std::size_t length, int times) {
        std::vector<std::uint32_t> layer;
        while (layer.size() < length) {
            const auto kernel = static_cast<std::uint32_t>(random() % 24);
            for (std::size_t i = 1 + random() % 3; i > 0; --i) layer.push_back(kernel);
        }
        while (times-- > 0) launches.insert(launches.end(), layer.begin(), layer.end());
    };
    layers(14, 12);
    layers(33, 12);
    launches.insert(launches.end(), 100, 3);
    return by_kernel(launches, std::vector<Duration>(24, 90us));
}

/// What following an almost planned program came to, in shares of its time.
struct Followed {
    double share = 0;
    double too_low = 0;  ///< at a clock below the plan's at the same launch
};

Followed follow_perturbed(const PlannedSequence& plan, double share, int iterations) {
    const PlanTrack track{plan};
    PlanFollower follower{track};
    std::mt19937_64 random{1};
    Duration too_low{0};
    for (int i = 0; i < iterations; ++i) {
        follower.begin_iteration();
        for (const Launched& launch : follow_test::perturbed(plan.launches, share, random)) {
            const ClockPoint asked = track.clocks()[follower.launched(launch.kernel)];
            EXPECT_TRUE(!follower.lost() || asked.is_auto()) << "lowered while lost";
            if (launch.place == Launched::nowhere) continue;
            const ClockPoint planned = track.clocks()[track.clock(launch.place)];
            if (higher_cap(planned, asked) != asked) too_low += track.lasts(launch.kernel);
        }
    }
    const FollowCounts& counts = follower.counts();
    const auto of_time = [&](Duration time) { return Seconds{time} / Seconds{counts.time}; };
    std::printf(
        "%.0f %% perturbed: followed %.2f %% of the time, %.2f %% of the launches, lost %g times "
        "an iteration, too low %.3f %% of the time\n",
        100 * share, 100 - 100 * of_time(counts.lost_time),
        100 -
            100 * static_cast<double>(counts.lost_launches) / static_cast<double>(counts.launches),
        static_cast<double>(counts.times_lost) / iterations, 100 * of_time(too_low));
    return {1 - of_time(counts.lost_time), of_time(too_low)};
}

TEST(PlanFollower, FollowsProgramsThatAreAlmostAsPlanned) {
    for (const PlannedSequence& plan : {gpt3_iteration(), framework_iteration()}) {
        const Followed unperturbed = follow_perturbed(plan, 0, 10);
        EXPECT_EQ(unperturbed.share, 1);
        EXPECT_EQ(unperturbed.too_low, 0);
        const Followed at_1_pct = follow_perturbed(plan, 0.01, 1000);
        EXPECT_GE(at_1_pct.share, 0.97);
        EXPECT_LE(at_1_pct.too_low, 0.005);
        const Followed at_5_pct = follow_perturbed(plan, 0.05, 1000);
        EXPECT_GE(at_5_pct.share, 0.90);
        EXPECT_LE(at_5_pct.too_low, 0.03);
    }
}

TEST(PlanFollower, KernelsThatHaveSeveralClocksHardlyRunTooLow) {
    PlannedSequence plan = gpt3_iteration();
    plan.boundaries.clear();
    for (std::size_t before = 0; before < plan.launches.size(); before += 29)
        plan.boundaries.push_back({before, std::vector{high, low, middle}[before / 29 % 3]});
    EXPECT_EQ(follow_perturbed(plan, 0, 10).too_low, 0);
    EXPECT_LE(follow_perturbed(plan, 0.01, 1000).too_low, 0.001);
    EXPECT_LE(follow_perturbed(plan, 0.05, 1000).too_low, 0.005);
}

TEST(PlanFollower, FollowsAMillionLaunches) {
    std::vector<std::uint32_t> launches;
    for (std::uint32_t i = 0; launches.size() < 1'000'000; ++i) launches.push_back(i % 997 % 24);
    const PlannedSequence plan = by_kernel(launches, std::vector<Duration>(24, 10us));
    const Followed followed = follow_perturbed(plan, 0.01, 2);
    EXPECT_GE(followed.share, 0.97);
}

TEST(PlanFollower, LaunchesOfAnyOrderNeverBreakIt) {
    const PlannedSequence plan = alphabet();
    const PlanTrack track{plan};
    PlanFollower follower{track};
    std::mt19937_64 random{3};
    for (int i = 0; i < 1'000'000; ++i) {
        if (random() % 50 == 0) follower.begin_iteration();
        const auto kernel = static_cast<PlanKernel>(random() % 12);
        const PlanClock clock = follower.launched(kernel == 11 ? not_in_plan : kernel);
        ASSERT_LT(clock, track.clocks().size());
        ASSERT_LT(follower.next(), track.size());
        ASSERT_TRUE(!follower.lost() || clock == plan_auto);
    }
}

}  // namespace
}  // namespace kdvfs::detail
