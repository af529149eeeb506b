// SPDX-License-Identifier: MIT
//
// Processes that use one board at once: one drives its clocks, the others vote. Each is a process
// of its own, as two users where this one is root.
#include <tests/restoring/temporary_folder.hpp>
#include <tests/shared_board/shared_files.hpp>
#include <tests/thread_loop/open_on_doubles.hpp>
#include <tests/thread_loop/prompt_runtime.hpp>

#include <kdvfs/kdvfs.hpp>

#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace kdvfs {
namespace {

using namespace kdvfs::literals;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Free : Kernel<"free"> {};
struct Slow : Kernel<"slow"> {};
using Policies = PolicyRegistry<Bind<"free", AutoClock>, Bind<"slow", CapClock<900_MHz>>>;

constexpr unsigned most = 8;
constexpr unsigned none = 0;          // a wish
constexpr unsigned any_clock = 9999;  // a wish: auto, in a scope

/// What the test wants of a process, and what that says.
struct Shared {
    struct Process {
        std::atomic<unsigned> wish{none};
        std::atomic<unsigned> has{none};  ///< the wish that is requested
        std::atomic<Clock::rep> at{0};    ///< since then
        std::atomic<bool> ready{false};
        std::atomic<bool> ends{false};
        std::atomic<bool> votes{false};   ///< it did not drive when it had opened
        std::atomic<bool> energy{false};  ///< its report has a kernel's
        std::atomic<bool> says_shared{false};
        std::atomic<bool> keeps_total{false};
    };
    std::array<Process, most> processes;
};

unsigned kills(unsigned in_the_suite) {
    const char* const number = std::getenv("KDVFS_KILLS");
    return number != nullptr ? static_cast<unsigned>(std::atoi(number)) : in_the_suite;
}

class SharedBoard : public testing::Test {
protected:
    void SetUp() override {
        ::umask(0);
        ::chmod(folder_.path().c_str(), 0755);
        std::filesystem::create_directory(board_);
        std::filesystem::create_directory(records_);
        SharedFiles{board_}.restore({});
        if (::geteuid() == 0) {
            // A /run of the test's own, in which root makes the machine's folder.
            ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
            ASSERT_EQ(::mount("none", "/run", "tmpfs", 0, "mode=755"), 0);
            static_cast<void>(detail::RestorePlace::of_this_process(
                address, SharedFiles{board_}.settings_file()));
            votes_ = std::string{"/run/kdvfs/"} + address + ".votes";
        } else {
            ::setenv("KDVFS_RECORDS", records_.c_str(), 1);
            votes_ = records_ + "/" + address + ".votes";
        }
        void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(memory, MAP_FAILED);
        shared_ = new (memory) Shared;
    }
    void TearDown() override {
        for (unsigned i = 0; i < most; ++i) kill(i);
        ::unsetenv("KDVFS_RECORDS");
    }

    void start(unsigned i) {
        Shared::Process& its = shared_->processes[i];
        its.ready = false;
        its.wish = none;
        its.has = none;
        its.ends = false;
        children_[i] = ::fork();
        if (children_[i] != 0) return;
        ::signal(SIGPIPE, SIG_DFL);
        if (::geteuid() == 0) {
            const uid_t user = i % 2 == 0 ? 61001 : 61002;
            ::setenv("KDVFS_RECORDS", (records_ + "/" + std::to_string(user)).c_str(), 1);
            if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0)
                ::_exit(98);
        }
        try {
            work(its);
            ::_exit(0);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "process %u: %s\n", i, error.what());
            ::_exit(99);
        }
    }
    void kill(unsigned i) {
        if (children_[i] <= 0) return;
        ::kill(children_[i], SIGKILL);
        ::waitpid(children_[i], nullptr, 0);
        children_[i] = 0;
        shared_->processes[i].has = none;
        shared_->processes[i].wish = none;
    }
    /// @returns its exit status
    int end(unsigned i) {
        shared_->processes[i].ends = true;
        int status = 0;
        ::waitpid(children_[i], &status, 0);
        children_[i] = 0;
        shared_->processes[i].has = none;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    void start_and_wait(unsigned i) {
        start(i);
        ASSERT_TRUE(until([&] { return shared_->processes[i].ready.load(); })) << i;
    }
    void wish(unsigned i, unsigned core) {
        shared_->processes[i].wish = core;
        ASSERT_TRUE(until([&] { return shared_->processes[i].has == core; })) << i;
    }

    static bool until(const std::function<bool()>& condition, Clock::duration limit = 10s) {
        const auto begin = Clock::now();
        while (!condition()) {
            if (Clock::now() - begin > limit) return false;
            std::this_thread::sleep_for(100us);
        }
        return true;
    }
    /// The board's cap in MHz; 0: as found.
    unsigned cap() const {
        try {
            return SharedFiles{board_}.read_clock_state().cap.core.count;
        } catch (const std::exception&) {
            return 1;  // a shell writes it now
        }
    }
    /// What the wishes add up to.
    unsigned highest() const {
        unsigned most_of_all = none;
        for (const auto& its : shared_->processes) {
            if (its.has == any_clock) return 0;
            most_of_all = std::max(most_of_all, its.has.load());
        }
        return most_of_all;
    }
    void expect_highest(const char* what) {
        EXPECT_TRUE(until([&] { return cap() == highest(); }))
            << what << ": the cap is " << cap() << ", the highest vote " << highest();
    }
    std::size_t live_slots() const {
        std::size_t count = 0;
        for (const auto& entry : std::filesystem::directory_iterator{votes_}) {
            const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
            count += file >= 0 && ::flock(file, LOCK_SH | LOCK_NB) != 0 ? 1 : 0;
            ::close(file);
        }
        return count;
    }

    static constexpr const char* address = "0000:c1:00.0";
    TemporaryFolder folder_;
    const std::string board_ = folder_.at("board");
    const std::string records_ = folder_.at("records");
    std::string votes_;
    Shared* shared_ = nullptr;
    std::array<pid_t, most> children_{};

private:
    void work(Shared::Process& its) {
        prompt::Runtime runtime;
        GpuOptions options;
        options.switch_latency = Duration{0};
        options.meter_every = 1;
        const auto gpu =
            Gpu{detail::open_device(
                    address, [&] { return doubles::borrowed(runtime); },
                    [&] { return std::make_shared<detail::OwnedDevice<SharedFiles>>(board_); },
                    [] { return std::make_shared<prompt::Board>(); }, options)}
                .with<Policies>();
        its.votes = gpu.info().mechanism.starts_with("votes");
        its.ready = true;
        int stream = 0;
        std::unique_ptr<StandingRequest> request;
        std::optional<FrequencyScope<Free>> scope;
        while (!its.ends) {
            const unsigned wish = its.wish;
            if (wish != its.has) {
                its.at = Clock::now().time_since_epoch().count();
                // The next one is there before the last one goes.
                const auto before = std::move(request);
                if (wish == any_clock) {
                    scope.emplace(gpu, StreamRef{&stream});
                } else {
                    if (wish != none)
                        request.reset(new StandingRequest(gpu.request(Megahertz{wish})));
                    scope.reset();
                }
                its.has = wish;
            }
            std::this_thread::sleep_for(200us);
        }
        scope.reset();
        for (int i = 0; i < 20; ++i) {
            FrequencyScope<Slow> slow{gpu, StreamRef{&stream}};
            std::this_thread::sleep_for(5ms);
        }
        const measure::Report report = gpu.report();
        for (const measure::ReportRow& row : report.rows)
            its.energy = its.energy || row.energy.resolved;
        its.keeps_total = report.totals.counter.count > 0;
        for (const std::string& note : report.notes)
            its.says_shared = its.says_shared || note.find("other processes") == 0;
    }
};

TEST_F(SharedBoard, OneDrivesTheOthersVoteAndTheHighestWins) {
    start_and_wait(0);
    start_and_wait(1);
    start_and_wait(2);
    EXPECT_FALSE(shared_->processes[0].votes);
    EXPECT_TRUE(shared_->processes[1].votes);
    EXPECT_TRUE(shared_->processes[2].votes);
    EXPECT_EQ(live_slots(), 2u);
    wish(1, 900);
    expect_highest("a voter alone");
    wish(0, 700);
    expect_highest("the driver asks for less");
    wish(2, 1300);
    expect_highest("another voter asks for more");
    wish(2, any_clock);
    expect_highest("a scope on auto");
    kill(2);
    expect_highest("a voter is killed");
    wish(0, 1200);
    expect_highest("the driver asks for more");
    kill(0);
    expect_highest("the driver is killed: its voter drives");
    wish(1, none);
    expect_highest("none asks");
    EXPECT_EQ(end(1), 0);
    EXPECT_EQ(cap(), 0u);
    EXPECT_EQ(live_slots(), 0u);
}

/// A board that cannot be read for a while, as in a reset.
struct ResettingBoard : SharedFiles {
    using SharedFiles::SharedFiles;
    [[nodiscard]] ClockState read_clock_state() const {
        if (resets) throw Error{Errc::io, {"read the clocks", "board", "in reset", ""}};
        return SharedFiles::read_clock_state();
    }
    bool resets = false;
};

TEST_F(SharedBoard, IsTakenOverByAVoterThatDoesNotTryInHaste) {
    start_and_wait(0);
    ResettingBoard board{board_};
    detail::SharedClocks<ResettingBoard> clocks{board};
    ASSERT_FALSE(clocks.drives());
    board.resets = true;
    kill(0);
    unsigned failed = 0;
    const auto takes_over = [&] {
        clocks.may_be_free();  // as each attempt of its own makes it seem
        try {
            return clocks.take_over();
        } catch (const Error&) {
            ++failed;
            return false;
        }
    };
    ASSERT_TRUE(until([&] { return takes_over() || failed > 0; }));
    EXPECT_FALSE(until(takes_over, 300ms));
    EXPECT_EQ(failed, 1u);
    board.resets = false;
    EXPECT_TRUE(until(takes_over, 5s));
    EXPECT_EQ(failed, 1u);
}

TEST_F(SharedBoard, ReportsNoKernelsEnergy) {
    start_and_wait(0);
    start_and_wait(1);
    ASSERT_EQ(end(1), 0);
    ASSERT_EQ(end(0), 0);
    for (unsigned i : {0u, 1u}) {
        const auto& its = shared_->processes[i];
        EXPECT_TRUE(its.says_shared) << i;
        EXPECT_FALSE(its.energy) << i;
        EXPECT_TRUE(its.keeps_total) << i;
    }
    start_and_wait(2);
    ASSERT_EQ(end(2), 0);
    EXPECT_FALSE(shared_->processes[2].says_shared) << "alone";
}

TEST_F(SharedBoard, IgnoresASlotThatMakesNoSense) {
    start_and_wait(0);
    start_and_wait(1);
    wish(1, 900);
    const std::string forged = votes_ + "/slot-0";
    const int file = ::open(forged.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    ASSERT_EQ(::flock(file, LOCK_EX), 0);
    const std::string valid = restore::vote_text::of(ClockPoint{.core = 1300_MHz});
    for (const std::string& text :
         {std::string{"rm -rf"}, valid.substr(1), valid.substr(0, 30),
          restore::vote_text::of(ClockPoint{.core = 5000_MHz}),  // not on the device's list
          std::string{"kdvfs-vote 1 asks 99999999999 0"}}) {
        ASSERT_EQ(::ftruncate(file, 0), 0);
        ASSERT_GT(::pwrite(file, text.data(), text.size(), 0), 0);
        std::this_thread::sleep_for(50ms);
        EXPECT_EQ(cap(), 900u) << text;
    }
    ASSERT_GT(::pwrite(file, valid.data(), valid.size(), 0), 0);
    EXPECT_TRUE(until([&] { return cap() == 1300; })) << "that one is heard";
    ::close(file);
    ::unlink(forged.c_str());
}

TEST_F(SharedBoard, HighestVoteHoldsWhoeverIsKilled) {
    std::mt19937 random{7};
    std::vector<double> milliseconds;
    const unsigned rounds = kills(8);
    for (unsigned killed = 0; killed < rounds;) {
        for (unsigned i = 0; i < most; ++i) {
            if (children_[i] == 0 && random() % 2 == 0) start_and_wait(i);
        }
        for (unsigned change = 0; change < 4; ++change) {
            const unsigned i = random() % most;
            if (children_[i] == 0) continue;
            const std::array<unsigned, 6> wishes{none, 700, 900, 1100, 1300, any_clock};
            const unsigned next = wishes[random() % wishes.size()];
            if (shared_->processes[i].has == next) continue;
            wish(i, next);
            expect_highest("a vote");
            const Clock::duration since{Clock::now().time_since_epoch().count() -
                                        shared_->processes[i].at};
            milliseconds.push_back(Seconds{since}.count() * 1e3);
        }
        const unsigned victim = random() % most;
        if (children_[victim] == 0) continue;
        kill(victim);
        ++killed;
        expect_highest("a process was killed");
        if (HasFailure()) return;
    }
    for (unsigned i = 0; i < most; ++i) kill(i);
    EXPECT_TRUE(until([&] { return cap() == 0; })) << cap();
    EXPECT_EQ(live_slots(), 0u);
    std::sort(milliseconds.begin(), milliseconds.end());
    if (milliseconds.empty()) return;
    std::printf("%u processes killed; a vote reached the board in %.2f ms (median), %.2f (95 %%)\n",
                rounds, milliseconds[milliseconds.size() / 2],
                milliseconds[milliseconds.size() * 95 / 100]);
}

}  // namespace
}  // namespace kdvfs
