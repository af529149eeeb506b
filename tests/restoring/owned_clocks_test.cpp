// SPDX-License-Identifier: MIT
//
// Owners of a board of plain files, in processes of their own, which end in every way.
#include <kdvfs/detail/restore/owned_clocks.hpp>

#include "file_board.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>

namespace kdvfs::detail {
namespace {

using namespace kdvfs::literals;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Runs in a child process, whose exit status is what it returns.
pid_t start(const std::function<int()>& body, unsigned long namespaces = 0) {
    const auto child = static_cast<pid_t>(
        namespaces == 0 ? ::fork() : ::syscall(SYS_clone, namespaces | SIGCHLD, 0, 0, 0, 0));
    if (child != 0) return child;
    try {
        ::_exit(body());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
        ::_exit(99);
    }
}

int status_of(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// How long until it is so; 10 s is never.
template <class Condition>
Clock::duration time_until(Condition condition) {
    const auto start = Clock::now();
    while (!condition() && Clock::now() - start < 10s) std::this_thread::sleep_for(200us);
    return Clock::now() - start;
}

class Owner : public testing::Test {
protected:
    using Clocks = OwnedClocks<FileBoard>;

    [[nodiscard]] RestorePlace place() const {
        return RestorePlace::in_own(own_.at("own"), board_.info().address);
    }
    [[nodiscard]] std::string level() const { return board_.level(); }
    [[nodiscard]] RestoreEntry record() const {
        return *find_record(place().folder, board_.info().address);
    }
    static void lower(Clocks& clocks) {
        clocks.apply({900_MHz, auto_clock});
        static_cast<void>(clocks.read_clock_state());
    }
    /// In a child: owns the board at a low clock and says so.
    [[nodiscard]] pid_t start_owner(const std::function<int(Clocks&)>& then,
                                    unsigned long namespaces = 0) {
        const pid_t child = start(
            [&] {
                FileBoard board{files_};
                Clocks clocks{board, place()};
                lower(clocks);
                files_.write("ready", "ready");
                return then(clocks);
            },
            namespaces);
        time_until([&] { return files_.read("ready") == "ready"; });
        return child;
    }

    TemporaryFolder files_;
    TemporaryFolder own_;
    FileBoard board_{files_};
};

TEST_F(Owner, WritesTheRecordBeforeTheDevice) {
    Clocks clocks{board_, place()};
    EXPECT_FALSE(record().has_pending_restore());
    unsigned writes = 0;
    board_.before_a_write = [&] {
        EXPECT_TRUE(record().history.uncertain);
        ++writes;
    };
    clocks.apply({900_MHz, auto_clock});
    const ClockState held = clocks.read_clock_state();
    EXPECT_EQ(record().history.written, held);
    clocks.restore({});
    static_cast<void>(clocks.read_clock_state());
    EXPECT_FALSE(record().has_pending_restore());
    EXPECT_EQ(writes, 2U);
}

TEST_F(Owner, ThatEndsLeavesNothingAndCanBeFollowedAtOnce) {
    for (int i = 0; i < 3; ++i) {
        const auto began = Clock::now();
        {
            Clocks clocks{board_, place()};
            lower(clocks);
            EXPECT_EQ(level(), "manual");
            if (i == 1) {
                clocks.restore({});
                static_cast<void>(clocks.read_clock_state());
            }
        }
        EXPECT_EQ(level(), "auto");
        EXPECT_LT(Clock::now() - began, 2s);
    }
}

TEST_F(Owner, ThatIsKilledIsFollowedByItsWatchdog) {
    const pid_t owner = start_owner([](Clocks&) { return ::pause(); });
    EXPECT_EQ(level(), "manual");
    ::kill(owner, SIGKILL);
    EXPECT_LT(time_until([&] { return level() == "auto"; }), 2s);
    EXPECT_EQ(status_of(owner), -SIGKILL);
    Clocks next{board_, place()};
    EXPECT_EQ(next.settled(), RestoreDecision::nothing);
}

TEST_F(Owner, ThatIsKilledWithItsWatchdogIsSettledByTheNext) {
    const pid_t owner = start_owner([](Clocks& clocks) {
        ::kill(clocks.watchdog(), SIGKILL);
        return ::raise(SIGKILL);
    });
    EXPECT_EQ(status_of(owner), -SIGKILL);
    EXPECT_EQ(level(), "manual");
    Clocks next{board_, place()};
    EXPECT_EQ(next.settled(), RestoreDecision::write_back);
    EXPECT_EQ(level(), "auto");
}

TEST_F(Owner, WhoseWatchdogCouldNotBeReplacedStillTellsTheNext) {
    const pid_t owner = start_owner([](Clocks& clocks) {
        ::kill(clocks.watchdog(), SIGKILL);
        std::this_thread::sleep_for(20ms);
        const rlimit none{0, 0};
        ::setrlimit(RLIMIT_NOFILE, &none);  // no pipe for another
        clocks.restore({});
        return ::raise(SIGKILL);
    });
    EXPECT_EQ(status_of(owner), -SIGKILL);
    EXPECT_TRUE(record().history.uncertain);
}

TEST_F(Owner, ReplacesAWatchdogThatWasKilled) {
    const pid_t owner = start_owner([](Clocks& clocks) {
        const pid_t first = clocks.watchdog();
        ::kill(first, SIGKILL);
        const auto replaced = [&] {
            clocks.apply({800_MHz, auto_clock});
            static_cast<void>(clocks.read_clock_state());
            return clocks.watchdog() != first;
        };
        time_until(replaced);
        return ::raise(SIGKILL);
    });
    EXPECT_EQ(status_of(owner), -SIGKILL);
    EXPECT_LT(time_until([&] { return level() == "auto"; }), 2s);
}

TEST_F(Owner, StartsAWatchdogThatCouldNotBeReplacedWhenItLooksNext) {
    const pid_t owner = start_owner([](Clocks& clocks) {
        ::kill(clocks.watchdog(), SIGKILL);
        std::this_thread::sleep_for(20ms);
        rlimit files{};
        ::getrlimit(RLIMIT_NOFILE, &files);
        const rlimit low{10, files.rlim_max};  // enough for a board's files, not for a pipe
        ::setrlimit(RLIMIT_NOFILE, &low);
        static_cast<void>(clocks.read_clock_state());
        if (clocks.watchdog() != 0) return 1;
        ::setrlimit(RLIMIT_NOFILE, &files);
        static_cast<void>(clocks.read_clock_state());
        return ::raise(SIGKILL);
    });
    EXPECT_EQ(status_of(owner), -SIGKILL);
    EXPECT_LT(time_until([&] { return level() == "auto"; }), 2s);
}

TEST_F(Owner, IsNotHeldUpByAWatchdogThatStandsStill) {
    const auto began = Clock::now();
    {
        Clocks clocks{board_, place()};
        lower(clocks);
        const pid_t watchdog = clocks.watchdog();
        ::kill(watchdog, SIGSTOP);
        for (unsigned i = 0; i < 50; ++i) {
            clocks.apply({Megahertz{600 + i}, auto_clock});
            static_cast<void>(clocks.read_clock_state());
        }
        EXPECT_EQ(clocks.watchdog(), watchdog);
        // The end owes a restore: it waits for it, though not for ever.
        std::thread{[watchdog] {
            std::this_thread::sleep_for(2500ms);
            ::kill(watchdog, SIGCONT);
        }}.detach();
    }
    EXPECT_LT(Clock::now() - began, 2500ms);
    EXPECT_LT(time_until([&] { return level() == "auto"; }), 5s);
}

TEST_F(Owner, DoesNotKeepAProgramThatWaitsForItsChildren) {
    Clocks clocks{board_, place()};
    lower(clocks);
    while (::wait(nullptr) > 0) {
    }
    EXPECT_EQ(errno, ECHILD);
    EXPECT_GT(clocks.watchdog(), 0);
}

TEST_F(Owner, ThatAdoptsOrphansSaysThatTheWatchdogIsItsChild) {
    const auto child_of_mine = [&](Clocks& clocks) {
        int status = 0;
        const bool mine = ::waitpid(clocks.watchdog(), &status, WNOHANG) == 0;
        const bool said = clocks.describe().find("adopts orphans") != std::string::npos;
        return mine && said;
    };
    {
        Clocks clocks{board_, place()};
        EXPECT_EQ(clocks.describe().find("adopts orphans"), std::string::npos);
    }
    const pid_t subreaper = start([&] {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        {
            FileBoard board{files_};
            Clocks clocks{board, place()};
            lower(clocks);
            if (!child_of_mine(clocks)) return 1;
        }
        return ::wait(nullptr) < 0 ? 0 : 2;  // nothing of it is left to wait for
    });
    EXPECT_EQ(status_of(subreaper), 0);
    EXPECT_EQ(level(), "auto");
    if (::geteuid() != 0) return;
    const pid_t first = start(
        [&] {
            ::mount("proc", "/proc", "proc", 0, nullptr);
            FileBoard board{files_};
            Clocks clocks{board, place()};
            lower(clocks);
            return ::getpid() == 1 && child_of_mine(clocks) ? 0 : 1;
        },
        CLONE_NEWPID | CLONE_NEWNS);
    EXPECT_EQ(status_of(first), 0);
}

TEST_F(Owner, InAContainerSaysWhetherTheMachinesFolderIsMounted) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    const auto says = [&](const std::string& machine, const char* words) {
        const auto place = RestorePlace::of_this_process("0000:1b:00.0", "", machine);
        return place.for_machine && place.words().find(words) != std::string::npos;
    };
    const pid_t container = start(
        [&] {
            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
            ::mount("proc", "/proc", "proc", 0, nullptr);
            if (!says(files_.at("made"), "one owner in this container only")) return 1;
            ::mkdir(files_.at("mounted").c_str(), 0755);
            if (::mount("none", files_.at("mounted").c_str(), "tmpfs", 0, "mode=755") != 0)
                return 2;
            return says(files_.at("mounted"), "one owner on this machine") ? 0 : 3;
        },
        CLONE_NEWPID | CLONE_NEWNS);
    EXPECT_EQ(status_of(container), 0);
    struct stat pids {};
    ASSERT_EQ(::stat("/proc/self/ns/pid", &pids), 0);
    if (pids.st_ino != 4026531836) return;  // the suite runs in a container
    EXPECT_TRUE(says(files_.at("machine"), "one owner on this machine"));
}

TEST_F(Owner, WithItsStandardFilesClosedConfusesNothing) {
    const pid_t owner = start([&] {
        for (const int fd : {0, 1, 2}) ::close(fd);
        FileBoard board{files_};
        Clocks clocks{board, place()};
        lower(clocks);
        // What a program opens next gets the low numbers, and closes them again.
        for (int i = 0; i < 3; ++i) {
            if (::open("/dev/null", O_RDWR) > 2) return 1;
        }
        for (const int fd : {0, 1, 2, 3, 4, 5}) ::close(fd);
        lower(clocks);
        files_.write("ready", clocks.watchdog() > 0 ? "ready" : "none");
        return ::pause();
    });
    time_until([&] { return !files_.read("ready").empty(); });
    EXPECT_EQ(files_.read("ready"), "ready");
    EXPECT_THROW((Clocks{board_, place()}), Error);  // its lock holds
    ::kill(owner, SIGKILL);
    status_of(owner);
    EXPECT_LT(time_until([&] { return level() == "auto"; }), 2s);
}

TEST_F(Owner, ThatIsStoppedLosesItsClocksAndTakesThemUpAgain) {
    if (!Watchdog::sees_stops()) GTEST_SKIP() << "needs bash";
    const pid_t owner = start_owner([&](Clocks& clocks) {
        while (clocks.restored_while_stopped() == 0) {
            static_cast<void>(clocks.read_clock_state());  // as once a second in earnest
            std::this_thread::sleep_for(10ms);
        }
        const bool seen = clocks.read_clock_state() == ClockState{};
        lower(clocks);
        files_.write("again", seen ? "again" : "not seen");
        return ::pause();
    });
    std::this_thread::sleep_for(1500ms);
    EXPECT_EQ(level(), "manual") << "it was not stopped yet";
    ::kill(owner, SIGSTOP);
    EXPECT_LT(time_until([&] { return level() == "auto"; }), 5s);
    std::this_thread::sleep_for(100ms);
    ::kill(owner, SIGCONT);
    time_until([&] { return !files_.read("again").empty(); });
    EXPECT_EQ(files_.read("again"), "again");
    EXPECT_EQ(level(), "manual");
    ::kill(owner, SIGKILL);
    status_of(owner);
    EXPECT_LT(time_until([&] { return level() == "auto"; }), 2s);
}

TEST_F(Owner, ThatIsCancelledWithAllItsProcessesIsRestored) {
    const pid_t owner = start_owner([](Clocks& clocks) {
        ::kill(clocks.watchdog(), SIGTERM);  // as a scheduler does to a whole job
        return ::raise(SIGTERM);
    });
    EXPECT_EQ(status_of(owner), -SIGTERM);
    EXPECT_LT(time_until([&] { return level() == "auto"; }), 2s);
}

TEST_F(Owner, KeepsASecondOutAndNamesItself) {
    const Clocks first{board_, place()};
    const std::string me = "process " + std::to_string(::getpid());
    const pid_t second = start([&] {
        FileBoard board{files_};
        try {
            const Clocks clocks{board, place()};
        } catch (const Error& error) {
            const bool named = std::string{error.what()}.find(me) != std::string::npos;
            return error.code() == Errc::busy && named ? 0 : 2;
        }
        return 1;
    });
    EXPECT_EQ(status_of(second), 0);
}

TEST_F(Owner, MakesItsRecordAndItsLockAgainWhereTheyWereRemoved) {
    const std::string own = own_.at("own");
    for (const std::string& removed :
         {own, own + "/0000:c1:00.0", own + "/0000:c1:00.0.lock", own + "/0000:c1:00.0/record"}) {
        files_.write("ready", "");
        const pid_t owner = start_owner([&](Clocks& clocks) {
            std::filesystem::remove_all(removed);
            lower(clocks);
            const pid_t watchdog = clocks.watchdog();
            files_.write("again", "again");
            time_until([&] { return files_.read("go") == "go"; });
            // The watchdog of the removed record has ended, and has written nothing.
            if (FileBoard{files_}.level() != "manual") return 1;
            ::kill(watchdog, SIGKILL);
            return ::raise(SIGKILL);
        });
        time_until([&] { return files_.read("again") == "again"; });
        EXPECT_THROW((Clocks{board_, place()}), Error) << removed << ": a second owner";
        files_.write("go", "go");
        EXPECT_EQ(status_of(owner), -SIGKILL) << removed;
        EXPECT_EQ(level(), "manual");
        Clocks next{board_, place()};
        EXPECT_EQ(next.settled(), RestoreDecision::write_back) << removed;
        EXPECT_EQ(level(), "auto");
        for (const char* word : {"again", "go"}) files_.write(word, "");
    }
}

TEST_F(Owner, WhoseFolderIsRemovedIsStillRestoredByItsWatchdog) {
    const pid_t owner = start_owner([&](Clocks&) {
        std::filesystem::remove_all(own_.at("own"));
        return ::raise(SIGKILL);
    });
    EXPECT_EQ(status_of(owner), -SIGKILL);
    EXPECT_LT(time_until([&] { return level() == "auto"; }), 2s);
}

/// A board whose next watchdog ends at once.
class UnwatchableBoard : public FileBoard {
public:
    using FileBoard::FileBoard;
    [[nodiscard]] RestoreScript restore_script() const {
        RestoreScript script = FileBoard::restore_script();
        if (unwatchable) script.functions = "exit 1\n";
        return script;
    }
    bool unwatchable = false;
};

TEST_F(Owner, WhoseNewRecordHasNoWatchdogYetKeepsTheOneBefore) {
    enum class End { holding, restored, watched_again };
    for (const End end : {End::holding, End::restored, End::watched_again}) {
        const pid_t owner = start([&] {
            UnwatchableBoard board{files_};
            OwnedClocks<UnwatchableBoard> clocks{board, place()};
            const auto look = [&] { return clocks.read_clock_state(); };
            clocks.apply({900_MHz, auto_clock});
            static_cast<void>(look());
            std::filesystem::remove(own_.at("own") + "/0000:c1:00.0/record");
            board.unwatchable = true;
            static_cast<void>(look());
            if (board.level() != "manual") return 1;
            if (end == End::restored) {
                clocks.restore({});
                static_cast<void>(look());
                board.apply({700_MHz, auto_clock});  // by somebody else
            } else if (end == End::watched_again) {
                const pid_t first = clocks.watchdog();
                board.unwatchable = false;
                static_cast<void>(look());
                std::this_thread::sleep_for(50ms);  // the first ends
                if (clocks.watchdog() == first || board.level() != "manual") return 2;
            }
            return ::raise(SIGKILL);
        });
        EXPECT_EQ(status_of(owner), -SIGKILL);
        const std::string wanted = end == End::restored ? "manual" : "auto";
        EXPECT_LT(time_until([&] { return level() == wanted; }), 2s);
        std::this_thread::sleep_for(50ms);
        EXPECT_EQ(level(), wanted);
        files_.write(FileBoard::level_file, "auto\n");
    }
}

TEST_F(Owner, WhoHasLostTheDeviceWritesNoMore) {
    Clocks first{board_, place()};
    lower(first);
    first.restore({});
    static_cast<void>(first.read_clock_state());
    std::filesystem::remove_all(own_.at("own"));
    const pid_t second = start_owner([](Clocks&) { return ::pause(); });
    EXPECT_EQ(level(), "manual");
    const std::string held = files_.read(FileBoard::table_file);
    static_cast<void>(first.read_clock_state());
    try {
        first.apply({700_MHz, auto_clock});
        ADD_FAILURE() << "two processes drive one device";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::busy);
    }
    EXPECT_EQ(files_.read(FileBoard::table_file), held);
    const Descriptor file = place().folder.open(record_name);
    ::kill(read_note(file.get()).process, SIGKILL);
    ::kill(second, SIGKILL);
    status_of(second);
    EXPECT_EQ(level(), "manual");
    // It is free again, and what the second has left is settled.
    EXPECT_LT(time_until([&] { return first.read_clock_state() == ClockState{}; }), 2s);
    EXPECT_EQ(level(), "auto");
    lower(first);
    EXPECT_EQ(level(), "manual");
}

TEST_F(Owner, WhoHasLostTheDeviceLeavesTheNextOnesRecord) {
    pid_t second = 0;
    {
        const Clocks first{board_, place()};
        std::filesystem::remove(place().lock);
        second = start_owner([](Clocks&) { return ::pause(); });
        EXPECT_EQ(level(), "manual");
    }
    const Descriptor file = place().folder.open(record_name);
    EXPECT_TRUE(file.is_open()) << "nobody knows any more what the second owes";
    if (file.is_open()) ::kill(read_note(file.get()).process, SIGKILL);
    ::kill(second, SIGKILL);
    status_of(second);
}

TEST(RestorePlace, OfAUserOutlastsItsSessions) {
    const std::string outside = RestorePlace::own_root();
    const TemporaryFolder session;
    ::chmod(session.path().c_str(), 0700);
    ::setenv("XDG_RUNTIME_DIR", session.path().c_str(), 1);
    EXPECT_EQ(RestorePlace::own_root(), outside);
    ::unsetenv("XDG_RUNTIME_DIR");
    EXPECT_TRUE(outside.starts_with("/run/lock/kdvfs-") || outside.starts_with("/tmp/kdvfs-"));
    ::setenv("KDVFS_RECORDS", session.path().c_str(), 1);
    EXPECT_EQ(RestorePlace::own_root(), session.path());
    ::unsetenv("KDVFS_RECORDS");
}

TEST(RestorePlace, IsRefusedWhereOthersMayWriteToTheMachinesFolder) {
    const TemporaryFolder machine;
    const TemporaryFolder own;
    ::setenv("KDVFS_RECORDS", own.path().c_str(), 1);
    const std::string board = "0000:c1:00.0";
    for (const mode_t mode : {01777U, 0775U}) {
        ASSERT_EQ(::chmod(machine.path().c_str(), mode), 0);
        EXPECT_THROW(RestorePlace::of_this_process(board, {}, machine.path()), Error);
        EXPECT_THROW(static_cast<void>(RestorePlace::find(board, machine.path())), Error);
        EXPECT_THROW(static_cast<void>(RestorePlace::own_lock(board, machine.path())), Error);
        EXPECT_TRUE(std::filesystem::is_empty(machine.path()));
    }
    ASSERT_EQ(::chmod(machine.path().c_str(), 0755), 0);
    EXPECT_NO_THROW(RestorePlace::of_this_process(board, {}, machine.path()));
    ::unsetenv("KDVFS_RECORDS");
}

/// What 70-kdvfs.rules makes for a GPU, in another place and for another group.
void run_udev_rule(const TemporaryFolder& run, const std::string& board, gid_t group) {
    std::ifstream file{KDVFS_SCRIPTS "/70-kdvfs.rules"};
    std::string script{std::istreambuf_iterator<char>{file}, {}};
    const std::string_view begin = "/bin/sh -c '";
    script.erase(0, script.rfind(begin) + begin.size());
    script.erase(script.rfind("'\""));
    const auto replace = [&](const std::string& word, const std::string& other) {
        for (auto at = script.find(word); at != script.npos;
             at = script.find(word, at + other.size()))
            script.replace(at, word.size(), other);
    };
    replace("/run", run.path());
    replace("%k", board);
    replace("$$", "$");
    replace("gpuclocks", std::to_string(group));
    run.write("script", script);
    ASSERT_EQ(std::system(("sh " + run.at("script")).c_str()), 0);
}

TEST(RestorePlace, OfTheUdevRuleHasOneLockForTheGroupAndRoot) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    constexpr gid_t group = 40000;
    const TemporaryFolder run;
    const std::string board = "0000:c1:00.0";
    const std::string settings = run.at("settings");
    run.write("settings", "");
    ASSERT_EQ(::chown(settings.c_str(), 0, group) + ::chmod(settings.c_str(), 0664), 0);
    ASSERT_EQ(::chmod(run.path().c_str(), 0755), 0);
    std::filesystem::create_directory(run.at("own"));
    std::filesystem::permissions(run.at("own"), std::filesystem::perms::all);
    run_udev_rule(run, board, group);
    const auto as_user = [&](gid_t its_group, const std::function<int(RestorePlace)>& then) {
        return status_of(start([&] {
            if (::setgid(its_group) + ::setuid(40001) != 0) return 98;
            ::setenv("KDVFS_RECORDS", run.at("own/of_one").c_str(), 1);
            return then(RestorePlace::of_this_process(board, settings, run.at("kdvfs")));
        }));
    };
    EXPECT_EQ(as_user(group + 1, [](const RestorePlace&) { return 0; }), 99) << "a stranger";
    EXPECT_EQ(as_user(group,
                      [&](const RestorePlace& place) {
                          const DeviceLock lock{place, board, {}};
                          const bool votes = ::access(run.at("kdvfs/" + board + ".votes").c_str(),
                                                      R_OK | W_OK | X_OK) == 0;
                          return place.for_machine && votes ? 0 : 1;
                      }),
              0);
    run_udev_rule(run, board, group);  // as at each change that udev hears of
    const RestorePlace roots = RestorePlace::of_this_process(board, settings, run.at("kdvfs"));
    const DeviceLock held{roots, board, {}};
    EXPECT_EQ(as_user(group,
                      [&](const RestorePlace& place) {
                          EXPECT_THROW((DeviceLock{place, board, {}}), Error);
                          return testing::Test::HasFailure() ? 1 : 0;
                      }),
              0)
        << "root and the group have one lock";
}

/// A board that refuses in the middle of being put back.
class HalfWayBoard : public FileBoard {
public:
    using FileBoard::FileBoard;
    void restore(const ClockState&) {
        apply({600_MHz, auto_clock});
        throw Error{Errc::refused, {"restore", "", "", ""}};
    }
};

TEST_F(Owner, WhoseSuccessorPutBackHalfIsSettledByTheNext) {
    const pid_t owner = start_owner([](Clocks& clocks) {
        ::kill(clocks.watchdog(), SIGKILL);
        return ::raise(SIGKILL);
    });
    EXPECT_EQ(status_of(owner), -SIGKILL);
    HalfWayBoard refusing{files_};
    EXPECT_THROW((OwnedClocks<HalfWayBoard>{refusing, place()}), Error);
    EXPECT_EQ(level(), "manual");
    EXPECT_TRUE(record().history.uncertain);
    Clocks next{board_, place()};
    EXPECT_EQ(next.settled(), RestoreDecision::write_back) << "it passed for somebody else's clock";
    EXPECT_EQ(level(), "auto");
}

/// A board that does not say what it holds.
class MuteBoard : public FileBoard {
public:
    using FileBoard::FileBoard;
    [[nodiscard]] ClockState read_clock_state() const {
        throw Error{Errc::vanished, {"read", "", "", ""}};
    }
};

TEST_F(Owner, WhoseSuccessorDidNotWriteLeavesStrangersAlone) {
    const pid_t owner = start_owner([](Clocks& clocks) {
        ::kill(clocks.watchdog(), SIGKILL);
        return ::raise(SIGKILL);
    });
    EXPECT_EQ(status_of(owner), -SIGKILL);
    MuteBoard mute{files_};
    EXPECT_THROW(settle(place().folder, record(), mute), Error);
    EXPECT_FALSE(record().history.uncertain);
    FileBoard{files_}.apply({1500_MHz, auto_clock});
    Clocks next{board_, place()};
    EXPECT_EQ(next.settled(), RestoreDecision::leave_external);
    EXPECT_EQ(level(), "manual");
}

TEST_F(Owner, KnowsItsWatchdogAfterARestoreUnderItsFreeze) {
    Clocks clocks{board_, place()};
    lower(clocks);
    const pid_t watchdog = clocks.watchdog();
    const pid_t restorer = start([&] {  // as kdvfs-restore --suspended does
        const RestorePlace here = place();
        FileBoard board{files_};
        return settle(here.folder, *find_record(here.folder, board.info().address), board) ==
                       RestoreDecision::write_back
                   ? 0
                   : 1;
    });
    EXPECT_EQ(status_of(restorer), 0);
    EXPECT_EQ(level(), "auto");
    EXPECT_EQ(clocks.restored_while_stopped(), 1U);
    EXPECT_EQ(clocks.watchdog(), watchdog);
    const Descriptor file = place().folder.open(record_name);
    EXPECT_EQ(read_note(file.get()).words, "watching");
    EXPECT_EQ(read_note(file.get()).process, watchdog);
}

TEST_F(Owner, GoesOnAfterARestoreThatFailedUnderItsFreeze) {
    Clocks clocks{board_, place()};
    lower(clocks);
    const pid_t watchdog = clocks.watchdog();
    const pid_t restorer = start([&] {
        const RestorePlace here = place();
        HalfWayBoard board{files_};
        try {
            settle(here.folder, *find_record(here.folder, board.info().address), board);
        } catch (const Error&) {
            return 0;
        }
        return 1;
    });
    EXPECT_EQ(status_of(restorer), 0);
    EXPECT_TRUE(record().history.uncertain);
    EXPECT_EQ(clocks.watchdog(), watchdog);
    // Nobody is putting anything back: who wants the device is told so at once.
    const pid_t second = start([&] {
        const auto began = Clock::now();
        try {
            const DeviceLock lock{place(), board_.info().address, {.for_watchdog = 5s}};
        } catch (const Error& error) {
            const bool names_owner = error.text().vendor_words.starts_with("process ");
            return names_owner && Clock::now() - began < 2s ? 0 : 1;
        }
        return 2;
    });
    EXPECT_EQ(status_of(second), 0);
    lower(clocks);
    EXPECT_FALSE(record().history.uncertain) << "the owner knows what the board holds";
}

/// A board that is tried at opening, during which its record's folder goes away.
class LosingBoard : public FileBoard {
public:
    using FileBoard::FileBoard;
    void probe() {
        apply({900_MHz, auto_clock});
        lose();
    }
    std::function<void()> lose;
};

TEST_F(Owner, WhoseSecondRecordCannotBeMadeIsRestoredByTheFirst) {
    const pid_t owner = start([&] {
        LosingBoard board{files_};
        OwnedClocks<LosingBoard> clocks{board, place()};
        board.lose = [&] {
            std::filesystem::remove_all(own_.at("own"));
            own_.write("own", "no folder");
        };
        try {
            clocks.probe();
        } catch (const Error& error) {
            return error.code() == Errc::io && board.level() == "manual" ? 0 : 2;
        }
        return 1;
    });
    EXPECT_EQ(status_of(owner), 0);
    EXPECT_LT(time_until([&] { return level() == "auto"; }), 2s);
}

TEST_F(Owner, WithARecordThatIsNotToBeTrustedIsToldSo) {
    { Clocks clocks{board_, place()}; }
    const std::string record = place().folder.path() + "/record";
    ASSERT_EQ(::mkfifo(record.c_str(), 0600), 0);
    board_.apply({900_MHz, auto_clock});
    try {
        const Clocks clocks{board_, place()};
        FAIL() << "a fifo was taken for a record";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::refused);
        EXPECT_EQ(error.text().vendor_words, "it is no file");
    }
    EXPECT_EQ(level(), "manual");
}

}  // namespace
}  // namespace kdvfs::detail
