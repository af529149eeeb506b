// SPDX-License-Identifier: MIT
#include "double_fixture.hpp"

#include <kdvfs/detail/gpu/open.hpp>

#include <tests/scope/requests_on_device.hpp>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

namespace kdvfs::device {
namespace {

using Writes = std::vector<std::string>;
using NvmlClocks = NvmlDouble;

TEST_F(NvmlClocks, OpeningTellsWhatTheBoardIsAndWritesNothing) {
    const Nvml gpu{address, options()};
    EXPECT_EQ(gpu.info().name, "Double of an NVIDIA GPU");
    EXPECT_EQ(gpu.info().address, address);
    EXPECT_EQ(gpu.info().architecture, "sm_90");
    EXPECT_EQ(gpu.info().mechanism, "NVML locked clocks, driver 580.95.05");
    EXPECT_EQ(gpu.supported_clocks().memory.listed, (std::vector<Megahertz>{405_MHz, 2619_MHz}));
    EXPECT_EQ(gpu.supported_clocks().core.listed,
              (std::vector<Megahertz>{210_MHz, 420_MHz, 1000_MHz, 1500_MHz, 1980_MHz}));
    EXPECT_EQ(board().writes, Writes{});
}

TEST_F(NvmlClocks, ACapLocksFromTheLowestClockUpToIt) {
    Nvml gpu{address, options()};
    gpu.apply({.core = 1000_MHz});
    EXPECT_EQ(board().writes, Writes{"core(210, 1000)"});
    EXPECT_EQ(gpu.read_clock_state().cap, (ClockPoint{.core = 1000_MHz}));
    EXPECT_EQ(gpu.read_clock_state().mode, "locked");
    EXPECT_EQ(gpu.read_running_clocks().core, 1000_MHz);
}

TEST_F(NvmlClocks, ADomainThatWasNeverCappedIsNeverWritten) {
    Nvml gpu{address, options()};
    gpu.apply({});
    EXPECT_EQ(board().writes, Writes{});
    gpu.apply({.core = 1500_MHz});
    gpu.apply({});
    EXPECT_EQ(board().writes, (Writes{"core(210, 1500)", "core free"}));
}

TEST_F(NvmlClocks, MemoryIsRaisedBeforeTheCoreAndLoweredAfterIt) {
    Nvml gpu{address, options()};
    gpu.apply({.core = 420_MHz, .memory = 405_MHz});
    gpu.apply({.core = 1500_MHz, .memory = 2619_MHz});
    gpu.apply({.core = 210_MHz, .memory = 405_MHz});
    gpu.apply({});
    EXPECT_EQ(board().writes,
              (Writes{"core(210, 420)", "memory(405, 405)", "memory(405, 2619)", "core(210, 1500)",
                      "core(210, 210)", "memory(405, 405)", "memory free", "core free"}));
}

TEST_F(NvmlClocks, RestoringFreesExactlyWhatWasCapped) {
    Nvml gpu{address, options()};
    const ClockState before = gpu.read_clock_state();
    gpu.apply({.core = 1000_MHz});
    gpu.restore(before);
    EXPECT_EQ(board().writes, (Writes{"core(210, 1000)", "core free"}));
    EXPECT_EQ(gpu.read_clock_state(), before);
    EXPECT_FALSE(board().core_lock);
}

TEST_F(NvmlClocks, RestoringAnOuterCapWritesThatCap) {
    Nvml gpu{address, options()};
    gpu.apply({.core = 1500_MHz, .memory = 2619_MHz});
    const ClockState outer = gpu.read_clock_state();
    gpu.apply({.core = 420_MHz, .memory = 405_MHz});
    gpu.restore(outer);
    EXPECT_EQ(board().core_lock, (std::pair{210U, 1500U}));
    EXPECT_EQ(board().memory_lock, (std::pair{405U, 2619U}));
}

TEST_F(NvmlClocks, ALockThatWasLostIsSeen) {
    Nvml gpu{address, options()};
    gpu.apply({.core = 1000_MHz});
    board().core_lock.reset();  // a reset of the GPU, or an administrator
    EXPECT_EQ(gpu.read_clock_state().cap, ClockPoint{});
    EXPECT_EQ(gpu.read_clock_state().mode, "lock lost");
}

TEST_F(NvmlClocks, AClockStillOnItsWayDownIsNotALostLock) {
    NvmlOptions patient = options();
    patient.settle = std::chrono::hours{1};
    Nvml gpu{address, patient};
    gpu.apply({.core = 1000_MHz});
    board().core_lock.reset();
    EXPECT_EQ(gpu.read_clock_state().cap, (ClockPoint{.core = 1000_MHz}));
}

TEST_F(NvmlClocks, ALightlyLoadedBoardBelowItsCapHoldsItsLock) {
    Nvml gpu{address, options()};
    gpu.apply({.core = 1500_MHz});
    board().wished_core = 345;
    EXPECT_EQ(gpu.read_clock_state().cap, (ClockPoint{.core = 1500_MHz}));
}

TEST_F(NvmlClocks, AClockThatIsNotListedIsRefusedBeforeAnythingIsWritten) {
    Nvml gpu{address, options()};
    const Error error = error_of([&] { gpu.apply({.core = 1234_MHz}); });
    EXPECT_EQ(error.code(), Errc::invalid_input);
    EXPECT_EQ(error.text().object, "Double of an NVIDIA GPU (0000:1b:00.0)");
    EXPECT_EQ(board().writes, Writes{});
}

TEST_F(NvmlClocks, MeasureOnlyNeverWrites) {
    Nvml gpu{address, options(ClockAccess::measure_only)};
    EXPECT_EQ(gpu.info().mechanism, "measure only, driver 580.95.05");
    EXPECT_EQ(error_of([&] { gpu.apply({.core = 1000_MHz}); }).code(), Errc::refused);
    EXPECT_EQ(error_of([&] { gpu.apply({}); }).code(), Errc::refused);
    EXPECT_EQ(error_of([&] { gpu.restore(gpu.read_clock_state()); }).code(), Errc::refused);
    EXPECT_EQ(board().writes, Writes{});
}

TEST_F(NvmlClocks, MeasureOnlyIsTheDefault) {
    EXPECT_EQ(NvmlOptions{}.access, ClockAccess::measure_only);
}

TEST_F(NvmlClocks, ClocksThatSomebodyHadSetAreLeftAlone) {
    board().limit_reasons = 0x2;
    Nvml gpu{address, options()};
    EXPECT_EQ(gpu.read_clock_state().mode, "limited by somebody else");
    EXPECT_EQ(error_of([&] { gpu.apply({.core = 1000_MHz}); }).code(), Errc::busy);
    EXPECT_EQ(board().writes, Writes{});
}

TEST_F(NvmlClocks, StayWithinWhatWasFoundAndAllowed) {
    using Requests = RequestsOnDevice<Nvml>;
    using Lock = std::optional<std::pair<unsigned, unsigned>>;
    unsigned seed = 0;
    for (const bool named : {false, true}) {  // the administrator's locks
        const Lock found = named ? Lock{{210, 1500}} : Lock{};
        for (ControllerOptions limits : random_limits()) {
            board() = {};
            board().core_lock = found;
            NvmlOptions site = options();
            if (named) {
                site.site_ceiling = {1500_MHz, auto_clock};
                limits.never_above = lowered_to(limits.never_above, site.site_ceiling);
            }
            Nvml gpu{address, site};
            EXPECT_EQ(kdvfs::detail::prove_clock_control(gpu, limits.never_above), ClockState{});
            EXPECT_EQ(board().writes.size(), 2U);
            EXPECT_EQ(board().core_lock, found);
            Requests streams{gpu, limits, ++seed};
            for (int i = 0; i < random_requests(); ++i) {
                streams.step();
                ASSERT_TRUE(streams.armed()) << streams.take_error()->what();
                const auto wanted = streams.wanted().value_or(Requests::Held{Requests::top,  //
                                                                             Requests::top});
                const auto top_of = [](const Lock& lock) {
                    return lock ? std::uint64_t{lock->second} : Requests::top;
                };
                const bool is_free = wanted.core == Requests::top;
                ASSERT_EQ(top_of(board().core_lock), is_free ? top_of(found) : wanted.core);
                ASSERT_EQ(top_of(board().memory_lock), wanted.memory);
            }
            streams.end();
            EXPECT_EQ(board().core_lock, found);
            EXPECT_EQ(board().memory_lock, Lock{});
            for (const std::string& write : board().writes) {
                unsigned high = 0;
                if (std::sscanf(write.c_str(), "core(%*u, %u)", &high) == 1) {
                    EXPECT_LE(high, named ? 1500U : 1980U) << write;
                }
                if (named) {
                    EXPECT_NE(write, "core free");
                }
            }
        }
    }
}

class NvmlOldDriver : public NvmlDouble {
protected:
    NvmlOldDriver() : NvmlDouble{NVML_DOUBLE_OLD} {}
};

TEST_F(NvmlOldDriver, WithoutMemoryLocksOnlyTheCoreCanBeCapped) {
    Nvml gpu{address, options()};
    EXPECT_TRUE(gpu.supported_clocks().memory.listed.empty());
    EXPECT_EQ(error_of([&] { gpu.apply({.memory = 405_MHz}); }).code(), Errc::invalid_input);
    gpu.apply({.core = 1000_MHz});
    gpu.restore({});
    EXPECT_EQ(board().writes, (Writes{"core(210, 1000)", "core free"}));
}

TEST_F(NvmlOldDriver, ProcessesAreFoundInTheirOldForm) {
    const auto own = static_cast<unsigned>(getpid());
    board().processes = {{own, 50}, {static_cast<unsigned>(getppid()), 50}};
    const OtherProcesses found = Nvml{address, options()}.read_other_processes();
    EXPECT_TRUE(found.complete);
    EXPECT_EQ(found.working.size(), 1U);
}

TEST_F(NvmlOldDriver, TheLimitReasonsAreFoundUnderTheirOldName) {
    board().limit_reasons = 0x4;
    EXPECT_TRUE((Nvml{address, options()}.read_limit_reasons().power_cap()));
}

}  // namespace
}  // namespace kdvfs::device
