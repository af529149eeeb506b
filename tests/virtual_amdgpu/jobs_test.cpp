// SPDX-License-Identifier: MIT
//
// A node of four virtual GPUs under a scheduler: its prolog and epilog, jobs of users who are not
// root, in containers and outside, that end in every way. What a job was given it finds as the node
// was; what it leaves is put back; its neighbour is not touched.
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <kdvfs/detail/train/owned_power_limit.hpp>

#include <tests/virtual_amdgpu/containers.hpp>
#include <tests/virtual_amdgpu/file_system.hpp>

#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace kdvfs {
namespace {

using namespace kdvfs::literals;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using device::AmdgpuSysfs;
using virtual_amdgpu::FileSystem;
using Clocks = detail::OwnedClocks<AmdgpuSysfs>;

const std::array<std::string, 4> gpus{"0000:c1:00.0", "0000:c4:00.0", "0000:c7:00.0",
                                      "0000:ca:00.0"};
constexpr uid_t alice = 61001;
constexpr uid_t bob = 61002;
constexpr uid_t carol = 61003;
constexpr unsigned long in_container = CLONE_NEWPID | CLONE_NEWNS;

/// How often a test that kills does so: a few times in the suite, 1000 times in the soak.
unsigned kills(unsigned in_the_suite) {
    const char* const number = std::getenv("KDVFS_KILLS");
    return number != nullptr ? static_cast<unsigned>(std::atoi(number)) : in_the_suite;
}

/// A GPU that is owned, opened at once with its clocks.
struct Owned {
    explicit Owned(const std::string& address)
        : gpu{*io::parse_pci_address(address)}, clocks{gpu} {}

    void lower(Megahertz cap = Megahertz{900}) {
        clocks.apply({cap, auto_clock});
        static_cast<void>(clocks.read_clock_state());
    }

    AmdgpuSysfs gpu;
    Clocks clocks;
};

class Node : public virtual_amdgpu::FileSystemTest {
protected:
    void SetUp() override {
        FileSystemTest::SetUp();
        if (IsSkipped()) return;
        ::setenv("KDVFS_RESTORE", KDVFS_RESTORE_PROGRAM, 0);
        ::unsetenv("KDVFS_RECORDS");
        ::umask(022);
        for (unsigned i = 0; i < gpus.size(); ++i) found_[i] = FileSystem::settings(i);
        std::system("rm -rf /run/kdvfs");
        shared_ = virtual_amdgpu::shared_with_children<Shared>();
    }

    static int prolog(uid_t user, const std::string& its) {
        return script("prolog.sh", its, std::to_string(user));
    }
    static int epilog(const std::string& its) { return script("epilog.sh", its, ""); }

    /// A process of a job, in a container of its own or not. Its exit status is what `body`
    /// returns.
    pid_t start(uid_t user, const std::function<int()>& body, unsigned long namespaces = 0) const {
        const auto child = static_cast<pid_t>(
            namespaces == 0 ? ::fork() : ::syscall(SYS_clone, namespaces | SIGCHLD, 0, 0, 0, 0));
        if (child != 0) return child;
        try {
            if ((namespaces & CLONE_NEWNS) != 0) enter_container();
            if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) {
                ::_exit(98);
            }
            ::_exit(body());
        } catch (const std::exception& error) {
            std::fprintf(stderr, "job: %s\n", error.what());
            ::_exit(99);
        }
    }

    static int end_of(pid_t child) {
        int status = 0;
        ::waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }

    void wait_for_words(unsigned count) const {
        const auto begin = Clock::now();
        while (shared_->said.load() < count) {
            ASSERT_LT(Clock::now() - begin, 10s) << "the job has not set its clocks";
            std::this_thread::sleep_for(100us);
        }
    }

    static Clock::duration time_until(const std::function<bool()>& condition) {
        const auto begin = Clock::now();
        while (!condition() && Clock::now() - begin < 10s) std::this_thread::sleep_for(100us);
        return Clock::now() - begin;
    }

    /// What opening a GPU says to a user: nothing, or the code of the error.
    std::optional<Errc> refusal(uid_t user, const std::string& gpu,
                                unsigned long namespaces = 0) const {
        const int status = end_of(start(
            user,
            [&] {
                try {
                    const Owned owned{gpu};
                } catch (const Error& error) {
                    return 10 + static_cast<int>(error.code());
                }
                return 0;
            },
            namespaces));
        if (status == 0) return std::nullopt;
        return static_cast<Errc>(status - 10);
    }

    [[nodiscard]] bool is_as_found(unsigned gpu) const {
        return FileSystem::settings(gpu) == found_[gpu];
    }

    struct Shared {
        std::atomic<unsigned> said{0};
        std::atomic<pid_t> watchdog{0};
    };
    Shared* shared_ = nullptr;
    std::array<std::string, 4> found_;

private:
    static int script(const std::string& name, const std::string& its, const std::string& user) {
        const std::string command = "KDVFS_JOB_GPUS='" + its + "' sh " KDVFS_SCRIPTS "/" + name +
                                    " " + user + " >/dev/null";
        const int status = std::system(command.c_str());
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

    /// As a container sees the node: a /run of its own, with the node's /run/kdvfs in it.
    static void enter_container() {
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
        const bool made = ::mkdir("/dev/shm/kdvfs", 0755) == 0 || errno == EEXIST;
        if (!made || ::mount("/run/kdvfs", "/dev/shm/kdvfs", nullptr, MS_BIND, nullptr) != 0 ||
            ::mount("none", "/run", "tmpfs", 0, "mode=755") != 0 ||
            ::mkdir("/run/kdvfs", 0755) != 0 ||
            ::mount("/dev/shm/kdvfs", "/run/kdvfs", nullptr, MS_BIND, nullptr) != 0) {
            ::_exit(97);
        }
        static_cast<void>(::mount("proc", "/proc", "proc", 0, nullptr));
    }
};

TEST_F(Node, TellsOneStoryOfTwoJobsAndTheirSuccessor) {
    const std::string first = gpus[0] + " " + gpus[1];
    const std::string second = gpus[2] + " " + gpus[3];
    ASSERT_EQ(prolog(alice, first), 0);
    ASSERT_EQ(prolog(bob, second), 0);

    const auto job = [&](unsigned one, unsigned two, Megahertz cap) {
        return [=, this] {
            Owned left{gpus[one]};
            Owned right{gpus[two]};
            if (left.clocks.describe().find("one owner on this machine") == std::string::npos) {
                return 1;
            }
            left.lower(cap);
            right.lower(cap);
            shared_->said.fetch_add(1);
            while (true) {
                std::this_thread::sleep_for(20ms);
                left.lower(cap);
            }
        };
    };
    const pid_t alices = start(alice, job(0, 1, 900_MHz), in_container);
    const pid_t bobs = start(bob, job(2, 3, 1000_MHz));
    wait_for_words(2);
    for (unsigned i = 0; i < 4; ++i) EXPECT_FALSE(is_as_found(i)) << i;
    const std::string bobs_clocks = FileSystem::settings(3);

    // One lock for all users, namespaces and root.
    EXPECT_EQ(refusal(bob, gpus[0]), Errc::refused) << "it is not bob's";
    EXPECT_EQ(refusal(alice, gpus[0]), Errc::busy) << "outside the container";
    EXPECT_EQ(refusal(alice, gpus[0], in_container), Errc::busy) << "in another";
    EXPECT_EQ(refusal(0, gpus[0]), Errc::busy) << "root";

    // The container is killed with all that is in it. On a busy host one of its watchdogs may
    // restore a clock before the kill reaches it.
    ::kill(alices, SIGKILL);
    EXPECT_EQ(end_of(alices), -SIGKILL);
    EXPECT_EQ(epilog(first), 0);
    EXPECT_TRUE(is_as_found(0)) << FileSystem::settings(0);
    EXPECT_TRUE(is_as_found(1)) << FileSystem::settings(1);
    EXPECT_EQ(FileSystem::settings(3), bobs_clocks) << "the neighbour's";
    EXPECT_EQ(refusal(alice, gpus[0]), Errc::refused) << "it is alice's no longer";

    // The next job finds the clocks as the node has them, while the neighbour goes on.
    ASSERT_EQ(prolog(carol, first), 0);
    const pid_t carols = start(carol, [&] {
        Owned owned{gpus[0]};
        if (owned.clocks.settled() != detail::RestoreDecision::nothing) return 1;
        if (owned.clocks.read_clock_state() != ClockState{}) return 2;
        owned.lower(700_MHz);
        owned.clocks.restore({});
        static_cast<void>(owned.clocks.read_clock_state());
        return 0;
    });
    EXPECT_EQ(end_of(carols), 0);
    EXPECT_EQ(epilog(first), 0);

    // Bob's process alone is killed: his watchdogs need no root.
    EXPECT_FALSE(is_as_found(2));
    ::kill(bobs, SIGKILL);
    EXPECT_EQ(end_of(bobs), -SIGKILL);
    time_until([&] { return is_as_found(2) && is_as_found(3); });
    for (unsigned i = 0; i < 4; ++i) EXPECT_TRUE(is_as_found(i)) << i;
    EXPECT_EQ(epilog(second), 0);
}

TEST_F(Node, IsNotHeldUpByWhoHoldsAnEarlierJobsLock) {
    ASSERT_EQ(prolog(alice, gpus[0]), 0);
    const pid_t escaped = start(alice, [&] {
        const int lock = ::open(("/run/kdvfs/" + gpus[0] + ".lock").c_str(), O_RDONLY);
        if (::flock(lock, LOCK_EX) != 0) return 1;
        shared_->said.fetch_add(1);
        while (true) std::this_thread::sleep_for(1s);
    });
    wait_for_words(1);
    EXPECT_EQ(refusal(alice, gpus[0]), Errc::busy);
    EXPECT_EQ(epilog(gpus[0]), 0);
    ASSERT_EQ(prolog(bob, gpus[0]), 0);
    EXPECT_EQ(refusal(bob, gpus[0]), std::nullopt) << "the lock is another one";
    EXPECT_EQ(epilog(gpus[0]), 0);
    ::kill(escaped, SIGKILL);
    EXPECT_EQ(end_of(escaped), -SIGKILL);
}

TEST_F(Node, HasALockForThoseWhoMaySetTheClocksAlone) {
    const std::string lock = "/run/kdvfs/" + gpus[0] + ".lock";
    const std::string level =
        "/sys/bus/pci/devices/" + gpus[0] + "/power_dpm_force_performance_level";
    const auto may_hold = [&](uid_t user) {
        return end_of(start(user, [&] {
                   const int file = ::open(lock.c_str(), O_RDONLY);
                   return file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : 1;
               })) == 0;
    };
    const auto root_opens = [&] { return refusal(0, gpus[0]) == std::nullopt; };
    const auto readers = [&] {
        struct stat status {};
        ::stat(lock.c_str(), &status);
        return status.st_mode & 0777;
    };
    // No prolog ran: root opens the GPU first.
    ASSERT_TRUE(root_opens());
    EXPECT_EQ(readers(), 0600u);
    EXPECT_FALSE(may_hold(alice)) << "and would keep root out";
    EXPECT_EQ(refusal(alice, gpus[0]), Errc::refused);
    EXPECT_TRUE(root_opens());
    // A rule has given a group the clock files: who is in it shares the lock with root.
    ASSERT_EQ(::chown(level.c_str(), 0, bob), 0);
    ASSERT_EQ(::chmod(level.c_str(), 0664), 0);
    ASSERT_TRUE(root_opens());
    EXPECT_EQ(readers(), 0640u);
    EXPECT_TRUE(may_hold(bob));
    EXPECT_FALSE(may_hold(alice));
    // A lock of earlier times, for all.
    ASSERT_EQ(::chown(level.c_str(), 0, 0), 0);
    ASSERT_EQ(::chmod(level.c_str(), 0644), 0);
    ASSERT_EQ(::chmod(lock.c_str(), 0644), 0);
    ASSERT_TRUE(root_opens());
    EXPECT_FALSE(may_hold(alice));
    // A device that no file sets.
    const std::string other = "0000:1b:00.0";
    static_cast<void>(detail::RestorePlace::of_this_process(other, {}));
    struct stat status {};
    ASSERT_EQ(::stat(("/run/kdvfs/" + other + ".lock").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    // And one that a prolog has given to alice.
    const std::string alices = "0000:1c:00.0";
    ASSERT_EQ(prolog(alice, alices), 0);
    static_cast<void>(detail::RestorePlace::of_this_process(alices, {}));
    ASSERT_EQ(::stat(("/run/kdvfs/" + alices + ".lock").c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, alice);
}

TEST_F(Node, WithoutAFolderForAllHasOneForEachUser) {
    // The clock files are the user's, by an udev rule, say.
    const std::string files = "/sys/bus/pci/devices/" + gpus[0];
    for (const char* name : {"power_dpm_force_performance_level", "pp_od_clk_voltage"}) {
        ASSERT_EQ(::chown((files + "/" + name).c_str(), alice, alice), 0);
    }
    const pid_t owner = start(alice, [&] {
        Owned owned{gpus[0]};
        owned.lower();
        if (owned.clocks.describe().find("this user's processes only") == std::string::npos) {
            return 1;
        }
        ::kill(owned.clocks.watchdog(), SIGKILL);
        return ::raise(SIGKILL);
    });
    EXPECT_EQ(end_of(owner), -SIGKILL);
    EXPECT_FALSE(is_as_found(0));
    const std::string words = std::string{KDVFS_RESTORE_PROGRAM} + " >/dev/null";
    EXPECT_EQ(end_of(start(alice, [&] { return WEXITSTATUS(std::system(words.c_str())); })), 0);
    EXPECT_TRUE(is_as_found(0));
    std::system(("rm -rf /tmp/kdvfs-" + std::to_string(alice)).c_str());
}

/// A group may set the clocks, by an udev rule, and root has made the lock and a folder of its own.
TEST_F(Node, SettlesARecordOfAUsersOwnUnderTheMachinesLock) {
    const std::string files = "/sys/bus/pci/devices/" + gpus[0];
    for (const char* name : {"power_dpm_force_performance_level", "pp_od_clk_voltage"}) {
        ASSERT_EQ(::chown((files + "/" + name).c_str(), 0, bob), 0);
        ASSERT_EQ(::chmod((files + "/" + name).c_str(), 0664), 0);
    }
    ASSERT_EQ(refusal(0, gpus[0]), std::nullopt);
    const pid_t owner = start(bob, [&] {
        Owned owned{gpus[0]};
        owned.lower();
        shared_->watchdog = owned.clocks.watchdog();
        shared_->said = 1;
        return ::pause();
    });
    wait_for_words(1);
    const auto restore_as_bob = [&](const std::string& words) {
        const std::string command = KDVFS_RESTORE_PROGRAM " " + words + " >/dev/null 2>&1";
        return end_of(start(bob, [&] { return WEXITSTATUS(std::system(command.c_str())); }));
    };
    // A lock from before root came is nobody's.
    const std::string own = "/tmp/kdvfs-" + std::to_string(bob);
    std::ofstream{own + "/" + gpus[0] + ".lock"} << "";
    EXPECT_EQ(restore_as_bob(gpus[0]), 1) << "it is at work";
    EXPECT_FALSE(is_as_found(0));
    std::filesystem::remove(own + "/" + gpus[0] + ".lock");
    ::kill(shared_->watchdog, SIGKILL);
    ::kill(owner, SIGKILL);
    EXPECT_EQ(end_of(owner), -SIGKILL);
    EXPECT_FALSE(is_as_found(0));
    EXPECT_EQ(restore_as_bob(gpus[0]), 0);
    EXPECT_TRUE(is_as_found(0));
    std::filesystem::remove_all(own);
}

TEST_F(Node, TakesBackAGpuThatWasHeldAtItsHighestClock) {
    ASSERT_EQ(prolog(alice, gpus[0]), 0);
    const auto job = [&] {
        Owned owned{gpus[0]};
        owned.lower(owned.clocks.supported_clocks().core.listed.back());
        shared_->said = 1;
        return ::pause();
    };
    const pid_t owner = start(alice, job, in_container);
    wait_for_words(1);
    virtual_amdgpu::kill_container(owner);
    EXPECT_EQ(end_of(owner), -SIGKILL);
    EXPECT_FALSE(is_as_found(0));
    EXPECT_EQ(epilog(gpus[0]), 0);
    EXPECT_TRUE(is_as_found(0)) << FileSystem::settings(0);
}

TEST_F(Node, IsDrainedWhereTheEpilogCannotTakeTheClockFilesBack) {
    ASSERT_EQ(prolog(alice, gpus[0]), 0);
    std::filesystem::create_directory("/run/programs");
    std::ofstream{"/run/programs/chown"} << "#!/bin/sh\n"
                                            "case $2 in /sys/*) exit 1 ;; esac\n"
                                            "exec /bin/chown \"$@\"\n";
    ::chmod("/run/programs/chown", 0755);
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", ("/run/programs:" + path).c_str(), 1);
    EXPECT_EQ(epilog(gpus[0]), 1);
    ::setenv("PATH", path.c_str(), 1);
    EXPECT_EQ(epilog(gpus[0]), 0);
}

TEST_F(Node, WhoseEpilogNeverRanHasItsPowerLimitBackByTheProlog) {
    using Limit = device::amd::SysfsPowerLimit;
    ASSERT_EQ(prolog(0, gpus[0]), 0);
    const auto card = [] { return device::amd::find_card(*io::parse_pci_address(gpus[0])); };
    const pid_t owner = start(
        0,
        [&] {
            Limit limit{card()};
            train::OwnedPowerLimit owned{limit};
            owned.set_power_limit({150});
            shared_->said = 1;
            return ::pause();
        },
        in_container);
    wait_for_words(1);
    virtual_amdgpu::kill_container(owner);
    EXPECT_EQ(end_of(owner), -SIGKILL);
    EXPECT_FALSE(is_as_found(0));
    EXPECT_EQ(prolog(alice, gpus[0]), 0);
    EXPECT_TRUE(is_as_found(0)) << FileSystem::settings(0);
    EXPECT_EQ(epilog(gpus[0]), 0);
}

/// @returns a command's exit status and all that it says
std::pair<int, std::string> run(const std::string& command) {
    FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
    std::string text;
    std::array<char, 4096> part{};
    while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe)) {
        text.append(part.data(), count);
    }
    return {WEXITSTATUS(::pclose(pipe)), text};
}

/// Runs kdvfs-restore for a GPU.
std::pair<int, std::string> restore(const std::string& words) {
    return run(KDVFS_RESTORE_PROGRAM " " + words);
}

#ifdef KDVFS_PROGRAM
/// The lines of a dry run that begin with a word, without it.
std::vector<std::string> lines_of(const std::string& text, const std::string& word) {
    std::vector<std::string> lines;
    std::istringstream stream{text};
    for (std::string line; std::getline(stream, line);) {
        const std::size_t begin = line.find_first_not_of(' ');
        if (begin == std::string::npos || line.compare(begin, word.size() + 1, word + ' ') != 0)
            continue;
        lines.push_back(line.substr(line.find_first_not_of(' ', begin + word.size())));
    }
    return lines;
}

/// What a dry run says is what a run writes: written by hand it changes the board as kdvfs does,
/// and what it says undoes it, does.
TEST_F(Node, ShowsInADryRunWhatIsWrittenAndHowItIsUndone) {
    const auto clocks = FileSystem::settings(0);
    const auto [status, words] = run(KDVFS_PROGRAM " measure-latency --clocks 900 --dry-run");
    ASSERT_EQ(status, 0) << words;
    EXPECT_EQ(FileSystem::settings(0), clocks) << "a dry run has written";
    EXPECT_NE(::access("/run/kdvfs", F_OK), 0) << "a dry run has made a record";
    const std::string folder = "/sys/devices/pci0000:c0/" + gpus[0] + "/";
    const auto of_first_board = [](std::string text) { return text.substr(0, text.find(gpus[1])); };
    ASSERT_EQ(words.find(gpus[0]) < words.find(gpus[1]), true) << words;
    for (const std::string& line : lines_of(of_first_board(words), "writes")) {
        const std::size_t colon = line.find(": ");
        std::ofstream{line.substr(0, colon)} << line.substr(colon + 2) << std::endl;
    }
    const std::string written = FileSystem::settings(0);
    EXPECT_NE(written, clocks) << words;
    for (const std::string& line : lines_of(of_first_board(words), "by hand"))
        EXPECT_EQ(std::system(line.c_str()), 0) << line;
    EXPECT_EQ(FileSystem::settings(0), clocks) << words;
    {
        Owned owned{gpus[0]};
        owned.lower(900_MHz);
        EXPECT_EQ(FileSystem::settings(0), written) << "kdvfs writes something else";
    }
    std::system("rm -rf /run/kdvfs");

    // A power limit.
    const auto [limited, limits] =
        run(KDVFS_PROGRAM " power-limit --gpu " + gpus[0] + " --step 50 --dry-run");
    ASSERT_EQ(limited, 0) << limits;
    const auto writes = lines_of(limits, "writes");
    ASSERT_EQ(writes.size(), 5U) << limits;
    EXPECT_NE(writes.front().find("power1_cap: 100000000"), std::string::npos) << limits;
    EXPECT_NE(writes.back().find("power1_cap: 300000000"), std::string::npos) << limits;
    EXPECT_EQ(FileSystem::settings(0), clocks) << "a dry run has written";

    // What a killed program has left.
    ASSERT_EQ(prolog(alice, gpus[0]), 0);
    const pid_t owner = start(alice, [&] {
        Owned owned{gpus[0]};
        owned.lower();
        ::kill(owned.clocks.watchdog(), SIGKILL);
        return ::raise(SIGKILL);
    });
    EXPECT_EQ(end_of(owner), -SIGKILL);
    time_until([&] {  // its watchdog has ended, too
        const int lock = ::open(("/run/kdvfs/" + gpus[0] + ".lock").c_str(), O_RDONLY | O_CLOEXEC);
        const bool is_free = ::flock(lock, LOCK_SH | LOCK_NB) == 0;
        ::close(lock);
        return is_free;
    });
    const std::string left = FileSystem::settings(0);
    const auto [looked, found] = run(KDVFS_PROGRAM " restore --dry-run " + gpus[0]);
    EXPECT_EQ(looked, 0) << found;
    EXPECT_NE(found.find("would be restored"), std::string::npos) << found;
    EXPECT_NE(found.find("mode auto"), std::string::npos) << found;
    EXPECT_EQ(FileSystem::settings(0), left) << "a dry run has restored";
    EXPECT_EQ(run(KDVFS_PROGRAM " restore " + gpus[0]).first, 0);
    EXPECT_TRUE(is_as_found(0)) << FileSystem::settings(0);
    EXPECT_EQ(epilog(gpus[0]), 0);
}

/// Killed while the program runs under a limit that the search has set.
TEST_F(Node, PutsThePowerLimitBackBehindASearchThatIsKilled) {
    const pid_t search = start(0, [] {
        // Reports what a run took, but for the second one, which hangs.
        const char* const program =
            "printf 'time_s,energy_j\\n1,100\\n' > \"$KDVFS_COST\"; "
            "[ \"$(cat /sys/bus/pci/devices/0000:c1:00.0/hwmon/hwmon*/power1_cap)\" = 300000000 ] "
            "|| exec sleep 60";
        return ::execl(KDVFS_PROGRAM, KDVFS_PROGRAM, "power-limit", "--gpu", gpus[0].c_str(),
                       "--counter", "program", "--", "sh", "-c", program, nullptr);
    });
    EXPECT_LT(time_until([&] { return !is_as_found(0); }), 10s) << "no limit was set";
    ::kill(search, SIGKILL);
    EXPECT_EQ(end_of(search), -SIGKILL);
    EXPECT_LT(time_until([&] { return is_as_found(0); }), 10s) << FileSystem::settings(0);
}

TEST_F(Node, TellsWhoHoldsAGpuAndLeavesNothingByTelling) {
    const std::string info = KDVFS_PROGRAM " info";
    const auto [status, words] = run(info);
    EXPECT_EQ(status, 0);
    EXPECT_NE(words.find("(0000:c1:00.0), gfx90a"), std::string::npos) << words;
    EXPECT_NE(words.find("may set    clocks: this user may write"), std::string::npos) << words;
    EXPECT_NE(words.find("held by    nobody"), std::string::npos) << words;
    EXPECT_NE(::access("/run/kdvfs", F_OK), 0) << "it was only told to look";

    ASSERT_EQ(prolog(alice, gpus[0]), 0);
    const pid_t owner = start(alice, [&] {
        Owned owned{gpus[0]};
        owned.lower();
        shared_->said = 1;
        return ::pause();
    });
    wait_for_words(1);
    const std::string holder =
        "held by    process " + std::to_string(owner) + " of user " + std::to_string(alice);
    EXPECT_NE(run(info).second.find(holder), std::string::npos) << run(info).second;
    ::kill(owner, SIGKILL);
    end_of(owner);
    EXPECT_EQ(epilog(gpus[0]), 0);
}
#endif

TEST_F(Node, RefusesEveryBadRecordInWordsAndWritesNothing) {
    const std::string record = "/run/kdvfs/" + gpus[0] + "/record";
    const auto spoilt = [&](const std::function<void()>& how) {
        EXPECT_EQ(prolog(alice, gpus[0]), 0);
        const pid_t owner = start(alice, [&] {
            Owned owned{gpus[0]};
            owned.lower();
            ::kill(owned.clocks.watchdog(), SIGKILL);
            return ::raise(SIGKILL);
        });
        EXPECT_EQ(end_of(owner), -SIGKILL);
        const std::string held = FileSystem::settings();
        how();
        const auto [status, words] = restore(gpus[0]);
        EXPECT_EQ(status, 1);
        EXPECT_EQ(FileSystem::settings(), held) << words;
        std::system(("rm -rf " + record).c_str());
        EXPECT_EQ(epilog(gpus[0]), 0);
        FileSystem::tell("reset");
        return words;
    };
    const auto shell = [&](const std::string& command) {
        return [=] { EXPECT_EQ(std::system(("cd /run/kdvfs && " + command).c_str()), 0); };
    };
    const auto contains = [](const std::string& text, const std::string& part) {
        return text.find(part) != std::string::npos ? part : text;
    };
    const auto expect = [&](const std::string& command, const std::string& words) {
        EXPECT_EQ(contains(spoilt(shell(command)), words), words) << command;
    };
    expect("truncate -s 500 " + record, "it is cut short");
    expect("chmod 0666 " + record, "others may write to it");
    expect("chown 61002 " + record, "it belongs to user 61002 and its folder to user 61001");
    expect("mv " + record + " /run/other && ln -s /run/other " + record, "it is a link");
    expect("ln " + record + " /run/kdvfs/second", "it has a second name");
    expect("rm " + record + " && mkfifo " + record, "it is no file");
    expect("rm " + record + " && mknod " + record + " c 1 5", "it is no file");
    expect("rm " + record + " && mkdir " + record, "it is no file");
    expect("sed -i 's/kdvfs 1/kdvfs 2/' " + record + " && chown 61001 " + record,
           "neither of its two copies is whole");
    const auto rewrite = [&](const std::function<void(detail::RestoreEntry&)>& how) {
        return [&, how] {
            const auto folder = detail::RestoreFolder::find("/run/kdvfs/" + gpus[0]);
            auto entry = *detail::find_record(*folder, gpus[0]);
            how(entry);
            const detail::RestoreRecord anew{*folder, entry};
        };
    };
    EXPECT_EQ(contains(spoilt(rewrite([](auto& entry) { entry.kind = "abacus"; })), "abacus"),
              "abacus");

    // A GPU that is gone.
    const std::string gone = "0000:ff:00.0";
    ASSERT_EQ(prolog(alice, gone), 0);
    const auto folder = detail::RestoreFolder::find("/run/kdvfs/" + gone);
    const detail::RestoreRecord left{
        *folder, {detail::boot_id(), "amdgpu", gone, 1, alice, {.initial = {}, .uncertain = true}}};
    const auto [status, words] = restore(gone);
    EXPECT_EQ(status, 1);
    EXPECT_EQ(contains(words, "the amdgpu driver shows"), "the amdgpu driver shows");
}

/// A job writes its own record, and may lie in it.
TEST_F(Node, RestoresToThePrologsSnapshotWhateverTheJobsRecordSays) {
    for (const bool has_snapshot : {true, false}) {
        FileSystem::tell("reset");
        AmdgpuSysfs administrator{*io::parse_pci_address(gpus[0])};
        if (has_snapshot) administrator.apply({1400_MHz, auto_clock});
        const std::string found = FileSystem::settings();
        ASSERT_EQ(prolog(alice, gpus[0]), 0);
        if (!has_snapshot) std::system("rm -rf /run/kdvfs/snapshots");
        const pid_t forger = start(alice, [&] {
            Owned owned{gpus[0]};
            owned.lower();
            ::kill(owned.clocks.watchdog(), SIGKILL);
            const auto folder = detail::RestoreFolder::find("/run/kdvfs/" + gpus[0]);
            auto entry = *detail::find_record(*folder, gpus[0]);
            entry.history.initial = {{600_MHz, auto_clock}, {500_MHz, auto_clock}, "manual"};
            const detail::RestoreRecord forged{*folder, entry};
            return ::raise(SIGKILL);
        });
        ASSERT_EQ(end_of(forger), -SIGKILL);
        EXPECT_NE(FileSystem::settings(), found) << "the job has lowered it";
        EXPECT_EQ(epilog(gpus[0]), 0);
        EXPECT_EQ(FileSystem::settings(), found) << has_snapshot;
        EXPECT_FALSE(std::filesystem::exists("/run/kdvfs/snapshots/" + gpus[0]));
    }
}

TEST_F(Node, LetsARecordOfAnEarlierBootBindNobody) {
    ASSERT_EQ(prolog(alice, gpus[0]), 0);
    const auto leave = [&] {
        return end_of(start(alice, [&] {
            const auto folder = detail::RestoreFolder::find("/run/kdvfs/" + gpus[0]);
            const detail::RestoreRecord left{
                *folder,
                {"another", "amdgpu", gpus[0], 1, alice, {.initial = {}, .uncertain = true}}};
            return 0;
        }));
    };
    ASSERT_EQ(leave(), 0);
    EXPECT_EQ(refusal(alice, gpus[0]), std::nullopt);
    ASSERT_EQ(leave(), 0);
    const auto [status, words] = restore(gpus[0]);
    EXPECT_EQ(status, 0) << words;
    EXPECT_FALSE(std::filesystem::exists("/run/kdvfs/" + gpus[0] + "/record"));
    EXPECT_EQ(epilog(gpus[0]), 0);
    EXPECT_TRUE(is_as_found(0));
}

/// Who was given clocks may write what root believes of clocks, and of nothing else.
TEST_F(Node, SetsNoPowerLimitForWhoeverWasGivenClocks) {
    ASSERT_EQ(prolog(alice, gpus[0]), 0);
    const pid_t forger = start(alice, [&] {
        const auto limit = [](Megahertz watts) {
            return ClockState{.cap = {.core = watts}, .floor = {}, .mode = "power limit"};
        };
        const auto place = detail::RestorePlace::of_this_process(gpus[0], {});
        const detail::RestoreRecord record{place.folder,
                                           {detail::boot_id(),
                                            "amdgpu-power",
                                            gpus[0],
                                            1,
                                            alice,
                                            {.initial = limit({150}), .written = limit({300})}}};
        return 0;
    });
    EXPECT_EQ(end_of(forger), 0);
    const auto [status, words] = restore(gpus[0]);
    EXPECT_EQ(status, 1) << words;
    EXPECT_TRUE(is_as_found(0)) << FileSystem::settings(0);
    const auto folder = detail::RestoreFolder::find("/run/kdvfs/" + gpus[0]);
    EXPECT_EQ(detail::read_note(folder->open(detail::record_name).get()).words, "none")
        << "nobody has begun to restore anything";
    std::system(("rm -rf /run/kdvfs/" + gpus[0] + "/record").c_str());
    EXPECT_EQ(epilog(gpus[0]), 0);
}

TEST_F(Node, RestoresUnderAJobThatItsSchedulerHasFrozen) {
    ASSERT_EQ(prolog(alice, gpus[0]), 0);
    const pid_t owner = start(alice, [&] {
        Owned owned{gpus[0]};
        owned.lower();
        shared_->watchdog = owned.clocks.watchdog();
        shared_->said = 1;
        while (owned.clocks.restored_while_stopped() == 0) {
            static_cast<void>(owned.clocks.read_clock_state());
            std::this_thread::sleep_for(50ms);
        }
        owned.lower(800_MHz);
        shared_->said = 2;
        return ::pause();
    });
    wait_for_words(1);
    auto [status, words] = restore("--suspended " + gpus[0]);
    EXPECT_EQ(status, 1) << "it is at work: " << words;
    EXPECT_FALSE(is_as_found(0));

    ::kill(shared_->watchdog, SIGSTOP);
    ::kill(owner, SIGSTOP);
    std::tie(status, words) = restore("--suspended " + gpus[0]);
    EXPECT_EQ(status, 0) << words;
    EXPECT_TRUE(is_as_found(0));
    ::kill(owner, SIGCONT);
    ::kill(shared_->watchdog, SIGCONT);
    wait_for_words(2);
    EXPECT_FALSE(is_as_found(0)) << "it has taken up its clocks again";
    ::kill(owner, SIGKILL);
    end_of(owner);
    time_until([&] { return is_as_found(0); });
    EXPECT_TRUE(is_as_found(0));
    EXPECT_EQ(epilog(gpus[0]), 0);
}

/// Which of a job's processes are killed.
enum class Victim { process, watchdog, both, container };

class Kills : public Node, public testing::WithParamInterface<Victim> {
protected:
    /// A job of alice's that drives a clock at random until it is killed.
    int drive(unsigned seed) const {
        Owned owned{gpus[0]};
        std::minstd_rand random{seed};
        while (true) {
            owned.lower(Megahertz{501 + static_cast<std::uint32_t>(random() % 1199)});
            shared_->watchdog = owned.clocks.watchdog();
            shared_->said.fetch_add(1);
            if (random() % 4 == 0) {
                owned.clocks.restore({});
                static_cast<void>(owned.clocks.read_clock_state());
            }
        }
    }
};

TEST_P(Kills, LeaveNothingBehindAfterTheEpilog) {
    const Victim victim = GetParam();
    const unsigned count = kills(5);
    std::vector<double> milliseconds;
    std::minstd_rand random{11};
    unsigned by_epilog = 0;
    for (unsigned i = 0; i < count; ++i) {
        ASSERT_EQ(prolog(alice, gpus[0]), 0);
        shared_->said = 0;
        const bool contained = victim == Victim::container;
        const pid_t job = start(
            alice, [&] { return drive(i); }, contained ? in_container : 0UL);
        wait_for_words(1);
        const auto pause = [&] {
            std::this_thread::sleep_for(std::chrono::microseconds{random() % 5000});
        };
        pause();
        if (victim == Victim::watchdog) {
            // Replaced at the switch after its end; then the process.
            const pid_t first = shared_->watchdog;
            ::kill(first, SIGKILL);
            time_until([&] { return shared_->watchdog != first; });
        } else if (victim == Victim::both) {
            ::kill(i % 2 == 0 ? shared_->watchdog.load() : job, SIGKILL);
            pause();
            ::kill(i % 2 == 0 ? job : shared_->watchdog.load(), SIGKILL);
        }
        ::kill(job, SIGKILL);
        ASSERT_EQ(end_of(job), -SIGKILL);
        const auto killed = Clock::now();
        if (victim == Victim::process || victim == Victim::watchdog) {
            const bool changed = !is_as_found(0);
            time_until([&] { return is_as_found(0); });
            ASSERT_TRUE(is_as_found(0)) << i << ": a watchdog lived";
            if (changed) {
                milliseconds.push_back(
                    std::chrono::duration<double, std::milli>(Clock::now() - killed).count());
            }
        } else if (!is_as_found(0)) {
            ++by_epilog;
        }
        ASSERT_EQ(epilog(gpus[0]), 0) << i;
        ASSERT_TRUE(is_as_found(0)) << i << ": " << FileSystem::settings();
    }
    std::sort(milliseconds.begin(), milliseconds.end());
    if (!milliseconds.empty()) {
        std::printf(
            "%u kills, non-root; %zu found the clocks changed: restored by the watchdog, "
            "median %.1f ms, worst %.1f ms (virtual GPU over FUSE, 1 ms a write)\n",
            count, milliseconds.size(), milliseconds[milliseconds.size() / 2], milliseconds.back());
    } else {
        std::printf(
            "%u kills, non-root: nothing left after the epilog, which had something to "
            "restore, or a watchdog to wait for, %u times\n",
            count, by_epilog);
    }
}

INSTANTIATE_TEST_SUITE_P(Of, Kills,
                         testing::Values(Victim::process, Victim::watchdog, Victim::both,
                                         Victim::container),
                         [](const auto& of) {
                             switch (of.param) {
                                 case Victim::process: return "TheProcess";
                                 case Victim::watchdog: return "TheWatchdogAndThenTheProcess";
                                 case Victim::both: return "BothWithin5Ms";
                                 case Victim::container: return "TheContainer";
                             }
                             return "";
                         });

}  // namespace
}  // namespace kdvfs
