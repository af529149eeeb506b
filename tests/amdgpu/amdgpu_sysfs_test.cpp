// SPDX-License-Identifier: MIT
#include <kdvfs/detail/control/clock_command.hpp>
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/device/amd/families.hpp>
#include <kdvfs/detail/gpu/open.hpp>

#include <tests/amdgpu/written.hpp>
#include <tests/virtual_amdgpu/interpose.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace kdvfs::device {
namespace {

using namespace kdvfs::literals;
using namespace std::chrono_literals;
using amd::Capability;
using virtual_amdgpu::Access;
using virtual_amdgpu::Machine;
using virtual_amdgpu::Mounted;

constexpr io::PciAddress first_gpu{0, 0xc1, 0, 0};

/// Brings the virtual board into a state by the driver's own rules.
void bring(virtual_amdgpu::Gpu& gpu, const ClockState& state) {
    ASSERT_EQ(gpu.write_performance_level(state.mode), 0);
    if (state.floor.core != auto_clock) {
        ASSERT_EQ(gpu.write_overdrive("s 0 " + std::to_string(state.floor.core.count)), 0);
    }
    if (state.cap.core != auto_clock) {
        ASSERT_EQ(gpu.write_overdrive("s 1 " + std::to_string(state.cap.core.count)), 0);
        ASSERT_EQ(gpu.write_overdrive("c"), 0);
    }
}

TEST(Cards, AreFoundByPciAddressWithNameAndArchitecture) {
    Machine machine{{virtual_amdgpu::mi210(), virtual_amdgpu::mi300x()}};
    const Mounted mounted{machine};
    const auto cards = amd::find_cards();
    ASSERT_EQ(cards.size(), 2u);
    EXPECT_EQ(to_string(cards[0]), "AMD Instinct MI210 (0000:c1:00.0)");
    EXPECT_EQ(cards[0].architecture, "gfx90a");
    EXPECT_EQ(cards[0].core_max, 1700_MHz);
    EXPECT_EQ(cards[1].architecture, "gfx942");
    EXPECT_EQ(cards[1].partition, "SPX");
}

TEST(Cards, AMissingOneIsAnErrorThatNamesThoseThere) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    try {
        amd::find_card({0, 5, 0, 0});
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_supported);
        EXPECT_NE(std::string{error.what()}.find("0000:c1:00.0"), std::string::npos);
    }
}

TEST(PciAddress, ReadsWhatHipAndTheKernelWrite) {
    EXPECT_EQ(io::parse_pci_address("0000:C1:00.0"), first_gpu);
    EXPECT_EQ(to_string(first_gpu), "0000:c1:00.0");
    for (const char* text : {"", "c1:00.0", "0000:c1:00", "0000:c1:00.8", "0000:c1:20.0",
                             "0000:c1:00.0x", "0000:1c1:00.0"}) {
        EXPECT_FALSE(io::parse_pci_address(text)) << text;
    }
}

TEST(AmdgpuSysfs, OpeningWritesNothing) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    const AmdgpuSysfs gpu{first_gpu};
    EXPECT_TRUE(machine.writes().empty());
    EXPECT_EQ(gpu.info().mechanism, "amdgpu sysfs range");
    EXPECT_TRUE(supports(gpu.supported_clocks(), {1100_MHz, auto_clock}));
    EXPECT_FALSE(supports(gpu.supported_clocks(), {1100_MHz, 1200_MHz}));
    EXPECT_FALSE(supports(gpu.supported_clocks(), {500_MHz, auto_clock}));
}

TEST(AmdgpuSysfs, CapsTheCoreByARange) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    gpu.apply({1100_MHz, auto_clock});
    EXPECT_EQ(written(machine), "level=manual\nod=s 0 500\nod=s 1 1100\nod=c\n");
    EXPECT_EQ(gpu.read_clock_state(),
              (ClockState{{1100_MHz, auto_clock}, {500_MHz, auto_clock}, "manual"}));
    EXPECT_EQ(machine.gpu(0).running_clock(), 1100u);
    machine.clear_writes();
    gpu.apply({});
    EXPECT_EQ(written(machine), "level=auto\n");
    EXPECT_EQ(gpu.read_clock_state(), ClockState{});
}

TEST(AmdgpuSysfs, TheHighestClockReadsBackByTheNameItWasAskedBy) {
    Machine machine{{virtual_amdgpu::mi300x()}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    for (const ClockPoint point : {ClockPoint{2100_MHz, auto_clock}, ClockPoint{2100_MHz, 1100_MHz},
                                   ClockPoint{auto_clock, 1100_MHz}, ClockPoint{1500_MHz, 1300_MHz},
                                   ClockPoint{1500_MHz, auto_clock}, ClockPoint{}}) {
        gpu.apply(point);
        EXPECT_EQ(gpu.read_clock_state().cap, point) << to_string(point);
    }
    EXPECT_EQ(kdvfs::detail::prove_clock_control(gpu), ClockState{});
}

TEST(AmdgpuSysfs, CapsTheMemoryOfAnMi300) {
    Machine machine{{virtual_amdgpu::mi300x()}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    gpu.apply({auto_clock, 1100_MHz});
    EXPECT_EQ(written(machine), "level=manual\nod=s 0 132\nod=s 1 2100\nod=m 1 1100\nod=c\n");
    EXPECT_EQ(gpu.read_clock_state().cap, (ClockPoint{auto_clock, 1100_MHz}));
    gpu.apply({1500_MHz, auto_clock});
    EXPECT_EQ(gpu.read_clock_state().cap, (ClockPoint{1500_MHz, auto_clock}));
    EXPECT_EQ(machine.gpu(0).settings().memory_max, 1300u);
}

TEST(AmdgpuSysfs, ProbeTriesTheFirstWayThatWorksAndLeavesNothingChanged) {
    Machine machine{{virtual_amdgpu::mi210(), virtual_amdgpu::mi300x()}};
    const Mounted mounted{machine};
    const auto cards = amd::find_cards();
    for (std::size_t i = 0; i < cards.size(); ++i) {
        const auto before = machine.gpu(i).settings();
        AmdgpuSysfs gpu{cards[i]};
        machine.clear_writes();
        const auto found = gpu.probe();
        EXPECT_EQ(written(machine), i == 0 ? "level=manual\nod=s 0 500\nod=s 1 1550\nod=c\n"
                                             "level=auto\n"
                                           : "level=manual\nod=s 0 132\nod=s 1 1854\nod=m 1 1300\n"
                                             "od=c\nlevel=auto\n");
        EXPECT_EQ(found.range, Capability::supported);
        EXPECT_EQ(found.determinism, Capability::absent);
        EXPECT_EQ(found.memory, i == 0 ? Capability::absent : Capability::supported);
        EXPECT_EQ(found.level_mask, Capability::absent);
        EXPECT_EQ(found.energy, Capability::supported);
        EXPECT_EQ(machine.gpu(i).settings(), before);
    }
}

TEST(AmdgpuSysfs, ProbesABoardOfLevelsByFourWritesAtMost) {
    Machine machine{{virtual_amdgpu::mi100()}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    EXPECT_EQ(gpu.probe().level_mask, Capability::supported);
    EXPECT_LE(machine.writes().size(), 4U) << written(machine);
}

TEST(AmdgpuSysfs, ProbesWithoutRaisingWhatWasFound) {
    const ClockState states[] = {
        {{1600_MHz, auto_clock}, {500_MHz, auto_clock}, "manual"},
        {{1000_MHz, auto_clock}, {800_MHz, auto_clock}, "manual"},
        {{700_MHz, auto_clock}, {699_MHz, auto_clock}, "manual"},
        {{1000_MHz, auto_clock}, {}, "perf_determinism"},
        {{}, {}, "low"},
        {{}, {}, "profile_standard"},
    };
    for (const ClockState& found : states) {
        Machine machine{{virtual_amdgpu::mi210()}};
        const Mounted mounted{machine};
        bring(machine.gpu(0), found);
        const auto before = machine.gpu(0).settings();
        machine.clear_writes();
        AmdgpuSysfs gpu{first_gpu};
        gpu.probe();
        EXPECT_EQ(machine.gpu(0).settings(), before) << found.mode;
        EXPECT_LE(machine.writes().size(), 9U) << written(machine);
        for (const auto& write : machine.writes()) {
            if (!write.text.starts_with("s 1 ")) continue;
            EXPECT_LE(std::stoul(write.text.substr(4)), found.cap.core.count) << write.text;
        }
        if (pins_clocks(found)) {
            EXPECT_TRUE(machine.writes().empty()) << written(machine);
        }
        // A lower cap keeps the floor that was found.
        const ClockPoint lower{Megahertz{found.cap.core.count - 1}, auto_clock};
        if (found.floor.core == auto_clock || lower.core <= found.floor.core) continue;
        gpu.apply(lower);
        EXPECT_EQ(machine.gpu(0).settings().core.min, found.floor.core.count);
        gpu.restore(found);
        EXPECT_EQ(machine.gpu(0).settings(), before);
    }
}

TEST(AmdgpuSysfs, NeedsNoListOfMemoryClocksForTheCores) {
    Machine machine{{virtual_amdgpu::mi300x()}};
    const Mounted mounted{machine};
    machine.inject({Access::read, "pp_dpm_mclk", ENOENT});
    AmdgpuSysfs gpu{first_gpu};
    EXPECT_EQ(gpu.probe().range, Capability::supported);
    EXPECT_TRUE(gpu.supported_clocks().memory.listed.empty());
    gpu.apply({1500_MHz, auto_clock});
    EXPECT_EQ(machine.gpu(0).settings().core.max, 1500U);
    EXPECT_EQ(machine.gpu(0).settings().memory_max, 1300U);
}

TEST(Families, ThatDoNotComeBackAreMeasuredOnly) {
    const auto refusal = [](const char* architecture, bool allow) -> std::string {
        amd::Card card;
        card.architecture = architecture;
        try {
            amd::require_proven(card, allow);
            return "";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::not_supported);
            return error.what();
        }
    };
    for (const char* shown : {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1250"})
        EXPECT_EQ(refusal(shown, false), "") << shown;
    for (const char* stays : {"gfx906", "gfx1010", "gfx1030", "gfx1100", "gfx1201"}) {
        EXPECT_NE(refusal(stays, true).find("the table stays until r"), std::string::npos) << stays;
    }
    for (const char* unknown : {"", "gfx803", "gfx1310"}) {
        EXPECT_NE(refusal(unknown, false).find("GpuOptions::allow_unproven"), std::string::npos);
        EXPECT_EQ(refusal(unknown, true), "") << unknown;
    }
}

TEST(AmdgpuSysfs, FallsBackToDeterminismWhereARangeIsRefused) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    machine.inject({Access::write, "pp_od_clk_voltage", EINVAL, 0, 1});
    const auto found = gpu.probe();
    EXPECT_EQ(found.range, Capability::refused);
    EXPECT_EQ(found.determinism, Capability::supported);
    EXPECT_EQ(gpu.info().mechanism, "amdgpu sysfs determinism");
    machine.clear_writes();
    gpu.apply({1100_MHz, auto_clock});
    EXPECT_EQ(written(machine), "level=perf_determinism\nod=s 1 1100\nod=c\n");
    EXPECT_EQ(gpu.read_clock_state(), (ClockState{{1100_MHz, auto_clock}, {}, "perf_determinism"}));
}

TEST(AmdgpuSysfs, AProbeThatIsRefusedSaysWhatToDo) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    machine.inject({Access::write, "power_dpm_force_performance_level", EACCES});
    const auto before = machine.gpu(0).settings();
    try {
        gpu.probe();
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::refused);
        EXPECT_NE(std::string{error.what()}.find("run as root"), std::string::npos);
        EXPECT_NE(std::string{error.what()}.find("0000:c1:00.0"), std::string::npos);
    }
    EXPECT_EQ(machine.gpu(0).settings(), before);
}

TEST(AmdgpuSysfs, RestoresEveryStateItMayFind) {
    const ClockState states[] = {
        {},
        {{}, {}, "high"},
        {{}, {}, "low"},
        {{}, {}, "profile_peak"},
        {{1300_MHz, auto_clock}, {800_MHz, auto_clock}, "manual"},
        {{700_MHz, auto_clock}, {600_MHz, auto_clock}, "manual"},
        {{1690_MHz, auto_clock}, {1600_MHz, auto_clock}, "manual"},
        {{1000_MHz, auto_clock}, {}, "perf_determinism"},
    };
    for (const bool strict : {false, true}) {
        for (const ClockState& found : states) {
            for (const Megahertz cap : {501_MHz, 650_MHz, 1100_MHz, 1699_MHz}) {
                virtual_amdgpu::Board board = virtual_amdgpu::mi210();
                board.range_checked_at_each_write = strict;
                Machine machine{{board}};
                const Mounted mounted{machine};
                bring(machine.gpu(0), found);
                const auto before = machine.gpu(0).settings();
                AmdgpuSysfs gpu{first_gpu};
                const ClockState saved = gpu.read_clock_state();
                EXPECT_EQ(saved.mode, found.mode);
                if (supports(gpu.supported_clocks(), {cap, auto_clock})) {
                    gpu.apply({cap, auto_clock});
                    EXPECT_EQ(gpu.read_clock_state().cap.core, cap);
                }
                gpu.restore(saved);
                EXPECT_EQ(machine.gpu(0).settings(), before) << found.mode << cap.count << strict;
                EXPECT_EQ(gpu.read_clock_state(), saved);
            }
        }
    }
}

TEST(AmdgpuSysfs, ARangeIsReachedThoughSomebodyElseHasSetOneSinceItWasRead) {
    for (const bool strict : {false, true}) {
        virtual_amdgpu::Board board = virtual_amdgpu::mi210();
        board.range_checked_at_each_write = strict;
        Machine machine{{board}};
        const Mounted mounted{machine};
        AmdgpuSysfs gpu{first_gpu};
        EXPECT_EQ(gpu.read_clock_state(), ClockState{});
        for (const Megahertz cap : {650_MHz, 700_MHz}) {
            for (const char* level : {"auto", "manual"})
                ASSERT_EQ(machine.gpu(0).write_performance_level(level), 0);
            for (const char* text : {"s 0 800", "s 1 1300", "c"})
                ASSERT_EQ(machine.gpu(0).write_overdrive(text), 0);
            gpu.apply({cap, auto_clock});  // below all that they allow
            EXPECT_EQ(gpu.read_clock_state().cap.core, cap) << strict;
        }
        // A refusal that has no such reason is told, and nothing is written behind it.
        machine.inject({Access::write, "pp_od_clk_voltage", EINVAL, 0, 1});
        machine.clear_writes();
        EXPECT_THROW(gpu.apply({900_MHz, auto_clock}), Error);
        EXPECT_EQ(written(machine), "level=manual\nod=s 0 500\n");
    }
}

TEST(AmdgpuSysfs, DoesNotTakeModesFromAJournalThatTheDriverDoesNotKnow) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    EXPECT_THROW(gpu.restore({{}, {}, "auto\n../x"}), Error);
    EXPECT_TRUE(machine.writes().empty());
}

TEST(AmdgpuSysfs, APartitionedGpuCanOnlyBeMeasured) {
    virtual_amdgpu::Board board = virtual_amdgpu::mi300x();
    board.partition = "CPX";
    Machine machine{{board}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    EXPECT_NE(gpu.info().mechanism.find("none: the GPU is partitioned (CPX)"), std::string::npos);
    EXPECT_THROW(gpu.apply({1100_MHz, auto_clock}), Error);
    EXPECT_THROW(gpu.probe(), Error);
    EXPECT_TRUE(machine.writes().empty());
    EXPECT_EQ(gpu.read_energy().status, ReadingStatus::ok);
}

TEST(AmdgpuSysfs, APartitionThatOnlyHipKnowsIsMeasuredByTheCounterOfItsGpu) {
    virtual_amdgpu::Board board = virtual_amdgpu::mi300x();
    board.partition = "CPX";
    Machine machine{{board}};
    const Mounted mounted{machine};
    const io::PciAddress partition{0, 0xc1, 0, 5};
    AmdgpuSysfs gpu{partition};
    EXPECT_EQ(gpu.info().address, "0000:c1:00.5");
    EXPECT_NE(gpu.info().mechanism.find("of all partitions together"), std::string::npos);
    EXPECT_EQ(gpu.read_energy().status, ReadingStatus::ok);
    EXPECT_THROW(gpu.probe(), Error);
    EXPECT_TRUE(machine.writes().empty());
}

TEST(AmdgpuSysfs, AWholeGpuHasNoFunctionsBesideItsFirst) {
    Machine machine{{virtual_amdgpu::mi300x()}};
    const Mounted mounted{machine};
    const io::PciAddress nobodys{0, 0xc1, 0, 5};
    EXPECT_THROW(static_cast<void>(amd::find_card(nobodys)), Error);
}

TEST(AmdgpuSysfs, AHaltedGpuIsAnErrorNotANumber) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    gpu.apply({1100_MHz, auto_clock});
    machine.gpu(0).set_core_levels_text("unavailable\n");
    EXPECT_THROW(static_cast<void>(gpu.read_clock_state()), Error);
}

TEST(MetricsFile, CountsTheEnergyTheBoardUses) {
    for (const auto& board : {virtual_amdgpu::mi210(), virtual_amdgpu::mi300x()}) {
        Machine machine{{board}};
        const Mounted mounted{machine};
        std::chrono::nanoseconds now = 10s;
        machine.gpu(0).set_time_source([&] { return now; });
        AmdgpuSysfs gpu{first_gpu};
        machine.gpu(0).set_busy(1);
        const EnergyReading first = gpu.read_energy();
        const double watts = machine.gpu(0).watts();
        now += 2s;
        const EnergyReading second = gpu.read_energy();
        ASSERT_EQ(first.status, ReadingStatus::ok);
        ASSERT_EQ(second.status, ReadingStatus::ok);
        EXPECT_NEAR((second.joules - first.joules).count, 2 * watts, 2.0 / 65536);
        EXPECT_EQ(gpu.counter_period(), 1ms);
    }
}

TEST(PackagesOfTwoDies, AreClockedPerDieAndCountedTogether) {
    Machine machine{{virtual_amdgpu::mi250x(), virtual_amdgpu::mi250x_secondary(),
                     virtual_amdgpu::mi250x(), virtual_amdgpu::mi250x_secondary()}};
    const Mounted mounted{machine};
    std::chrono::nanoseconds now = 10s;
    for (std::size_t i = 0; i < 4; ++i) machine.gpu(i).set_time_source([&] { return now; });
    const auto cards = amd::find_cards();
    AmdgpuSysfs first{cards[2]};
    AmdgpuSysfs second{cards[3]};
    EXPECT_EQ(second.info().mechanism,
              "amdgpu sysfs range, second die of its package, energy of both dies of the package");
    EXPECT_EQ(first.info().mechanism, "amdgpu sysfs range, energy of both dies of the package");
    second.apply({1100_MHz, auto_clock});
    EXPECT_EQ(machine.gpu(2).settings().core.max, 1700u);
    EXPECT_EQ(machine.gpu(3).settings().core.max, 1100u);

    machine.gpu(0).set_busy(1);  // another package, which counts for itself
    machine.gpu(3).set_busy(1);
    const double watts = machine.gpu(2).watts() + machine.gpu(3).watts();
    const EnergyReading before[] = {first.read_energy(), second.read_energy()};
    now += 2s;
    const EnergyReading after[] = {first.read_energy(), second.read_energy()};
    for (const int die : {0, 1}) {
        ASSERT_EQ(after[die].status, ReadingStatus::ok);
        EXPECT_NEAR((after[die].joules - before[die].joules).count, 2 * watts, 3.0 / 65536);
    }
    EXPECT_EQ(second.probe().energy, Capability::supported);
}

TEST(PackagesOfTwoDies, WhoseFirstDieIsNotFoundHaveNoCounterAndSaySo) {
    // Passed into a container or a virtual machine without its sibling.
    Machine machine{{virtual_amdgpu::mi250x_secondary()}};
    const Mounted mounted{machine};
    AmdgpuSysfs alone{first_gpu};
    EXPECT_EQ(alone.read_energy().status, ReadingStatus::absent);
    EXPECT_EQ(alone.info().mechanism,
              "amdgpu sysfs range, second die of its package, whose first die was not found: no "
              "energy");
    const auto found = alone.probe();
    EXPECT_EQ(found.energy, Capability::absent);
    EXPECT_EQ(found.range, Capability::supported);
}

TEST(LevelMask, IsTheWayOfABoardWithNothingElse) {
    Machine machine{{virtual_amdgpu::mi100()}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    EXPECT_EQ(gpu.info().mechanism, "amdgpu sysfs level mask");
    EXPECT_FALSE(supports(gpu.supported_clocks(), {1100_MHz, auto_clock}));
    EXPECT_TRUE(supports(gpu.supported_clocks(), {1087_MHz, auto_clock}));
    const auto before = machine.gpu(0).settings();
    const auto found = gpu.probe();
    EXPECT_EQ(found.level_mask, Capability::supported);
    EXPECT_EQ(found.range, Capability::absent);
    EXPECT_EQ(found.determinism, Capability::absent);
    EXPECT_EQ(found.memory, Capability::absent);
    EXPECT_EQ(machine.gpu(0).settings(), before);
    EXPECT_EQ(kdvfs::detail::prove_clock_control(gpu), ClockState{});
    machine.clear_writes();
    gpu.apply({1087_MHz, auto_clock});
    EXPECT_EQ(written(machine), "level=manual\nlevels=0 1 2 3 4 5\n");
    EXPECT_EQ(machine.gpu(0).running_clock(), 1087u);
    EXPECT_EQ(gpu.read_clock_state(), (ClockState{{1087_MHz, auto_clock}, {}, "manual"}));
    gpu.apply({});
    EXPECT_EQ(gpu.read_clock_state(), ClockState{});
    EXPECT_EQ(machine.gpu(0).settings(), before);
}

TEST(LevelMask, OfSomebodyElseCannotBeReadAndIsNotTouched) {
    Machine machine{{virtual_amdgpu::mi100()}};
    const Mounted mounted{machine};
    ASSERT_EQ(machine.gpu(0).write_performance_level("manual"), 0);
    ASSERT_EQ(machine.gpu(0).write_core_levels("0 1 2"), 0);
    const auto theirs = machine.gpu(0).settings();
    AmdgpuSysfs gpu{first_gpu};
    EXPECT_THROW(gpu.probe(), Error);
    EXPECT_THROW(static_cast<void>(gpu.read_clock_state()), Error);
    EXPECT_EQ(machine.gpu(0).settings(), theirs);
}

TEST(LevelMask, OfAnOwnerThatDiedIsSettledByItsJournal) {
    for (const bool mid_write : {false, true}) {
        Machine machine{{virtual_amdgpu::mi100()}};
        const Mounted mounted{machine};
        const auto before = machine.gpu(0).settings();
        ClockState held;
        {
            AmdgpuSysfs dead{first_gpu};
            dead.apply({1087_MHz, auto_clock});
            held = dead.read_clock_state();
        }
        AmdgpuSysfs gpu{first_gpu};
        kdvfs::detail::ClockHistory history{.initial = {}, .uncertain = mid_write};
        if (!mid_write) history.written = held;
        gpu.adopt(history.written);
        EXPECT_EQ(kdvfs::detail::decide_restore(history, gpu.read_clock_state()),
                  kdvfs::detail::RestoreDecision::write_back);
        gpu.restore({});
        EXPECT_EQ(machine.gpu(0).settings(), before);
    }
}

TEST(LevelMask, IsTheLastResortOfABoardThatRefusesItsTable) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    machine.inject({Access::write, "pp_od_clk_voltage", EINVAL});
    const auto before = machine.gpu(0).settings();
    const auto found = gpu.probe();
    EXPECT_EQ(found.range, Capability::refused);
    EXPECT_EQ(found.determinism, Capability::refused);
    EXPECT_EQ(found.level_mask, Capability::supported);
    EXPECT_EQ(machine.gpu(0).settings(), before);
    gpu.apply({500_MHz, auto_clock});
    EXPECT_EQ(machine.gpu(0).running_clock(), 500u);

    // Whoever settles it after the owner's death has not tried the board.
    const kdvfs::detail::ClockHistory history{.initial = {}, .written = gpu.read_clock_state()};
    AmdgpuSysfs next{first_gpu};
    next.adopt(history.written);
    EXPECT_EQ(kdvfs::detail::decide_restore(history, next.read_clock_state()),
              kdvfs::detail::RestoreDecision::write_back);
    next.restore({});
    EXPECT_EQ(machine.gpu(0).settings(), before);
}

TEST(MetricsFile, IsPowerTimesTimeWhereTheBoardTellsNoEnergy) {
    for (const bool counts : {true, false}) {
        Machine machine{{virtual_amdgpu::mi300x(9, counts)}};
        const Mounted mounted{machine};
        std::chrono::nanoseconds now = 10s;
        machine.gpu(0).set_time_source([&] { return now; });
        AmdgpuSysfs gpu{first_gpu};
        EXPECT_EQ(gpu.info().energy.starts_with("power x time"), !counts) << gpu.info().energy;
        EXPECT_EQ(gpu.probe().energy, Capability::supported);
        const Joules first = gpu.read_energy().joules;
        const double truth_before = machine.gpu(0).joules();
        for (int millisecond = 0; millisecond < 4000; ++millisecond) {
            machine.gpu(0).set_busy(millisecond % 500 < 300 ? 1 : 0.2);
            now += 1ms;
            ASSERT_EQ(gpu.read_energy().status, ReadingStatus::ok);
        }
        const double truth = machine.gpu(0).joules() - truth_before;
        EXPECT_NEAR((gpu.read_energy().joules - first).count / truth, 1, 0.01) << counts;
        EXPECT_TRUE(gpu.read_metrics().core_clock);
    }
}

TEST(OperatingPoints, AreShownWithWhatIsInThem) {
    {
        Machine without{{virtual_amdgpu::mi400()}};
        const Mounted mounted{without};
        EXPECT_EQ(AmdgpuSysfs{first_gpu}.info().operating_point, "");
    }
    Machine machine{{virtual_amdgpu::mi400()}};
    const std::string modes = machine.folder(0) + "/app_modes/";
    machine.add_text(modes + "profile_abi", "1\n");
    machine.add_text(modes + "active_profile", "2\n");
    machine.add_text(modes + "profile_2/ppt0_limit", "600\n");
    machine.add_text(modes + "profile_2/ppt1_limit", "900\n");
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    EXPECT_EQ(gpu.info().operating_point, "profile 2 (ppt0_limit 600, ppt1_limit 900)");
    machine.set_file(modes + "active_profile", "0\n");
    EXPECT_EQ(gpu.read_operating_point(), "profile 0");
}

TEST(OperatingPoints, ArePreparedWhereTheirSlotIsFilled) {
    using amd::PreparedPoints;
    Machine machine{{virtual_amdgpu::mi400_with_points(), virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    const auto cards = amd::find_cards();
    PreparedPoints points{cards.at(0)};
    EXPECT_EQ(points.prepared_points(), (std::vector<PreparedPoint>{{0}, {1}, {2}}));
    EXPECT_EQ(AmdgpuSysfs{first_gpu}.info().prepared_points, points.prepared_points());
    EXPECT_TRUE(PreparedPoints{cards.at(1)}.prepared_points().empty());
    machine.clear_writes();
    points.apply({.core = {2}});
    ASSERT_EQ(machine.writes().size(), 1u);
    EXPECT_EQ(machine.writes().front().file, "active_profile");
    EXPECT_EQ(machine.writes().front().text, "2");
    EXPECT_EQ(points.read_clock_state(), PreparedPoints::state_of({2}));
    // The board draws what the point allows.
    machine.gpu(0).set_busy(1);
    EXPECT_EQ(machine.gpu(0).watts(), 800);
    const auto code_of = [](auto act) {
        try {
            act();
        } catch (const Error& error) {
            return std::optional{error.code()};
        }
        return std::optional<Errc>{};
    };
    EXPECT_EQ(code_of([&] { points.apply({.core = {3}}); }), Errc::invalid_input);
    // A board may be found at a slot that nobody has filled: what was found is the driver's to
    // judge.
    machine.clear_writes();
    EXPECT_EQ(code_of([&] { points.restore(PreparedPoints::state_of({3})); }), Errc::refused);
    EXPECT_EQ(machine.writes().size(), 1U);
    machine.inject({Access::open, "active_profile", EACCES, 0, 2});
    EXPECT_EQ(code_of([&] { points.apply({.core = {1}}); }), Errc::refused);
    EXPECT_EQ(code_of([&] { static_cast<void>(points.read_clock_state()); }), Errc::refused);
    machine.set_file(machine.folder(0) + "/app_modes/active_profile", "unavailable\n");
    EXPECT_EQ(code_of([&] { static_cast<void>(points.read_clock_state()); }), Errc::io);
}

TEST(MetricsFile, AFailedReadIsAStatus) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    AmdgpuSysfs gpu{first_gpu};
    machine.inject({Access::read, "gpu_metrics", EIO, 0, 1});
    EXPECT_EQ(gpu.read_energy().status, ReadingStatus::failed);
    EXPECT_EQ(gpu.read_energy().status, ReadingStatus::ok);
}

}  // namespace
}  // namespace kdvfs::device
