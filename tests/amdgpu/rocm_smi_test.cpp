// SPDX-License-Identifier: MIT
//
// The real librocm_smi64 on virtual boards.
#include <kdvfs/detail/device/amd/rocm_smi.hpp>
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/rocm.hpp>

#include <tests/amdgpu/by_library.hpp>
#include <tests/amdgpu/written.hpp>
#include <tests/virtual_amdgpu/interpose.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace kdvfs::device {
namespace {

using namespace kdvfs::literals;
using amd::Capability;
using virtual_amdgpu::Machine;
using virtual_amdgpu::Mounted;

TEST(RocmSmi, FindsEachGpuByItsPciAddress) {
    Machine machine{{virtual_amdgpu::mi210(), virtual_amdgpu::mi300x(), virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    const auto session = rocm_smi::Session::open();
    const auto cards = amd::find_cards();
    ASSERT_EQ(cards.size(), 3u);
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(session->index_of(cards[i]), i);
    EXPECT_TRUE(machine.writes().empty());
}

/// This program is linked without HIP.
TEST(RocmSmi, AGpuIsOpenedByItsAddressWithoutHip) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    try {
        static_cast<void>(rocm::open("0000:ff:00.0"));
        FAIL() << "there is no such GPU";
    } catch (const Error& error) {
        EXPECT_NE(std::string{error.what()}.find("0000:ff:00.0"), std::string::npos);
    }
    EXPECT_TRUE(machine.writes().empty());
}

TEST(RocmSmi, WritesTheSameTextsAsSysfs) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    RocmSmi gpu{amd::find_cards().front()};
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
    RocmSmi gpu{amd::find_cards().front()};
    gpu.apply({1500_MHz, 1100_MHz});
    EXPECT_EQ(gpu.read_clock_state().cap, (ClockPoint{1500_MHz, 1100_MHz}));
    EXPECT_EQ(machine.gpu(0).settings().memory_max, 1100u);
}

TEST(RocmSmi, ProbesEveryBoardAndLeavesNothingChanged) {
    Machine machine{{virtual_amdgpu::mi210(), virtual_amdgpu::mi300x(), virtual_amdgpu::mi250x(),
                     virtual_amdgpu::mi250x_secondary()}};
    const Mounted mounted{machine};
    const auto cards = amd::find_cards();
    ASSERT_EQ(cards.size(), 4u);
    for (std::size_t i = 0; i < cards.size(); ++i) {
        const auto before = machine.gpu(i).settings();
        RocmSmi gpu{cards[i]};
        machine.clear_writes();
        const auto found = gpu.probe();
        EXPECT_EQ(found.range, Capability::supported);
        EXPECT_EQ(found.determinism, Capability::absent) << "the range works: no need to try";
        EXPECT_EQ(found.memory, i == 1 ? Capability::supported : Capability::absent);
        EXPECT_LE(machine.writes().size(), 9U) << "one lowering and one restore";
        EXPECT_EQ(found.energy, Capability::supported);
        EXPECT_EQ(gpu.info().mechanism.substr(0, 14), "rocm_smi range");
        EXPECT_EQ(kdvfs::detail::prove_clock_control(gpu), ClockState{});
        EXPECT_EQ(machine.gpu(i).settings(), before);
    }
}

TEST(RocmSmi, CapsABoardThatKnowsNothingButLevels) {
    Machine machine{{virtual_amdgpu::mi100()}};
    const Mounted mounted{machine};
    const auto before = machine.gpu(0).settings();
    RocmSmi gpu{amd::find_cards().front()};
    const auto found = gpu.probe();
    EXPECT_EQ(found.level_mask, Capability::supported);
    EXPECT_EQ(found.range, Capability::absent);
    EXPECT_EQ(gpu.info().mechanism, "rocm_smi level mask");
    EXPECT_EQ(machine.gpu(0).settings(), before);
    machine.clear_writes();
    gpu.apply({1087_MHz, auto_clock});
    EXPECT_EQ(machine.writes().back().file, "pp_dpm_sclk");
    EXPECT_EQ(machine.writes().back().text, "0 1 2 3 4 5 ");
    EXPECT_EQ(machine.gpu(0).running_clock(), 1087u);
    EXPECT_EQ(gpu.read_clock_state().cap, (ClockPoint{1087_MHz, auto_clock}));
    machine.gpu(0).set_core_levels_text("0: 300Mhz *\n1: 1087Mhz *\n");  // the library aborts on it
    EXPECT_THROW(gpu.apply({1087_MHz, auto_clock}), Error);
    gpu.apply({});
    EXPECT_EQ(machine.gpu(0).settings(), before);
}

TEST(RocmSmi, WithoutRootItSaysSo) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    machine.set_user(1000);
    RocmSmi gpu{amd::find_cards().front()};
    try {
        gpu.apply({1100_MHz, auto_clock});
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::refused);
        EXPECT_NE(std::string{error.what()}.find("run as root"), std::string::npos);
    }
    EXPECT_TRUE(machine.writes().empty());
}

// What makes the library end the process, each met before the call.

TEST(RocmSmiTraps, MetricsOfAnMi300) {
    Machine machine{{virtual_amdgpu::mi300x()}};
    const Mounted mounted{machine};
    RocmSmi gpu{amd::find_cards().front()};
    EXPECT_EQ(gpu.read_energy().status, ReadingStatus::ok);
}

TEST(RocmSmiTraps, CoreLevelsItCannotParse) {
    for (const char* text : {"unavailable\n", "S: 19Mhz *\n0: 500Mhz\n1: 1700Mhz\n", "\n", "x"}) {
        Machine machine{{virtual_amdgpu::mi210()}};
        const Mounted mounted{machine};
        machine.gpu(0).set_core_levels_text(text);
        RocmSmi gpu{amd::find_cards().front()};
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
    RocmSmi gpu{amd::find_cards().front()};
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
            const RocmSmi gpu{amd::find_cards().front()};
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

/// While it lives, what this thread allocates is nobody's leak: the library forgets an open folder
/// where its start fails.
class ForgivenLeaks {
public:
#if defined(__SANITIZE_ADDRESS__)
    ForgivenLeaks() { __lsan_disable(); }
    ~ForgivenLeaks() { __lsan_enable(); }
#else
    ForgivenLeaks() {}
#endif
    ForgivenLeaks(const ForgivenLeaks&) = delete;
    ForgivenLeaks& operator=(const ForgivenLeaks&) = delete;
};

/// A mutex as a process leaves it that was killed inside a call, and that no restart clears up: its
/// owner's death was noticed and not mended, so it is lost for good.
TEST(RocmSmiTraps, AMutexThatCannotBeRecoveredIsNamedAndLeftAlone) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    const std::string name = Mounted::shared_memory_name("rocm_smi_card0");
    { const auto session = rocm_smi::Session::open(); }  // makes the file, in the library's own way
    const int file = ::shm_open(("/" + std::string{"rocm_smi_card0"}).c_str(), O_RDWR, 0600);
    ASSERT_GE(file, 0) << name;
    auto* const mutex = static_cast<pthread_mutex_t*>(
        ::mmap(nullptr, sizeof(pthread_mutex_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ASSERT_NE(mutex, MAP_FAILED);
    const pid_t child = ::fork();
    if (child == 0) {
        ::pthread_mutex_lock(mutex);
        ::_exit(0);  // dies holding it
    }
    ::waitpid(child, nullptr, 0);
    ASSERT_EQ(::pthread_mutex_lock(mutex), EOWNERDEAD);
    ASSERT_EQ(::pthread_mutex_unlock(mutex), 0);  // not made consistent
    ASSERT_EQ(::pthread_mutex_lock(mutex), ENOTRECOVERABLE);
    try {
        const ForgivenLeaks of_the_library;
        const auto session = rocm_smi::Session::open();
        FAIL() << "the library works with it: the test proves nothing";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::busy);
        EXPECT_NE(std::string{error.what()}.find("/dev/shm/rocm_smi_card0"), std::string::npos)
            << error.what();
    }
    struct stat status {};
    EXPECT_EQ(::fstat(file, &status), 0);
    EXPECT_EQ(status.st_nlink, 1u) << "it was unlinked";
    ::munmap(mutex, sizeof(pthread_mutex_t));
    ::close(file);
}

TEST(RocmSmiTraps, AGpuTheLibraryDoesNotKnow) {
    Machine machine{{virtual_amdgpu::mi210()}};
    const Mounted mounted{machine};
    amd::Card card = amd::find_cards().front();
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
