// SPDX-License-Identifier: MIT
// What becomes of locked clocks when their owner dies. The watchdog's nvidia-smi is a script that
// notes how it was called.
#include "double_fixture.hpp"

#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/control/clock_controller.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/detail/open/site_locks.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <kdvfs/detail/restore/record.hpp>
#include <kdvfs/detail/restore/shared_clocks.hpp>
#include <kdvfs/nvidia.hpp>
#include <tests/restoring/temporary_folder.hpp>

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

namespace kdvfs::device {
namespace {

using namespace std::chrono_literals;

class NvmlOwner : public NvmlDouble {
protected:
    NvmlOwner() {
        folder_.write("nvidia-smi", "#!/bin/sh\necho \"$@\" >>" + folder_.at("calls") +
                                        "\necho \"$LD_LIBRARY_PATH\" >" + folder_.at("libraries") +
                                        "\n");
        ::chmod(folder_.at("nvidia-smi").c_str(), 0700);
    }

    using Clocks = kdvfs::detail::OwnedClocks<Nvml>;

    [[nodiscard]] NvmlOptions owned_options() const {
        NvmlOptions owned = options();
        owned.restorer = folder_.at("nvidia-smi");
        return owned;
    }
    [[nodiscard]] kdvfs::detail::RestorePlace place() const {
        return kdvfs::detail::RestorePlace::in_own(folder_.at("own"), address);
    }
    /// What an owner that died with its watchdog has left.
    void leave(const kdvfs::detail::ClockHistory& history) const {
        const auto where = place();
        const kdvfs::detail::RestoreRecord record{
            where.folder, {kdvfs::detail::boot_id(), "nvml", address, 1, ::geteuid(), history}};
    }

    /// Runs `work` in a child that is killed where it ends; waits until its watchdog has let go.
    template <class Work>
    void kill_after(Work work) {
        kill_after(owned_options().restorer, work);
    }
    template <class Work>
    void kill_after(const std::string& restorer, Work work) {
        const pid_t child = fork();
        if (child == 0) {
            NvmlOptions named = owned_options();
            named.restorer = restorer;
            Nvml gpu{address, named};
            Clocks clocks{gpu, place()};
            work(clocks);
            ::raise(SIGKILL);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
        for (int tries = 0; tries < 500; ++tries) {
            try {
                const kdvfs::detail::DeviceLock lock{place(), address};
                return;
            } catch (const Error&) {
                std::this_thread::sleep_for(std::chrono::milliseconds{10});
            }
        }
        FAIL() << "the watchdog holds the lock for ever";
    }
    [[nodiscard]] std::string at(const std::string& name) const { return folder_.at(name); }
    [[nodiscard]] std::string read(const std::string& name) const { return folder_.read(name); }
    [[nodiscard]] std::string calls() const { return folder_.read("calls"); }

private:
    TemporaryFolder folder_;
};

/// This program is linked without CUDA.
TEST_F(NvmlOwner, ARequestNeedsNoStream) {
    const auto locked_core = [&] { return board().core_lock ? board().core_lock->second : 0; };
    const auto comes_to = [&](unsigned core) {
        for (int tries = 0; tries < 500 && locked_core() != core; ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds{2});
        return locked_core() == core;
    };
    {
        const Gpu gpu{kdvfs::detail::open_device(
            "double", [] { return std::make_shared<kdvfs::detail::LateStreams>(address); },
            [&] {
                return std::make_shared<kdvfs::detail::OwnedDevice<Nvml>>(address, owned_options());
            },
            [&] { return std::make_shared<NvmlReadings>(address, NVML_DOUBLE); }, {})};
        auto request = gpu.request(1000_MHz);
        EXPECT_TRUE(comes_to(1000));
        request.change(1500_MHz);
        EXPECT_TRUE(comes_to(1500));
        gpu.check();
    }
    EXPECT_EQ(locked_core(), 0U) << "the last handle is gone";
    EXPECT_THROW(static_cast<void>(nvidia::open(std::string{"0000:ff:00.0"})), Error);
}

/// An idle board does not show that it is locked: the administrator says so in the site's limits.
TEST_F(NvmlOwner, GoesBackToTheLockThatTheAdministratorNames) {
    const auto site = std::pair{210U, 1500U};
    board().core_lock = site;
    NvmlOptions options = owned_options();
    options.site_floor = {.core = 210_MHz};
    options.site_ceiling = {.core = 1500_MHz};
    {
        Nvml gpu{address, options};
        Clocks clocks{gpu, place()};
        board().writes.clear();
        EXPECT_EQ(kdvfs::detail::prove_clock_control(clocks, options.site_ceiling), ClockState{});
        EXPECT_EQ(board().writes.size(), 2U) << "one lowering, one restore";
        EXPECT_EQ(board().core_lock, site) << "not above it, and not reset";
        clocks.apply({1000_MHz, auto_clock});
        EXPECT_EQ(board().core_lock, (std::pair{210U, 1000U}));
        clocks.restore({});
        EXPECT_EQ(board().core_lock, site);
        static_cast<void>(clocks.read_clock_state());
    }
    const pid_t child = fork();
    if (child == 0) {
        Nvml gpu{address, options};
        Clocks clocks{gpu, place()};
        clocks.apply({1000_MHz, auto_clock});
        ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const std::string call = "-i " + std::string{address} + " -lgc 210,1500";
    for (int tries = 0; tries < 500 && calls().find(call) == std::string::npos; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    EXPECT_NE(calls().find(call), std::string::npos) << "the watchdog's: " << calls();
}

/// A machine whose administrator has written limits.
class NvmlSite : public NvmlOwner {
protected:
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "needs root, for a /run of its own";
    }
    /// Runs `work` in a child that has such a /run/kdvfs/limits.
    template <class Work>
    static void with_limits(const std::string& lines, Work work) {
        const pid_t child = fork();
        if (child == 0) {
            ::unshare(CLONE_NEWNS);
            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
            if (::mount("none", "/run", "tmpfs", 0, "mode=755") != 0) ::_exit(77);
            ::mkdir("/run/kdvfs", 0755);
            std::ofstream{"/run/kdvfs/limits"} << lines;
            ::chmod("/run/kdvfs/limits", 0644);
            work();
            std::fflush(nullptr);
            ::_exit(HasFailure() ? 1 : 0);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "cannot mount";
        EXPECT_EQ(status, 0);
    }
};

/// As `kdvfs run` opens it: the key says that it is not the program's own object.
TEST_F(NvmlSite, LimitsHoldForAnAttachedProgram) {
    const std::string bus_id = "0000:1B:00.0";  // as CUDA prints it
    for (const std::string& who : {std::string{address}, std::string{"all"}}) {
        with_limits(who + " core 210 1500\n", [&] {
            const auto site = std::pair{210U, 1500U};
            board().core_lock = site;
            const auto core = [&] { return board().core_lock ? board().core_lock->second : 0; };
            Gpu gpu{kdvfs::detail::open_device(
                bus_id + " attached",
                [&] { return std::make_shared<kdvfs::detail::LateStreams>(bus_id); },
                [&] {
                    return std::make_shared<kdvfs::detail::OwnedDevice<Nvml>>(
                        bus_id, kdvfs::detail::with_site_locks(owned_options(), bus_id));
                },
                [&] { return std::make_shared<NvmlReadings>(bus_id, NVML_DOUBLE); }, {})};
            EXPECT_NE(gpu.info().mechanism.find("within core from 210 MHz up to 1500 MHz"),
                      std::string::npos)
                << gpu.info().mechanism;
            auto request = gpu.request(1000_MHz);
            for (int tries = 0; tries < 500 && core() != 1000; ++tries)
                std::this_thread::sleep_for(2ms);
            EXPECT_EQ(core(), 1000U);
            request.change(1980_MHz);
            for (int tries = 0; tries < 500 && core() == 1000; ++tries)
                std::this_thread::sleep_for(2ms);
            EXPECT_EQ(board().core_lock, site) << "the limit";
            gpu.close();
            EXPECT_EQ(board().core_lock, site) << "the administrator's lock, after close()";
        });
    }
}

TEST_F(NvmlOwner, APowerProfileHoldsWhileItIsAskedFor) {
    board().power_profiles = 0b1000111 | 1U << 20;  // one above 15 cannot be asked for
    board().requested_profiles = board().enforced_profiles = 0b1000010;  // by somebody else
    {
        const Gpu gpu{kdvfs::detail::open_device(
            "double", [] { return std::make_shared<kdvfs::detail::LateStreams>(address); },
            [&] {
                return std::make_shared<kdvfs::detail::OwnedDevice<Nvml>>(address, owned_options());
            },
            [&] { return std::make_shared<NvmlReadings>(address, NVML_DOUBLE); }, {})};
        EXPECT_EQ(gpu.info().prepared_points, (std::vector<PreparedPoint>{{0}, {1}, {2}, {6}}));
        {
            const auto point = gpu.request(PreparedPoint{2});
            EXPECT_EQ(board().requested_profiles, 0b100U) << "in place of all others";
            EXPECT_EQ(gpu.report().device.operating_point, "workload power profiles 2");
            EXPECT_THROW(static_cast<void>(gpu.request(PreparedPoint{5})), Error);
        }
        EXPECT_EQ(board().requested_profiles, 0b1000010U);
        board().faults["nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1"] = {.code = 4};
        const Error refused = error_of([&] { static_cast<void>(gpu.request(PreparedPoint{2})); });
        EXPECT_EQ(refused.code(), Errc::refused);
        board().faults.clear();
        gpu.check();
    }
    board().requested_profiles = 0;
    NvmlPreparedPoints points{address, NVML_DOUBLE, ""};
    const ClockState found = points.read_clock_state();
    points.apply({.core = {6}});
    EXPECT_EQ(points.read_clock_state(), NvmlPreparedPoints::state_of({6}));
    points.restore(found);
    EXPECT_EQ(board().requested_profiles, 0U);
    board().power_profiles = 0;
    EXPECT_TRUE((NvmlPreparedPoints{address, NVML_DOUBLE, ""}.prepared_points().empty()));
}

class NvmlPointOwner : public NvmlOwner {
protected:
    using Points = kdvfs::detail::OwnedClocks<NvmlPreparedPoints>;

    NvmlPointOwner() { board().power_profiles = 0b1000111; }

    /// Runs `work` in a child that is killed where it ends.
    template <class Work>
    void kill_after(Work work) {
        const pid_t child = fork();
        if (child == 0) {
            NvmlPreparedPoints points{address, NVML_DOUBLE, owned_options().restorer};
            Points owned{points, kdvfs::detail::RestorePlace::in_own(at("own"), points_address)};
            work(owned);
            ::raise(SIGKILL);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    }
    /// What the watchdog has called when it is done.
    [[nodiscard]] std::string last_calls() const {
        const auto where = kdvfs::detail::RestorePlace::in_own(at("own"), points_address);
        const kdvfs::detail::DeviceLock lock{where, points_address, {.for_watchdog = 5s}};
        return calls();
    }

    static constexpr const char* points_address = "0000:1b:00.0-point";
};

TEST_F(NvmlPointOwner, ThatIsKilledHasItsProfilePutBack) {
    board().requested_profiles = 0b1000010;
    kill_after([](Points& owned) {
        owned.apply({.core = {2}});
        (void)owned.read_clock_state();
    });
    EXPECT_EQ(last_calls(),
              "power-profiles -i 0000:1b:00.0 -cr 2\npower-profiles -i 0000:1b:00.0 -sr 1,6\n");
}

TEST_F(NvmlPointOwner, ThatIsKilledLeavesNoProfileOfTheOwnerBefore) {
    board().requested_profiles = 0b1000000;
    {
        const auto where = kdvfs::detail::RestorePlace::in_own(at("own"), points_address);
        const kdvfs::detail::RestoreRecord left{
            where.folder,
            {kdvfs::detail::boot_id(),
             "nvml-point",
             points_address,
             1,
             ::geteuid(),
             {.initial = operating_point_state(0), .written = operating_point_state(0b1000000)}}};
    }
    kill_after([](Points& owned) {
        owned.apply({.core = {2}});
        (void)owned.read_clock_state();
    });
    EXPECT_EQ(last_calls(), "power-profiles -i 0000:1b:00.0 -cr 2\n");
}

TEST_F(NvmlPointOwner, ThatIsKilledGoesBackToWhatSomebodyElseHasSetSince) {
    kill_after([](Points& owned) {
        owned.will_go_back_to(NvmlPreparedPoints::state_of({1}));
        owned.apply({.core = {2}});
        (void)owned.read_clock_state();
    });
    EXPECT_EQ(last_calls(),
              "power-profiles -i 0000:1b:00.0 -cr 2\npower-profiles -i 0000:1b:00.0 -sr 1\n");
}

/// CUDA and NVML print capitals, and NVML eight digits of the domain.
TEST_F(NvmlOwner, IsOneOwnerHoweverTheAddressIsSpelled) {
    for (const char* spelled : {"0000:1B:00.0", "00000000:1B:00.0", "0000:1b:00.0"}) {
        Nvml gpu{spelled, owned_options()};
        EXPECT_EQ(gpu.info().address, address);
        const Clocks owner{gpu, place()};
        EXPECT_TRUE(kdvfs::detail::find_record(place().folder, address)) << "it can be read";
    }
}

TEST_F(NvmlOwner, WhoOpenedUnderAnothersLockDrivesWhenThatHasEnded) {
    using Shared = kdvfs::detail::SharedClocks<Nvml>;
    ::setenv("KDVFS_RECORDS", at("own").c_str(), 1);
    auto first = std::make_unique<kdvfs::detail::OwnedDevice<Nvml>>(address, owned_options());
    const ClockState found = first->clocks.read_clock_state();
    first->clocks.apply({.core = 1000_MHz});
    static_cast<void>(first->clocks.read_clock_state());
    board().limit_reasons = 0x2;  // its kernels run
    Nvml gpu{address, owned_options()};
    Shared second{gpu};
    EXPECT_FALSE(second.drives());
    first->clocks.restore(found);
    static_cast<void>(first->clocks.read_clock_state());
    first.reset();
    board().limit_reasons = 0;
    second.may_be_free();
    ASSERT_TRUE(second.take_over());
    EXPECT_EQ(second.read_clock_state(), found);
    second.apply({.core = 1500_MHz});
    EXPECT_EQ(board().core_lock, (std::pair{210U, 1500U}));
    second.restore(found);
    EXPECT_FALSE(board().core_lock);
    static_cast<void>(second.read_clock_state());
    ::unsetenv("KDVFS_RECORDS");
}

TEST_F(NvmlOwner, LeavesClocksThatSomebodyElseHasSet) {
    ::setenv("KDVFS_RECORDS", at("own").c_str(), 1);
    board().limit_reasons = 0x2;
    kdvfs::detail::OwnedDevice<Nvml> owned{address, owned_options()};
    ASSERT_TRUE(owned.clocks.drives());
    EXPECT_EQ(error_of([&] { owned.clocks.apply({.core = 1000_MHz}); }).code(), Errc::busy);
    EXPECT_TRUE(board().writes.empty());
    ::unsetenv("KDVFS_RECORDS");
}

TEST_F(NvmlOwner, AKilledOwnersLocksAreFreedDomainByDomain) {
    kill_after([](auto& clocks) {
        clocks.apply({.core = 1000_MHz});
        (void)clocks.read_clock_state();
    });
    EXPECT_EQ(calls(), "-i 0000:1b:00.0 -rgc\n");
}

/// As in containers that have the driver's files in a folder of their own: the watchdog's own PATH
/// has no such folder.
TEST_F(NvmlOwner, TheCommandIsFoundAsTheProgramFindsIt) {
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", (at("") + ":" + path).c_str(), 1);
    kill_after("nvidia-smi", [](auto& clocks) {
        clocks.apply({.core = 1000_MHz});
        (void)clocks.read_clock_state();
    });
    ::setenv("PATH", path.c_str(), 1);
    EXPECT_EQ(calls(), "-i 0000:1b:00.0 -rgc\n");
    EXPECT_EQ(read("libraries"),
              std::filesystem::canonical(NVML_DOUBLE).parent_path().string() + "\n");
}

TEST_F(NvmlOwner, ACommandThatIsNowhereIsNamedAtOpening) {
    for (const std::string& name : {std::string{"no-such-nvidia-smi"}, at("none")}) {
        NvmlOptions options = owned_options();
        options.restorer = name;
        Nvml gpu{address, options};
        const Clocks clocks{gpu, place()};
        EXPECT_NE(clocks.describe().find("; " + name + " is not found"), std::string::npos)
            << clocks.describe();
    }
    Nvml gpu{address, owned_options()};
    const Clocks clocks{gpu, place()};
    EXPECT_EQ(clocks.describe().find("not found"), std::string::npos) << clocks.describe();
}

TEST_F(NvmlOwner, AWriteCutShortFreesBothDomains) {
    kill_after([](auto& clocks) { clocks.apply({.core = 420_MHz, .memory = 405_MHz}); });
    EXPECT_EQ(calls(), "-i 0000:1b:00.0 -rgc\n-i 0000:1b:00.0 -rmc\n");
}

TEST_F(NvmlOwner, AnOwnerThatPutBackLeavesNothingToDo) {
    kill_after([](auto& clocks) {
        const ClockState found = clocks.read_clock_state();
        clocks.apply({.core = 1000_MHz});
        (void)clocks.read_clock_state();
        clocks.restore(found);
        (void)clocks.read_clock_state();
    });
    EXPECT_EQ(calls(), "");
}

TEST_F(NvmlOwner, WhatAWatchdogCouldNotDoTheNextOwnerDoes) {
    board().core_lock = {210, 1000};
    board().limit_reasons = 0x2;
    leave({.initial = {}, .written = ClockState{{.core = 1000_MHz}, {}, "locked"}});
    Nvml gpu{address, owned_options()};
    const Clocks clocks{gpu, place()};
    EXPECT_EQ(clocks.settled(), kdvfs::detail::RestoreDecision::write_back);
    EXPECT_FALSE(board().core_lock);
    EXPECT_EQ(board().writes, std::vector<std::string>{"core free"});
}

TEST_F(NvmlOwner, AnEarlierOwnersCutShortWriteIsFreedInBothDomains) {
    board().memory_lock = {405, 405};
    leave({.initial = {}, .uncertain = true});
    Nvml gpu{address, owned_options()};
    const Clocks clocks{gpu, place()};
    EXPECT_FALSE(board().memory_lock);
    EXPECT_EQ(board().writes, (std::vector<std::string>{"core free", "memory free"}));
}

/// One that is stopped for a while. What its watchdog or kdvfs-restore --suspended does then, this
/// process does, through an object of its own.
class NvmlStopped : public NvmlOwner {
protected:
    NvmlStopped() { request(1000_MHz); }

    void request(Megahertz core) { controller_.request(TrackId{0}, {.core = core}, now_); }
    /// Lets so much time pass, in which `after_write` is called once behind the next write.
    template <class Act>
    void pass(Duration time, Act after_write) {
        bool is_due = true;
        for (const TimePoint end = now_ + time; now_ < end; now_ += 20ms) {
            while (const auto command = controller_.next_command(now_)) {
                using Kind = kdvfs::detail::ClockCommand::Kind;
                auto outcome = execute(*command, [&] {
                    if (std::exchange(is_due, command->kind != Kind::apply)) after_write();
                });
                controller_.completed(outcome, now_);
            }
        }
    }
    void pass(Duration time) {
        pass(time, [] {});
    }
    void put_back() {
        Nvml other{address, owned_options()};
        const auto where = place();
        const auto left = kdvfs::detail::find_record(where.folder, address);
        ASSERT_TRUE(left);
        EXPECT_EQ(kdvfs::detail::settle(where.folder, *left, other),
                  kdvfs::detail::RestoreDecision::write_back);
        EXPECT_FALSE(board().core_lock);
    }
    /// A watchdog whose nvidia-smi has freed the clocks, and has not ended yet.
    void begin_to_put_back() {
        const auto where = place();
        const auto file = kdvfs::detail::record_to_note_in(where.folder);
        const auto entry = kdvfs::detail::read_record(file.get(), "record");
        kdvfs::detail::write_note(file.get(), {0, 1, "restoring", entry.slot});
        board().core_lock.reset();
    }
    void expect_held(unsigned core, unsigned resets) {
        EXPECT_EQ(board().core_lock, (std::pair{210U, core}));
        EXPECT_TRUE(controller_.armed());
        EXPECT_EQ(controller_.counts().resets, resets);
        EXPECT_EQ(controller_.counts().external_changes, 0U);
        const auto error = controller_.take_error();
        EXPECT_FALSE(error) << error->what();
        EXPECT_EQ(kdvfs::detail::find_record(place().folder, address)->history.written->cap.core,
                  Megahertz{core});
    }

    kdvfs::detail::ClockController& controller() { return controller_; }

private:
    /// As `detail::execute`, which has no place to stop at.
    template <class Act>
    kdvfs::detail::CommandOutcome execute(const kdvfs::detail::ClockCommand& command, Act act) {
        if (command.kind != kdvfs::detail::ClockCommand::Kind::apply)
            return kdvfs::detail::execute(clocks_, command);
        clocks_.apply(command.point);
        act();
        return {.state = clocks_.read_clock_state()};
    }

    Nvml gpu_{address, owned_options()};
    Clocks clocks_{gpu_, place()};
    kdvfs::detail::RequestTable requests_;
    kdvfs::detail::ClockController controller_{requests_, "board", gpu_.read_clock_state(), {}};
    TimePoint now_{10s};
};

TEST_F(NvmlStopped, WhileItHoldsAClockSetsItAgain) {
    pass(2s);
    expect_held(1000, 0);
    for (unsigned resets = 1; resets <= 3; ++resets) {
        put_back();
        pass(2s);
        expect_held(1000, resets);
    }
    controller().release();
    pass(1s);
    EXPECT_FALSE(board().core_lock);
    EXPECT_FALSE(controller().changed());
}

TEST_F(NvmlStopped, BetweenAWriteAndItsReadBackWritesAgain) {
    pass(2s, [&] { put_back(); });
    expect_held(1000, 1);
    request(1500_MHz);
    pass(2s, [&] { put_back(); });
    expect_held(1500, 2);
}

TEST_F(NvmlStopped, GoesOnWhileItsWatchdogIsNotDoneYet) {
    pass(2s);
    begin_to_put_back();
    pass(2s);
    expect_held(1000, 1);
}

/// What has not been looked at is not forgotten: the lock that was written since is freed, too.
TEST_F(NvmlStopped, LeavesNoLockThatItHasWrittenSince) {
    pass(2s);
    put_back();
    request(1500_MHz);
    pass(2s, [&] { controller().release(); });
    EXPECT_FALSE(board().core_lock);
    EXPECT_FALSE(controller().changed());
    EXPECT_FALSE(kdvfs::detail::find_record(place().folder, address)->has_pending_restore());
}

TEST_F(NvmlStopped, KnowsItWhereItsRecordWasRemovedMeanwhile) {
    pass(2s);
    put_back();
    place().folder.remove(kdvfs::detail::record_name);
    pass(2s);
    expect_held(1000, 1);
}

#ifdef KDVFS_RESTORE_PROGRAM
TEST_F(NvmlOwner, WhatIsLeftIsFreedByTheProgramForEpilogs) {
    leave({.initial = {}, .uncertain = true});
    const std::string command = "ln -s " NVML_DOUBLE " " + at("libnvidia-ml.so.1") +
                                " && LD_LIBRARY_PATH=" + at("") + " NVML_DOUBLE_LOG=" + at("log") +
                                " " KDVFS_RESTORE_PROGRAM " --folder " + at("own") + " " + address +
                                " >" + at("said");
    EXPECT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(read("said"), std::string{address} + ": restored\n");
    EXPECT_EQ(read("log"), "core free\nmemory free\n");
    EXPECT_FALSE(kdvfs::detail::find_record(place().folder, address));
}

TEST_F(NvmlSite, TheProgramForEpilogsGoesBackToTheAdministratorsLock) {
    leave({.initial = {}, .uncertain = true});
    with_limits("0000:1b:00.0 core 210 1500\n", [&] {
        const std::string command =
            "ln -s " NVML_DOUBLE " " + at("libnvidia-ml.so.1") + " && LD_LIBRARY_PATH=" + at("") +
            " NVML_DOUBLE_LOG=" + at("log") + " " KDVFS_RESTORE_PROGRAM " --folder " + at("own") +
            " " + address + " >" + at("said");
        EXPECT_EQ(std::system(command.c_str()), 0);
    });
    EXPECT_EQ(read("said"), std::string{address} + ": restored\n");
    EXPECT_EQ(read("log"), "core(210, 1500)\nmemory free\n");
}
#endif

}  // namespace
}  // namespace kdvfs::device
