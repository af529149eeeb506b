// SPDX-License-Identifier: MIT
//
// Power limits of boards: simulated, virtual ones behind the driver's files and ROCm SMI, a double
// of NVML, and one of plain files whose owner is killed.
#include <kdvfs/detail/device/amd/card.hpp>
#include <kdvfs/detail/train/owned_power_limit.hpp>
#include <kdvfs/device/simulated/device.hpp>
#include <kdvfs/device/simulated/presets.hpp>
#include <kdvfs/train/node_power.hpp>
#include <kdvfs/train/power_limit.hpp>

#include <tests/nvml/double_fixture.hpp>
#include <tests/restoring/temporary_folder.hpp>
#include <tests/virtual_amdgpu/interpose.hpp>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#if __has_include(<rocm_smi/rocm_smi.h>)
#include <kdvfs/detail/device/amd/rocm_smi.hpp>
#endif

namespace kdvfs::train {
namespace {

using namespace std::chrono_literals;
using device::amd::SysfsPowerLimit;
using kdvfs::detail::RestorePlace;

TEST(PowerLimitDevices, ASearchOnASimulatedBoardFindsTheBestAndLeavesWhatItFound) {
    simulated::Device board{simulated::mi250x()};
    board.set_power_limit({500});
    simulated::Stream* const stream = board.create_stream();
    const simulated::KernelModel step = simulated::roofline(
        board.board(), {.matrix_flops = 4e12, .memory_bytes = 4e9}, {.matrix = 0.9});
    // What a step costs at each limit, by the board's own model.
    const LimitChoice choice = LimitChoice::energy();
    double best_energy = std::numeric_limits<double>::infinity();
    Watts best{};
    for (double watts = 225; watts <= 560; watts += 25) {
        simulated::Board limited = board.board();
        limited.power_cap = {watts};
        const simulated::OperatingPoint point = simulated::operate(limited, step, {});
        const double energy = (point.power * point.time).count;
        if (energy < best_energy) best = {watts};
        best_energy = std::min(best_energy, energy);
    }
    Watts found{};
    {
        PowerLimitGuard guard{board};
        PowerLimitOptions options;
        options.choice = choice;
        PowerLimit search{guard.range(), options};
        for (int i = 0; i < 2000 && !search.is_done(); ++i) {
            const Seconds now{board.now().time_since_epoch()};
            if (const auto limit = search.begin_step({board.true_energy(), now})) guard.set(*limit);
            board.launch(stream, step);
            board.synchronize(stream);
        }
        ASSERT_TRUE(search.is_done());
        found = *search.best();
        EXPECT_EQ(board.read_power_limit(), found);
    }
    simulated::Board limited = board.board();
    limited.power_cap = found;
    const simulated::OperatingPoint point = simulated::operate(limited, step, {});
    EXPECT_LT((point.power * point.time).count, 1.01 * best_energy)
        << found.count << " W, the best is " << best.count << " W";
    EXPECT_EQ(board.read_power_limit(), Watts{500}) << "the limit that was found, not the highest";
    EXPECT_THROW(board.set_power_limit({100}), Error);
}

/// What all ways to an AMD board's limit have in common.
template <class Limit>
void try_on_virtual_board() {
    virtual_amdgpu::Machine machine{{virtual_amdgpu::mi210()}};
    const virtual_amdgpu::Mounted mounted{machine};
    Limit limit{device::amd::find_cards().front()};
    const Watts found = limit.read_power_limit();
    const PowerRange range = limit.power_limit_range();
    EXPECT_EQ(found, range.high);
    EXPECT_GT(range.low.count, 50) << "the driver says 0";
    {
        PowerLimitGuard guard{limit};
        guard.set({200});
        EXPECT_EQ(limit.read_power_limit(), Watts{200});
        try {
            guard.set({range.high.count + 50});  // the driver refuses
            ADD_FAILURE() << "a limit above the highest was taken";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::refused);
        }
    }
    EXPECT_EQ(limit.read_power_limit(), found);
}

TEST(PowerLimitDevices, OfAnAmdBoardIsSetReadBackAndRestoredThroughItsFiles) {
    try_on_virtual_board<SysfsPowerLimit>();
}

#if __has_include(<rocm_smi/rocm_smi.h>)
TEST(PowerLimitDevices, OfAnAmdBoardIsSetReadBackAndRestoredThroughRocmSmi) {
    try_on_virtual_board<device::RocmSmiPowerLimit>();
}
#endif

TEST(PowerLimitDevices, ABoardWithoutALimitSaysSo) {
    virtual_amdgpu::Board second = virtual_amdgpu::mi210();
    second.secondary_die = true;
    virtual_amdgpu::Machine machine{{second}};
    const virtual_amdgpu::Mounted mounted{machine};
    EXPECT_THROW(SysfsPowerLimit{device::amd::find_cards().front()}, Error);
}

class NvmlLimit : public device::NvmlDouble {};

TEST_F(NvmlLimit, IsSetReadBackAndRestored) {
    board().power_limit = 650'000;
    device::NvmlPowerLimit limit{address, options()};
    EXPECT_EQ(limit.power_limit_range().low, Watts{200});
    {
        PowerLimitGuard guard{limit};
        guard.set({300});
        EXPECT_EQ(board().power_limit, 300'000U);
    }
    EXPECT_EQ(board().power_limit, 650'000U);
    board().faults["nvmlDeviceSetPowerManagementLimit"] = {.code = 4};
    EXPECT_THROW(limit.set_power_limit({400}), Error);
}

/// In a child process, whose exit status is what it returns.
int status_of_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        try {
            ::_exit(body());
        } catch (const std::exception& error) {
            std::fprintf(stderr, "child: %s\n", error.what());
            ::_exit(99);
        }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// With an nvidia-smi that keeps the limit of a board in a file, "limit", and notes what it sets.
class NvmlLimitOwner : public NvmlLimit {
protected:
    NvmlLimitOwner() {
        folder.write("nvidia-smi", "#!/bin/sh\ncd " + folder.path() +
                                       "\ncase $* in *query*) cat limit; exit ;; esac\n"
                                       "echo \"$@\" >>calls\necho \"$4\" >limit\n");
        ::chmod(folder.at("nvidia-smi").c_str(), 0755);
        with_restorer = options();
        with_restorer.restorer = folder.at("nvidia-smi");
    }
    [[nodiscard]] RestorePlace place() const {
        return RestorePlace::in_own(folder.at("own"), std::string{address} + "-power");
    }

    const TemporaryFolder folder;
    device::NvmlOptions with_restorer;
};

TEST_F(NvmlLimitOwner, OfAFractionOfAWattIsPutBackExactly) {
    folder.write("limit", "400.00\n");
    board().power_limit = 562'500;
    for (const bool has_watchdog : {true, false}) {
        EXPECT_EQ(status_of_child([&] {
                      device::NvmlPowerLimit limit{address, with_restorer};
                      OwnedPowerLimit owned{limit, place()};
                      owned.set_power_limit({400});
                      if (!has_watchdog) ::kill(owned.watchdog(), SIGKILL);
                      return ::raise(SIGKILL);
                  }),
                  -SIGKILL);
        if (!has_watchdog) continue;
        for (int i = 0; i < 1000 && folder.read("calls").empty(); ++i)
            std::this_thread::sleep_for(10ms);
        EXPECT_EQ(folder.read("calls"), std::string{"-i "} + address + " -pl 562.500\n");
    }
    board().power_limit = 400'000;  // as the child left it, whose board was its own
    device::NvmlPowerLimit limit{address, options()};
    const OwnedPowerLimit owned{limit, place()};
    EXPECT_EQ(board().power_limit, 562'500U);
}

/// What a watchdog leaves, by what nvidia-smi says the board holds when its owner has died.
TEST_F(NvmlLimitOwner, ThatSomebodyElseHasLoweredSinceStays) {
    struct Case {
        const char* holds;
        const char* calls;
        const char* note;
    };
    const std::string back = std::string{"-i "} + address + " -pl 700.000\n";
    for (const Case& each : {Case{"400.00\n", "", "left as somebody else has set it"},
                             Case{"500.00\n", back.c_str(), "restored"},
                             Case{"500\n", back.c_str(), "restored"},  // rounded by the board
                             Case{"699.00\n", "", "left as somebody else has set it"},
                             Case{"700.00\n", "", "found as it was"}}) {
        board().power_limit = 700'000;
        folder.write("limit", each.holds);
        folder.write("calls", "");
        EXPECT_EQ(status_of_child([&] {
                      device::NvmlPowerLimit limit{address, with_restorer};
                      OwnedPowerLimit owned{limit, place()};
                      owned.set_power_limit({500});
                      return ::raise(SIGKILL);
                  }),
                  -SIGKILL);
        const std::string name = std::string{address} + "-power";
        const auto note = [&] {
            const auto file = place().folder.open(kdvfs::restore::record_name);
            return kdvfs::restore::read_note(file.get()).words;
        };
        for (int i = 0; i < 1000 && note() != each.note; ++i) std::this_thread::sleep_for(5ms);
        EXPECT_EQ(note(), each.note) << each.holds;
        EXPECT_EQ(folder.read("calls"), each.calls) << each.holds;
        const kdvfs::restore::DeviceLock lock{place(), name, {.for_watchdog = 5s}};
        place().folder.remove(kdvfs::restore::record_name);
    }
}

/// A board's hwmon folder made of plain files.
class LimitOfFiles : public testing::Test {
protected:
    static constexpr const char* cap = "hwmon/hwmon3/power1_cap";

    LimitOfFiles() {
        std::filesystem::create_directories(files_.at("hwmon/hwmon3"));
        files_.write(cap, "562500000\n");
        files_.write("hwmon/hwmon3/power1_cap_min", "0\n");
        files_.write("hwmon/hwmon3/power1_cap_max", "750000000\n");
        card_.folder = files_.path();
        card_.name = "Board of files";
        card_.address = {0, 0xc1, 0, 0};
    }
    [[nodiscard]] RestorePlace place() const {
        return RestorePlace::in_own(own_.at("own"), "0000:c1:00.0-power");
    }
    [[nodiscard]] std::string held() const { return files_.read(cap); }
    /// Waits until the file says so, for 10 s at most.
    [[nodiscard]] bool comes_to_hold(const std::string& text) const {
        for (int i = 0; i < 1000 && held() != text; ++i) std::this_thread::sleep_for(10ms);
        return held() == text;
    }
    /// A child that sets a limit, says so and waits.
    [[nodiscard]] pid_t start_owner() const {
        const pid_t child = ::fork();
        if (child != 0) return child;
        try {
            SysfsPowerLimit limit{card_};
            OwnedPowerLimit owned{limit, place()};
            PowerLimitGuard guard{owned};
            guard.set({400});
            for (;;) std::this_thread::sleep_for(1s);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "child: %s\n", error.what());
        }
        ::_exit(1);
    }

    TemporaryFolder files_;
    TemporaryFolder own_;
    device::amd::Card card_;
};

TEST_F(LimitOfFiles, IsPutBackByTheWatchdogOfAProcessThatIsKilled) {
    const pid_t child = start_owner();
    EXPECT_TRUE(comes_to_hold("400000000\n"));
    // One owner at a time.
    SysfsPowerLimit limit{card_};
    EXPECT_THROW((OwnedPowerLimit<SysfsPowerLimit>{limit, place()}), Error);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(comes_to_hold("562500000\n")) << "to the last microwatt; it holds " << held();
}

/// A second board beside it: watts are moved between them until the process is killed.
TEST_F(LimitOfFiles, OfTwoBoardsOfANodeArePutBackByTheirWatchdogs) {
    TemporaryFolder second_files;
    std::filesystem::copy(files_.path(), second_files.path(),
                          std::filesystem::copy_options::recursive);
    device::amd::Card second_card = card_;
    second_card.folder = second_files.path();
    second_card.address = {0, 0xc2, 0, 0};
    const auto second_place = [&] {
        return RestorePlace::in_own(own_.at("own"), "0000:c2:00.0-power");
    };
    EXPECT_EQ(status_of_child([&] {
                  SysfsPowerLimit first_limit{card_};
                  SysfsPowerLimit second_limit{second_card};
                  OwnedPowerLimit first{first_limit, place()};
                  OwnedPowerLimit second{second_limit, second_place()};
                  OwnedPowerLimit<SysfsPowerLimit>* const devices[] = {&first, &second};
                  NodePowerGuard<OwnedPowerLimit<SysfsPowerLimit>> guard{devices};
                  std::vector<std::optional<GpuIteration>> both(
                      2, GpuIteration{Seconds{1}, Seconds{0}, {550}, {}});
                  both[1]->compute = Seconds{1.03};
                  for (int i = 0; i < 20; ++i) guard.add_iteration(both);
                  const bool moved = held() < "560" && second_files.read(cap) > "565";
                  return moved ? ::raise(SIGKILL) : 1;
              }),
              -SIGKILL);
    EXPECT_TRUE(comes_to_hold("562500000\n")) << "it holds " << held();
    for (int i = 0; i < 1000 && second_files.read(cap) != "562500000\n"; ++i)
        std::this_thread::sleep_for(10ms);
    EXPECT_EQ(second_files.read(cap), "562500000\n");
}

TEST_F(LimitOfFiles, IsPutBackFromTheWattNextToIt) {
    EXPECT_EQ(status_of_child([&] {
                  SysfsPowerLimit limit{card_};
                  OwnedPowerLimit owned{limit, place()};
                  owned.set_power_limit({562});
                  return held() == "562000000\n" ? ::raise(SIGKILL) : 1;
              }),
              -SIGKILL);
    EXPECT_TRUE(comes_to_hold("562500000\n")) << "it holds " << held();
}

TEST_F(LimitOfFiles, IsPutBackExactlyByTheNextOwnerAndItsWatchdog) {
    EXPECT_EQ(status_of_child([&] {
                  SysfsPowerLimit limit{card_};
                  OwnedPowerLimit owned{limit, place()};
                  owned.set_power_limit({400});
                  ::kill(owned.watchdog(), SIGKILL);
                  return ::raise(SIGKILL);
              }),
              -SIGKILL);
    EXPECT_EQ(held(), "400000000\n");
    EXPECT_EQ(status_of_child([&] {
                  SysfsPowerLimit limit{card_};  // which sees 400 W
                  OwnedPowerLimit owned{limit, place()};
                  if (held() != "562500000\n") return 1;
                  owned.set_power_limit({300});
                  return ::raise(SIGKILL);
              }),
              -SIGKILL)
        << "it holds " << held();
    EXPECT_TRUE(comes_to_hold("562500000\n")) << "it holds " << held();
}

TEST_F(LimitOfFiles, StaysWhereSomebodyElseHasChangedItSince) {
    const pid_t child = start_owner();
    EXPECT_TRUE(comes_to_hold("400000000\n"));
    files_.write(cap, "450000000\n");
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    std::this_thread::sleep_for(500ms);
    EXPECT_EQ(held(), "450000000\n");
}

TEST_F(LimitOfFiles, IsPutBackAtTheEndOfThisProcess) {
    SysfsPowerLimit limit{card_};
    {
        OwnedPowerLimit owned{limit, place()};
        PowerLimitGuard guard{owned};
        guard.set({400});
        EXPECT_EQ(held(), "400000000\n");
        EXPECT_GT(owned.watchdog(), 0);
    }
    EXPECT_EQ(held(), "562500000\n");
    EXPECT_FALSE(kdvfs::detail::find_record(place().folder, "0000:c1:00.0-power"));
}

}  // namespace
}  // namespace kdvfs::train
