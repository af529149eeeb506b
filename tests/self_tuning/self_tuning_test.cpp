// SPDX-License-Identifier: MIT
#include <tests/self_tuning/self_tuning_bed.hpp>

#include <kdvfs/detail/tune/paired_comparison.hpp>
#include <kdvfs/detail/tune/profile_store.hpp>
#include <kdvfs/detail/tune/run_planner.hpp>
#include <kdvfs/detail/tune/run_schedule.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace self_tuning_bed {
namespace {

using namespace std::chrono_literals;
using Kind = tune::SessionMode::Kind;
constexpr std::size_t any = 1'000'000;
constexpr std::uint32_t steady = tune::detail::RunOptions{}.steady_iterations;

std::size_t first_lowered(const Course& run) {
    const auto found = std::find(run.lowered.begin(), run.lowered.end(), true);
    return static_cast<std::size_t>(found - run.lowered.begin());
}

TEST(SelfTuning, SavesWithinItsBudgetAndItsIntervalHoldsTheTruth) {
    const Bed bed{simulated::mi250x(), 10ms, 1};
    const Program program = draw_program(bed.board(), 1);
    const Course run = bed.run(program, Kind::tune, any, Seconds{3600});
    const Course twin = bed.run(program, Kind::off, run.passed.size(), Seconds{1e9});
    const Judged judged = judge(run, twin);
    std::printf("simulated: saved %.2f %%, lost %.1f s; %s\n", 100 * judged.saved, judged.lost,
                to_string(*run.saving).c_str());
    EXPECT_GE(first_lowered(run), steady);
    EXPECT_GT(judged.saved, 0.02);
    EXPECT_LE(judged.beyond, 0);
    ASSERT_TRUE(run.saving->energy);
    EXPECT_GE(run.saving->pairs, tune::detail::PairedComparison::fewest_pairs);
    const double truth = judged.saved * twin.energy.back();
    // Exploring's part is known to within what its blocks scatter.
    const double scatter = 0.002 * twin.energy.back();
    EXPECT_LE(run.saving->saved_low.count, truth + scatter);
    EXPECT_GE(run.saving->saved_high.count, truth - scatter);
    EXPECT_NEAR(run.saving->lost.count(), judged.lost, 0.2 * run.saving->budget.count());
    EXPECT_TRUE(run.saving->paid_back);
}

TEST(SelfTuning, GoesBackToTheClocksAsFoundWhereTheProgramChanges) {
    const Bed bed{simulated::mi250x(), 10ms, 3};
    const Program program = draw_program(bed.board(), 3);
    for (const std::size_t at : {1900U, 2213U}) {
        const Change change{at, draw_program(bed.board(), 4)};
        const Course run = bed.run(program, Kind::tune, at + 60, Seconds{1e9}, change);
        ASSERT_LT(first_lowered(run), at) << to_string(*run.saving);
        std::size_t harmed = 0;
        for (std::size_t i = at; i < at + 20 + steady; ++i) harmed += run.lowered[i] ? 1 : 0;
        EXPECT_LE(harmed, 20U);
        EXPECT_FALSE(run.lowered[at + 20]) << at;
        EXPECT_GE(run.saving->changes, 1U);
    }
}

TEST(SelfTuning, RestsWhereNothingIsToBeGained) {
    const Bed bed{without_gain(simulated::mi210()), 10ms, 5};
    const Program program = draw_program(bed.board(), 5);
    const Course run = bed.run(program, Kind::tune, any, Seconds{3600});
    const Course twin = bed.run(program, Kind::off, run.passed.size(), Seconds{1e9});
    const Judged judged = judge(run, twin);
    std::printf("simulated, nothing to gain: lost %.1f s; %s\n", judged.lost,
                to_string(*run.saving).c_str());
    EXPECT_LE(judged.lost, 20);
    EXPECT_EQ(run.saving->phase, tune::RunPhase::rest);
}

TEST(SelfTuning, TakesNoOtherKindOfIterationForDriftOrForASlowerClock) {
    const Bed bed{simulated::mi250x(), 10ms, 7};
    const VariedProgram program = draw_varied_program(bed.board(), 7, 0.005);
    const Course run = bed.run(script_of(program), Kind::tune, any, Seconds{5400});
    const Course twin = bed.run(script_of(program), Kind::off, run.passed.size(), Seconds{1e9});
    const Judged judged = judge(run, twin);
    const double oracle = bed.oracle(program.accumulate).saved;
    std::printf("simulated, three kinds of iterations: saved %.2f %% (oracle %.2f %%); %s\n",
                100 * judged.saved, 100 * oracle, to_string(*run.saving).c_str());
    EXPECT_GT(judged.saved, 0.5 * oracle);
    EXPECT_LE(judged.beyond, 0);
}

TEST(SelfTuning, SaysWhereWorkScattersTooMuchToKnowWhatClocksCost) {
    const Bed bed{simulated::mi250x(), 10ms, 101};
    const VariedProgram program = draw_varied_program(bed.board(), 101, 0.1);
    const Course run = bed.run(script_of(program), Kind::tune, any, Seconds{3600});
    EXPECT_EQ(run.saving->phase, tune::RunPhase::rest);
    EXPECT_NE(run.saving->note.find("not known to within the bound"), std::string::npos)
        << run.saving->note;
}

/// The loop ends, or evaluates, while a clock is tried: nobody says that an iteration has ended.
TEST(SelfTuning, AClockThatIsTriedGoesBackByItself) {
    const simulated::Board board = simulated::mi210();
    const Program program = draw_program(board, 2);
    simulated::Device device{board};
    const Gpu gpu = simulated::open(device);
    const tune::Session<PolicyRegistry<Default<AutoClock>>> session{gpu, {Kind::tune}};
    simulated::Stream* const stream = device.create_stream();
    for (int i = 0; i < 200 && device.effective_clocks() == ClockPoint{}; ++i) {
        session.next_iteration();
        for (const std::size_t k : program.launches) {
            const Scope scope{session, stream, program.name(k)};
            device.launch(stream, program.kernels[k]);
        }
        device.synchronize(stream);
    }
    ASSERT_NE(device.effective_clocks(), ClockPoint{});
    for (int second = 0; second < 30; ++second) device.advance(1s);
    EXPECT_EQ(device.effective_clocks(), ClockPoint{});
}

/// Another thread is about to enter scopes wherever the program forks in one.
TEST(SelfTuning, AScopeEndsInAForkedChild) {
    using Policies = PolicyRegistry<Default<AutoClock>>;
    simulated::Device device{simulated::mi210()};
    const Gpu gpu = simulated::open(device);
    const tune::Session<Policies> session{gpu, {Kind::tune}};
    simulated::Stream* const stream = device.create_stream();
    session.next_iteration();
    std::atomic<bool> done{false};
    std::thread other{[&] {
        while (!done) static_cast<void>(session.kind_of<AutoClock>("kernel", {}));
    }};
    int hung = 0;
    for (int i = 0; i < 100 && hung == 0; ++i) {
        std::optional<Scope> scope{std::in_place, session, stream, "kernel"};
        const pid_t child = ::fork();
        if (child == 0) {
            ::alarm(5);
            scope.reset();
            ::_exit(0);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        hung += status == 0 ? 0 : 1;
    }
    done = true;
    other.join();
    EXPECT_EQ(hung, 0);
}

/// The first step of a program compiles its kernels.
TEST(SelfTuning, ASlowFirstStepDoesNotWidenItsInterval) {
    const Bed bed{simulated::mi250x(), 10ms, 1};
    const Program program = draw_program(bed.board(), 1);
    const Course run = bed.run(
        [&](std::size_t i) {
            return Work{&program, i == 0 ? 100.0 : 1.0};
        },
        Kind::tune, any, Seconds{2400});
    double narrowest = 1e9;  // points, of the time that a plan costs
    for (const tune::Saving& saving : run.minutes)
        if (saving.time) narrowest = std::min(narrowest, saving.time->high - saving.time->low);
    EXPECT_LT(narrowest, 3);  // by means instead of medians: above 100
}

TEST(Saving, SaysWhatPlansBeforeHaveSavedWhereThisOneIsNotKnown) {
    tune::Saving saving{.phase = tune::RunPhase::follow, .plans = 2};
    saving.saved = {2000};
    saving.saved_pct = 0.5;
    EXPECT_NE(to_string(saving).find("saving not known yet"), std::string::npos);
    saving.saved_low = {1500};
    saving.saved_high = {2500};
    EXPECT_NE(to_string(saving).find("saved about 2000 J (0.50 %)"), std::string::npos)
        << to_string(saving);
}

/// A second run of the program begins with what the first one has measured.
TEST(SelfTuning, ARestartedRunBeginsWithTheStoredProfile) {
    const OwnStore store;
    const Bed bed{simulated::mi250x(), 10ms, 1};
    const Program program = draw_program(bed.board(), 1);
    constexpr Seconds early{45};  // a run from nothing still explores
    const Course first = bed.run(program, Kind::tune, any, Seconds{2400});
    const Course restarted = bed.run(program, Kind::tune, any, early);
    store.clear();
    const Course from_nothing = bed.run(program, Kind::tune, any, early);
    EXPECT_GE(first.saving->plans, 1U) << to_string(*first.saving);
    EXPECT_EQ(from_nothing.saving->plans, 0U) << to_string(*from_nothing.saving);
    EXPECT_EQ(restarted.saving->plans, 1U) << to_string(*restarted.saving);
    EXPECT_LT(restarted.saving->lost, from_nothing.saving->lost);
}

/// Kernels that share a clock, as switches take 10 ms, want one that none of them wants alone.
TEST(SelfTuning, MeasuresTheClocksBetweenThoseThatKernelsWant) {
    const OwnStore store;
    const Bed bed{simulated::mi210(), 10ms, 302};
    const Course run = bed.run(draw_program(bed.board(), 302), Kind::tune, any, Seconds{600});
    EXPECT_GE(run.saving->plans, 1U) << to_string(*run.saving);
    std::size_t measured = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator{store.path()}) {
        if (entry.path().filename() != "profile.csv") continue;
        const tune::Profile profile = tune::read_profile(entry.path());
        for (const std::uint32_t mhz : {900U, 980U, 1060U, 1140U, 1220U, 1300U, 1380U, 1460U})
            measured += profile.kernels()[0].find({Megahertz{mhz}}) != nullptr ? 1 : 0;
    }
    EXPECT_EQ(measured, 8U);
}

/// Two kernels of 50 ms, of which one needs no core clock.
TEST(RunPlanner, LearnsOfSwitchesFromPlansThatSwitchOnly) {
    const std::vector<KernelKey> keys{{"copy", {}}, {"gemm", {}}};
    tune::detail::RunPlanRequest request{tune::Profile{"board"}, {}, {}};
    for (const std::uint32_t mhz : {0U, 1200U, 1600U})
        for (const KernelKey& key : keys) {
            const bool is_copy = key == keys[0];
            const double low = mhz == 0 ? 0 : (1700.0 - mhz) / 1700;
            const Seconds time{is_copy ? 0.05 : 0.05 / (1 - low)};
            request.profile.add({key,
                                 {Megahertz{mhz}},
                                 {time, Watts{is_copy ? 300 - 200 * low : 400 - 250 * low} * time},
                                 "",
                                 1,
                                 0,
                                 mhz == 0});
        }
    for (const std::uint32_t k : {0U, 1U}) request.sequence.launches.push_back(keys[k]);
    request.latency = Seconds{0.004};
    request.max_slowdown = 0.02;
    tune::detail::FollowedOutcome before;
    before.sequence.kernels.resize(2);
    before.sequence.launches = {0, 1};
    for (const std::size_t k : {0U, 1U}) before.sequence.kernels[k].key = keys[k];
    before.sequence.boundaries = {{0, {Megahertz{1600}}}};
    before.change = {.time_pct = 9, .energy_pct = -1};  // not explained by any latency
    request.before = {before};
    EXPECT_EQ(tune::detail::plan_run(request).latency, Seconds{0.004});
    // Late clocks: the copy runs high and the gemm low for a while.
    request.before[0].sequence.boundaries = {{0, {Megahertz{1200}}}, {1, {}}};
    EXPECT_GT(tune::detail::plan_run(request).latency, Seconds{0.006});
}

TEST(ProfileStore, KeepsAFolderForEachProgramOnABoardAndRemovesTheOldest) {
    namespace fs = std::filesystem;
    const TemporaryFolder own_folder;
    const fs::path folder = own_folder.at("stores");
    const tune::detail::ProfileStore store{folder};
    const tune::detail::StoredProgram one{"MI210", "files", {{"gemm", {}}}, Seconds{1}};
    auto other_kernel = one;
    other_kernel.kernels.push_back({"gelu", {}});
    auto other_board = one;
    other_board.gpu = "MI250X";
    auto other_batch = one;
    other_batch.iteration = Seconds{2};
    const fs::path file = store.file_of(one);
    EXPECT_EQ(store.file_of(one), file);
    for (const auto& other : {other_kernel, other_board, other_batch})
        EXPECT_NE(store.file_of(other), file);
    EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
    fs::last_write_time(file.parent_path(), fs::file_time_type::clock::now() - 24h);
    for (std::size_t i = 0; i < tune::detail::ProfileStore::most_programs; ++i) {
        auto another = one;
        another.gpu = "board " + std::to_string(i);
        static_cast<void>(store.file_of(another));
    }
    const auto kept = std::distance(fs::directory_iterator{folder}, fs::directory_iterator{});
    EXPECT_EQ(static_cast<std::size_t>(kept), tune::detail::ProfileStore::most_programs);
    EXPECT_FALSE(fs::exists(file.parent_path()));
}

TEST(ProfileStore, TakesFromTheSiteWhatTheUserHasNotAndWhatCanBeTrusted) {
    namespace fs = std::filesystem;
    using tune::detail::ProfileStore;
    const TemporaryFolder own_folder;
    const fs::path folder = own_folder.at("stores");
    const tune::detail::StoredProgram program{"MI210", "files", {{"gemm", {}}}, Seconds{1}};
    const fs::path sites = ProfileStore{folder / "site"}.file_of(program);
    std::ofstream{sites} << "known";
    const ProfileStore store{folder / "user", folder / "site"};
    const fs::path own = store.file_of(program);
    const auto text = [](const fs::path& file) {
        std::ifstream input{file};
        return std::string{std::istreambuf_iterator<char>{input}, {}};
    };
    EXPECT_EQ(text(own), "known");
    std::ofstream{own} << "own";  // what the user has is never replaced
    EXPECT_EQ(text(store.file_of(program)), "own");
    EXPECT_EQ(text(sites), "known");
    fs::remove(own);
    fs::permissions(sites, fs::perms::others_write, fs::perm_options::add);
    EXPECT_FALSE(fs::exists(store.file_of(program)));
    fs::permissions(sites, fs::perms::others_write, fs::perm_options::remove);
    fs::resize_file(sites, ProfileStore::most_bytes + 1);
    EXPECT_FALSE(fs::exists(store.file_of(program)));
    std::ofstream{own} << "own";
    fs::resize_file(own, ProfileStore::most_bytes + 1);
    fs::remove(sites);
    EXPECT_FALSE(fs::exists(store.file_of(program)));
}

TEST(ProfileStore, KeepsWhatPlansHaveShownAndTakesNothingFromDamagedFiles) {
    namespace fs = std::filesystem;
    const TemporaryFolder own_folder;
    const fs::path folder = own_folder.at("stores");
    fs::create_directories(folder);
    const fs::path profile = folder / "profile.csv";
    EXPECT_FALSE(tune::detail::read_experience(profile));
    tune::detail::write_experience(profile, {Seconds{0.012}, 1.07, 1.3});
    const auto shown = tune::detail::read_experience(profile);
    ASSERT_TRUE(shown);
    EXPECT_EQ(shown->latency, Seconds{0.012});
    EXPECT_EQ(shown->longer_by, 1.07);
    EXPECT_EQ(shown->stretch, 1.3);
    tune::detail::write_experience(profile, {Seconds{0.012}, 1.07, 5.06});
    const auto bold = tune::detail::read_experience(profile);
    ASSERT_TRUE(bold);
    EXPECT_EQ(bold->stretch, 4);
    for (const char* damaged :
         {"", "latency_s,longer_by,stretch\n", "latency_s,longer_by,stretch\n0.012,1.07\n",
          "latency_s,longer_by,stretch\n0.012,x,1.3\n", "latency_s,longer_by,stretch\n5,1.07,1.3\n",
          "latency_s,longer_by,stretch\n0.012,nan,1.3\n"}) {
        std::ofstream{tune::detail::experience_path(profile)} << damaged;
        EXPECT_FALSE(tune::detail::read_experience(profile)) << damaged;
    }
}

/// Rows of a board that takes `time` and uses `energy` times as much as another, at two clocks.
void write_source(const std::filesystem::path& file, double time, double energy, Megahertz lower) {
    tune::Profile profile{"MI210"};
    for (const Megahertz core : {auto_clock, lower})
        for (std::uint32_t sample = 0; sample < 2; ++sample) {
            const bool baseline = core == auto_clock;
            const double slower = baseline ? 1 : 1.1;
            const double less = baseline ? 1 : 0.8;
            profile.add({{"secret_gemm", {}},
                         {core, auto_clock},
                         {Seconds{0.1 * time * slower}, Joules{30 * energy * less}},
                         "",
                         3,
                         sample,
                         baseline});
        }
    std::filesystem::create_directories(file.parent_path());
    std::ofstream{file} << to_csv(profile);
    tune::LaunchSequence sequence;
    sequence.launches.assign(3, {"secret_gemm", {}});
    tune::write_launches(tune::sequence_path(file), sequence);
}

TEST(ProfileStore, MergesWhatSeveralNodesHaveMeasuredAndHidesNames) {
    namespace fs = std::filesystem;
    using tune::detail::ProfileStore;
    const TemporaryFolder own_folder;
    const fs::path folder = own_folder.at("stores");
    const tune::detail::StoredProgram program{
        "MI210", "files", {{"secret_gemm", {}}}, Seconds{0.3}};
    // The second board is 2 % slower and uses 10 % more: its rows count as the first board's would.
    write_source(ProfileStore{folder / "a"}.file_of(program), 1, 1, {1000});
    write_source(ProfileStore{folder / "b"}.file_of(program), 1.02, 1.1, {1200});
    const fs::path broken = ProfileStore{folder / "c"}.file_of(program);
    std::ofstream{broken} << "not a profile\n";
    const auto merged = tune::merge_profile_stores({folder / "a", folder / "b", folder / "c"},
                                                   folder / "site", true);
    EXPECT_EQ(merged.programs, 1U);
    EXPECT_EQ(merged.profiles, 2U);
    EXPECT_EQ(merged.unreadable, 1U);
    for (const auto& entry : fs::recursive_directory_iterator{folder / "site"}) {
        if (!entry.is_regular_file()) continue;
        std::ifstream input{entry.path()};
        const std::string text{std::istreambuf_iterator<char>{input}, {}};
        EXPECT_EQ(text.find("secret"), std::string::npos) << entry.path();
    }
    // A run of the program finds its kernels by their names, and both clocks.
    const ProfileStore store{folder / "user", folder / "site"};
    const fs::path own = store.file_of(program);
    const tune::Profile profile = tune::read_profile(own);
    ASSERT_EQ(profile.kernels().size(), 1U);
    EXPECT_EQ(profile.kernels()[0].key.name, "secret_gemm");
    EXPECT_EQ(tune::read_launches(tune::sequence_path(own)).launches.size(), 3U);
    const auto* found = profile.kernels()[0].find({auto_clock, auto_clock});
    ASSERT_TRUE(found);
    for (const Megahertz core : {Megahertz{1000}, Megahertz{1200}}) {
        const auto* point = profile.kernels()[0].find({core, auto_clock});
        ASSERT_TRUE(point) << core.count;
        EXPECT_EQ(point->samples.size(), 2U);
        EXPECT_NEAR(point->mean().time / found->mean().time, 1.1, 1e-6);
        EXPECT_NEAR(point->mean().energy / found->mean().energy, 0.8, 1e-6);
    }
    // Once more: what was measured once does not count twice, and names come from a source with
    // them.
    for (int i = 0; i < 3; ++i)
        static_cast<void>(tune::merge_profile_stores({folder / "a", folder / "b", folder / "a"},
                                                     folder / "site", false));
    fs::remove(own);
    const tune::Profile again = tune::read_profile(store.file_of(program));
    EXPECT_EQ(again.kernels()[0].key.name, "secret_gemm");
    EXPECT_EQ(again.kernels()[0].find({auto_clock, auto_clock})->samples.size(), 4U);
    // What no source has any more does not stay beside the merged profile.
    const fs::path site = ProfileStore{folder / "site"}.file_of(program);
    tune::detail::write_experience(site, {Seconds{0.01}, 1, 1});
    ASSERT_TRUE(fs::exists(tune::sequence_path(site)));
    for (const char* source : {"a", "b"})
        fs::remove(tune::sequence_path(ProfileStore{folder / source}.file_of(program)));
    static_cast<void>(
        tune::merge_profile_stores({folder / "a", folder / "b"}, folder / "site", false));
    EXPECT_FALSE(fs::exists(tune::sequence_path(site)));
    EXPECT_FALSE(tune::detail::read_experience(site));
}

}  // namespace
}  // namespace self_tuning_bed
