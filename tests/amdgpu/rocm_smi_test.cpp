// SPDX-License-Identifier: MIT
//
// The real librocm_smi64 on virtual boards.
#include <kdvfs/device/rocm_smi.hpp>
#include <kdvfs/scope/prove.hpp>

#include <tests/virtual_amdgpu/interpose.hpp>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

namespace kdvfs::device {
namespace {

using namespace kdvfs::literals;
using amdgpu::Capability;
using virtual_amdgpu::Machine;
using virtual_amdgpu::Mounted;

std::string written(const Machine& machine) {
    std::string all;
    for (const auto& write : machine.writes()) {
        all += write.file == "pp_od_clk_voltage" ? "od=" : "level=";
        all += write.text;
        if (!all.ends_with('\n')) all += '\n';
    }
    return all;
}

TEST(RocmSmi, FindsEachGpuByItsPciAddress) {
    Machine machine{{virtual_amdgpu::mi210(), virtual_amdgpu::mi300x(), virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    const auto session = rocm_smi::Session::open();
    const auto cards = amdgpu::find_cards();
    ASSERT_EQ(cards.size(), 3u);
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(session->index_of(cards[i]), i);
    EXPECT_TRUE(machine.writes().empty());
}

TEST(RocmSmi, WritesTheSameTextsAsSysfs) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    RocmSmi gpu{amdgpu::find_cards().front()};
    gpu.apply({1100_MHz, auto_clock});
    EXPECT_EQ(written(machine), "level=manual\nod=s 0 500\nod=s 1 1100\nod=c\n");
    EXPECT_EQ(gpu.read_clock_state().cap, (ClockPoint{1100_MHz, auto_clock}));
    machine.clear_writes();
    gpu.apply({});
    EXPECT_EQ(written(machine), "level=auto\n");
}

TEST(RocmSmi, CapsTheMemoryOfAnMi300) {
    Machine machine{{virtual_amdgpu::mi300x()}};
    const Mounted mounted{machine};
    RocmSmi gpu{amdgpu::find_cards().front()};
    gpu.apply({1500_MHz, 1100_MHz});
    EXPECT_EQ(gpu.read_clock_state().cap, (ClockPoint{1500_MHz, 1100_MHz}));
    EXPECT_EQ(machine.gpu(0).settings().memory_max, 1100u);
}

TEST(RocmSmi, ProbesEveryBoardAndLeavesNothingChanged) {
    Machine machine{{virtual_amdgpu::mi210(), virtual_amdgpu::mi300x(), virtual_amdgpu::mi250x(),
                     virtual_amdgpu::mi250x_secondary()}};
    const Mounted mounted{machine};
    const auto cards = amdgpu::find_cards();
    for (std::size_t i = 0; i < cards.size(); ++i) {
        const auto before = machine.gpu(i).settings();
        RocmSmi gpu{cards[i]};
        const auto found = gpu.probe();
        EXPECT_EQ(found.range, Capability::supported);
        EXPECT_EQ(found.determinism, i == 1 ? Capability::refused : Capability::supported);
        EXPECT_EQ(found.memory, i == 1 ? Capability::supported : Capability::absent);
        EXPECT_EQ(gpu.info().mechanism.substr(0, 14), "rocm_smi range");
        EXPECT_EQ(prove_clock_control(gpu), ClockState{});
        EXPECT_EQ(machine.gpu(i).settings(), before);
    }
}

TEST(RocmSmi, WithoutRootItSaysSo) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    machine.set_user(1000);
    RocmSmi gpu{amdgpu::find_cards().front()};
    try {
        gpu.apply({1100_MHz, auto_clock});
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::refused);
        EXPECT_NE(std::string{error.what()}.find("run as root"), std::string::npos);
    }
    EXPECT_TRUE(machine.writes().empty());
}

TEST(RocmSmi, ReadsTheSameEnergyAsTheFile) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    std::chrono::nanoseconds now = std::chrono::seconds{5};
    machine.gpu(0).set_time_source([&] { return now; });
    RocmSmi gpu{amdgpu::find_cards().front()};
    machine.gpu(0).set_busy(1);
    now += std::chrono::seconds{100};
    const auto by_file = gpu.read_energy();
    ASSERT_EQ(by_file.status, ReadingStatus::ok);
    ASSERT_TRUE(gpu.energy_through_library());
    EXPECT_EQ(*gpu.energy_through_library(), by_file.joules);
    EXPECT_GT(by_file.joules.count, 1000);
}

// What makes the library end the process, each met before the call.

TEST(RocmSmiTraps, MetricsOfAnMi300) {
    Machine machine{{virtual_amdgpu::mi300x()}};
    const Mounted mounted{machine};
    RocmSmi gpu{amdgpu::find_cards().front()};
    EXPECT_FALSE(gpu.energy_through_library());
    EXPECT_EQ(gpu.read_energy().status, ReadingStatus::ok);
}

TEST(RocmSmiTraps, CoreLevelsItCannotParse) {
    for (const char* text : {"unavailable\n", "S: 19Mhz *\n0: 500Mhz\n1: 1700Mhz\n", "\n", "x"}) {
        Machine machine{{virtual_amdgpu::mi210()}};
        const Mounted mounted{machine};
        machine.gpu(0).set_core_levels_text(text);
        RocmSmi gpu{amdgpu::find_cards().front()};
        try {
            gpu.apply({1100_MHz, auto_clock});
            static_cast<void>(gpu.read_clock_state());
        } catch (const Error& error) {
            EXPECT_NE(error.code(), Errc::invalid_input) << error.what();
        }
    }
}

TEST(RocmSmiTraps, LimitsInTheWrongOrder) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    RocmSmi gpu{amdgpu::find_cards().front()};
    for (const Megahertz max : {800_MHz, 900_MHz}) {
        EXPECT_THROW(gpu.restore({{max, auto_clock}, {900_MHz, auto_clock}, "manual"}), Error);
    }
}

TEST(RocmSmiTraps, NoHwmonOrNoLinks) {
    const std::string hwmon = "/hwmon/hwmon3";
    for (const bool links : {false, true}) {
        Machine machine{{virtual_amdgpu::mi210()}};
        const std::string removed =
            links ? "/sys/class/kfd/kfd/topology/nodes/1/io_links" : machine.folder(0) + hwmon;
        std::vector<std::string> below;
        for (const auto& [path, node] : machine.nodes()) {
            if (path.starts_with(removed)) below.push_back(path);
        }
        for (const auto& path : below) machine.remove(path);
        const Mounted mounted{machine};
        try {
            const RocmSmi gpu{amdgpu::find_cards().front()};
            FAIL();
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::not_supported);
            EXPECT_NE(std::string{error.what()}.find(links ? "io_links" : "hwmon"),
                      std::string::npos);
        }
    }
}

TEST(RocmSmiTraps, TheEndlessLoopOfItsDebugVariable) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    ::setenv("RSMI_DEBUG_INFINITE_LOOP", "1", 1);
    EXPECT_THROW(rocm_smi::Session::open(), Error);
    ::unsetenv("RSMI_DEBUG_INFINITE_LOOP");
}

TEST(RocmSmiTraps, AGpuTheLibraryDoesNotKnow) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    amdgpu::Card card = amdgpu::find_cards().front();
    card.address.bus = 0x17;
    EXPECT_THROW(RocmSmi{card}, Error);
}

TEST(RocmSmiTraps, NoAmdGpuAtAll) {
    Machine machine{{}};
    const Mounted mounted{machine};
    EXPECT_THROW(rocm_smi::Session::open(), Error);
}

}  // namespace
}  // namespace kdvfs::device
