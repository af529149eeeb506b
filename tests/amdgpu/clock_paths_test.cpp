// SPDX-License-Identifier: MIT
//
// Which of ROCm SMI, AMD SMI and the driver's files writes the clocks, by what is installed. The
// first is the real library, the second a double of its oldest and its newest ABI.
#include <kdvfs/detail/device/amd/clocks.hpp>
#include <kdvfs/detail/gpu/open.hpp>

#include <tests/amdgpu/by_library.hpp>
#include <tests/virtual_amdgpu/interpose.hpp>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#if __has_include(<rocm_smi/rocm_smi.h>)
#include <rocm_smi/rocm_smi.h>
#endif

namespace {

/// What the dynamic loader finds: the real libraries, or none; of AMD SMI the double of an ABI.
struct Installed {
    bool rocm_smi = true;
    int amd_smi = 0;
};
Installed installed;

}  // namespace

extern "C" void* dlopen(const char* name, int flags) {
    static const auto original =
        reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
    const std::string_view wanted = name != nullptr ? name : "";
    if (wanted.starts_with("libamd_smi.so.")) {
        const bool is_there = wanted == "libamd_smi.so." + std::to_string(installed.amd_smi);
        const char* const path = installed.amd_smi == 24 ? KDVFS_AMD_SMI_24 : KDVFS_AMD_SMI_27;
        return original(is_there ? path : "libthere_is_none.so", flags);
    }
    if (wanted.starts_with("librocm_smi64") && !installed.rocm_smi) {
        return original("libthere_is_none.so", flags);
    }
    return original(name, flags);
}

namespace kdvfs::device {
namespace {

using namespace kdvfs::literals;
using amd::Capability;
using virtual_amdgpu::Machine;
using virtual_amdgpu::Mounted;

#if __has_include(<rocm_smi/rocm_smi.h>)
constexpr bool is(auto own, auto theirs) {
    return static_cast<std::uint32_t>(own) == static_cast<std::uint32_t>(theirs);
}
static_assert(is(rocm_smi::Status::success, RSMI_STATUS_SUCCESS) &&
              is(rocm_smi::Status::invalid_arguments, RSMI_STATUS_INVALID_ARGS) &&
              is(rocm_smi::Status::not_supported, RSMI_STATUS_NOT_SUPPORTED) &&
              is(rocm_smi::Status::permission, RSMI_STATUS_PERMISSION) &&
              is(rocm_smi::Status::out_of_bounds, RSMI_STATUS_INPUT_OUT_OF_BOUNDS) &&
              is(rocm_smi::Status::interrupted, RSMI_STATUS_INTERRUPT) &&
              is(rocm_smi::Status::unexpected_data, RSMI_STATUS_UNEXPECTED_DATA) &&
              is(rocm_smi::Status::busy, RSMI_STATUS_BUSY));
static_assert(is(rocm_smi::ClockType::core, RSMI_CLK_TYPE_SYS) &&
              is(rocm_smi::ClockType::memory, RSMI_CLK_TYPE_MEM) &&
              is(rocm_smi::upper_limit, RSMI_FREQ_IND_MAX) &&
              is(rocm_smi::most_levels, RSMI_MAX_NUM_FREQUENCIES));
static_assert(is(*rocm_smi::number_of_level("manual"), RSMI_DEV_PERF_LEVEL_MANUAL) &&
              is(*rocm_smi::number_of_level("profile_min_mclk"),
                 RSMI_DEV_PERF_LEVEL_STABLE_MIN_MCLK) &&
              is(*rocm_smi::number_of_level("perf_determinism"), RSMI_DEV_PERF_LEVEL_DETERMINISM));
// C has no overloads: that the arguments are as many and as wide is shown by calling them with
// ours.
template <class Own, class Theirs>
struct SameCall : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<sizeof(R) == sizeof(S) && sizeof...(A) == sizeof...(B)> {};
#define KDVFS_SAME_CALL(member, function) \
    static_assert(SameCall<decltype(rocm_smi::Functions::member), decltype(&function)>::value)
KDVFS_SAME_CALL(dev_perf_level_set, rsmi_dev_perf_level_set_v1);
KDVFS_SAME_CALL(dev_clk_range_set, rsmi_dev_clk_range_set);
KDVFS_SAME_CALL(dev_od_clk_info_set, rsmi_dev_od_clk_info_set);
KDVFS_SAME_CALL(perf_determinism_mode_set, rsmi_perf_determinism_mode_set);
KDVFS_SAME_CALL(dev_gpu_clk_freq_set, rsmi_dev_gpu_clk_freq_set);
KDVFS_SAME_CALL(dev_power_cap_set, rsmi_dev_power_cap_set);
KDVFS_SAME_CALL(dev_pci_id_get, rsmi_dev_pci_id_get);
#endif

class ClockPaths : public testing::Test {
protected:
    void SetUp() override { ::unsetenv("AMD_SMI_DOUBLE"); }
    void TearDown() override {
        ::unsetenv("AMD_SMI_DOUBLE");
        installed = {};
    }

    /// Opens, tries, proves, caps both domains if it can, and restores.
    std::string mechanism_of(const virtual_amdgpu::Board& board, ClockPath path = ClockPath::best) {
        Machine machine{{board}};
        machine.set_user(user_);
        const Mounted mounted{machine};
        const auto before = machine.gpu(0).settings();
        amd::Clocks clocks{amd::find_cards().front(), path};
        static_cast<void>(clocks.probe());
        EXPECT_EQ(machine.gpu(0).settings(), before) << "left changed by the trial";
        EXPECT_EQ(kdvfs::detail::prove_clock_control(clocks), ClockState{});
        const auto& memory = clocks.supported_clocks().memory.listed;
        const ClockPoint cap{900_MHz, memory.empty() ? auto_clock : memory.front()};
        const ClockState found = clocks.read_clock_state();
        clocks.apply(cap);
        EXPECT_EQ(clocks.read_clock_state().cap, cap);
        EXPECT_EQ(machine.gpu(0).settings().core.max, 900u);
        clocks.apply({1200_MHz, auto_clock});
        clocks.restore(found);
        EXPECT_EQ(machine.gpu(0).settings(), before);
        memory_ = !memory.empty();
        return clocks.info().mechanism;
    }

    unsigned user_ = 0;
    bool memory_ = false;
};

TEST_F(ClockPaths, GoByRocmSmiWhereItIs) {
    installed = {.rocm_smi = true, .amd_smi = 27};
    EXPECT_EQ(mechanism_of(virtual_amdgpu::mi210()), "rocm_smi range");
    EXPECT_EQ(mechanism_of(virtual_amdgpu::mi300x()), "rocm_smi range");
    EXPECT_EQ(mechanism_of(virtual_amdgpu::mi400()), "rocm_smi range");
}

TEST_F(ClockPaths, GoByAmdSmiOfAnyAbiWhereOnlyThatIs) {
    for (const int abi : {24, 27}) {
        installed = {.rocm_smi = false, .amd_smi = abi};
        const std::string start = "amd_smi " + std::to_string(abi);
        const std::string why = " (rocm_smi: it is not installed here)";
        for (const auto& board : {virtual_amdgpu::mi210(), virtual_amdgpu::mi300x(9),
                                  virtual_amdgpu::mi400(), virtual_amdgpu::mi250x()}) {
            EXPECT_EQ(mechanism_of(board), start + " range" + why) << board.product;
            EXPECT_EQ(memory_, board.memory_cap) << board.product;
        }
        auto without_ranges = virtual_amdgpu::mi210();
        without_ranges.core_range = false;
        without_ranges.levels = {500, 900, 1200, 1700};
        EXPECT_EQ(mechanism_of(without_ranges), start + " level mask" + why);
    }
}

TEST_F(ClockPaths, NeedNoLibrary) {
    installed = {.rocm_smi = false};
    EXPECT_EQ(mechanism_of(virtual_amdgpu::mi210()),
              "amdgpu sysfs range (rocm_smi: it is not installed here; amd_smi: it is not "
              "installed here)");
    EXPECT_EQ(mechanism_of(virtual_amdgpu::mi400()).find("amdgpu sysfs range"), 0u);
    EXPECT_TRUE(memory_);
}

TEST_F(ClockPaths, NeedNoRootForTheDriversFiles) {
    user_ = 1000;
    installed = {.rocm_smi = true, .amd_smi = 27};
    EXPECT_EQ(mechanism_of(virtual_amdgpu::mi210()),
              "amdgpu sysfs range (rocm_smi: not root; amd_smi: not root)");
}

TEST_F(ClockPaths, AreThoseThatAreAskedFor) {
    installed = {.rocm_smi = true, .amd_smi = 27};
    const auto board = virtual_amdgpu::mi300x();
    EXPECT_EQ(mechanism_of(board, ClockPath::rocm_smi), "rocm_smi range");
    EXPECT_EQ(mechanism_of(board, ClockPath::amd_smi), "amd_smi 27 range");
    EXPECT_EQ(mechanism_of(board, ClockPath::driver_files), "amdgpu sysfs range");
    installed = {.rocm_smi = true, .amd_smi = 0};
    try {
        mechanism_of(board, ClockPath::amd_smi);
        FAIL() << "another one was taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_supported);
        EXPECT_NE(std::string{error.what()}.find("it is not installed here"), std::string::npos);
    }
}

TEST_F(ClockPaths, SayWhyALibraryWasNotTaken) {
    installed = {.rocm_smi = false, .amd_smi = 27};
    for (const char* fault : {"no_gpu", "init_fails"}) {
        ::setenv("AMD_SMI_DOUBLE", fault, 1);
        const std::string mechanism = mechanism_of(virtual_amdgpu::mi210());
        EXPECT_EQ(mechanism.find("amdgpu sysfs range (rocm_smi: it is not installed here; amd_smi: "
                                 "AMD SMI status "),
                  0u)
            << mechanism;
    }
}

TEST_F(ClockPaths, OfALibraryThatMixesUpTheDomainsAreNotTaken) {
    installed = {.rocm_smi = false, .amd_smi = 27};
    ::setenv("AMD_SMI_DOUBLE", "resets_other_domain", 1);
    const std::string mechanism = mechanism_of(virtual_amdgpu::mi300x());
    EXPECT_NE(mechanism.find("amd_smi: a limit of the memory clock undoes the core's"),
              std::string::npos)
        << mechanism;
    EXPECT_TRUE(memory_) << "the driver's files can do it";
    EXPECT_EQ(mechanism_of(virtual_amdgpu::mi300x(), ClockPath::amd_smi),
              "amd_smi 27 range, memory clock left alone: with a limit of its own the core's does "
              "not hold");
    EXPECT_FALSE(memory_);
}

TEST_F(ClockPaths, RefuseTheFirstMemoryLimitOfABoardThatMixesUpTheDomains) {
    auto board = virtual_amdgpu::mi300x();
    board.memory_resets_core = true;
    installed = {};
    Machine machine{{board}};
    const Mounted mounted{machine};
    const auto before = machine.gpu(0).settings();
    amd::Clocks clocks{amd::find_cards().front(), ClockPath::driver_files};
    static_cast<void>(clocks.probe());
    const ClockState found = clocks.read_clock_state();
    clocks.apply({900_MHz, auto_clock});
    EXPECT_EQ(machine.gpu(0).settings().core.max, 900U);
    try {
        clocks.apply({900_MHz, clocks.supported_clocks().memory.listed.front()});
        FAIL() << "the core's limit is gone";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::not_supported);
        EXPECT_NE(std::string{error.what()}.find("plan without memory clocks"), std::string::npos);
    }
    clocks.apply({900_MHz, auto_clock});
    EXPECT_EQ(machine.gpu(0).settings().core.max, 900U);
    clocks.restore(found);
    EXPECT_EQ(machine.gpu(0).settings(), before);
}

}  // namespace
}  // namespace kdvfs::device
