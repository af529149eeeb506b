// SPDX-License-Identifier: MIT
//
// Programs that drive a virtual GPU and die, in every way: the board must be found as it was. The
// GPU is a file system mounted over /sys in a mount namespace of the test's own.
#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>

#include <tests/virtual_amdgpu/containers.hpp>
#include <tests/virtual_amdgpu/file_system.hpp>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
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

constexpr io::PciAddress gpu_address{0, 0xc1, 0, 0};

/// Starts a child process by a raw system call where it needs namespaces of its own.
pid_t start(unsigned long namespaces, const std::function<void()>& body) {
    const auto child = static_cast<pid_t>(
        namespaces == 0 ? ::fork() : ::syscall(SYS_clone, namespaces | SIGCHLD, 0, 0, 0, 0));
    if (child != 0) return child;
    try {
        body();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
        ::_exit(2);
    }
    ::_exit(0);
}

int wait_for(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
}

class Killed : public virtual_amdgpu::FileSystemTest {
protected:
    void SetUp() override {
        FileSystemTest::SetUp();
        if (IsSkipped()) return;
        shared_ = virtual_amdgpu::shared_with_children<Shared>();
    }

    static std::string settings() { return FileSystem::settings(); }

    /// What the restore record of the board says, with the watchdog's note.
    static std::string record() {
        const auto place = restore::RestorePlace::of_this_process(
            "0000:c1:00.0", detail::settings_file_of(AmdgpuSysfs{gpu_address}));
        std::ifstream file{place.folder.path() + "/" + restore::record_name};
        return {std::istreambuf_iterator<char>{file}, {}};
    }

    /// Drives the clocks at random until it is killed.
    void drive(unsigned seed) const {
        AmdgpuSysfs gpu{gpu_address};
        Clocks clocks{gpu};
        std::minstd_rand random{seed};
        while (true) {
            clocks.apply(
                {Megahertz{501 + static_cast<std::uint32_t>(random() % 1199)}, auto_clock});
            static_cast<void>(clocks.read_clock_state());
            shared_->writes.fetch_add(1);
            if (random() % 4 == 0) {
                clocks.restore({});
                static_cast<void>(clocks.read_clock_state());
            }
        }
    }

    void wait_for_writes() const {
        const auto start = Clock::now();
        while (shared_->writes.load() == 0) {
            ASSERT_LT(Clock::now() - start, 20s) << "the child has not set a clock";
            std::this_thread::sleep_for(100us);
        }
    }

    /// How long until the board holds `wanted`. A watchdog takes some dozen reads, each two changes
    /// of process over FUSE: 2 s were seen beside four busy loops on two cores.
    static Clock::duration time_until(const std::string& wanted) {
        const auto start = Clock::now();
        while (settings() != wanted && Clock::now() - start < 20s) {
            std::this_thread::sleep_for(100us);
        }
        return Clock::now() - start;
    }

    struct Shared {
        std::atomic<unsigned> writes{0};
    };
    Shared* shared_ = nullptr;
};

TEST_F(Killed, AnywhereTheWatchdogPutsTheClocksBack) {
    const char* const soak = std::getenv("KDVFS_KILLS");
    const unsigned kills = soak != nullptr ? static_cast<unsigned>(std::atoi(soak)) : 50;
    const std::string before = settings();
    std::vector<double> milliseconds;  // of the kills that found the board changed
    std::minstd_rand random{7};
    for (unsigned i = 0; i < kills; ++i) {
        shared_->writes = 0;
        const pid_t victim = start(0, [&] { drive(i); });
        wait_for_writes();
        std::this_thread::sleep_for(std::chrono::microseconds{random() % 5000});
        const auto killed = Clock::now();
        ::kill(victim, SIGKILL);
        wait_for(victim);
        const bool changed = settings() != before;
        static_cast<void>(time_until(before));
        if (changed) {
            milliseconds.push_back(
                std::chrono::duration<double, std::milli>(Clock::now() - killed).count());
        }
        ASSERT_EQ(settings(), before) << "kill " << i << "; the record:\n" << record();
    }
    std::sort(milliseconds.begin(), milliseconds.end());
    ASSERT_FALSE(milliseconds.empty());
    std::printf(
        "%u kills, each followed by the state found before; %zu found the clocks changed: "
        "kill to restored clock median %.1f ms, worst %.1f ms (virtual GPU over FUSE, 1 ms "
        "a write)\n",
        kills, milliseconds.size(), milliseconds[milliseconds.size() / 2], milliseconds.back());
}

TEST_F(Killed, WithAForkedChildThatLivesOn) {
    const std::string before = settings();
    const pid_t victim = start(0, [&] {
        AmdgpuSysfs gpu{gpu_address};
        Clocks clocks{gpu};
        clocks.apply({900_MHz, auto_clock});
        static_cast<void>(clocks.read_clock_state());
        if (::fork() == 0) {
            ::sleep(2);
            ::_exit(0);
        }
        shared_->writes = 1;
        ::pause();
    });
    wait_for_writes();
    EXPECT_NE(settings(), before);
    ::kill(victim, SIGKILL);
    EXPECT_LT(time_until(before), 20s);
    wait_for(victim);
}

TEST_F(Killed, AForkedChildThatEndsLeavesItsParentsClocksAlone) {
    AmdgpuSysfs gpu{gpu_address};
    std::string driven;
    {
        Clocks clocks{gpu};
        clocks.apply({900_MHz, auto_clock});
        static_cast<void>(clocks.read_clock_state());
        driven = settings();
        const pid_t child = ::fork();
        if (child == 0) {
            clocks.~Clocks();
            ::_exit(0);
        }
        wait_for(child);
        std::this_thread::sleep_for(50ms);
        EXPECT_EQ(settings(), driven);
    }
    EXPECT_NE(settings(), driven);
}

TEST_F(Killed, WithItsWholeProcessNamespaceTheRecordTellsWhatIsOwed) {
    const std::string before = settings();
    for (const bool by_program : {true, false}) {
        shared_->writes = 0;
        const pid_t victim = start(CLONE_NEWPID, [&] {
            AmdgpuSysfs gpu{gpu_address};
            Clocks clocks{gpu};
            clocks.apply({900_MHz, auto_clock});
            static_cast<void>(clocks.read_clock_state());
            shared_->writes = 1;
            ::pause();
        });
        wait_for_writes();
        virtual_amdgpu::kill_container(victim);
        wait_for(victim);
        EXPECT_NE(settings(), before);
        if (by_program) {
            EXPECT_EQ(std::system(KDVFS_RESTORE_PROGRAM), 0);
        } else {
            AmdgpuSysfs gpu{gpu_address};
            const Clocks clocks{gpu};
            EXPECT_EQ(clocks.settled(), detail::RestoreDecision::write_back);
        }
        EXPECT_EQ(settings(), before);
    }
}

TEST_F(Killed, AWatchdogIsReplaced) {
    const std::string before = settings();
    const pid_t victim = start(0, [&] {
        AmdgpuSysfs gpu{gpu_address};
        Clocks clocks{gpu};
        clocks.apply({900_MHz, auto_clock});
        static_cast<void>(clocks.read_clock_state());
        const pid_t first = clocks.watchdog();
        ::kill(first, SIGKILL);
        while (clocks.watchdog() == first) static_cast<void>(clocks.read_clock_state());
        clocks.apply({800_MHz, auto_clock});
        static_cast<void>(clocks.read_clock_state());
        shared_->writes = 1;
        ::pause();
    });
    wait_for_writes();
    EXPECT_NE(settings(), before);
    ::kill(victim, SIGKILL);
    wait_for(victim);
    EXPECT_LT(time_until(before), 20s);
}

TEST_F(Killed, AForeignSettingIsLeftAlone) {
    const pid_t victim = start(0, [&] {
        AmdgpuSysfs gpu{gpu_address};
        Clocks clocks{gpu};
        clocks.apply({900_MHz, auto_clock});
        static_cast<void>(clocks.read_clock_state());
        shared_->writes = 1;
        ::pause();
    });
    wait_for_writes();
    AmdgpuSysfs administrator{gpu_address};
    administrator.apply({700_MHz, auto_clock});
    const std::string external = settings();
    ::kill(victim, SIGKILL);
    wait_for(victim);
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(settings(), external);
}

TEST_F(Killed, AForeignSettingThatWasTakenForTheFoundStateIsPutBack) {
    AmdgpuSysfs administrator{gpu_address};
    administrator.apply({700_MHz, auto_clock});
    const std::string external = settings();
    const ClockState adopted = administrator.read_clock_state();
    FileSystem::tell("reset");
    const pid_t victim = start(0, [&] {
        AmdgpuSysfs gpu{gpu_address};
        Clocks clocks{gpu};
        const auto apply = [&](Megahertz cap, const ClockState& found) {
            const auto outcome = detail::execute(clocks, {.kind = detail::ClockCommand::Kind::apply,
                                                          .point = {cap, auto_clock},
                                                          .history = {.initial = found}});
            if (outcome.error) throw Error{*outcome.error};
        };
        apply(900_MHz, {});
        administrator.apply({700_MHz, auto_clock});
        apply(800_MHz, adopted);  // what the controller does once it has seen that, and rearm()
        shared_->writes = 1;
        ::pause();
    });
    wait_for_writes();
    EXPECT_NE(settings(), external);
    ::kill(victim, SIGKILL);
    wait_for(victim);
    EXPECT_LT(time_until(external), 20s) << settings();
}

TEST_F(Killed, AfterAResetTheDefaultsStay) {
    const std::string before = settings();
    const pid_t victim = start(0, [&] {
        AmdgpuSysfs gpu{gpu_address};
        Clocks clocks{gpu};
        clocks.apply({900_MHz, auto_clock});
        static_cast<void>(clocks.read_clock_state());
        shared_->writes = 1;
        ::pause();
    });
    wait_for_writes();
    FileSystem::tell("reset");
    ::kill(victim, SIGKILL);
    wait_for(victim);
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(settings(), before);
}

TEST_F(Killed, ASecondProcessIsToldWhoDrivesTheGpu) {
    AmdgpuSysfs gpu{gpu_address};
    const Clocks clocks{gpu};
    const std::string me = std::to_string(::getpid());
    const pid_t second = start(0, [&] {
        AmdgpuSysfs same{gpu_address};
        try {
            const Clocks taken{same};
        } catch (const Error& error) {
            const bool named = std::string{error.what()}.find(me) != std::string::npos;
            ::_exit(error.code() == Errc::busy && named ? 0 : 3);
        }
        ::_exit(4);
    });
    EXPECT_EQ(wait_for(second), 0);
}

}  // namespace
}  // namespace kdvfs
