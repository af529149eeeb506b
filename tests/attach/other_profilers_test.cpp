// SPDX-License-Identifier: MIT
//
// kdvfs beside profilers that the program brings: theirs are complete, and its own is complete or
// says what it lacks.
#include "attach_fixture.hpp"

#include <cstdio>
#include <string>

#if defined(ATTACH_LIBRARY)

namespace attached {
namespace {

/// "within: 1500 of 1500 kernels, 0.61 s of 0.70, 0 strangers"
struct Profile {
    long kernels = -1;
    long launched = 0;
    double seconds = -1;
    double launching = 0;
    long strangers = -1;
};
std::vector<Profile> profiles(const Outcome& seen, const std::string& which) {
    std::vector<Profile> found;
    for (std::size_t at = 0; (at = seen.out.find(which + ": ", at)) != std::string::npos; ++at) {
        Profile profile;
        std::sscanf(seen.out.c_str() + at + which.size(), ": %ld of %ld kernels, %lf s of %lf, %ld",
                    &profile.kernels, &profile.launched, &profile.seconds, &profile.launching,
                    &profile.strangers);
        found.push_back(profile);
    }
    return found;
}
void expect_complete(const Outcome& seen, const std::string& which, std::size_t times = 1) {
    const auto found = profiles(seen, which);
    ASSERT_EQ(found.size(), times) << seen.out << seen.err;
    for (const Profile& each : found) {
        EXPECT_EQ(each.kernels, each.launched) << seen.out;
        EXPECT_EQ(each.strangers, 0) << seen.out;
        EXPECT_GE(each.seconds, 0.999 * 400e-6 * static_cast<double>(each.launched)) << seen.out;
        EXPECT_LE(each.seconds, 1.01 * each.launching) << seen.out;
    }
}
/// One stream cannot have run for longer than the program has launched and waited.
void expect_times_in_nanoseconds(const Outcome& seen) {
    double launching = 0;
    const std::size_t at = seen.out.find("launching took ");
    ASSERT_NE(at, std::string::npos) << seen.out;
    std::sscanf(seen.out.c_str() + at, "launching took %lf", &launching);
    const json row = seen.row("gemm");
    ASSERT_FALSE(row.is_null()) << seen.report.dump(1);
    EXPECT_GE(row["time_s"].get<double>(), 0.999 * 400e-6 * row["metered_calls"].get<double>());
    EXPECT_LE(row["time_s"].get<double>(), 1.01 * launching) << seen.out << row;
}
/// Seconds, times and blind seconds of the note.
struct Use {
    double seconds = -1;
    int times = 0;
    double blind = -1;
};
Use use_of(const Outcome& seen) {
    Use use;
    const std::string notes = seen.notes();
    const std::size_t at = notes.find("another profiler used CUPTI for ");
    if (at == std::string::npos) return use;
    std::sscanf(notes.c_str() + at, "another profiler used CUPTI for %lf s (%d time", &use.seconds,
                &use.times);
    const std::size_t blind = notes.find("not timed for ", at);
    if (blind != std::string::npos) {
        std::sscanf(notes.c_str() + blind, "not timed for %lf s", &use.blind);
    }
    return use;
}
class OtherProfilers : public Attach {
protected:
    Outcome profiled(const char* program, const std::vector<std::string>& words,
                     const std::vector<std::string>& options = {"--preload"}) {
        std::vector<std::string> command{program};
        command.insert(command.end(), words.begin(), words.end());
        return run(options, command);
    }
};

TEST_F(OtherProfilers, HaveAllOfTheirRecordsWithoutKdvfs) {
    const Outcome seen = wait_for(start({PROFILING_PROGRAM}));
    expect_complete(seen, "within");
}

TEST_F(OtherProfilers, ThatAreLinkedWithCuptiKeepTheirRecordsAndKdvfsComesBack) {
    const Outcome seen = profiled(LINKED_PROFILING_PROGRAM, {});
    EXPECT_EQ(seen.exit_code(), 0) << seen.err;
    expect_complete(seen, "within");
    const json row = seen.row("gemm");
    ASSERT_FALSE(row.is_null()) << seen.report.dump(1);
    EXPECT_EQ(row["calls"], 4000);
    EXPECT_GE(row["metered_calls"], 1000 + 1500 / 2) << seen.notes();
    expect_times_in_nanoseconds(seen);
    const Use use = use_of(seen);
    EXPECT_EQ(use.times, 1) << seen.notes();
    EXPECT_GE(use.seconds, 1500 * 400e-6);
    EXPECT_LE(use.blind, use.seconds + 0.11);
}

TEST_F(OtherProfilers, ThatOpenCuptiThemselvesAreSeenToo) {
    const Outcome seen = profiled(PROFILING_PROGRAM, {"twice", "plain_clock"}, {});
    expect_complete(seen, "within", 2);
    EXPECT_EQ(seen.row("gemm")["calls"], 7000);
    expect_times_in_nanoseconds(seen);
    EXPECT_EQ(use_of(seen).times, 2) << seen.notes();
}

TEST_F(OtherProfilers, ThatStartFirstKeepTheirRecords) {
    const Outcome seen = profiled(LINKED_PROFILING_PROGRAM, {"first"});
    expect_complete(seen, "first");
    expect_complete(seen, "within");
    // Less than a second lies between them: they may count as one.
    EXPECT_GE(use_of(seen).times, 1) << seen.notes();
    EXPECT_GE(seen.row("gemm")["metered_calls"], 1500 / 2) << seen.notes();
    expect_times_in_nanoseconds(seen);
}

/// kdvfs needs records of copies, too: it does not read along.
TEST_F(OtherProfilers, ThatTakeKernelsAloneLeaveAGapThatIsNamed) {
    const Outcome seen = profiled(LINKED_PROFILING_PROGRAM, {"half", "plain_clock"});
    expect_complete(seen, "within");
    const Use use = use_of(seen);
    EXPECT_GE(use.blind, 1500 * 400e-6) << seen.notes();
    EXPECT_GE(use.blind, use.seconds - 0.11) << seen.notes();
    EXPECT_LE(seen.row("gemm")["metered_calls"], 2500);
}

/// Its buffers are its own until it asks for them.
TEST_F(OtherProfilers, MayAskForTheirBuffersLate) {
    const Outcome seen = profiled(LINKED_PROFILING_PROGRAM, {"late"});
    expect_complete(seen, "within");
}

}  // namespace
}  // namespace attached

#endif
