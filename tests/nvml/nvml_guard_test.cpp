// SPDX-License-Identifier: MIT
// What becomes of locked clocks when their owner dies. The guard's nvidia-smi is a script that
// notes how it was called.
#include "double_fixture.hpp"

#include <kdvfs/detail/restore/guarded_clocks.hpp>
#include <tests/restoring/temporary_folder.hpp>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace kdvfs::device {
namespace {

class NvmlGuard : public NvmlDouble {
protected:
    NvmlGuard() {
        folder_.write("nvidia-smi", "#!/bin/sh\necho \"$@\" >>" + folder_.at("calls") + "\n");
        ::chmod(folder_.at("nvidia-smi").c_str(), 0700);
    }

    [[nodiscard]] NvmlOptions guarded_options() const {
        NvmlOptions guarded = options();
        guarded.restorer = folder_.at("nvidia-smi");
        return guarded;
    }
    [[nodiscard]] kdvfs::detail::PrivateFolder own_folder() const {
        return kdvfs::detail::PrivateFolder{folder_.at("own")};
    }

    /// Runs `work` in a child that is killed where it ends; waits until its guard has let go.
    template <class Work>
    void kill_after(Work work) {
        const pid_t child = fork();
        if (child == 0) {
            Nvml gpu{address, guarded_options()};
            kdvfs::detail::GuardedClocks clocks{gpu, own_folder()};
            work(clocks);
            ::raise(SIGKILL);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
        for (int tries = 0; tries < 500; ++tries) {
            try {
                const kdvfs::detail::DeviceLock lock{own_folder(), address};
                return;
            } catch (const Error&) {
                std::this_thread::sleep_for(std::chrono::milliseconds{10});
            }
        }
        FAIL() << "the guard holds the lock for ever";
    }
    [[nodiscard]] std::string calls() const { return folder_.read("calls"); }

private:
    TemporaryFolder folder_;
};

TEST_F(NvmlGuard, AKilledOwnersLocksAreFreedDomainByDomain) {
    kill_after([](auto& clocks) {
        clocks.apply({.core = 1000_MHz});
        (void)clocks.read_clock_state();
    });
    EXPECT_EQ(calls(), "-i 0000:1b:00.0 -rgc\n");
}

TEST_F(NvmlGuard, AWriteCutShortFreesBothDomains) {
    kill_after([](auto& clocks) { clocks.apply({.core = 420_MHz, .memory = 405_MHz}); });
    EXPECT_EQ(calls(), "-i 0000:1b:00.0 -rgc\n-i 0000:1b:00.0 -rmc\n");
}

TEST_F(NvmlGuard, AnOwnerThatPutBackLeavesNothingToDo) {
    kill_after([](auto& clocks) {
        const ClockState found = clocks.read_clock_state();
        clocks.apply({.core = 1000_MHz});
        (void)clocks.read_clock_state();
        clocks.restore(found);
        (void)clocks.read_clock_state();
    });
    EXPECT_EQ(calls(), "");
}

TEST_F(NvmlGuard, WhatAGuardCouldNotDoTheNextOwnerDoes) {
    board().core_lock = {210, 1000};
    board().limit_reasons = 0x2;
    const kdvfs::detail::PrivateFolder folder = own_folder();
    kdvfs::detail::Journal{folder, address}.write(
        {kdvfs::detail::boot_id(),
         address,
         {.initial = {}, .written = ClockState{{.core = 1000_MHz}, {}, "locked"}}});
    Nvml gpu{address, guarded_options()};
    const kdvfs::detail::GuardedClocks clocks{gpu, own_folder()};
    EXPECT_EQ(clocks.settled(), kdvfs::detail::RestoreDecision::write_back);
    EXPECT_FALSE(board().core_lock);
    EXPECT_EQ(board().writes, std::vector<std::string>{"core free"});
}

TEST_F(NvmlGuard, AnEarlierOwnersCutShortWriteIsFreedInBothDomains) {
    board().memory_lock = {405, 405};
    const kdvfs::detail::PrivateFolder folder = own_folder();
    kdvfs::detail::Journal{folder, address}.write(
        {kdvfs::detail::boot_id(), address, {.initial = {}, .uncertain = true}});
    Nvml gpu{address, guarded_options()};
    const kdvfs::detail::GuardedClocks clocks{gpu, own_folder()};
    EXPECT_FALSE(board().memory_lock);
    EXPECT_EQ(board().writes, (std::vector<std::string>{"core free", "memory free"}));
}

}  // namespace
}  // namespace kdvfs::device
