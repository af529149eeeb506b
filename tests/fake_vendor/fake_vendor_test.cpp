// SPDX-License-Identifier: MIT
//
// A vendor that the library has never heard of, as somebody who adds a device meets it: its clocks
// are driven, its joules are counted, and it is put back in every way.
#include <tests/fake_vendor/acme.hpp>
#include <tests/restoring/temporary_folder.hpp>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

namespace {

using namespace kdvfs::literals;
using namespace std::chrono_literals;

struct Gelu : kdvfs::Kernel<"gelu"> {};
using Policies = kdvfs::PolicyRegistry<kdvfs::Bind<"gelu", kdvfs::CapClock<1100_MHz>>>;

class FakeVendor : public ::testing::Test {
protected:
    const kdvfs::GpuOptions ungated{.switch_latency = kdvfs::Duration{0}};  // every scope switches

    FakeVendor() {
        board_.write("core_cap", "0\n");
        ::setenv("KDVFS_RECORDS", board_.at("kdvfs").c_str(), 1);  // where its record goes
    }

    /// A test's record is nobody else's business: as root it lies in the machine's folder.
    ~FakeVendor() override {
        const std::string place = "/run/kdvfs/" + acme::Readings::address_of(board_.path());
        std::this_thread::sleep_for(50ms);  // a watchdog may still be writing
        std::error_code none;
        std::filesystem::remove_all(place, none);
        std::filesystem::remove(place + ".lock", none);
    }

    /// Whether the board comes to hold this cap within two seconds.
    bool holds(unsigned cap) const {
        for (int i = 0; i < 2000; ++i) {
            unsigned present = 0;
            acme_driver::get_core_cap(board_.path(), &present);
            if (present == cap) return true;
            std::this_thread::sleep_for(1ms);
        }
        return false;
    }

    kdvfs::TemporaryFolder board_;
    acme_driver::Stream stream_;
};

TEST_F(FakeVendor, AScopeSetsTheClockAndLeavingPutsItBack) {
    const auto gpu = acme::open(board_.path(), ungated).with<Policies>();
    EXPECT_EQ(gpu.info().name, "Acme A1");
    {
        kdvfs::FrequencyScope<Gelu> scope{gpu, &stream_};
        EXPECT_TRUE(holds(1100));
    }
    EXPECT_TRUE(holds(0));
    gpu.close();
}

TEST_F(FakeVendor, ItsJoulesAreCounted) {
    const auto gpu =
        acme::open(board_.path(), {.switch_latency = kdvfs::Duration{0}, .meter_every = 1})
            .with<Policies>();
    for (int i = 0; i < 20; ++i) {
        gpu.next_iteration();
        kdvfs::FrequencyScope<Gelu> scope{gpu, &stream_};
        std::this_thread::sleep_for(5ms);
    }
    gpu.close();
    const auto report = gpu.report();
    ASSERT_EQ(report.rows.size(), 1U);
    EXPECT_EQ(report.rows[0].calls, 20U);
    EXPECT_GE(report.rows[0].time.count(), 0.1);
    ASSERT_GT(report.totals.counted_time.count(), 0);
    EXPECT_NEAR(report.totals.counter.count / report.totals.counted_time.count(), 100, 1);
}

TEST_F(FakeVendor, ARefusalIsLoudOrChosen) {
    board_.write("locked", "");
    try {
        static_cast<void>(acme::open(board_.path()));
        FAIL() << "opened a board whose clocks are locked";
    } catch (const kdvfs::Error& error) {
        EXPECT_EQ(error.code(), kdvfs::Errc::refused);
        EXPECT_NE(std::string{error.what()}.find("ACME_NOT_PERMITTED"), std::string::npos);
    }
    const auto gpu = acme::open(board_.path(), {.on_refused = kdvfs::OnRefused::measure_only});
    EXPECT_TRUE(gpu.measure_only());
    gpu.close();
}

TEST_F(FakeVendor, AKilledProcessLeavesTheBoardAsItWas) {
    board_.write("core_cap", "1500\n");
    const pid_t child = ::fork();
    if (child == 0) {
        const auto gpu = acme::open(board_.path(), ungated).with<Policies>();
        kdvfs::FrequencyScope<Gelu> scope{gpu, &stream_};
        std::this_thread::sleep_for(10s);
        ::_exit(0);
    }
    EXPECT_TRUE(holds(1100));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(holds(1500));
}

}  // namespace
