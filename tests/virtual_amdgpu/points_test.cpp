// SPDX-License-Identifier: MIT
//
// Prepared operating points (AMPP) of a virtual board: asked for, nested, refused, left by
// processes that die in every way. The board is found at its own point again.
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/restore/owned_clocks.hpp>
#include <kdvfs/rocm.hpp>

#include <tests/virtual_amdgpu/containers.hpp>
#include <tests/virtual_amdgpu/file_system.hpp>

#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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
#include <string>
#include <thread>
#include <vector>

namespace kdvfs {
namespace {

using namespace kdvfs::literals;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using virtual_amdgpu::FileSystem;

const std::string address = "0000:c1:00.0";
const std::string without_points = "0000:c4:00.0";
const std::string active = "/sys/bus/pci/devices/" + address + "/app_modes/active_profile";
constexpr uid_t alice = 61001;

class PreparedPoints : public testing::Test {
protected:
    static void SetUpTestSuite() { system_ = std::make_unique<FileSystem>("mi400_points mi210"); }
    static void TearDownTestSuite() { system_.reset(); }

    void SetUp() override {
        if (!system_->missing().empty()) GTEST_SKIP() << system_->missing();
        FileSystem::tell("reset");
        std::system("rm -rf /run/kdvfs");
        ::unsetenv("KDVFS_RECORDS");
        ::setenv("KDVFS_RESTORE", KDVFS_RESTORE_PROGRAM, 0);
        found_ = FileSystem::settings();
        said_ = virtual_amdgpu::shared_with_children<std::atomic<int>>();
    }

    static Gpu open(GpuOptions options = {}) {
        options.clock_path = ClockPath::driver_files;
        options.controller.verify_every = 20ms;
        return rocm::open(address, options);
    }
    /// The number of the point that holds, by a way of the test's own.
    static std::string held() {
        const std::string settings = FileSystem::settings();
        return settings.substr(settings.rfind(' ') + 1);
    }
    static bool comes_to(const std::string& point) {
        const auto start = Clock::now();
        while (held() != point && Clock::now() - start < 2s) std::this_thread::sleep_for(200us);
        return held() == point;
    }
    static void switch_as_administrator(const std::string& point) {
        std::ofstream{active} << point << std::flush;
    }
    template <class Act>
    static std::optional<Error> error_of(Act act) {
        try {
            act();
        } catch (const Error& error) {
            return error;
        }
        return std::nullopt;
    }

    /// A process that does as told, says so by `said_`, and waits to be killed.
    pid_t start(const std::function<void()>& body, unsigned long namespaces = 0,
                uid_t user = 0) const {
        *said_ = 0;
        const auto child = static_cast<pid_t>(
            namespaces == 0 ? ::fork() : ::syscall(SYS_clone, namespaces | SIGCHLD, 0, 0, 0, 0));
        if (child != 0) return child;
        try {
            const bool is_user = user == 0 || (::setgroups(0, nullptr) == 0 &&
                                               ::setgid(user) == 0 && ::setuid(user) == 0);
            if (!is_user) ::_exit(3);
            body();
        } catch (const std::exception& error) {
            std::fprintf(stderr, "child: %s\n", error.what());
            ::_exit(2);
        }
        ::_exit(0);
    }
    /// Asks for a point and waits.
    void hold(std::uint32_t point) const {
        const Gpu gpu = open();
        const auto request = gpu.request(PreparedPoint{point});
        *said_ = 1;
        while (true) ::pause();
    }
    void wait_until_said() const {
        const auto start = Clock::now();
        while (*said_ == 0 && Clock::now() - start < 5s) std::this_thread::sleep_for(200us);
        ASSERT_EQ(*said_, 1) << "the child has not switched";
    }
    static int end_of(pid_t child) {
        int status = 0;
        ::waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    static int script(const std::string& name, const std::string& argument) {
        const std::string command =
            "KDVFS_JOB_GPUS=" + address + " sh " KDVFS_SCRIPTS "/" + name + " " + argument;
        return std::system((command + " >/dev/null").c_str());
    }

    std::string found_;
    std::atomic<int>* said_ = nullptr;

private:
    static inline std::unique_ptr<FileSystem> system_;
};

TEST_F(PreparedPoints, HoldWhileTheyAreAskedForAndGoBack) {
    const Gpu gpu = open();
    EXPECT_EQ(gpu.info().prepared_points, (std::vector<PreparedPoint>{{0}, {1}, {2}}));
    EXPECT_EQ(gpu.info().operating_point, "profile 0 (ppt0_limit 1400 W)");
    {
        const auto outer = gpu.request(PreparedPoint{2});
        EXPECT_EQ(held(), "2");
        auto clock = gpu.request(1000_MHz);  // clocks are set within a point
        auto inner = std::make_unique<StandingPoint>(gpu, PreparedPoint{1});
        EXPECT_EQ(held(), "1");
        inner.reset();
        EXPECT_EQ(held(), "2");
        const auto has_clock = [] {
            return FileSystem::settings().find(" 1000 ") != std::string::npos;
        };
        const auto start = Clock::now();  // another thread writes it
        while (!has_clock() && Clock::now() - start < 5s) std::this_thread::sleep_for(1ms);
        EXPECT_TRUE(has_clock()) << FileSystem::settings();
        std::this_thread::sleep_for(100ms);  // looked at five times: its own switch is no news
        gpu.check();
        EXPECT_EQ(gpu.report().device.operating_point, "profile 2 (ppt0_limit 800 W)");
    }
    EXPECT_EQ(held(), "0");
    gpu.close();
    EXPECT_EQ(FileSystem::settings(), found_);
    const auto late = error_of([&] { static_cast<void>(gpu.request(PreparedPoint{1})); });
    ASSERT_TRUE(late);
    EXPECT_EQ(held(), "0");
}

TEST_F(PreparedPoints, EndInAnyOrderAndWithTheGpu) {
    const Gpu gpu = open();
    auto first = std::make_unique<StandingPoint>(gpu, PreparedPoint{2});
    auto second = std::make_unique<StandingPoint>(gpu, PreparedPoint{1});
    first.reset();
    EXPECT_EQ(held(), "1");
    gpu.close();
    EXPECT_EQ(held(), "0");
    second.reset();
    EXPECT_EQ(FileSystem::settings(), found_);
    gpu.check();
}

TEST_F(PreparedPoints, AreRefusedPlainly) {
    {
        const Gpu gpu = open();
        for (const std::uint32_t none : {3U, 9U, 100'000U}) {  // slot 3 was never configured
            const auto error =
                error_of([&] { static_cast<void>(gpu.request(PreparedPoint{none})); });
            ASSERT_TRUE(error) << none;
            EXPECT_EQ(error->code(), Errc::invalid_input);
        }
        FileSystem::tell("ail deaf");
        const auto deaf = error_of([&] { static_cast<void>(gpu.request(PreparedPoint{2})); });
        ASSERT_TRUE(deaf);
        EXPECT_EQ(deaf->code(), Errc::refused);
        EXPECT_NE(std::string{deaf->what()}.find("it holds profile 0"), std::string::npos)
            << deaf->what();
        FileSystem::tell("reset");
        const auto request = gpu.request(PreparedPoint{2});
        EXPECT_EQ(held(), "2") << "a refusal leaves nothing behind";
    }
    const Gpu other = rocm::open(without_points, {.clock_path = ClockPath::driver_files});
    const auto none = error_of([&] { static_cast<void>(other.request(PreparedPoint{0})); });
    ASSERT_TRUE(none);
    EXPECT_EQ(none->code(), Errc::not_supported);
    other.close();
    EXPECT_EQ(FileSystem::settings(), found_);
}

TEST_F(PreparedPoints, AreNotForAProcessThatOnlyMeasures) {
    const pid_t owner = start([&] { hold(2); });
    wait_until_said();
    const Gpu gpu = open({.on_refused = OnRefused::measure_only, .share_clocks = false});
    EXPECT_TRUE(gpu.measure_only());
    const auto error = error_of([&] { static_cast<void>(gpu.request(PreparedPoint{1})); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::refused);
    EXPECT_EQ(held(), "2");
    ::kill(owner, SIGKILL);
    end_of(owner);
    EXPECT_TRUE(comes_to("0"));
}

TEST_F(PreparedPoints, OfSomebodyElseAreToldAndLeft) {
    const Gpu gpu = open();
    auto request = std::make_unique<StandingPoint>(gpu, PreparedPoint{2});
    std::this_thread::sleep_for(60ms);
    switch_as_administrator("1");
    const auto start = Clock::now();
    std::optional<Error> resolved;
    while (!resolved && Clock::now() - start < 2s) {
        resolved = error_of([&] { gpu.check(); });
        std::this_thread::sleep_for(5ms);
    }
    ASSERT_TRUE(resolved);
    EXPECT_EQ(resolved->code(), Errc::external_change);
    const auto left = error_of([&] { request->close(); });
    ASSERT_TRUE(left);
    EXPECT_EQ(left->code(), Errc::external_change);
    EXPECT_EQ(held(), "1");
    {
        const auto anew = gpu.request(PreparedPoint{2});
        EXPECT_EQ(held(), "2");
    }
    EXPECT_EQ(held(), "1") << "what was found before this request";
    request.reset();
    {
        const auto outer = gpu.request(PreparedPoint{2});
        switch_as_administrator("0");
        {
            const auto inner = gpu.request(PreparedPoint{1});
            EXPECT_EQ(held(), "1");
        }
        EXPECT_EQ(held(), "2");
    }
    EXPECT_EQ(held(), "0") << "theirs is the one to go back to";
    gpu.close();
    EXPECT_EQ(held(), "0");
}

TEST_F(PreparedPoints, OfAKilledProcessArePutBackByTheWatchdog) {
    for (int i = 0; i < 3; ++i) {
        const pid_t victim = start([&] { hold(2); });
        wait_until_said();
        EXPECT_EQ(held(), "2");
        ::kill(victim, SIGKILL);
        end_of(victim);
        EXPECT_TRUE(comes_to("0"));
    }
    EXPECT_EQ(FileSystem::settings(), found_);
}

TEST_F(PreparedPoints, ThatSomebodyElseHasSwitchedToAreLeftByTheWatchdog) {
    const pid_t victim = start([&] { hold(2); });
    wait_until_said();
    switch_as_administrator("1");
    ::kill(victim, SIGKILL);
    end_of(victim);
    std::this_thread::sleep_for(200ms);
    EXPECT_EQ(held(), "1");
}

TEST_F(PreparedPoints, OfAKilledContainerArePutBackByTheProgramOrTheNextOpening) {
    for (const bool by_program : {true, false}) {
        const pid_t victim = start([&] { hold(1); }, CLONE_NEWPID);
        wait_until_said();
        EXPECT_EQ(held(), "1");
        virtual_amdgpu::kill_container(victim);
        end_of(victim);
        std::this_thread::sleep_for(50ms);
        EXPECT_EQ(held(), "1") << "the watchdog has outlived its namespace";
        if (by_program) {
            // However the address is spelled.
            EXPECT_EQ(std::system(KDVFS_RESTORE_PROGRAM " 0000:C1:00.0 >/dev/null"), 0);
        } else {
            EXPECT_EQ(open().info().operating_point, "profile 0 (ppt0_limit 1400 W)");
        }
        EXPECT_EQ(held(), "0") << by_program;
        EXPECT_EQ(FileSystem::settings(), found_);
    }
}

TEST_F(PreparedPoints, ArePutBackByTheProgramBesideASpoiltRecordOfClocks) {
    const pid_t victim = start([&] { hold(1); }, CLONE_NEWPID);
    wait_until_said();
    virtual_amdgpu::kill_container(victim);
    end_of(victim);
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(held(), "1");
    std::filesystem::resize_file("/run/kdvfs/" + address + "/record", 500);
    const std::string words = KDVFS_RESTORE_PROGRAM " 0000:c1:00.0 >/dev/null 2>&1";
    EXPECT_EQ(WEXITSTATUS(std::system(words.c_str())), 1) << "the spoilt one is told all the same";
    EXPECT_EQ(held(), "0");
}

/// A user who may set clocks, and not switch points; then one whom the prolog has given both.
TEST_F(PreparedPoints, NeedTheRightToWriteTheirFile) {
    const std::string folder = "/sys/bus/pci/devices/" + address + "/";
    for (const char* file : {"power_dpm_force_performance_level", "pp_od_clk_voltage"})
        ASSERT_EQ(::chown((folder + file).c_str(), alice, alice), 0);
    const pid_t refused = start(
        [&] {
            const Gpu gpu = open();
            const auto error = error_of([&] { static_cast<void>(gpu.request(PreparedPoint{2})); });
            const bool is_plain =
                error && error->code() == Errc::refused &&
                std::string{error->what()}.find("active_profile") != std::string::npos;
            gpu.close();
            ::_exit(is_plain ? 0 : 4);
        },
        0, alice);
    EXPECT_EQ(end_of(refused), 0);
    EXPECT_EQ(FileSystem::settings(), found_);

    ASSERT_EQ(script("prolog.sh", std::to_string(alice)), 0);
    const pid_t job = start([&] { hold(2); }, CLONE_NEWPID, alice);
    wait_until_said();
    EXPECT_EQ(held(), "2");
    ::kill(job, SIGKILL);
    end_of(job);
    EXPECT_EQ(script("epilog.sh", ""), 0);
    EXPECT_EQ(FileSystem::settings(), found_);
    struct stat status {};
    ASSERT_EQ(::stat(active.c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, 0U);
    EXPECT_FALSE(std::ifstream{"/run/kdvfs/" + address + "-point/record"});
}

/// As after a switch that hung while the clocks' record was removed in peace.
TEST_F(PreparedPoints, OfAProcessThatLivesOnFailTheEpilog) {
    ASSERT_EQ(script("prolog.sh", std::to_string(alice)), 0);
    const pid_t escaped = start(
        [&] {
            const auto card = device::amd::find_card(*io::parse_pci_address(address));
            device::amd::PreparedPoints points{card};
            restore::OwnedClocks<device::amd::PreparedPoints> owned{points};
            owned.apply({.core = {2}});
            static_cast<void>(owned.read_clock_state());
            *said_ = 1;
            while (true) ::pause();
        },
        CLONE_NEWPID, alice);
    wait_until_said();
    EXPECT_EQ(held(), "2");
    EXPECT_NE(script("epilog.sh", ""), 0);
    EXPECT_EQ(held(), "2");
    EXPECT_TRUE(std::ifstream{"/run/kdvfs/" + address + "-point/record"});
    virtual_amdgpu::kill_container(escaped);
    end_of(escaped);
}

}  // namespace
}  // namespace kdvfs
